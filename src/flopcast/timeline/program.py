"""The simulation of one program: streams with dependencies, for all chunk classes and positions at once.

Answers: how long does a program take, which messages continue after its end, and which items are on its
critical path?
Elsewhere: the seconds of items (cost/price.py), the order of programs (pipeline.py).

Streams are in-order queues. Times form a max-plus linear system. One layer is a matrix from the free times
of streams before the layer to those after it (layer.py). Consecutive equal layers are a power of this
matrix (max_plus.py), so the cost of a simulation hardly depends on the number of layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts, Floats
from flopcast.kept_results import content
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.timeline.layer import (
    BLOCKING,
    LAUNCH_COLUMNS,
    SLOWED,
    Columns,
    layer_paths,
    num_columns,
    streams_of,
)
from flopcast.timeline.max_plus import NEVER, Paths, Place, repeated, starts
from flopcast.timeline.shared_links import may_share
from flopcast.workload.program import POSITIONS, Segment


class Simulated(Record, eq=False):
    """Programs of every position, plan and chunk class; arrays (positions, plans, classes).

    A program ends when its blocking streams end (compute; tensor-, expert- and context-parallel; host),
    because the next program needs their results. The data-parallel stream only has to end before the
    update, so it may continue after the program, unless parameters are also gathered on it. step.py queues
    the reductions of a stage's programs, given `tail_s` and `reduction_s`. The loss of a pipeline stage to
    messages of its first or last micro-batch (contention.py) is not part of the program; step.py charges
    `lost_s` at the end of the stage.

    Counts state how often each item is on the critical path: seconds · counts = time. If messages share
    links, a second set of columns holds the rest of the derivative (shared_links.py).
    """

    duration_s: Floats
    tail_s: Floats  # how long the data-parallel stream runs on after the program's end; -inf: unused
    reduction_s: Floats  # what the program adds to that stream
    tail_counts: Counts  # like `counts`: on the path from the program's start to that stream's end
    reduction_counts: Counts  # the same, of what the program adds to that stream
    lost_s: Floats  # how much later compute ends with the loss that is charged to its stage
    lost_counts: Counts  # like `counts`: what makes up `lost_s`
    columns: tuple[Item, ...]  # items by column of `counts`; the host's launches follow (layer.py)
    counts: Counts  # (positions, plans, classes, columns, or twice as many): on the critical path

    def of_row(self, row: int) -> "Simulated":
        """Return the programs of one plan; arrays with a single row are the same for all plans."""
        arrays = ((each.name, getattr(self, each.name)) for each in fields(self) if each.name != "columns")
        return replace(
            self, **{name: array[:, row : row + 1] for name, array in arrays if array.shape[1] > 1}
        )


def simulate(segments: Sequence[Segment], priced: Priced, attribute: bool) -> Simulated:
    """Simulate the segments of one pass.

    Parameters
    ----------
    segments : layers in the order of the pass, each with its repeats (plans, chunk classes)
    priced : Priced
        Seconds and launches of their items.
    attribute : whether to count items along the critical path (predict) or not (screening)

    Returns
    -------
    Simulated
        All streams start free. A program lasts at least as long as its launches, and as the items of
        each blocking stream.

    Raises
    ------
    ValueError
        There is no segment.
    """
    items = tuple(item for segment in segments for item in segment.items)
    if not segments:
        raise ValueError("a program needs at least one segment")
    streams = streams_of(items, priced.programs.plans)
    columns = tuple(_columns(segment, attribute) for segment in segments)
    layers = tuple(
        layer_paths(segment.items, streams, priced, of_layer)
        for segment, of_layer in zip(segments, columns, strict=True)
    )
    gathers = waits_for_gathers(segments)

    def made() -> Simulated:
        places = tuple(_places(columns))
        state = starts(streams, places[0].width)
        for layer, segment, place in zip(layers, segments, places, strict=True):
            state = repeated(state, layer, segment.repeat, place)
        return _ends(_everywhere(state, segments[0].repeat.shape), streams, items, gathers)

    if not priced.kept:
        return made()
    repeats = tuple(content(segment.repeat) for segment in segments)
    key = ("program", layers, repeats, streams, content(gathers))
    return replace(priced.kept.large.of(key, made, _bytes_of), columns=items)


def _bytes_of(found: Simulated) -> int:
    """Return the bytes of the counts of a simulated program, which are most of it."""
    each = (found.counts, found.tail_counts, found.reduction_counts, found.lost_counts)
    return sum(counts.nbytes for counts in each)


def _columns(segment: Segment, attribute: bool) -> Columns:
    """Return the columns of a segment's layer: for its items, if they are counted."""
    return Columns(num_columns(segment.items) if attribute else 0, attribute and may_share(segment.items))


def _places(layers: Sequence[Columns]) -> Iterator[Place]:
    """Yield where the columns of each layer stand in the program; all layers share those of launches."""
    sizes = [max(layer.number - LAUNCH_COLUMNS, 0) for layer in layers]
    number = sum(sizes) + LAUNCH_COLUMNS if any(layer.number for layer in layers) else 0
    width, offset = number * (2 if any(layer.slopes for layer in layers) else 1), 0
    for layer, size in zip(layers, sizes, strict=True):
        items = slice(offset, offset + size), slice(0, size)
        launches = slice(number - LAUNCH_COLUMNS, number), slice(size, layer.number)
        runs = [items, launches] if layer.number else []
        slopes = [(_moved(whole, number), _moved(own, layer.number)) for whole, own in runs]
        yield Place(width, tuple(runs + (slopes if layer.slopes else [])))
        offset += size


def _moved(columns: slice, number: int) -> slice:
    """Return the columns that stand `number` places later."""
    return slice(columns.start + number, columns.stop + number)


def _everywhere(state: Paths, shape: tuple[int, ...]) -> Paths:
    """Return the same paths with an entry for every position, plan and chunk class, (plans, classes)."""
    rows, streams, _, *after = state.longest_s.shape
    shape = (rows, streams, len(POSITIONS), *np.broadcast_shapes(shape, tuple(after)))
    counts = np.broadcast_to(state.counts, (*shape, state.counts.shape[-1]))
    return Paths(np.broadcast_to(state.longest_s, shape), counts)


def waits_for_gathers(segments: Sequence[Segment]) -> np.ndarray:
    """Return whether compute waits for gathers of parameters, (plans, chunk classes) of bool.

    Gathers share a queue with reductions. The next program begins with a gather, so it cannot begin before
    this queue is empty. The program therefore ends when its queue does.
    """
    repeats = [s.repeat for s in segments if any(item.stream == "gathered" for item in s.items)]
    return np.asarray(sum(repeats, np.zeros((1, 1))) > 0)


def _ends(
    state: Paths, streams: tuple[str, ...], items: tuple[Item, ...], gathers: np.ndarray
) -> Simulated:
    """Return the ends of a program whose streams all start free.

    The program ends with the last of the blocking streams and, where `gathers`, of the data-parallel one.
    The tail assumes that the data-parallel stream was free before; step.py adds the delay if it was not,
    with `reduction_s`, the seconds that this program alone puts on that stream.
    """
    own = streams.index("dp") if "dp" in streams else -1
    blocking = [index for index, name in enumerate(streams) if name in BLOCKING or index == own]
    counted = np.array([streams[index] in BLOCKING for index in blocking])[:, None, None, None]
    found_s = np.where(counted | gathers, state.longest_s[:, blocking], NEVER)
    seconds, counts = _latest(found_s, state.counts[:, blocking])
    lost, lost_counts = np.zeros(seconds.shape), np.zeros_like(counts)
    if SLOWED in streams:
        slow = [streams.index(SLOWED)]
        slowed_s, slowed_counts = _latest(state.longest_s[:, slow], state.counts[:, slow])
        lost = np.maximum(slowed_s - seconds, 0.0)
        lost_counts = np.where((lost > 0)[..., None], slowed_counts - counts, 0.0)
    tail = np.full(seconds.shape, NEVER)
    reduction = np.zeros(seconds.shape)
    tail_counts, reduction_counts = np.zeros_like(counts), np.zeros_like(counts)
    if own >= 0:
        tail = np.where(gathers, NEVER, state.longest_s[0, own] - seconds)
        tail_counts = state.counts[0, own]
        reduction = np.where(gathers, 0.0, np.maximum(state.longest_s[1, own], 0.0))
        reduction_counts = state.counts[1, own]
    return Simulated(
        duration_s=seconds,
        tail_s=tail,
        reduction_s=reduction,
        tail_counts=tail_counts,
        reduction_counts=reduction_counts,
        lost_s=lost,
        lost_counts=lost_counts,
        columns=items,
        counts=counts,
    )


def _latest(times_s: Floats, counts: Counts) -> tuple[Floats, Counts]:
    flat_s = times_s.reshape(-1, *times_s.shape[-3:])
    if not counts.shape[-1]:
        return flat_s.max(axis=0), np.zeros((*flat_s.shape[1:], 0))
    flat = counts.reshape(-1, *counts.shape[-4:])
    return flat_s.max(axis=0), np.take_along_axis(flat, flat_s.argmax(axis=0)[None, ..., None], axis=0)[0]
