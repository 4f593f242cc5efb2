"""The memory of a layer during its backward pass: each tensor from its allocation until it is freed.

Answers: how many bytes of one layer are allocated at the peak of its backward pass?
Elsewhere: the tensors that it keeps from the forward pass (backward.py), how many micro-batches are in
flight (memory/).

The loop processes the forward items in reverse order. When the gradients of an item's inputs are allocated,
the gradient of its output still exists. The gradient of the output is then freed. The kept tensors of an
item are freed after the last item that needs them. Gradients of summands are not allocated: both summands
share the gradient of the sum. A gathered input keeps only its shard, and is gathered again while the item
runs.

Keys and values are not the output of any item, because the item that splits heads names only the queries as
its output. Such a tensor is allocated and freed together with the first input of the item that reads it.
Kernels' own workspaces are not counted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Floats, any_of
from flopcast.layers.modules import run_of
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllReduce, Replicate, RingPass
from flopcast.operators.quantise import Quantise
from flopcast.records import Record, field, replace
from flopcast.spec.rows import equal_rows
from flopcast.workload.backward import exchange_of, exchanged_at_work, kept_tensors
from flopcast.workload.recompute_order import recompute_order
from flopcast.workload.tensor_sizes import tensor_bytes, weight_bytes

AT_ONCE = -1  # there when the backward begins


def backward_peak(
    forward: tuple[Item, ...], recomputed: frozenset[str], writes_weight_gradients: bool
) -> Floats:
    """Return the most bytes of one layer's tensors that are allocated at once in its backward pass, (plans,
    1).

    Parameters
    ----------
    forward
        Items as the stack runs them. The loss is left out, so the backward pass of a head starts at its
        logits.
    recomputed
        Modules that are recomputed. There are none if a layer keeps all tensors, or if the whole layer has
        just run again.
    writes_weight_gradients
        Whether each linear allocates a tensor of its weight's shape, before it is added to the sum over
        micro-batches.

    Examples
    --------
    A linear keeps its input, and needs the gradients of its output, its input and its weight:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> from flopcast.operators.matmul import Matmul
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
    counted = [item for item in forward if len(item.count) > 1 and any_of(item.count == 0.0)]
    if not counted:
        yield np.ones((1, 1), dtype=bool), forward
        return
    absent = {item: item.count[:, 0] == 0.0 for item in counted}
    alike = equal_rows([*{column.tobytes(): column for column in absent.values()}.values()])
    for number, row in enumerate(alike.first.tolist()):
        rows = (alike.group == number)[:, None]
        yield rows, tuple(item for item in forward if item not in absent or not absent[item][row])


def _peak_of_rows(
    forward: tuple[Item, ...], recomputed: frozenset[str], writes_weight_gradients: bool
) -> Floats:
    """Return the peak of plans in which all of these items run."""
    loss = _loss(forward)
    items = tuple(item for item in forward if item not in loss)
    if not items:
        return ZERO
    sizes = tensor_bytes(items)
    walk = _Walk(sizes=sizes, produced=_produced(items))
    coming: dict[int, list[Floats]] = defaultdict(list)  # sizes by the item with whose backward they come
    going: dict[int, list[Floats]] = defaultdict(list)
    for life in _lives(items, recomputed):
        coming[life.last].append(life.size_bytes)
        going[life.first].append(life.size_bytes)
    exchanges = [item for item in items if exchange_of(item) is not None]
    gathers = {item.output: item for item in reversed(items) if item.kept_bytes is not None}
    alive = sum(coming[AT_ONCE], ZERO)
    read_by_loss = sorted({name for item in loss for name in item.inputs[:1]})
    for output in [name for name in read_by_loss if name in walk.produced] or [items[-1].output]:
        walk.born(output, sizes.get(output, ZERO))
    peak = alive + walk.alive()
    for index in reversed(range(len(items))):
        item = items[index]
        alive = alive + sum(coming[index], ZERO)
        during = walk.step(item) + _transient(item, exchanges, gathers, writes_weight_gradients)
        peak = np.maximum(peak, alive + during)
        alive = alive - sum(going[index], ZERO)
    return peak


def _produced(items: tuple[Item, ...]) -> frozenset[str]:
    """Return the tensors that an item makes, without those that they only replace in place."""
    made: set[str] = set()
    read: set[str] = set()
    for item in items:
        read.update(item.inputs)
        made |= {item.output} - read
    return frozenset(made)


class _Lifetime(Record):
    """A kept tensor: the first item of the forward that needs it, with whose backward it dies.

    A recomputed tensor exists from the last item whose gradients need its run; other tensors exist from the
    start.
    """

    size_bytes: Floats
    first: int
    last: int


class _Walk(Record, frozen=False):
    """The gradients alive between two items: names that share one tensor point to one number."""

    sizes: dict[str, Floats]
    produced: frozenset[str]
    number: dict[str, int] = field(default_factory=dict)  # gradient of which tensor → number
    held: dict[int, Floats] = field(default_factory=dict)  # number → bytes

    def alive(self) -> Floats:
        """Return the bytes of all allocated gradients."""
        return sum(self.held.values(), ZERO)

    def born(self, name: str, size_bytes: Floats) -> None:
        """Add the gradient of a tensor."""
        self.number[name] = max(self.held, default=-1) + 1
        self.held[self.number[name]] = size_bytes

    def step(self, item: Item) -> Floats:
        """Process the backward pass of an item, and return the bytes of the gradients that are allocated
        while it runs.

        The gradients of the item's inputs are allocated while the gradient of its output still exists. If
        an input already has a gradient from another item, it temporarily has a second gradient, until both
        are added. An item that only passes a gradient on (a sum, a view) gives its input the gradient of
        its output. An item whose output has no gradient does nothing.
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


def _transient(
    item: Item, exchanges: Sequence[Item], gathers: Mapping[str, Item], writes_weight_gradients: bool
) -> Floats:
    """Return an item's temporaries: inputs from other ranks, its weight's gradient, tensors of a chain.

    `exchanges` are the items of the layer with an `exchange_of`; `gathers` are those whose source is kept,
    by their output.
    """
    work, needed_bytes = item.work, ZERO
    if isinstance(work, MemoryBound):
        needed_bytes = KINDS[work.kind].between * work.elements * ELEMENT_BYTES[work.dtype]
    if isinstance(work, Dequantise):  # what it writes is there for the product beside it
        needed_bytes = work.elements * ELEMENT_BYTES[work.dtype]
    if not isinstance(work, AbstractOperator) or not item.inputs:
        return needed_bytes
    needed_bytes = needed_bytes + exchanged_at_work(
        each for each in exchanges if each.inputs and each.inputs[0] in item.inputs
    )
    gather = gathers.get(item.inputs[0])
    if gather is not None and isinstance(gather.work, AbstractMessage):
        needed_bytes = needed_bytes + gather.work.message_bytes
    if writes_weight_gradients:
        needed_bytes = needed_bytes + weight_bytes(work)
    return needed_bytes


def _loss(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items that follow the logits: the loss, and the sums over ranks of what it reads."""
    kernels = [
        item for item in items if isinstance(item.work, MemoryBound) and KINDS[item.work.kind].is_loss
    ]
    logits = {name for item in kernels for name in item.inputs}
    sums = [item for item in items if isinstance(item.work, AbstractMessage) and item.output in logits]
    return (*kernels, *(item for item in sums if item.inputs == (item.output,)))


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
