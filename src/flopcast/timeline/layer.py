"""One layer as a matrix, which maps the free times of streams before the layer to those after it.

Answers: how do the items of a layer wait for each other, and how much do its messages slow each other?
Elsewhere: many layers (max_plus.py), whole programs (program.py), the seconds of items (cost/price.py), the
slowdown of compute by messages (contention.py) and of messages by each other (shared_links.py).
"""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from flopcast.cost.host import launches_experts, several_experts
from flopcast.cost.item_prices import ItemPrice, Priced
from flopcast.dtypes import ONE, Counts, Flags, Floats, all_of, any_of
from flopcast.kept_results import content
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import LINKS
from flopcast.records import Record, field
from flopcast.spec.plan import Plans
from flopcast.timeline.contention import ends_stage, executions, lost_executions
from flopcast.timeline.max_plus import Paths, identity_s
from flopcast.timeline.shared_links import Period, QueueLoss, SharedLinkLoss, shared_links
from flopcast.workload.program import WHEN

BLOCKING = (
    "compute",
    "tp",
    "ep",
    "cp",
    "host",
    "updates",
    *LINKS,
)  # streams whose end is the program's end
SLOWED = "slowed"  # compute, including the loss that is charged to the stage (contention.py, `ends_stage`)
STREAMS = ("compute", "tp", "ep", "cp", "dp", "gathered", "host", "updates", *LINKS, SLOWED)
EVERYWHERE, NOWHERE = np.ones((1, 1, 1), dtype=bool), np.zeros((1, 1, 1), dtype=bool)
LAUNCH_COLUMNS = 2  # of the host: launches of experts' products one after another, and all others


class Columns(Record, kw_only=False):
    """The columns of `counts` of a layer: one for each item, then those of the host's launch seconds.

    The last two of the `number` columns hold the launch seconds of the host: the last column those of
    separate expert GEMMs, and the other one those of all other items. `number` is 0 if nothing is counted.
    With slopes, the number of columns is twice as large.
    """

    number: int = 0
    slopes: bool = False

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return self.number * (2 if self.slopes else 1)

    def launching(self, item: Item) -> Iterator[tuple[int, Flags]]:
        """Yield the columns for the launch seconds of an item, each with a mask of plans.

        A column counts seconds along the longest path. Launches of expert kernels have a separate column in
        plans in which a rank holds several experts, because their factor differs.
        """
        if not launches_experts(item):
            yield self.number - LAUNCH_COLUMNS, EVERYWHERE
            return
        several = several_experts(item)[None]
        if not self.number or all_of(several) or not any_of(several):
            yield self.number - (1 if all_of(several) else LAUNCH_COLUMNS), EVERYWHERE
        else:
            yield self.number - LAUNCH_COLUMNS, ~several
            yield self.number - 1, several


def num_columns(items: Sequence[Item]) -> int:
    """Return the number of columns for the items and their launches."""
    return len(items) + LAUNCH_COLUMNS


def streams_of(items: tuple[Item, ...], plans: Plans) -> tuple[str, ...]:
    """Return the streams that the items use. Rows for other streams would only enlarge the matrices."""
    used = {item.stream for item in items} | {"compute", "host"}
    if any(item.overlapped and any_of(ends_stage(item, plans)) for item in items):
        used.add(SLOWED)
    return tuple(name for name in STREAMS if name in used)


def layer_links(items: tuple[Item, ...], priced: Priced) -> tuple[SharedLinkLoss | None, ...]:
    """Return the time that messages of one layer lose to each other, by item (shared_links.py)."""
    return _links(items, [_cost(item, priced) for item in items], priced, slopes=False)


def _links(
    items: tuple[Item, ...], costs: list[tuple[Floats, Floats]], priced: Priced, slopes: bool
) -> tuple[SharedLinkLoss | None, ...]:
    """Return the same as `layer_links`, for items whose costs are known."""

    def period() -> Period:
        """Return the time of the layer's slowest blocking stream, if no link is shared."""
        streams = tuple(name for name in streams_of(items, priced.programs.plans) if name != SLOWED)
        columns = Columns(number=num_columns(items) if slopes else 0)
        alone = _run(items, streams, costs, (None,) * len(items), priced, columns)
        own = [index for index, name in enumerate(streams) if name in BLOCKING]
        each_s, counts = alone.longest_s[own, own], alone.counts[own, own]
        slowest = each_s.argmax(axis=0)[None]
        return Period(
            np.take_along_axis(each_s, slowest, axis=0)[0],
            np.take_along_axis(counts, slowest[..., None], axis=0)[0] if slopes else counts[0],
        )

    return shared_links(items, [seconds for seconds, _ in costs], priced, period)


def layer_paths(
    items: tuple[Item, ...], streams: tuple[str, ...], priced: Priced, columns: Columns | None = None
) -> Paths:
    """Return the matrix of one layer, in which messages on the same link slow each other.

    The shape is (streams, streams, positions, plans, classes). Without columns nothing is counted. There is
    a single position if the layer runs the same items in all positions.
    """
    columns = columns or Columns()
    if not priced.kept:
        return _paths(items, streams, priced, columns)
    prices = [priced.of(item) for item in items]
    apart = content(priced.programs.plans.pipeline_parallel > 1)  # what contention asks of a plan
    slowing = priced.programs.stack.contention.kernel_share  # and of the stack: no price depends on it
    kinds = tuple(map(_kind, items, prices))
    key = ("paths", kinds, streams, columns, apart, slowing)
    return priced.kept.large.of(key, lambda: _paths(items, streams, priced, columns), _bytes_of)


def _bytes_of(paths: Paths) -> int:
    """Return the bytes of the matrices of a layer."""
    return paths.longest_s.nbytes + paths.counts.nbytes


def _kind(item: Item, price: ItemPrice) -> Hashable:
    """Return what the matrix of a layer asks of an item; equal prices tell of equal work."""
    how = item.stream, item.waits, item.when, item.overlapped, launches_experts(item)
    return price, *how, None if item.count is ONE else content(item.count)


def _paths(items: tuple[Item, ...], streams: tuple[str, ...], priced: Priced, columns: Columns) -> Paths:
    """Return the same as `layer_paths`."""
    costs = [_cost(item, priced) for item in items]
    links = _links(items, costs, priced, columns.slopes)
    return _run(items, streams, costs, links, priced, columns)


def _of_message(lost: QueueLoss, item: Item, number: int, columns: Columns) -> Counts:
    """Return the loss of a message as executions of items, in the columns of its layer."""
    found = np.zeros((*np.broadcast_shapes(lost.fraction.shape, executions(item).shape), columns.width))
    if columns.number:
        found[..., number] = lost.fraction * executions(item)
    if columns.slopes:
        found[..., columns.number :] += lost.slope
    return found


Start = tuple[Floats, Counts]  # when something starts, and the items on the path to that moment


class _Running(Record, eq=False, kw_only=False):
    """The state of running a layer from an impulse on each stream; it grows item by item.

    `free_s` and `counts` hold an array for each stream: when it is free after an impulse on each stream,
    (streams, positions, plans, classes), and the items on the path to that moment. `passed` holds, for two
    streams, the second's `free_s` for which the first has waited; it is free no earlier since.
    """

    streams: tuple[str, ...]
    columns: Columns
    free_s: dict[str, Floats]
    counts: dict[str, Counts]
    passed: dict[tuple[str, str], Floats] = field(default_factory=dict)

    def latest(self, own: str, waits: set[str]) -> Start:
        """Return when a stream and the streams that its item waits for are all free; the item starts then.

        Returns
        -------
        tuple
            The time, and the counts of the path that causes it, which tell how the time depends on each
            item. On a tie, the item's own stream is the cause, or else the first one.
        """
        start = self.free_s[own], self.counts[own]
        for name in self.streams:
            if name in waits and name != own and self.passed.get((own, name)) is not self.free_s[name]:
                self.passed[own, name] = self.free_s[name]
                start = self.later(start, name)
        return start

    def later(self, start: Start, name: str) -> Start:
        """Return the later of two times: a given time, and the time at which another stream is free."""
        start_s, counts = start
        free_s = self.free_s[name]
        if not self.columns.number:
            return np.maximum(free_s, start_s), counts
        later = free_s > start_s
        number = np.count_nonzero(later)
        if number == 0:
            return start
        if number == later.size:
            return free_s, self.counts[name]
        return np.maximum(free_s, start_s), np.where(later[..., None], self.counts[name], counts)

    def put(self, name: str, start: Start, lasts_s: Floats, executed: Counts, column: int) -> None:
        """Put an item on a stream; no path to its start contains the item."""
        if name in self.free_s:
            self.free_s[name] = start[0] + lasts_s
            if self.columns.number:
                if start[1] is not self.counts[name]:
                    self.counts[name] = start[1].copy()
                self.counts[name][..., column] = executed

    def add(self, name: str, more_s: Floats, executed: Counts, column: int) -> None:
        """Add seconds to a stream."""
        if name in self.free_s:
            self.free_s[name] = self.free_s[name] + more_s
            if self.columns.number:
                self.counts[name][..., column] += executed

    def add_loss(self, name: str, lost: QueueLoss, alone_s: Floats, counts: Counts) -> None:
        """Add the loss of a message of `alone_s` seconds to a stream."""
        if name in self.free_s:
            self.free_s[name] = self.free_s[name] + lost.fraction * alone_s
            if self.columns.number:
                self.counts[name] = self.counts[name] + counts

    def paths(self) -> Paths:
        """Return the matrix of the items that have run."""
        free_s, counts = ([of[name] for name in self.streams] for of in (self.free_s, self.counts))
        return Paths(np.stack(free_s, axis=1), np.stack(counts, axis=1))


def _idle(streams: tuple[str, ...], shape: tuple[int, ...], columns: Columns) -> _Running:
    """Return the state before the first item."""
    size = len(streams)
    alone = np.broadcast_to(identity_s(size), (size, size, *shape))
    return _Running(
        streams,
        columns,
        free_s={name: alone[:, place] for place, name in enumerate(streams)},
        counts={name: np.zeros((size, *shape, columns.width)) for name in streams},
    )


def _run(
    items: tuple[Item, ...],
    streams: tuple[str, ...],
    costs: list[tuple[Floats, Floats]],
    links: tuple[SharedLinkLoss | None, ...],
    priced: Priced,
    columns: Columns,
) -> Paths:
    """Return the matrix of one layer, by running its items from an impulse on each stream.

    An item starts when its own stream, the streams that it waits for and the host, which must have launched
    it, are all free. If two streams are free at the same time, the item's own one counts as the cause.
    """
    plans, lost = priced.programs.plans, [lost_executions(item, priced) for item in items]
    late_ends = [ends_stage(item, plans)[None] for item in items if item.overlapped]
    shapes = {array.shape for array in (*sum(costs, ()), *lost, *late_ends)}
    shape = np.broadcast_shapes((1, 1, 1), *shapes)
    run = _idle(streams, shape, columns)
    rows = zip(items, costs, links, lost, strict=True)
    for column, (item, (seconds, launch_s), link, loses) in enumerate(rows):
        executed = executions(item)
        if any_of(launch_s):
            for launches, where in columns.launching(item):
                launched_s = launch_s if where is EVERYWHERE else launch_s * where
                run.add("host", launched_s, launched_s, launches)
        ends = ends_stage(item, plans)[None] if item.overlapped else NOWHERE
        late = bool(item.waits) and ends is not NOWHERE and any_of(ends)
        waits = {item.stream, "host", *item.waits, *((SLOWED,) if late else ())}
        start = run.latest(item.stream, waits)
        takes_time = all_of(seconds)
        lasts = executed if takes_time else (seconds > 0) * executed
        bears = item.stream == "compute" and SLOWED in streams
        if bears:
            run.put(SLOWED, run.later(start, SLOWED), seconds, lasts, column)
        run.put(item.stream, start, seconds, lasts, column)
        if link is not None:
            run.add_loss(item.stream, link.own, seconds, _of_message(link.own, item, column, columns))
            run.add_loss(SLOWED, link.later, seconds, _of_message(link.later, item, column, columns))
            for name, fraction in link.held_fraction.items():
                run.add(name, fraction * seconds, fraction * executed, column)
        if item.overlapped:
            alone_s = priced.of(item).alone_s[None]
            run.add("compute", loses * ~ends * alone_s, loses * ~ends, column)
            run.add(SLOWED, loses * alone_s, loses, column)
    return run.paths()


def _cost(item: Item, priced: Priced) -> tuple[Floats, Floats]:
    """Return the seconds and the host's launch seconds at every position, (positions, plans, classes).

    There is one position if the item runs in every micro-batch.
    """
    price = priced.of(item)
    seconds, launch_s = (price.alone_s * item.count)[None], (price.host_s * item.count)[None]
    if item.when == "every":
        return seconds, launch_s
    runs = np.array(WHEN[item.when])[:, None, None]
    return runs * seconds, runs * launch_s
