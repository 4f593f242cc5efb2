"""The modules of a block that a recompute mode may name, and their items.

Answers: does an item belong to "mlp", to "layernorm", …, and is the output of a module kept?
Elsewhere: which modules a run recomputes (spec/plan.py, spec/stack.py), the effects on the backward pass
and on memory (workload/backward.py).

A *checkpointed* module keeps its input. It also keeps its output if another item reads it again. A module
that *discards its output* keeps neither: it runs again right before the first backward pass that reads its
output. Modules are found by the names of items, before and after the rewrites of a stack.

References
----------
Names and both kinds: `recompute_modules` of Megatron-Core's TransformerConfig ("core_attn" there is
"core_attention" here). The core of attention: arXiv:2205.05198, section 5. "attention" is the whole mixer,
as a `checkpoint_wrapper` of PyTorch around `self_attn` has it.
"""

import re
from collections.abc import Callable, Iterable

from flopcast.operators.item import Item
from flopcast.records import Record

_PREDICTION = re.compile(r"^mtp\d+\.")  # what stands before the names of a block in multi-token prediction
_UP = ("q_up", "kv_up", "join_queries", "join_keys", "enter_q", "enter_kv", "enter_rotated")
LATENT_UP = frozenset(f"attention.{name}" for name in _UP)
OPERATORS = "operators"  # selective recompute by operator (workload/recomputed_operators.py)
GATE = frozenset({"experts.clamp", "experts.activation"})  # what one function of Megatron-Core runs


class Module(Record):
    """The items of a module, and whether the module also discards its output.

    `alone`: each item is a separate module, such as the norms of both halves. `views`: tensors with names
    that are parts of the module's outputs.
    """

    holds: Callable[[Item], bool]
    discards: bool = False
    alone: bool = False
    views: tuple[str, ...] = ()


def _name(item: Item) -> str:
    return _PREDICTION.sub("", item.name) if item.name.startswith("mtp") else item.name


def _is_attention(item: Item) -> bool:
    """Return whether an item is of the mixer or its messages, without norms and the residual add."""
    return _name(item).startswith("attention.") and item.component not in ("norm", "residual")


def _is_mlp(item: Item) -> bool:
    """Return whether an item is of the dense MLP: linears, items between them, and messages."""
    sent = _name(item) in ("mlp.enter", "mlp.leave") or _name(item).startswith(("mlp.up.", "mlp.down."))
    return item.component == "mlp" or sent


def _is_shared(item: Item) -> bool:
    """Return whether an item is of the shared experts, without the sum that adds them to the others."""
    return _name(item).startswith("shared.") and _name(item) != "shared.join"


def _is_moe(item: Item) -> bool:
    """Return whether an item is of the router, dispatch, experts or combine, without norm and residual."""
    return _name(item).startswith(("experts.", "shared."))


def _is_norm(item: Item) -> bool:
    """Return whether an item is the norm before a half, not of queries and keys or of a half's result."""
    return item.component == "norm" and _name(item) in ("attention.norm", "mlp.norm")


def _is_latent_up(item: Item) -> bool:
    """Return whether an item gathers latents, projects them up, rotates or joins them.

    Queries that have no latent are projected elsewhere, and stay.
    """
    rotates = _name(item) == "attention.rope" and any("kv_latent" in name for name in item.inputs)
    return rotates or _name(item) in LATENT_UP


MODULES: dict[str, Module] = {  # what holds more stands first
    OPERATORS: Module(
        holds=lambda item: item.group == OPERATORS, discards=True, views=("attention.k", "attention.v")
    ),
    "attention": Module(holds=_is_attention),
    "moe": Module(holds=_is_moe),
    "mlp": Module(holds=_is_mlp),
    "shared_experts": Module(holds=_is_shared),
    "mla_up_proj": Module(holds=_is_latent_up, discards=True, views=("attention.v",)),
    "layernorm": Module(holds=_is_norm, discards=True, alone=True),
    "moe_act": Module(holds=lambda item: _name(item) in GATE, discards=True),
}


def module_of(item: Item, chosen: Iterable[str]) -> str:
    """Return the largest chosen module to which an item belongs; "" if there is none.

    A recompute group of a layer, such as "core_attention", is a checkpointed module too.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> from flopcast.operators.memory_bound import MemoryBound
    >>> work = MemoryBound(kind="swiglu", elements=constant(8), dtype="bf16")
    >>> item = kernel("experts.activation", work, ("experts.up",), component="experts")
    >>> module_of(item, {"moe_act"}), module_of(item, {"moe_act", "moe"}), module_of(item, {"mlp"})
    ('moe_act', 'moe', '')
    """
    names = set(chosen)
    if not names:
        return ""
    for name, module in MODULES.items():
        if name in names and module.holds(item):
            return name
    return item.group if item.group in names - MODULES.keys() else ""


def thrown_away(item: Item, chosen: Iterable[str]) -> tuple[str, ...]:
    """Return the tensors that an item writes, if its module discards its output."""
    name = module_of(item, chosen)
    if name not in MODULES or not MODULES[name].discards:
        return ()
    prefix = item.name.removesuffix(_name(item))
    return (item.output, *(f"{prefix}{view}" for view in MODULES[name].views))


def run_of(item: Item, chosen: Iterable[str]) -> str:
    """Return the group of items that are recomputed together with this item; "" if there is none.

    The group is a module or a single item. Each module of multi-token prediction is a separate group,
    because these modules are recomputed one by one.
    """
    name = module_of(item, chosen)
    if not name:
        return ""
    inside = _name(item) if name in MODULES and MODULES[name].alone else ""
    return ":".join(filter(None, (name, item.name.removesuffix(_name(item)).rstrip("."), inside)))


def known_modules(items: Iterable[Item]) -> tuple[str, ...]:
    """Return the modules and groups of these items that a recompute mode may name.

    Every block has the module "operators".
    """
    run = tuple(items)
    known = [OPERATORS, *(name for name, module in MODULES.items() if any(map(module.holds, run)))]
    return tuple(sorted({*known, *(item.group for item in run if item.group)}))
