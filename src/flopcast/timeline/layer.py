"""One layer as a matrix: from the free times of the streams before it to those behind it.

Answers: how do the items of a layer wait for each other, and what do its messages lose and take?
Elsewhere: many layers (paths.py), whole programs (program.py), the items' own seconds (cost/price.py), what
compute loses to messages (contention.py) and messages to each other (links.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.cost.host import several_experts
from flopcast.cost.prices import Priced
from flopcast.dtypes import Counts, Flags, Floats
from flopcast.operators.item import Item
from flopcast.spec.plan import Plans
from flopcast.timeline.contention import ends_stage, executions, lost_executions
from flopcast.timeline.links import Lost, Period, Shared, shared_links
from flopcast.timeline.paths import Paths, unit
from flopcast.workload.program import WHEN

BLOCKING = ("compute", "tp", "ep", "cp", "host")  # streams whose end is the program's end
SLOWED = "slowed"  # compute, if it bore what its stage loses to messages (contention.py, `ends_stage`)
STREAMS = ("compute", "tp", "ep", "cp", "dp", "gathered", "host", SLOWED)
EVERYWHERE = np.ones((1, 1, 1), dtype=bool)
LAUNCH_COLUMNS = 2  # of the host: launches of experts' products one after another, and all others


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of `counts` belong to a layer: those of its items begin at `offset`.

    The last two of the `number` columns hold the host's seconds of launching: of all other items, and of
    the products of several experts, one after another. `number` is 0 where nothing is counted. With slopes,
    as many columns again follow.
    """

    offset: int = 0
    number: int = 0
    slopes: bool = False

    @property
    def width(self) -> int:
        """All columns."""
        return self.number * (2 if self.slopes else 1)

    def launching(self, item: Item) -> Iterator[tuple[int, Flags]]:
        """Yield the columns that count the host's seconds of launching an item, and where each does."""
        several = several_experts(item)[None]
        if not self.number or several.all() or not several.any():
            yield self.number - (1 if several.all() else LAUNCH_COLUMNS), EVERYWHERE
        else:
            yield self.number - LAUNCH_COLUMNS, ~several
            yield self.number - 1, several


def num_columns(items: Sequence[Item]) -> int:
    """Return how many columns the items and the host's launches of them need."""
    return len(items) + LAUNCH_COLUMNS


def streams_of(items: tuple[Item, ...], plans: Plans) -> tuple[str, ...]:
    """Streams that need a row: unused ones would only make the matrices larger."""
    used = {item.stream for item in items} | {"compute", "host"}
    if any(ends_stage(item, plans).any() for item in items):
        used.add(SLOWED)
    return tuple(name for name in STREAMS if name in used)


def layer_links(items: tuple[Item, ...], priced: Priced) -> tuple[Shared | None, ...]:
    """What the messages of one layer lose to each other, by item (links.py)."""
    return _links(items, [_cost(item, priced) for item in items], priced, slopes=False)


def _links(
    items: tuple[Item, ...], costs: list[tuple[Floats, Floats]], priced: Priced, slopes: bool
) -> tuple[Shared | None, ...]:
    """As `layer_links`, of items whose costs are known."""

    def period() -> Period:
        """From a layer to the next where no link is shared: of its slowest blocking stream."""
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
    """The matrix of one layer, (streams, streams, positions, plans, classes), its messages slowed where
    they share links.

    Without columns nothing is counted, and one position stands for all of them where the layer does the
    same in each.
    """
    columns = columns or Columns()
    costs = [_cost(item, priced) for item in items]
    links = _links(items, costs, priced, columns.slopes)
    return _run(items, streams, costs, links, priced, columns)


def _of_message(lost: Lost, item: Item, number: int, columns: Columns) -> Counts:
    """Executions that make up what a message loses, in the columns of the program."""
    found = np.zeros((*np.broadcast_shapes(lost.fraction.shape, executions(item).shape), columns.width))
    if columns.number:
        found[..., columns.offset + number] = lost.fraction * executions(item)
    if columns.slopes:
        of_items = lost.slope[..., :-LAUNCH_COLUMNS]
        first = columns.number + columns.offset
        found[..., first : first + of_items.shape[-1]] += of_items
        found[..., -LAUNCH_COLUMNS:] += lost.slope[..., -LAUNCH_COLUMNS:]
    return found


Start = tuple[Floats, Counts]  # when something starts, and the items on the path to that moment


@dataclass(frozen=True, eq=False, slots=True)
class _Running:
    """A layer that is being run from an impulse on each stream: its arrays grow item by item."""

    streams: tuple[str, ...]
    columns: Columns
    paths: Paths

    def latest(self, own: str, waits: set[str]) -> Start:
        """The latest moment at which a stream and those that its item waits for are free, its own first."""
        place = self.streams.index(own)
        start = self.paths.longest_s[:, place], self.paths.counts[:, place]
        for name in self.streams:
            if name in waits and name != own:
                start = self.later(start, name)
        return start

    def later(self, start: Start, name: str) -> Start:
        """That moment, or the one at which another stream is free; an unused stream is always free."""
        if name not in self.streams:
            return start
        place = self.streams.index(name)
        free_s, counts = self.paths.longest_s[:, place], self.paths.counts[:, place]
        path = np.where((free_s > start[0])[..., None], counts, start[1]) if self.columns.number else counts
        return np.maximum(free_s, start[0]), path

    def put(self, name: str, start: Start, lasts_s: Floats, executed: Counts, column: int) -> None:
        """Put an item on a stream."""
        if name in self.streams:
            place = self.streams.index(name)
            self.paths.longest_s[:, place] = start[0] + lasts_s
            if self.columns.number:
                self.paths.counts[:, place] = start[1]
                self.paths.counts[:, place, ..., column] += executed

    def add(self, name: str, more_s: Floats, executed: Counts, column: int) -> None:
        """Lengthen what is on a stream."""
        if name in self.streams:
            place = self.streams.index(name)
            self.paths.longest_s[:, place] += more_s
            if self.columns.number:
                self.paths.counts[:, place, ..., column] += executed

    def add_loss(self, name: str, lost: Lost, alone_s: Floats, counts: Counts) -> None:
        """Lengthen what is on a stream by what a message of so many seconds loses."""
        if name in self.streams:
            place = self.streams.index(name)
            self.paths.longest_s[:, place] += lost.fraction * alone_s
            if self.columns.number:
                self.paths.counts[:, place] += counts


def _run(
    items: tuple[Item, ...],
    streams: tuple[str, ...],
    costs: list[tuple[Floats, Floats]],
    links: tuple[Shared | None, ...],
    priced: Priced,
    columns: Columns,
) -> Paths:
    """The matrix of one layer, by running its items from an impulse on each stream.

    An item starts when the latest of its own stream, the host (which must have launched it) and the streams
    that it waits for is free. Where two streams are equally late, its own is taken to be the cause.
    """
    lost = [lost_executions(item, priced) for item in items]
    arrays = (*sum(costs, ()), *lost)
    shape = np.broadcast_shapes((4 if columns.number else 1, 1, 1), *(array.shape for array in arrays))
    run = _Running(streams, columns, unit(len(streams), shape, columns.width))
    rows = zip(items, costs, links, lost, strict=True)
    for number, (item, (seconds, launch_s), link, loses) in enumerate(rows):
        column, executed = columns.offset + number, executions(item)
        if launch_s.any():
            for launches, where in columns.launching(item):
                run.add("host", launch_s * where, launch_s * where, launches)
        ends = ends_stage(item, priced.programs.plans)[None]
        waits = {item.stream, "host", *item.waits} | ({SLOWED} if item.waits and ends.any() else set())
        start = run.latest(item.stream, waits)
        run.put(item.stream, start, seconds, (seconds > 0) * executed, column)
        if item.stream == "compute":
            run.put(SLOWED, run.later(start, SLOWED), seconds, (seconds > 0) * executed, column)
        if link is not None:
            run.add_loss(item.stream, link.own, seconds, _of_message(link.own, item, number, columns))
            run.add_loss(SLOWED, link.later, seconds, _of_message(link.later, item, number, columns))
            for name, fraction in link.held_fraction.items():
                run.add(name, fraction * seconds, fraction * executed, column)
        if item.overlapped:
            alone_s = priced.of(item).alone_s[None]
            run.add("compute", loses * ~ends * alone_s, loses * ~ends, column)
            run.add(SLOWED, loses * alone_s, loses, column)
    return run.paths


def _cost(item: Item, priced: Priced) -> tuple[Floats, Floats]:
    """Seconds at every position, and the host's of launching; both (positions, plans, classes).

    One position stands for all of them where the item runs in every micro-batch.
    """
    price = priced.of(item)
    runs = np.array(WHEN[item.when] if item.when != "every" else (1.0,))[:, None, None]
    launched = np.minimum(item.count, 1.0)  # what no plan runs is not launched
    return runs * (price.alone_s * item.count)[None], runs * (price.host_s * launched)[None]
