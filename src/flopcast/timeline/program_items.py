"""The times of each operator and message of one program, for readers and traces.

Answers: at which time in a task does each item start and end, and on which stream? The rules are those of
program.py, applied to one item after the other. Both give the same duration.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Floats, Integers
from flopcast.operators.item import EVERY_STREAM, Item
from flopcast.records import Record
from flopcast.timeline.contention import lost_in_program
from flopcast.timeline.layer import BLOCKING, layer_links
from flopcast.timeline.program import waits_for_gathers
from flopcast.timeline.shared_links import SharedLinkLoss
from flopcast.workload.program import WHEN, Segment


class Inside(Record, eq=False):
    """The items of one program as columns, in the order of their launches.

    Items that take no time (a collective of one rank, an accumulation in the first micro-batch) are left
    out. Rows of different streams overlap; rows of one stream do not. Data-parallel rows may end after
    `duration_s`: the next program starts without them. The time that compute loses to concurrent messages
    is shown as gaps between its rows, like the time that a queue loses to messages on its link.
    """

    items: tuple[Item, ...]
    layer: Integers  # which repetition of its segment
    start_s: Floats
    end_s: Floats
    duration_s: float  # of the program


def lay_out(
    segments: Sequence[Segment], priced: Priced, plan: int, chunk_class: int, position: int
) -> Inside:
    """Return the items of one program that take time, with their times after the start of the program.

    Parameters
    ----------
    segments : segments of the forward or the backward pass
    plan : index of the plan in the batch
    chunk_class : which chunk of layers (workload/stages.py)
    position : index into POSITIONS: first, middle, last or only micro-batch of the step

    Returns
    -------
    Inside
        Its duration equals that of `program.simulate`, which needs no loop over layers.
    """
    free = dict.fromkeys(EVERY_STREAM, 0.0)
    rows: list[tuple[Item, int, float, float]] = []
    for segment in segments:
        repeat = int(segment.repeat[min(plan, len(segment.repeat) - 1), chunk_class])
        costs = [_cost(item, priced, plan, position) for item in segment.items]
        links = [_of(link, (position, plan, chunk_class)) for link in layer_links(segment.items, priced)]
        for layer in range(repeat):
            for item, (alone_s, launch_s, lost_s), (own, held) in zip(
                segment.items, costs, links, strict=True
            ):
                free["host"] += launch_s
                start = max(free[name] for name in {item.stream, "host", *item.waits})
                seconds = alone_s * (1.0 + own)
                free[item.stream] = start + seconds
                free["compute"] += lost_s
                for name, fraction in held.items():
                    free[name] += fraction * alone_s
                if seconds > 0:
                    rows.append((item, layer, start, start + seconds))
    gathers = waits_for_gathers(segments)
    at = min(plan, gathers.shape[0] - 1), min(chunk_class, gathers.shape[1] - 1)
    ending = (*BLOCKING, "dp") if gathers[at] else BLOCKING
    items, layers, starts, ends = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Inside(
        items=tuple(items),
        layer=np.array(layers, dtype=np.intp),
        start_s=np.array(starts),
        end_s=np.array(ends),
        duration_s=max(free[name] for name in ending),
    )


def _of(link: SharedLinkLoss | None, at: tuple[int, int, int]) -> tuple[float, dict[str, float]]:
    """Return the loss of a message and the delays that it causes, at one (position, plan, chunk class)."""
    if link is None:
        return 0.0, {}

    def here(fraction: Floats) -> float:
        place = tuple(min(index, size - 1) for index, size in zip(at, fraction.shape, strict=True))
        return float(fraction[place])

    return here(link.own.fraction), {name: here(part) for name, part in link.held_fraction.items()}


def _cost(item: Item, priced: Priced, plan: int, position: int) -> tuple[float, float, float]:
    """Return the seconds of an item, of its launch, and of what compute loses to it, at a position.

    All are 0 where the item does not run.
    """
    runs = WHEN[item.when][position]
    host_s = priced.of(item).host_s * item.count
    lost_s = lost_in_program(item, priced) * priced.of(item).alone_s[None]
    place = min(position, len(lost_s) - 1), min(plan, lost_s.shape[1] - 1), 0
    return (
        priced.seconds(item, plan) * runs,
        float(host_s[min(plan, len(host_s) - 1), 0]) * runs,
        float(lost_s[place]),
    )
