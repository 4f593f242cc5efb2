"""Which parts of a layer's forward run again in its backward, in which order, and up to where.

Answers: which runs of items must be there again before an item's gradients; which tensors does one of them
make again that nobody kept?
Elsewhere: which modules a plan chose (recompute.py), what is kept, and the gradients themselves
(backward.py).

A *run* is what is run again in one piece: a module, or each norm by itself (layers/modules.py).
"""

from dataclasses import dataclass

from flopcast.layers.modules import run_of, thrown_away
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Reruns:
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
        """The run that makes a tensor again, or what it was gathered of; "" where it is kept."""
        return self.makers.get(self.sources.get(tensor, tensor), "")

    def before(self, item: Item) -> tuple[str, ...]:
        """Runs that the gradients of an item need, each behind those that make what it reads."""
        needed = (run_of(item, self.modules), *(self.maker(tensor) for tensor, _ in item.saved()))
        found: list[str] = []
        for run in filter(None, needed):
            reads = (self.maker(name) for part in self.runs[run] for name in part.inputs)
            found += [*filter(None, reads), run]
        return tuple(dict.fromkeys(found))

    def again(self, run: str, stops_early: bool) -> list[Item]:
        """The items of a run, as they run again; one that discards its output runs to its end."""
        return run_again(self.runs[run], stops_early and run not in self.makers.values())


def reruns(forward: tuple[Item, ...], modules: frozenset[str]) -> Reruns:
    """What runs again of a layer whose `modules` are recomputed.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> from flopcast.operators.memory_bound import MemoryBound
    >>> work = MemoryBound(kind="rmsnorm", elements=constant(8), dtype="bf16")
    >>> norm = kernel("mlp.norm", work, ("x",), "mlp.in", component="norm")
    >>> reruns((norm,), frozenset({"layernorm"})).makers
    {'mlp.in': 'layernorm:mlp.norm'}
    """
    runs: dict[str, tuple[Item, ...]] = {}
    for item in forward:
        name = run_of(item, modules)
        if name:
            runs[name] = (*runs.get(name, ()), item)
    return Reruns(
        modules=modules,
        runs=runs,
        makers={tensor: run_of(item, modules) for item in forward for tensor in thrown_away(item, modules)},
        sources={
            item.output: item.inputs[0]
            for item in forward
            if isinstance(item.work, AbstractMessage)
            and (item.kept_bytes is not None or not item.work.collective)
        },
    )


def run_again(run: tuple[Item, ...], stops_early: bool) -> list[Item]:
    """The items of a run as they run again: all, or those until its last kept tensor is there.

    What an operator keeps of its inputs is there before it starts: it does not run a second time, nor does
    what follows. A block without dropout is so spared its last GEMM and the message behind it.

    References
    ----------
    `torch.utils.checkpoint`, `set_checkpoint_early_stop`.
    """
    end = len(run)
    keeping = [place for place, item in enumerate(run) if item.saved()]
    if stops_early and keeping:
        last = run[keeping[-1]].work
        saved = last.saves() if isinstance(last, AbstractOperator) else ()
        end = keeping[-1] + any(not kept.role.startswith("input:") for kept in saved)
    return [item.again() for item in run[:end]]
