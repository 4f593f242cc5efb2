"""The memory of a layer during its backward: each of its tensors from creation to deletion.

Answers: how many bytes of one layer are alive at the fullest moment of its backward pass?
Elsewhere: what it keeps until then (backward.py), how many micro-batches do so at once (memory/).

The walk goes through the forward items in reverse. An item's gradients of its inputs are born while the
gradient of its output is still alive; then that one dies, and what the item kept dies with the last item
that needs it. Gradients of summands are not born: both summands share the gradient of the sum. A gathered
input keeps only its shard, and is gathered again while the item runs.

A tensor that no item names as its output (keys and values, which a split of heads makes beside the queries)
shares the fate of the first input of the item that reads it. Kernels' own workspaces are not counted.
"""

from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Floats
from flopcast.layers.modules import run_of
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.convolution import Convolution
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllGather, AllReduce, ReduceScatter, Replicate, RingPass
from flopcast.operators.quantise import Quantise
from flopcast.records import dataclass, field, replace
from flopcast.workload.backward import kept_tensors
from flopcast.workload.casts import sizes_of
from flopcast.workload.recompute_order import recompute_order

AT_ONCE = -1  # there when the backward begins


def backward_peak(
    forward: tuple[Item, ...], recomputed: frozenset[str], writes_weight_gradients: bool
) -> Floats:
    """Return the most bytes of one layer's tensors that are alive at once during its backward, (plans, 1).

    Parameters
    ----------
    forward
        Items as the stack runs them. The loss is left out: the walk over a head starts at its logits.
    recomputed
        Modules that run again when the walk arrives at them; empty for a layer that keeps all, or that has
        just run again as a whole.
    writes_weight_gradients
        Whether each linear allocates a tensor of its weight's shape, before it is added to the sum over
        micro-batches.

    Examples
    --------
    A linear keeps its input, has the gradient of its output, and makes those of input and weight:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> work = Matmul(m=constant(10), n=constant(3), k=constant(2), dtype="bf16")
    >>> linear = kernel("up", work, ("x",), "y", component="mlp")
    >>> [backward_peak((linear,), frozenset(), writes).item() / 2 for writes in (True, False)]
    [76.0, 70.0]
    """
    peak_bytes: Floats = ZERO
    for rows, running in _alike(forward):
        found = _peak_of_rows(running, recomputed, writes_weight_gradients)
        peak_bytes = np.where(rows, found, peak_bytes)
    return peak_bytes


def _alike(forward: tuple[Item, ...]) -> Iterator[tuple[np.ndarray, tuple[Item, ...]]]:
    """Yield the items that run in some plans of a batch, with the rows of these plans, (plans, 1).

    Plans with and without context parallelism are in one batch, whose items of a ring do not run in those
    without.
    """
    counted = [item for item in forward if len(item.count) > 1 and (item.count == 0.0).any()]
    if not counted:
        yield np.ones((1, 1), dtype=bool), forward
        return
    absent = np.concatenate([item.count == 0.0 for item in counted], axis=1)
    for pattern in np.unique(absent, axis=0):
        gone = {id(item) for item, is_gone in zip(counted, pattern, strict=True) if is_gone}
        rows = (absent == pattern).all(axis=1, keepdims=True)
        yield rows, tuple(item for item in forward if id(item) not in gone)


def _peak_of_rows(
    forward: tuple[Item, ...], recomputed: frozenset[str], writes_weight_gradients: bool
) -> Floats:
    """Return the peak of plans in which all of these items run."""
    items = tuple(item for item in forward if not _is_loss(item))
    if not items:
        return ZERO
    sizes = tensor_bytes(items)
    walk = _Walk(sizes=sizes, produced=frozenset(item.output for item in items))
    lives = _lives(items, recomputed)
    alive = sum((life.size_bytes for life in lives if life.last == AT_ONCE), ZERO)
    read_by_loss = sorted({name for item in forward if _is_loss(item) for name in item.inputs[:1]})
    for output in [name for name in read_by_loss if name in walk.produced] or [items[-1].output]:
        walk.born(output, sizes.get(output, ZERO))
    peak = alive + walk.alive()
    for index in reversed(range(len(items))):
        alive = alive + sum((life.size_bytes for life in lives if life.last == index), ZERO)
        during = walk.step(items[index]) + _transient(items[index], items, writes_weight_gradients)
        peak = np.maximum(peak, alive + during)
        alive = alive - sum((life.size_bytes for life in lives if life.first == index), ZERO)
    return peak


def tensor_bytes(items: tuple[Item, ...]) -> dict[str, Floats]:
    """Return the bytes of the tensors of a layer, as far as items that keep, make or read them say.

    Parameters
    ----------
    items : tuple of Item
        Forward items of one layer, in order.

    Returns
    -------
    dict of arrays of shape (plans, 1)
        Bytes by name of the tensor. Where several items state a size, what is kept comes first, then what
        is made, then what is read. An output whose size nobody states is as large as its item's first
        input.
    """
    sizes: dict[str, Floats] = {}
    for item in items:
        for name, size_bytes in item.saved():
            sizes[name] = np.maximum(sizes.get(name, ZERO), size_bytes)
    for item in items:
        if isinstance(item.work, (Matmul, GroupedMatmul)) and item.work.narrow:  # its gradient is wide
            elements, _, dtype = sizes_of(item.work)
            sizes[item.inputs[0]] = elements * ELEMENT_BYTES[dtype]
    for item in items:
        if item.kept_bytes is not None:
            sizes.setdefault(item.inputs[0], item.kept_bytes)
        work = item.work
        made_bytes = (
            work.output_bytes if isinstance(work, (Convolution, GraphKernel)) else _output_bytes(item)
        )
        if made_bytes is not None:
            sizes.setdefault(item.output, made_bytes)
    for item in items:
        read_bytes = _input_bytes(item)
        for name in item.inputs if read_bytes is not None else ():
            sizes.setdefault(name, read_bytes if read_bytes is not None else ZERO)
    for item in items:
        sizes = _read_of_graph(item) | sizes
    for item in items:  # an output of unknown size is as large as its input
        sizes.setdefault(item.output, sizes.get(item.inputs[0], ZERO) if item.inputs else ZERO)
    return sizes


def _read_of_graph(item: Item) -> dict[str, Floats]:
    """Return bytes of the tensors that an operator of an exported graph reads, each by its own size."""
    work = item.work
    if isinstance(work, Convolution):
        return {item.inputs[0]: work.input_bytes}
    if isinstance(work, GraphKernel):
        pairs = zip(item.inputs, work.read, strict=False)
        return {name: elements * ELEMENT_BYTES[work.dtype] for name, elements in pairs}
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lifetime:
    """A kept tensor: the first item of the forward that needs it, with whose backward it dies.

    A recomputed tensor exists from the last item whose gradients need its run; other tensors exist from the
    start.
    """

    size_bytes: Floats
    first: int
    last: int


@dataclass(kw_only=True, slots=True)
class _Walk:
    """The gradients alive between two items: names that share one tensor point to one number."""

    sizes: dict[str, Floats]
    produced: frozenset[str]
    number: dict[str, int] = field(default_factory=dict)  # gradient of which tensor → number
    held: dict[int, Floats] = field(default_factory=dict)  # number → bytes

    def alive(self) -> Floats:
        """Return the bytes of all live gradients."""
        return sum(self.held.values(), ZERO)

    def born(self, name: str, size_bytes: Floats) -> None:
        """Add the gradient of a tensor."""
        self.number[name] = max(self.held, default=-1) + 1
        self.held[self.number[name]] = size_bytes

    def step(self, item: Item) -> Floats:
        """Process one item's backward and return the bytes of gradients that are alive while it runs.

        Gradients of the item's inputs are born while that of its output is still alive. An input that
        already has a gradient from another item gets a second one for a moment, until both are added. An
        item that only passes a gradient on (a sum, a view) gives its input the gradient of its output. An
        item whose output has no gradient does nothing.
        """
        of_output = self.number.pop(item.output, None)
        if of_output is None:  # nothing behind it has a gradient
            return self.alive()
        extra = ZERO
        orphans = sum((self.sizes.get(n, ZERO) for n in item.inputs[1:] if n not in self.produced), ZERO)
        for place, name in enumerate(item.inputs):
            if place and name not in self.produced and name != "x":
                continue
            if _passes_on(item, place):
                if name not in self.number:
                    self.number[name] = of_output
                continue
            size_bytes = self.sizes.get(name, ZERO) + (orphans if place == 0 else ZERO)
            if name in self.number:  # added to what others have left there
                extra = extra + size_bytes
            else:
                self.born(name, size_bytes)
        during = self.alive() + extra
        if of_output not in self.number.values():
            del self.held[of_output]
        return during


def _lives(items: tuple[Item, ...], recomputed: frozenset[str]) -> list[_Lifetime]:
    """Return the tensors that a backward needs, kept or recomputed; the shard of a gathered tensor."""
    kept, chosen = kept_tensors(items, recomputed), recompute_order(items, recomputed)
    made = {item.output: run_of(item, recomputed) for item in items}
    gathers = {item.output: item for item in items if item.kept_bytes is not None}
    comes = {run: index for index, item in enumerate(items) for run in chosen.before(item)}
    found: dict[str, _Lifetime] = {}
    for index, item in enumerate(items):
        for name, size_bytes in item.saved():
            tensor = gathers[name].inputs[0] if name in gathers else name
            run = chosen.maker(name) or made.get(name) or run_of(item, recomputed)
            life = _Lifetime(
                size_bytes=_shard_bytes(gathers.get(name), size_bytes),
                first=index,
                last=AT_ONCE if tensor in kept else comes.get(run, AT_ONCE),
            )
            older = found.get(tensor, life)
            found[tensor] = replace(life, first=older.first, last=max(older.last, life.last))
    entering = [
        _Lifetime(size_bytes=kept[name], first=0, last=AT_ONCE) for name in kept if name not in found
    ]
    return [*found.values(), *entering]


def _shard_bytes(gather: Item | None, size_bytes: Floats) -> Floats:
    """Return what is kept of a tensor: all of it, or the shard that it was gathered from."""
    return size_bytes if gather is None or gather.kept_bytes is None else gather.kept_bytes


def _transient(item: Item, items: tuple[Item, ...], writes_weight_gradients: bool) -> Floats:
    """Return an item's temporaries: a gathered input, its weight's gradient, tensors of a chain."""
    work, needed_bytes = item.work, ZERO
    if isinstance(work, MemoryBound):
        needed_bytes = KINDS[work.kind].between * work.elements * ELEMENT_BYTES[work.dtype]
    if isinstance(work, Dequantise):  # what it writes is there for the product beside it
        needed_bytes = work.elements * ELEMENT_BYTES[work.dtype]
    if not isinstance(work, AbstractOperator) or not item.inputs:
        return needed_bytes
    gather = next((g for g in items if g.output == item.inputs[0] and g.kept_bytes is not None), None)
    if gather is not None and isinstance(gather.work, AbstractMessage):
        needed_bytes = needed_bytes + gather.work.message_bytes
    if writes_weight_gradients:
        needed_bytes = needed_bytes + weight_bytes(work)
    return needed_bytes


def weight_bytes(work: object) -> Floats:
    """Return the bytes of the weight that a product or a lookup reads.

    The size is that of the whole weight on this rank, in the dtype of the product. It is 0 if the weight is
    frozen, and for work without weights. Frozen weights matter here because only trained ones have a
    gradient, which is as large as the weight.
    """
    if not getattr(work, "trained", True):
        return ZERO
    if isinstance(work, Matmul):
        rows, columns, groups = work.n, work.k, ONE
    elif isinstance(work, GroupedMatmul):
        rows, columns, groups = work.n, work.k, work.groups
    elif isinstance(work, EmbeddingLookup):
        rows, columns, groups = work.vocabulary, work.hidden, ONE
    elif isinstance(work, Convolution):
        rows, columns, groups = work.columns, work.terms, ONE
    else:
        return ZERO
    size_bytes: Floats = rows * columns * groups * ELEMENT_BYTES[work.dtype]
    return size_bytes


def _is_loss(item: Item) -> bool:
    """Return whether an item follows the logits: the loss, and the sums over ranks that it needs."""
    if isinstance(item.work, MemoryBound):
        return KINDS[item.work.kind].is_loss
    in_place = isinstance(item.work, AbstractMessage) and item.inputs[:1] == (item.output,)
    return in_place and not isinstance(item.work, (Replicate, RingPass))  # which come before operators


def _passes_on(item: Item, place: int) -> bool:
    """Return whether the gradient of an input is the same tensor as the output's gradient."""
    work = item.work
    if isinstance(work, (Replicate, AllReduce, Quantise)):
        return True
    if (
        isinstance(work, RingPass) and not work.returns_gradients
    ):  # a rank's part of the sum is a view of it
        return True
    first = KINDS[work.kind].passes_on_from if isinstance(work, MemoryBound) else None
    return first is not None and place >= first


def _output_bytes(item: Item) -> Floats | None:
    """Return bytes of what an item makes, if its work states them."""
    work = item.work
    if isinstance(work, Matmul):
        return work.m * work.n * ELEMENT_BYTES[work.dtype]
    if isinstance(work, GroupedMatmul):
        return work.rows * work.n * ELEMENT_BYTES[work.dtype]
    if isinstance(work, EmbeddingLookup):
        return work.tokens * work.hidden * ELEMENT_BYTES[work.dtype]
    if isinstance(work, MemoryBound) and not KINDS[work.kind].is_view:
        return work.elements * ELEMENT_BYTES[work.dtype]
    if isinstance(work, (AllGather, AllReduce, Replicate)):
        return work.message_bytes
    return None


def _input_bytes(item: Item) -> Floats | None:
    """Return bytes of what an item reads, if its work states them."""
    work = item.work
    if isinstance(work, MemoryBound) and not KINDS[work.kind].is_view:
        return work.elements * ELEMENT_BYTES[work.dtype]
    if isinstance(work, (ReduceScatter, AllReduce, Replicate)):
        return work.message_bytes
    return None
