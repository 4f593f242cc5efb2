"""Experts in Hugging Face configs: their number, their width, and the layers that have them.

Answers: how many experts does each family's config describe, how wide are they, and which layers are dense?
Elsewhere: the other facts of these families (families.yaml), the layers (layers/experts.py).

Transformers 5 saves the number of experts of every family as `num_local_experts`, and version 4 used
several names, so all of these names are read as one fact. `norm_topk_prob` and `routed_scaling_factor`,
which scale scores, change no predicted time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flopcast.fixes import set_to
from flopcast.interop.hugging_face.values import Reader

Rule = Callable[[Reader], dict[str, object]]
SIGMOIDS: Mapping[str, object] = {"router": "sigmoid", "selection_bias": True, "router_dtype": "fp32"}
BAILING_IGNORED = (
    "n_group topk_group router_type moe_router_enable_expert_bias moe_router_enable_shared_expert "
    "moe_shared_expert_intermediate_size norm_softmax mtp_loss_scaling_factor"
)


def experts(
    number: int,
    top_k: int,
    width: int,
    number_key: str = "",
    top_k_key: str = "num_experts_per_tok",
    width_key: str = "",
    shared: int | None = None,
    shared_key: str = "n_shared_experts",
    loss_key: str = "router_aux_loss_coef",
    has_loss: bool = True,
    ignored: str = "",
    groups: Sequence[int] = (),
    **fields: object,
) -> Rule:
    """Return the rule of a family's experts.

    Parameters
    ----------
    number, top_k, width : int
        The family's defaults for missing keys.
    number_key, top_k_key, width_key : str
        The keys. Without `number_key`, the number is the fact "experts", and experts are as wide as MLPs.
    shared : int or None
        The default number of shared experts, under `shared_key`; None if no key gives it.
    loss_key, has_loss : str, bool
        The weight of the load-balancing loss, and whether the family has a loss if none is given.
    ignored : str
        Keys that select among features that the family always has.
    groups : sequence of int
        The defaults of the number of groups of experts, and of the groups that a token can choose from;
        empty if the family has no groups.
    fields : object
        Fields of the experts that every config of the family shares.
    """

    def rule(read: Reader) -> dict[str, object]:
        read.used.update(ignored.split())
        apart = None
        if shared is not None:
            apart = read.value("count", (shared_key,), shared, optional=True, zero_is_none=True)
        experts_read: dict[str, Any] = {
            "num_experts": read.count(number_key, number) if number_key else read.size("experts", number),
            "top_k": read.count(top_k_key, top_k),
            "expert_hidden": read.count(width_key, width) if width_key else read.size("ffn_hidden", width),
        }
        number_of = number_key or read.key_of("experts")
        most, chosen = experts_read["num_experts"], experts_read["top_k"]
        if chosen > most > 1 and not {number_of, top_k_key} & read.problems.keys():  # one is a dense layer
            because, fix = "a token uses each expert at most once", set_to({top_k_key: min(top_k, most)})
            read.fault(top_k_key, f"at most {number_of} ({most})", because, fix)
            experts_read["top_k"] = most
        if shared is not None:
            experts_read["shared_experts"] = apart or 0
        if "auxiliary_loss" not in fields:
            weight = read.value("weight", (loss_key,), None, optional=True)
            experts_read["auxiliary_loss"] = has_loss if weight is None else weight != 0
        return experts_read | (_groups(read, *groups) if groups else {}) | fields

    return rule


def gated_shared_experts(number: int, top_k: int, width: int, shared_width: int) -> Rule:
    """Return the rule for experts of separate width with a gated shared expert; arguments are defaults."""
    own = experts(
        number, top_k, width, width_key="moe_intermediate_size", shared_experts=1, shared_gate=True
    )
    return lambda read: (
        own(read) | {"shared_hidden": read.count("shared_expert_intermediate_size", shared_width)}
    )


def deepseek_v2_experts(read: Reader) -> dict[str, object]:
    """Return experts with softmax scores; `topk_method` states whether a token may use only some groups."""
    limited = read.raw("topk_method") not in ("greedy", "gready", None)
    rule = experts(
        64,
        8,
        1407,
        width_key="moe_intermediate_size",
        shared=2,
        loss_key="aux_loss_alpha",
        has_loss=False,
        ignored="n_group topk_group scoring_func",
        groups=(1, 1) if limited else (),
    )
    return rule(read)


def bailing_experts(number: int, top_k: int, width: int, shared: int, scores: str) -> Rule:
    """Return the rule of Ling's experts; since Ling 2.0, their scores are sigmoids, with a bias and groups.

    Some checkpoints of Ling 1.5 have the `model_type` of Ling 2.0, but only Ling 2.0 has the key
    `score_function`. `scores` are those of the family if this key is missing.
    """

    def rule(read: Reader) -> dict[str, object]:
        sigmoid = (read.raw("score_function") or scores) == "sigmoid"
        found = experts(
            number,
            top_k,
            width,
            width_key="moe_intermediate_size",
            shared=shared,
            shared_key="num_shared_experts",
            has_loss=False,
            ignored=BAILING_IGNORED,
            groups=(8, 4) if sigmoid else (),
        )(read)
        return {**found, **SIGMOIDS} if sigmoid else found

    return rule


def _groups(read: Reader, groups: int, chosen: int) -> dict[str, object]:
    return {"expert_groups": read.count("n_group", groups), "top_groups": read.count("topk_group", chosen)}


def _is_number(layer: object) -> bool:
    return type(layer) is int and layer >= 0


NUMBERS = (_is_number, "a list of numbers of layers")  # of lists that name layers


def dense_layers(read: Reader) -> tuple[int, ...]:
    """Return the layers without experts: those in `mlp_only_layers`, and all but every n-th.

    Layer i has experts where `decoder_sparse_step` divides i + 1 (Qwen2MoeConfig of transformers).
    """
    listed = read.entries("mlp_only_layers", *NUMBERS) or []
    layers, step = range(read.size("layers", 24)), read.count("decoder_sparse_step", 1)
    return tuple(layer for layer in layers if layer in listed or (layer + 1) % step)


def layers_called_dense(read: Reader, number: int) -> tuple[int, ...] | None:
    """Return the layers that `mlp_layer_types` calls dense; None without this list (transformers 5)."""
    kinds = read.entries(
        "mlp_layer_types",
        ("dense", "sparse").__contains__,
        f'a list of {number}: "dense" or "sparse"',
        number,
    )
    return None if kinds is None else tuple(layer for layer, kind in enumerate(kinds) if kind == "dense")


def llama4_dense_layers(read: Reader) -> tuple[int, ...]:
    """Return the layers that `moe_layers` does not list; without a list, all but every n-th."""
    listed, layers = read.entries("moe_layers", *NUMBERS), range(read.size("layers", 48))
    step = read.count("interleave_moe_layer_step", 1)
    if listed is None:
        return tuple(layer for layer in layers if (layer + 1) % step)
    return tuple(sorted(set(layers).difference(listed)))


def granite_shared_experts(read: Reader) -> dict[str, object]:
    """Return Granite's experts, and a shared expert if `shared_intermediate_size` is above 0."""
    width = read.value("count", ("shared_intermediate_size",), 0, optional=True, zero_is_none=True)
    shared = {"shared_experts": 1, "shared_hidden": width} if width else {}
    return experts(8, 2, 11008)(read) | shared


def hunyuan_experts(read: Reader) -> dict[str, object]:
    """Return the experts and shared experts, of width `intermediate_size`; all layers must be equal.

    Numbers may be lists with one entry for each layer. Lists with different entries are not supported yet.
    """
    numbers: dict[str, int] = {}
    dense = read.size("ffn_hidden", 11008)
    usual = {"num_experts": 1, "moe_topk": 1, "num_shared_expert": 1, "moe_intermediate_size": dense}
    for key, default in usual.items():
        value = read.raw(key)
        if isinstance(value, list) and len(set(map(str, value))) == 1:
            value = value[0]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            allowed = "one whole number for all layers"
            read.fault(key, allowed, "flopcast supports only equal layers here", "correct it")
            value = default
        numbers[key] = value or default
    return {
        "num_experts": numbers["num_experts"],
        "top_k": numbers["moe_topk"],
        "expert_hidden": numbers["moe_intermediate_size"],
        "shared_experts": 1,
        "shared_hidden": dense * numbers["num_shared_expert"],
        "auxiliary_loss": False,
    }


def ernie_dense_layers(read: Reader) -> tuple[int, ...]:
    """Return the dense layers: those before the first and after the last layer with experts, and those
    between the intervals.
    """
    layers, step = read.size("layers", 28), read.count("moe_layer_interval", 1)
    start, end = read.whole("moe_layer_start_index", 1), layers - 1
    if read.raw("moe_layer_end_index") != -1:  # which means the last layer
        end = read.whole("moe_layer_end_index", end)
    return tuple(i for i in range(layers) if (i + 1) % step or not start <= i <= end)


def listed_dense_layers(default: int) -> Callable[[Reader], tuple[int, ...]]:
    """Return the layers that are "dense" in `mlp_layer_types` or, without this list, the leading layers."""

    def rule(read: Reader) -> tuple[int, ...]:
        number, kinds = read.size("layers", 30), ("dense", "sparse")
        allowed = f"a list with {number} entries, each dense or sparse"
        listed = read.entries("mlp_layer_types", kinds.__contains__, allowed, number)
        leading = leading_dense_layers(default)(read)
        return leading if listed is None else tuple(i for i in range(number) if listed[i] == "dense")

    return rule


def leading_dense_layers(
    default: int, key: str = "first_k_dense_replace"
) -> Callable[[Reader], tuple[int, ...]]:
    """Return the leading layers that `key` counts, and all but every `moe_layer_freq`-th of the others.

    Layer i has experts if i is at least the first number and a multiple of the second
    (DeepseekV2DecoderLayer, in the repository of the checkpoint).
    """

    def rule(read: Reader) -> tuple[int, ...]:
        leading, step = read.whole(key, default), read.count("moe_layer_freq", 1)
        return tuple(i for i in range(read.size("layers", 30)) if i < leading or i % step)

    return rule
