"""The parts of a layer's forward pass that run again in its backward pass, and their order.

Answers: which items must run again before the gradients of an item are computed, and which tensors do they
compute again?
Elsewhere: the modules that a plan recomputes (recompute.py), kept tensors and gradients (backward.py).

A *run* is a part of a layer that is recomputed in one piece: a module, or a single norm
(layers/modules.py).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from flopcast.layers.modules import OPERATORS, run_of, thrown_away
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.quantise import Quantise
from flopcast.records import Record, replace
from flopcast.workload.recomputed_operators import recomputed_shares

RECAST = "recast"  # among the modules: casts of what a module makes and discards run again with it
Until = Literal["end", "kept", "read"]  # how far a run goes when it runs again


class RecomputeOrder(Record, eq=False):
    """The runs of one layer, given the recomputed modules.

    `needs` names, for each run, the runs that compute its inputs. `makers` names, for each tensor of a
    module that discards its output, the run that computes the tensor again. `sources` names, for each
    output of a message, its input: the kept shard of a gathered tensor, or the whole tensor that enters the
    tensor-parallel region. `shares` holds the share of an item that runs again if the rest of its result is
    kept, and otherwise 0. `saved_elsewhere` holds the tensors that items outside every run keep.
    """

    modules: frozenset[str]
    runs: dict[str, tuple[Item, ...]]
    needs: dict[str, tuple[str, ...]]
    makers: dict[str, str]
    sources: dict[str, str]
    shares: dict[str, float]
    saved_elsewhere: frozenset[str]

    def maker(self, tensor: str) -> str:
        """Return the run that recomputes a tensor, or its shard; "" if it is kept."""
        return _maker(tensor, self.makers, self.sources)

    def before(self, item: Item) -> tuple[str, ...]:
        """Return the runs that an item's gradients need, each after the runs that compute its inputs."""
        if not self.runs:
            return ()
        runs = (run_of(item, self.modules), *(self.maker(tensor) for tensor, _ in item.saved()))
        return tuple(dict.fromkeys(each for run in runs if run for each in (*self.needs[run], run)))

    def again(self, run: str, until: Until) -> list[Item]:
        """Return the items of a run as they are recomputed.

        A module that discards its output runs to its end. Operators run only if gradients need them.
        """
        if run == OPERATORS:
            return run_again(self.runs[run], until, self.saved_elsewhere)
        return run_again(self.runs[run], "end" if run in self.makers.values() else until)

    def read_again(self) -> list[Item]:
        """Return operators that run again because a gradient needs their output, directly or indirectly."""
        return self.again(OPERATORS, "read") if OPERATORS in self.runs else []


@lru_cache(maxsize=4)  # the backward of a layer, what it keeps and its memory ask one after the other
def recompute_order(forward: tuple[Item, ...], modules: frozenset[str]) -> RecomputeOrder:
    """Return the items that a layer with recomputed `modules` runs again.

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
    parts: dict[str, list[Item]] = {}
    makers = {tensor: run_of(item, modules) for item in forward for tensor in thrown_away(item, modules)}
    sources = {
        item.output: item.inputs[0]
        for item in forward
        if isinstance(item.work, AbstractMessage)
        and (item.kept_bytes is not None or not item.work.collective)
    }
    shares = recomputed_shares(forward) if OPERATORS in modules else {}
    for item in forward:
        name = run_of(item, modules)
        if not name and RECAST in modules and isinstance(item.work, Quantise) and not item.work.of_gradient:
            name = makers.get(sources.get(item.inputs[0], item.inputs[0]), "")
            makers |= {item.output: name} if name else {}
        if name:
            again = item if name != OPERATORS else replace(item, count=item.count * shares[item.name])
            parts.setdefault(name, []).append(again)
    elsewhere = {name for item in forward if not run_of(item, modules) for name, _ in item.saved()}
    needs = {
        run: tuple(dict.fromkeys(_maker(name, makers, sources) for item in items for name in item.inputs))
        for run, items in parts.items()
    }
    return RecomputeOrder(
        modules=modules,
        runs={run: tuple(items) for run, items in parts.items()},
        needs={run: tuple(filter(None, names)) for run, names in needs.items()},
        makers=makers,
        sources=sources,
        shares=shares,
        saved_elsewhere=frozenset(sources.get(name, name) for name in elsewhere) | elsewhere,
    )


def _maker(tensor: str, makers: Mapping[str, str], sources: Mapping[str, str]) -> str:
    """Return the run that recomputes a tensor, or its shard; "" if it is kept."""
    return makers.get(sources.get(tensor, tensor), "")


def run_again(
    run: tuple[Item, ...], until: Until, saved_elsewhere: frozenset[str] = frozenset()
) -> list[Item]:
    """Return the items of a run as they are recomputed.

    Parameters
    ----------
    until
        "end": all of them. "kept": the items until the last tensor exists that the forward pass would have
        kept. An operator whose kept tensors are inputs therefore does not run again if no kept tensor
        follows. In a block without dropout, the last GEMM and its message do not run again. "read": only
        items whose results a gradient needs, directly or indirectly. A frozen product next to an adapter,
        whose result no gradient reads, does not run again.
    saved_elsewhere
        Tensors that items outside the run keep, because gradients read these too.

    References
    ----------
    "kept": `torch.utils.checkpoint`, `set_checkpoint_early_stop`. "read": dead code of a compiled graph.
    """
    stop = _until_kept if until == "kept" else _read
    chosen = run if until == "end" else stop(run, saved_elsewhere)
    return [item.again() for item in chosen]


def _until_kept(run: tuple[Item, ...], saved_elsewhere: frozenset[str]) -> tuple[Item, ...]:
    """Return the items of a run until its last kept tensor exists; all items if it keeps nothing."""
    made = [place for place, item in enumerate(run) if _keeps_own(item) or item.output in saved_elsewhere]
    keeping = [*(place for place, item in enumerate(run) if item.saved()), *(place + 1 for place in made)]
    return run[: max(keeping)] if keeping else run


def _read(run: tuple[Item, ...], saved_elsewhere: frozenset[str]) -> tuple[Item, ...]:
    """Return the items of a run that make what is kept, and those that these need."""
    wanted = {tensor for item in run for tensor, _ in item.saved()} | saved_elsewhere
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
