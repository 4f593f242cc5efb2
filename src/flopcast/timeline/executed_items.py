"""The items that tasks of a stage execute, with their seconds.

Answers: which items are on the critical paths of tasks, and by how much do copies to and from the host
lengthen the tasks?
Elsewhere: the shares of a step and of a stage (critical_path.py), the simulation of a pass (program.py).

If copies take longer than the concurrent kernels, the critical path of a task consists only of copies. A
breakdown by this path would show no time for kernels. The shares of a stage are therefore those of its
passes without copies, and copies have the time by which they lengthen the tasks.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts, Integers, distinct
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import LINKS
from flopcast.records import replace
from flopcast.timeline.layer import num_columns
from flopcast.timeline.program import Simulated, simulate
from flopcast.timeline.simulation import StepSimulation
from flopcast.timeline.time_attribution import TimeAttribution
from flopcast.workload.program import Segment

# an item, the seconds of one execution, `moves` of its price, and whether it stands for launches of experts
Column = tuple[Item | None, float, float, bool]
TasksOfRuns = Sequence[tuple[float, StepSimulation, Integers]]  # weights, simulations, tasks of them


def without_copies_in(
    run: StepSimulation, tasks: Integers
) -> tuple[list[tuple[Simulated, Counts, Integers]], list[TimeAttribution]]:
    """Return the executions of tasks of each pass without copies, and copies with the time that they
    add.
    """
    kind = run.played.graph.order.kind.ravel()[tasks]
    found: list[tuple[Simulated, Counts, Integers]] = []
    copies: list[TimeAttribution] = []
    for number, simulated in enumerate(run.passes):
        mine = tasks[kind == number]
        added = added_copies(run, number, mine)
        beside = simulated_without_copies(run.priced, number) if added else simulated
        found.append((beside, beside.counts, mine))
        copies += added
    return found, copies


def added_copies(run: StepSimulation, number: int, tasks: Integers) -> list[TimeAttribution]:
    """Return the copies on the critical paths of tasks of one pass, whose sum is the time that they add."""
    whole = run.passes[number]
    if not _has_copies(whole.columns):
        return []
    found = [
        share for share in executed(run, whole, whole.counts, tasks) if share.item and _is_copy(share.item)
    ]
    total_s = sum(share.path_s for share in found)
    if total_s <= 0:
        return []
    longer = whole.duration_s - simulated_without_copies(run.priced, number).duration_s
    added_s = float(run.of_task.values(longer, tasks).sum())
    return [share.times(added_s / total_s) for share in found]


@lru_cache(maxsize=64)
def _has_copies(items: tuple[Item, ...]) -> bool:
    """Return whether any of the items of a pass copies between memories."""
    return any(map(_is_copy, items))


def _is_copy(item: Item) -> bool:
    return item.stream in LINKS


def without_copies(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the segments of a pass without the items that copy between memories."""
    return tuple(
        replace(segment, items=tuple(item for item in segment.items if not _is_copy(item)))
        for segment in segments
    )


@lru_cache(maxsize=4)  # all shares of one step ask for the same passes
def simulated_without_copies(priced: Priced, number: int) -> Simulated:
    """Return the simulation of a pass in which copies take no time."""
    return simulate(without_copies(priced.programs.passes[number]), priced, attribute=True)


def executed(
    run: StepSimulation, simulated: Simulated, counts: Counts, tasks: Integers
) -> list[TimeAttribution]:
    """Return the seconds of each column that these tasks take.

    `counts` has shape (positions, plans, chunk classes, columns), as those of Simulated: executions of
    items, and seconds of the host's launches.
    """
    return executed_in([(1.0, run, tasks)], simulated, counts)


def executed_in(chosen: TasksOfRuns, simulated: Simulated, counts: Counts) -> list[TimeAttribution]:
    """Return the seconds of each column that tasks of weighted runs take, as a sum over the runs."""
    found: list[TimeAttribution] = []
    rows = [run.of_task.row[tasks] for _, run, tasks in chosen]
    width, priced = num_columns(simulated.columns), chosen[0][1].priced
    for row in distinct(np.concatenate(rows)):
        summed = [
            weight * run.of_task.summed(counts, tasks[mine == row])
            for (weight, run, tasks), mine in zip(chosen, rows, strict=True)
        ]
        times: list[float] = np.add.reduce(summed).tolist()
        shifts = times[width:] or [0.0] * width
        columns = _columns(priced, simulated.columns, row)
        for (item, one_s, moves, of_experts), number, shift in zip(columns, times, shifts, strict=False):
            if number or shift:
                found.append(TimeAttribution(item, number * one_s, row, moves, shift * one_s, of_experts))
    return found


@lru_cache(maxsize=4)  # the shares of one step ask for the same columns several times
def _columns(priced: Priced, items: tuple[Item, ...], row: int) -> tuple[Column, ...]:
    """Return the columns of items and, behind them, of the host's launches, in one row of prices."""
    priced_items = ((item, priced.of(item)) for item in items)
    of_items = ((item, price.one_s(row), price.moved(row), False) for item, price in priced_items)
    return (*of_items, (None, 1.0, 1.0, False), (None, 1.0, 1.0, True))
