"""Inside one program: streams with dependencies, for all chunk classes and positions at once.

Answers: how long does a program take, what runs on after its end, which items are on its critical path?
Elsewhere: the items' own seconds (cost/price.py), how programs follow each other (pipeline.py).

Streams are in-order queues. Times form a max-plus linear system: one layer is a matrix from the free
times of the streams before it to those after it, and equal layers in a row are a power of that
matrix, so a program costs as much to simulate with 2 layers as with 100. With every time goes a
vector that counts how often each item stands on the path that made it: seconds · counts = time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.cost.prices import Priced
from flopcast.dtypes import ONE, Counts, Floats, Integers
from flopcast.operators.item import Item
from flopcast.timeline.contention import lost_executions
from flopcast.timeline.links import Shared, shared_links
from flopcast.workload.program import POSITIONS, WHEN, Segment

NEVER = -np.inf
BLOCKING = ("compute", "tp", "ep", "cp", "host")  # streams whose end is the program's end


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Simulated:
    """Programs of every position, plan and chunk class; arrays (positions, plans, classes).

    A program ends with its blocking streams (compute; tensor-, expert- and context-parallel; host): what
    follows needs its result. The data-parallel stream only has to be done before the update, so it may run
    on, unless parameters are gathered on it too; step.py lines up the reductions of a stage's programs from
    `tail_s` and `reduction_s`.
    """

    duration_s: Floats
    tail_s: Floats  # how long the data-parallel stream runs on after the program's end; -inf: unused
    reduction_s: Floats  # what the program adds to that stream
    tail_counts: Counts  # like `counts`: on the path from the program's start to that stream's end
    reduction_counts: Counts  # the same, of what the program adds to that stream
    columns: tuple[Item, ...]  # items by column of `counts`; the last column is the host's launches
    counts: Counts  # (positions, plans, classes, columns + 1): executions on the critical path


@dataclass(frozen=True, eq=False, slots=True)
class _Paths:
    """Longest paths from each stream (first index) to each stream (second), with their counts.

    A matrix of the max-plus algebra: times on the path from "stream a is free" to "stream b is free" behind
    these items; NEVER where b does not wait for a. `counts` says how often each item stands on that path.
    """

    longest_s: Floats  # (streams, streams, positions, plans, classes)
    counts: Counts  # time's shape + (columns,)


def simulate(segments: Sequence[Segment], priced: Priced, attribute: bool) -> Simulated:
    """Run the segments of one pass.

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
    streams = streams_of(items)
    columns = len(items) + 1 if attribute else 0
    state: _Paths | None = None
    offset = 0
    for segment in segments:
        layer = _layer_paths(segment.items, streams, priced, columns, offset)
        state = _repeat(state, layer, segment.repeat)
        offset += len(segment.items)
    if state is None:
        raise ValueError("a program needs at least one segment")
    shape = state.longest_s.shape
    every = np.broadcast_to(state.longest_s, (*shape[:2], len(POSITIONS), *shape[3:]))
    return _ends(_Paths(every, state.counts), streams, items, waits_for_gathers(segments))


def waits_for_gathers(segments: Sequence[Segment]) -> np.ndarray:
    """Whether compute waits for gathers of parameters, (plans, chunk classes) of bool.

    They share a queue with reductions: the next program, which begins with a gather of its own, cannot
    begin before that queue is done, so that the queue belongs to the program's end.
    """
    repeats = [s.repeat for s in segments if any(item.stream == "gathered" for item in s.items)]
    return np.asarray(sum(repeats, np.zeros((1, 1))) > 0)


def streams_of(items: tuple[Item, ...]) -> tuple[str, ...]:
    """Streams that need a row: unused ones would only make the matrices larger."""
    used = {item.stream for item in items} | {"compute", "host"}
    return tuple(name for name in ("compute", "tp", "ep", "cp", "dp", "gathered", "host") if name in used)


def layer_times(items: tuple[Item, ...], streams: tuple[str, ...], priced: Priced) -> Floats:
    """Longest paths through one layer, (streams, streams, positions, plans, classes).

    One position stands for all of them where the layer does the same in each.
    """
    return _layer_paths(items, streams, priced, columns=0, offset=0).longest_s


def layer_links(items: tuple[Item, ...], priced: Priced) -> tuple[Shared | None, ...]:
    """What the messages of one layer lose to each other, by item (links.py)."""
    return _links(items, [_cost(item, priced) for item in items], priced)


def _links(
    items: tuple[Item, ...], costs: list[tuple[Floats, Floats]], priced: Priced
) -> tuple[Shared | None, ...]:
    """As `layer_links`, of items whose costs are known."""

    def period_s() -> Floats:
        """Seconds from a layer to the next where no link is shared: of its slowest blocking stream."""
        streams = streams_of(items)
        alone = _run(items, streams, costs, (None,) * len(items), priced, columns=0, offset=0)
        own = [index for index, name in enumerate(streams) if name in BLOCKING]
        longest_s: Floats = alone.longest_s[own, own].max(axis=0)
        return longest_s

    return shared_links(items, [seconds for seconds, _ in costs], priced, period_s)


def _layer_paths(
    items: tuple[Item, ...], streams: tuple[str, ...], priced: Priced, columns: int, offset: int
) -> _Paths:
    """The matrix of one layer, its messages slowed where they share links."""
    costs = [_cost(item, priced) for item in items]
    return _run(items, streams, costs, _links(items, costs, priced), priced, columns, offset)


def _run(
    items: tuple[Item, ...],
    streams: tuple[str, ...],
    costs: list[tuple[Floats, Floats]],
    links: tuple[Shared | None, ...],
    priced: Priced,
    columns: int,
    offset: int,
) -> _Paths:
    """The matrix of one layer, by running its items from an impulse on each stream.

    An item starts when the latest of its own stream, the host (which must have launched it) and the streams
    that it waits for is free. Items of all layers have their own column in `counts`: this layer's begin at
    `offset`. Where two streams are equally late, its own is taken to be the cause.
    """
    count = len(streams)
    host = streams.index("host")
    lost = [lost_executions(item, priced) for item in items]
    shape = np.broadcast_shapes((4 if columns else 1, 1, 1), *(a.shape for a in (*sum(costs, ()), *lost)))
    time = np.full((count, count, *shape), NEVER)
    counts = np.zeros((count, count, *shape, columns))
    for stream in range(count):
        time[stream, stream] = 0.0
    rows = zip(items, costs, links, lost, strict=True)
    for number, (item, (seconds, launch_s), link, loses) in enumerate(rows):
        own = streams.index(item.stream)
        if launch_s.any():
            time[:, host] += launch_s
            if columns:
                counts[:, host, ..., -1] += launch_s
        waits = sorted({own, host, *(streams.index(w) for w in item.waits if w in streams)})
        start, path = time[:, own], counts[:, own]
        for stream in waits:
            if stream != own:
                later = time[:, stream] > start
                start = np.where(later, time[:, stream], start)
                if columns:
                    path = np.where(later[..., None], counts[:, stream], path)
        longer = 1.0 + link.own_fraction if link is not None else ONE
        time[:, own] = start + longer * seconds
        held = list(link.held_fraction.items()) if link is not None else []
        for name, fraction in held:
            time[:, streams.index(name)] += fraction * seconds
        if item.overlapped:
            time[:, streams.index("compute")] += loses * priced.of(item).alone_s[None]
        if columns:
            counts[:, own] = path
            executed = executions(item)
            counts[:, own, ..., offset + number] += (seconds > 0) * longer * executed
            for name, fraction in held:
                counts[:, streams.index(name), ..., offset + number] += fraction * executed
            counts[:, streams.index("compute"), ..., offset + number] += loses
    return _Paths(time, counts)


def _cost(item: Item, priced: Priced) -> tuple[Floats, Floats]:
    """Seconds at every position, and the host's of launching; both (positions, plans, classes).

    One position stands for all of them where the item runs in every micro-batch.
    """
    price = priced.of(item)
    runs = np.array(WHEN[item.when] if item.when != "every" else (1.0,))[:, None, None]
    launched = np.minimum(item.count, 1.0)  # what no plan runs is not launched
    return runs * (price.alone_s * item.count)[None], runs * (price.host_s * launched)[None]


def executions(item: Item) -> Counts:
    """How often one execution of the item's entry runs it at every position: `count`, or 0."""
    return np.array(WHEN[item.when])[:, None, None] * item.count[None]


def _repeat(state: _Paths | None, layer: _Paths, repeat: Counts) -> _Paths:
    """`state` followed by `layer`, `repeat` times: (plans, classes) whole numbers.

    By squaring: 100 layers take six squarings and three products. Powers of one matrix commute, so the
    bits of the repeats may come in any order.
    """
    times = repeat.astype(np.intp)
    result = state
    power = layer
    bits = int(times.max()).bit_length() if times.size else 0
    for bit in range(bits):
        wanted = ((times >> bit) & 1).astype(bool)
        if wanted.any():
            result = _then(result, power, wanted)
        if bit + 1 < bits:
            power = _join(power, power)
    return result if result is not None else _nothing(layer, times)


def _then(state: _Paths | None, layer: _Paths, wanted: np.ndarray) -> _Paths:
    """`state` followed by `layer` where wanted (plans, classes); elsewhere as it was."""
    start = state if state is not None else _nothing(layer, wanted)
    joined = _join(start, layer)
    time = np.where(wanted, joined.longest_s, start.longest_s)
    return _Paths(time, np.where(wanted[..., None], joined.counts, start.counts))


def _nothing(layer: _Paths, like: np.ndarray) -> _Paths:
    """No work at all: each stream stays where it is. The identity matrix of the max-plus algebra."""
    count = layer.longest_s.shape[0]
    shape = np.broadcast_shapes(layer.longest_s.shape[2:], (1, *like.shape))
    time = np.full((count, count, *shape), NEVER)
    for stream in range(count):
        time[stream, stream] = 0.0
    return _Paths(time, np.zeros((*time.shape, layer.counts.shape[-1])))


def _join(first: _Paths, second: _Paths) -> _Paths:
    """One after the other: the max-plus product of the two matrices.

    The path from a to c goes through the stream b that makes it longest; its counts are those of both
    halves.
    """
    through = first.longest_s[:, :, None] + second.longest_s[None]
    best = through.max(axis=1)
    if not first.counts.shape[-1]:
        return _Paths(best, np.zeros((*best.shape, 0)))
    return _Paths(best, _counted(first.counts, second.counts, through.argmax(axis=1)))


def _counted(first: Counts, second: Counts, through: Integers) -> Counts:
    """Counts of both halves of every path; `through` is the stream between them, (streams, streams, …)."""
    rest, columns = through.shape[2:], first.shape[-1:]
    before = np.broadcast_to(first, (*first.shape[:2], *rest, *columns))
    behind = np.broadcast_to(second, (*second.shape[:2], *rest, *columns))
    start, end, *others = np.ogrid[tuple(slice(size) for size in through.shape)]
    both: Counts = before[start, through, *others] + behind[through, end, *others]
    return both


def _ends(
    state: _Paths, streams: tuple[str, ...], items: tuple[Item, ...], gathers: np.ndarray
) -> Simulated:
    """All streams start free; the program ends with the last of the blocking ones, and, where `gathers`,
    with the data-parallel one.

    The tail counts from where the data-parallel stream was free long ago; how much later it ends when it
    was not is decided in step.py, with `reduction_s`, what this program alone puts on it.
    """
    own = streams.index("dp") if "dp" in streams else -1
    blocking = [index for index, name in enumerate(streams) if name in BLOCKING or index == own]
    counted = np.array([streams[index] in BLOCKING for index in blocking])[:, None, None, None]
    found_s = np.where(counted | gathers, state.longest_s[:, blocking], NEVER)
    flat = found_s.reshape(-1, *state.longest_s.shape[2:])
    seconds = flat.max(axis=0)
    counts = np.zeros((*seconds.shape, 0))
    if state.counts.shape[-1]:
        paths = state.counts[:, blocking].reshape(-1, *state.counts.shape[2:])
        counts = np.take_along_axis(paths, flat.argmax(axis=0)[None, ..., None], axis=0)[0]
    tail = np.full(seconds.shape, NEVER)
    reduction = np.zeros(seconds.shape)
    tail_counts, reduction_counts = np.zeros_like(counts), np.zeros_like(counts)
    if own >= 0:
        others = [index for index in range(len(streams)) if index != own]
        tail = np.where(gathers, NEVER, state.longest_s[others, own].max(axis=0) - seconds)
        reduction = np.where(gathers, 0.0, np.maximum(state.longest_s[own, own], 0.0))
        if state.counts.shape[-1]:
            latest = state.longest_s[others, own].argmax(axis=0)[None, ..., None]
            tail_counts = np.take_along_axis(state.counts[others, own], latest, axis=0)[0]
            reduction_counts = state.counts[own, own]
    return Simulated(
        duration_s=seconds,
        tail_s=tail,
        reduction_s=reduction,
        tail_counts=tail_counts,
        reduction_counts=reduction_counts,
        columns=items,
        counts=counts,
    )
