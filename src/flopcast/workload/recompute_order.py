"""The parts of a layer's forward pass that run again in its backward pass, and their order.

Answers: which items must run again before the gradients of an item are computed, and which tensors that
were not kept do they produce again?
Elsewhere: which modules a plan chose (recompute.py), what is kept, and the gradients themselves
(backward.py).

A *run* is what is run again in one piece: a module, or each norm by itself (layers/modules.py).
"""

from functools import lru_cache
from typing import Literal

from flopcast.layers.modules import run_of, thrown_away
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.quantise import Quantise
from flopcast.records import dataclass

RECAST = "recast"  # among the modules: casts of what a module makes and discards run again with it
Until = Literal["end", "kept", "read"]  # how far a run goes when it runs again


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class RecomputeOrder:
    """The runs of one layer under chosen modules.

    `makers` names the run that makes a tensor again whose module discards its output; `sources` the tensor
    that a message has made another one of: a gathered one, of which the shard is kept, or one that enters
    the tensor-parallel region whole, unchanged.
    """

    modules: frozenset[str]
    runs: dict[str, tuple[Item, ...]]
    makers: dict[str, str]
    sources: dict[str, str]

    def maker(self, tensor: str) -> str:
        """Return the run that recomputes a tensor, or its shard; "" if it is kept."""
        return self.makers.get(self.sources.get(tensor, tensor), "")

    def before(self, item: Item) -> tuple[str, ...]:
        """Return runs that the gradients of an item need, each after those that make its inputs."""
        if not self.runs:
            return ()
        needed = (run_of(item, self.modules), *(self.maker(tensor) for tensor, _ in item.saved()))
        found: list[str] = []
        for run in filter(None, needed):
            reads = (self.maker(name) for part in self.runs[run] for name in part.inputs)
            found += [*filter(None, reads), run]
        return tuple(dict.fromkeys(found))

    def again(self, run: str, until: Until) -> list[Item]:
        """Return the items of a run as they are recomputed; one without its output runs to its end."""
        return run_again(self.runs[run], "end" if run in self.makers.values() else until)


@lru_cache(maxsize=4)  # the backward of a layer, what it keeps and its memory ask one after the other
def recompute_order(forward: tuple[Item, ...], modules: frozenset[str]) -> RecomputeOrder:
    """Return what a layer whose `modules` are recomputed runs again.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> from flopcast.operators.memory_bound import MemoryBound
    >>> work = MemoryBound(kind="rmsnorm", elements=constant(8), dtype="bf16")
    >>> norm = kernel("mlp.norm", work, ("x",), "mlp.in", component="norm")
    >>> recompute_order((norm,), frozenset({"layernorm"})).makers
    {'mlp.in': 'layernorm:mlp.norm'}
    """
    runs: dict[str, tuple[Item, ...]] = {}
    makers = {tensor: run_of(item, modules) for item in forward for tensor in thrown_away(item, modules)}
    sources = {
        item.output: item.inputs[0]
        for item in forward
        if isinstance(item.work, AbstractMessage)
        and (item.kept_bytes is not None or not item.work.collective)
    }
    for item in forward:
        name = run_of(item, modules)
        if not name and RECAST in modules and isinstance(item.work, Quantise) and not item.work.of_gradient:
            name = makers.get(sources.get(item.inputs[0], item.inputs[0]), "")
            makers |= {item.output: name} if name else {}
        if name:
            runs[name] = (*runs.get(name, ()), item)
    return RecomputeOrder(modules=modules, runs=runs, makers=makers, sources=sources)


def run_again(run: tuple[Item, ...], until: Until) -> list[Item]:
    """Return the items of a run as they are recomputed.

    Parameters
    ----------
    until
        "end": all of them. "kept": those until the last tensor is there that was kept the first time; what
        an operator keeps of its inputs is there before it starts, so that it does not run a second time,
        nor does what follows: a block without dropout is spared its last GEMM and the message behind it.
        "read": those alone whose results a gradient reads, at once or by what is made of them. Beside an
        adapter a frozen product stands before the last kept tensor, but nothing in the backward reads it.

    References
    ----------
    "kept": `torch.utils.checkpoint`, `set_checkpoint_early_stop`. "read": dead code of a compiled graph.
    """
    chosen = run if until == "end" else _until_kept(run) if until == "kept" else _read(run)
    return [item.again() for item in chosen]


def _until_kept(run: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items of a run until its last kept tensor exists; all items if it keeps nothing."""
    keeping = [place for place, item in enumerate(run) if item.saved()]
    if not keeping:
        return run
    return run[: keeping[-1] + _keeps_own(run[keeping[-1]])]


def _read(run: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items of a run that make what is kept, and those that these need."""
    wanted = {tensor for item in run for tensor, _ in item.saved()}
    found: list[Item] = []
    for item in reversed(run):
        if item.output in wanted or _keeps_own(item):
            found.append(item)
            wanted.update(item.inputs)
    return tuple(reversed(found))


def _keeps_own(item: Item) -> bool:
    """Return whether an operator keeps something that does not exist before it has run."""
    saved = item.work.saves() if isinstance(item.work, AbstractOperator) else ()
    return any(not kept.role.startswith("input:") for kept in saved)
