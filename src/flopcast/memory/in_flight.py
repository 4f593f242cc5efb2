"""The number of micro-batches in flight on a stage, computed only from its order of tasks.

Answers: how many micro-batches of every chunk does a stage hold before and after each task, and at which of
these moments can memory be fullest?
Elsewhere: the order of the tasks of a stage (schedules/), the memory of a micro-batch (categories.py).

Between its forward and its backward pass, a micro-batch of a chunk is *in flight*. If B and W are separate
tasks, it *waits* between them. While the backward pass of a chunk runs, the chunk is *at work*.

A moment is *dominated* if at another moment the same chunk is at work and every count is at least as large.
For any sizes of chunks, a dominated moment never needs more memory. Few moments are not dominated: one
under 1F1B and, under interleaved 1F1B, one for each way to divide the number of micro-batches in flight
over chunks.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from flopcast.dtypes import Counts, Integers, any_of, concatenated, constant
from flopcast.records import Record
from flopcast.schedules import schedule_of
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT, Order
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.batch import Rows
from flopcast.spec.rows import equal_rows, taken

NOTHING = -1  # no chunk is at work


class InFlight(Record, eq=False):
    """Moments of one stage: counts of shape (moments, classes), and the class at work, (moments,).

    `task` is the position in the stage's order of the task to which a moment belongs: the start of the task
    if a chunk is running, and otherwise its end.
    """

    in_flight: Integers
    waiting: Integers
    at_work: Integers  # class of the chunk whose backward runs, or NOTHING
    task: Integers


def depths(
    order: Order, stage: int, held: tuple[int, ...], classes: int, rows: Rows = (), kinds: int = 1
) -> InFlight:
    """Return all moments of a stage: the start of each backward, and the end of every task.

    Parameters
    ----------
    held : the class of each chunk, from 0 to `classes` - 1. Chunks of one class have equal sizes and are
        counted together
    rows : the kind of every micro-batch, if micro-batches differ. Each of the `kinds` of a class then has a
        separate column, and the columns of one class are adjacent

    Returns
    -------
    InFlight
        Two moments for each task, in the order of time. Before a forward pass or a weight gradient, the
        stage holds as much as after the previous task, and no chunk is at work.
    """
    kind, column = order.kind[stage], np.array(held)[order.chunk[stage]]
    columns = classes * kinds
    if rows:
        column = column * kinds + np.array(rows)[order.micro_batch[stage]]
    tasks = len(kind)
    splits = any_of(order.kind == WEIGHT)
    of_column = np.eye(columns, dtype=np.intp)[column]
    flying = ((kind == FORWARD).astype(np.intp) - (kind == BACKWARD))[:, None] * of_column
    waits = ((kind == BACKWARD).astype(np.intp) * splits - (kind == WEIGHT))[:, None] * of_column
    before = np.concatenate([np.zeros((1, columns), dtype=np.intp), flying.cumsum(axis=0)])
    delayed = np.concatenate([np.zeros((1, columns), dtype=np.intp), waits.cumsum(axis=0)])
    pairs = np.stack([np.arange(tasks), np.arange(1, tasks + 1)], axis=1).ravel()  # before, after
    at_work = np.stack([np.where(kind == BACKWARD, column, NOTHING), np.full(tasks, NOTHING)], axis=1)
    return InFlight(
        in_flight=before[pairs],
        waiting=delayed[pairs],
        at_work=at_work.ravel(),
        task=np.repeat(np.arange(tasks), 2),
    )


class Moments(Record, eq=False):
    """Moments of every stage class of a pipeline; counts of shape (stage classes, moments, columns).

    A class with fewer moments than another class repeats its last moment. `at_work` is 1 for the class of
    the chunk at work.
    """

    in_flight: Counts
    waiting: Counts
    at_work: Counts


def of_classes(found: Sequence[InFlight]) -> Moments:
    """Return the moments of stage classes, one class per row.

    Classes have different numbers of moments. Classes with fewer moments repeat their last moment, which
    changes no maximum.
    """
    most, columns = max(len(each.task) for each in found), found[0].in_flight.shape[1]
    rows = [np.minimum(np.arange(most), len(each.task) - 1) for each in found]
    at_work = np.eye(columns + 1)[:, :-1]  # NOTHING, the last row, is no column
    pairs = list(zip(found, rows, strict=True))
    return Moments(
        in_flight=np.stack([each.in_flight[row] for each, row in pairs]).astype(np.float64),
        waiting=np.stack([each.waiting[row] for each, row in pairs]).astype(np.float64),
        at_work=np.stack([at_work[each.at_work[row]] for each, row in pairs]),
    )


@lru_cache(maxsize=4096)
def fullest(
    schedule: str | OwnSchedule,
    stages: int,
    held: tuple[int, ...],
    classes: int,
    micro_batches: int,
    members: tuple[int, ...],
) -> InFlight:
    """Return the moments of some stages at which memory may be fullest; `task` is that of the first such
    stage.

    Parameters
    ----------
    held : the class of each chunk of these stages, from 0 to `classes` - 1. Each class has one column
    members : stages with equal layers; the fullest of them counts
    """
    rule = schedule_of(schedule)
    filled = int(rule.fills_after(constant(stages), constant(micro_batches)).item())
    order = rule.order(stages, len(held), filled)
    found = concatenated([depths(order, stage, held, classes) for stage in members])
    counts = np.hstack([found.in_flight, found.waiting, found.at_work[:, None]])
    first = equal_rows(list(counts.T)).first
    return taken(found, first[_undominated(counts[first])])


def _undominated(rows: Integers) -> Integers:
    """Return the rows that no other row dominates in every count; a layer at work counts more than none."""
    counts, at_work = rows[:, :-1], rows[:, -1]
    left = np.argsort(-counts.sum(axis=1) - 0.5 * (at_work != NOTHING), kind="stable")
    kept: list[int] = []
    while len(left):  # the fullest that is left is dominated by none: sums of those above are larger
        place = int(left[0])
        kept.append(place)
        same = (at_work[left] == at_work[place]) | (at_work[left] == NOTHING)
        left = left[~(same & (counts[left] <= counts[place]).all(axis=1))]
    return np.array(kept, dtype=np.intp)
