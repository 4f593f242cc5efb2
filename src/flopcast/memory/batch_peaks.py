"""The memory of stages at the possible peak times, for whole batches of plans.

Answers: which categories does memory contain at its peak, for every stage class, and how many bytes has
each?
Elsewhere: the times at which memory can be fullest (in_flight.py), the bytes of a micro-batch
(categories.py), all other memory (peak.py).

Plans that divide their layers equally, and whose pipelines fill after the same number of micro-batches,
have the same peak times. These times are computed together for all stage classes.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from flopcast.dtypes import ZERO, Counts, Floats, Integers, any_of, concatenated
from flopcast.memory.categories import AT_WORK, IN_FLIGHT, WAITING, sizes
from flopcast.memory.in_flight import InFlight, Moments, depths, fullest, of_classes
from flopcast.records import Record
from flopcast.schedules import schedule_of
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.orders import order_of
from flopcast.spec.rows import equal_rows
from flopcast.workload.program import Programs
from flopcast.workload.stages import Division


class CategoryBytes(Record, eq=False):
    """The sizes of chunks of each class, by category; (plans, stage classes, columns), or 1 if equal.

    Columns are chunk classes or, if micro-batches differ, pairs of a chunk class and a kind of micro-batch
    (`categories.sizes`).
    """

    in_flight: dict[str, Floats]
    waiting: dict[str, Floats]
    at_work: dict[str, Floats]
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, programs: Programs) -> "CategoryBytes":
        """Return the weights of every plan."""
        in_flight, waiting, at_work = (sizes(part, programs) for part in (IN_FLIGHT, WAITING, AT_WORK))
        plans, classes, chunks = programs.stages.chunks_of_class.shape
        shape = (plans, classes, chunks * programs.workload.num_kinds)
        return cls(in_flight=in_flight, waiting=waiting, at_work=at_work, shape=shape)

    def totals(self) -> tuple[Floats, Floats, Floats]:
        """Return sums over categories: in flight, kept for weight gradients, and in running passes."""
        flying, waits, work = (
            np.broadcast_to(sum(part.values(), ZERO[:, :, None]), self.shape)
            for part in (self.in_flight, self.waiting, self.at_work)
        )
        return flying, waits, work


def held_bytes(
    programs: Programs, weights: CategoryBytes, plan: Integers, micro_batches: Counts
) -> dict[str, Floats]:
    """Return the bytes by category at the peak of each pair of a plan and its number of micro-batches.

    Parameters
    ----------
    programs : Programs
    weights : CategoryBytes
        Bytes of one micro-batch that is in flight, waits for weight gradients, or runs its backward pass,
        (plans, stage classes, chunk classes).
    plan : array of int, shape (pairs,)
        Plan of each pair.
    micro_batches : array of shape (pairs,)

    Returns
    -------
    dict of arrays of shape (pairs, stage classes)
        The bytes are 0 for a class that only pads the batch.
    """
    shape = (len(plan), *weights.shape[1:])
    flying, waits, work = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for members, moments, level in _groups(programs, weights, plan, micro_batches):
        classes, columns = moments.in_flight.shape[0], moments.in_flight.shape[2]
        here = np.ix_(members, np.arange(classes), np.arange(columns))
        at = (np.arange(classes), level.argmax(axis=2))
        flying[here], waits[here], work[here] = (
            moments.in_flight[at],
            moments.waiting[at],
            moments.at_work[at],
        )
    found: dict[str, Floats] = {}
    parts = ((weights.waiting, waits), (weights.in_flight, flying), (weights.at_work, work))
    for part, count in parts:
        for name, size_bytes in part.items():
            size = size_bytes if len(size_bytes) == 1 else size_bytes[plan]
            found[name] = found.get(name, ZERO) + (count * size).sum(axis=2)
    return found


def fullest_bytes(
    programs: Programs, weights: CategoryBytes, plan: Integers, micro_batches: Counts
) -> Floats:
    """Return the sum of `held_bytes`, (pairs, stage classes)."""
    found = np.zeros((len(plan), weights.shape[1]))
    for members, _, level in _groups(programs, weights, plan, micro_batches):
        found[members, : level.shape[1]] = level.max(axis=2)
    return found


def _groups(
    programs: Programs, weights: CategoryBytes, plan: Integers, micro_batches: Counts
) -> Iterator[tuple[Integers, Moments, Floats]]:
    """Yield pairs of a plan and a number of micro-batches that share their moments.

    Levels are (pairs, stage classes, moments), in bytes without what stands.
    """
    stages, totals = programs.stages, weights.totals()
    equal = equal_rows([stages.code[plan], micro_batches])
    places = np.split(
        np.argsort(equal.group, kind="stable"), np.bincount(equal.group, minlength=1).cumsum()[:-1]
    )
    schedules: dict[int, str | OwnSchedule] = {}
    for members in places:
        division = stages.divisions[int(stages.code[plan[members[0]]])]
        chunks = division.chunk_class.shape[1]
        if chunks not in schedules:
            schedules[chunks] = order_of(programs.plans.structure, chunks)
        micro = int(micro_batches[members[0]])
        moments = (
            _of_kinds(programs, division, schedules[chunks])
            if programs.workload.rows
            else _moments(division, schedules[chunks], micro)
        )
        yield members, moments, _levels(moments, *(total[plan[members]] for total in totals))


def _levels(moments: Moments, flying_bytes: Floats, waiting_bytes: Floats, work_bytes: Floats) -> Floats:
    """Return the bytes of every plan and stage class at its moments; (plans, stage classes, columns)."""
    classes, most, columns = moments.in_flight.shape
    parts = [(flying_bytes, moments.in_flight), (work_bytes, moments.at_work)]
    parts += [(waiting_bytes, moments.waiting)] if any_of(moments.waiting) else []
    level_bytes = np.zeros((len(flying_bytes), classes, most))
    for column in range(columns):  # one by one: a plan gets the same beside any others
        for size_bytes, counts in parts:
            level_bytes += size_bytes[:, :classes, column, None] * counts[:, :, column]
    return level_bytes


@lru_cache(maxsize=4096)
def _moments(division: Division, schedule: str | OwnSchedule, micro: int) -> Moments:
    """Return the moments of every stage class that include the fullest one."""
    stages, _ = division.chunk_class.shape
    classes = len(division.chunk_counts)
    return of_classes(
        [
            fullest(schedule, stages, tuple(held), classes, micro, _members(division, at))
            for at, held in enumerate(division.stage_chunks.tolist())
        ]
    )


def _of_kinds(programs: Programs, division: Division, schedule: str | OwnSchedule) -> Moments:
    """Return all moments of a step with different micro-batches, per rank class; the peak may be late."""
    stages, chunks = division.chunk_class.shape
    kinds, ranks = programs.workload.num_kinds, programs.workload.rows
    classes = len(division.chunk_counts)

    def of_class(at: int, held: tuple[int, ...]) -> InFlight:
        order = schedule_of(schedule).order
        return concatenated(
            [
                depths(order(stages, chunks, len(rows)), stage, held, classes, rows, kinds)
                for rows in ranks
                for stage in _members(division, at)
            ]
        )

    return of_classes([of_class(at, tuple(held)) for at, held in enumerate(division.stage_chunks.tolist())])


def _members(division: Division, at: int) -> tuple[int, ...]:
    return tuple(np.flatnonzero(division.stage_class == at).tolist())
