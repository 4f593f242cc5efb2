"""Memory over one step: the bytes of a stage before and after each task, by category.

Answers: how does the memory of a stage change over time, and in which task is it fullest?
Elsewhere: the peaks of many plans (peak.py), the times of tasks (timeline/; a curve contains only their
order).

Sizes come from categories.py and counts from in_flight.py. The peak of the curve therefore equals the
result of `peak_memory` for the fullest stage of a class. Other stages of the class hold less.
"""

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.kept_results import LargeResults
from flopcast.memory.in_flight import depths
from flopcast.memory.peak import PeakMemory
from flopcast.records import Record
from flopcast.schedules import schedule_of
from flopcast.schedules.base import Order
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.rows import equal_rows
from flopcast.workload.program import Programs

MOMENTS = LargeResults(16 << 20)
PASSES = ("forward", "backward", "weight")  # by the kind of a task (schedules/base.py)


class MemoryCurve(Record, eq=False):
    """The bytes of one stage at two moments of each task, in the order in which the stage runs its tasks.

    Columns have one entry for each moment, first the start of a task and then its end: `task` is the
    position in the stage's order, and `kind`, `chunk` and `micro_batch` identify the task. At the start of
    a backward pass, its layers are running. Moments with the same chunks in flight have the same `state`;
    a step has many moments and few states. `state_bytes` has one row for each of the `names` of categories,
    and one column for each state. `standing` exists during the whole step; `updating` is all that exists
    while gradients are reduced and applied.
    """

    task: Integers
    kind: Integers
    chunk: Integers
    micro_batch: Integers
    state: Integers
    names: tuple[str, ...]
    state_bytes: Floats
    standing: dict[str, float]  # bytes by category
    updating: dict[str, float]  # the same, what stands included

    @property
    def by_category(self) -> dict[str, Floats]:
        """Return the bytes of each category at every moment."""
        return dict(zip(self.names, self.state_bytes.take(self.state, axis=1), strict=True))

    @property
    def standing_bytes(self) -> float:
        """Return the allocated bytes while nothing is in flight."""
        return sum(self.standing.values())

    @property
    def update_bytes(self) -> float:
        """Return the allocated bytes while gradients are reduced and applied."""
        return sum(self.updating.values())

    @property
    def level_bytes(self) -> Floats:
        """Return the allocated bytes at every moment."""
        total_bytes: Floats = np.add.reduce(self.state_bytes)[self.state]
        return total_bytes


class StagePeak(Record):
    """The fullest moment of one stage.

    `moment` is the pass that runs at this moment, or "update", which belongs to no chunk and no micro-batch
    (-1). `by_category` contains the bytes of each category at this moment; their sum is the allocated
    memory.
    """

    allocated_bytes: float
    moment: str  # "forward", "backward", "weight" or "update"
    chunk: int
    micro_batch: int
    by_category: dict[str, float]


def memory_curves(
    programs: Programs, memory: PeakMemory, stages: Iterable[int], rank_classes: Iterable[int]
) -> Iterator[MemoryCurve]:
    """Yield the memory over time in the step of the first plan, for every rank class of every stage.

    Rank classes are data-parallel ranks whose micro-batches differ (`Workload.rows`). The sizes of
    categories and the order of tasks do not depend on the stage and are computed once; `memory` is that of
    the programs.
    """
    of_chunks = memory.of_chunks
    of_kinds = _Sizes(
        standing=_first_plan(memory.standing),
        update=_first_plan(memory.updating),
        by_column=[
            _first_plan(part) for part in (of_chunks.waiting, of_chunks.in_flight, of_chunks.at_work)
        ],
        columns=of_chunks.shape[2],
    )
    classes, stage_class = tuple(rank_classes), programs.stages.of(0).stage_class.tolist()
    of_class = cache(partial(_on_class, of_kinds))
    return (
        _curve(of_class(stage_class[stage]), _moments_of(programs, stage, each))
        for stage in stages
        for each in classes
    )


class _Sizes(Record, eq=False):
    """Bytes of the first plan, by category; an axis of length 1 holds what is the same for all.

    `standing` and the bytes of the update have shape (stage classes,); those that wait, are in flight or at
    work have shape (stage classes, columns), where `columns` are chunk classes, or their kinds of
    micro-batches.
    """

    standing: dict[str, Floats]
    update: dict[str, Floats]
    by_column: list[dict[str, Floats]]
    columns: int


class _ClassSizes(Record, eq=False):
    """The bytes of the first plan on one stage class, as those of `_Sizes` and of a `MemoryCurve`.

    `held_bytes` holds the sizes of the first of `names`, which exist during the whole step. `columns` holds
    the sizes of each column that wait, are in flight or are at work, by name.
    """

    standing: dict[str, float]
    updating: dict[str, float]
    held_bytes: Floats
    names: tuple[str, ...]
    columns: list[list[tuple[str, list[float]]]]


class _Moments(Record, eq=False):
    """The columns of a curve that do not depend on sizes, and what is there in every state.

    `counts` has one array of shape (columns, states) each for what waits, is in flight and is at work.
    """

    task: Integers
    kind: Integers
    chunk: Integers
    micro_batch: Integers
    state: Integers
    counts: tuple[Counts, Counts, Counts]

    @property
    def num_bytes(self) -> int:
        """Return the size of the arrays."""
        return 5 * self.task.nbytes + sum(each.nbytes for each in self.counts)


def _moments_of(programs: Programs, stage: int, rank_class: int) -> _Moments:
    """Return the moments of a stage; MOMENTS keeps the last ones."""
    division, workload = programs.stages.of(0), programs.workload
    rows, kinds = workload.rows[rank_class] if workload.rows else (), workload.num_kinds
    stages, chunks = division.chunk_class.shape
    micro_batches = len(rows) or int(programs.plans.num_micro_batches[0, 0])
    held = tuple(division.stage_chunks[int(division.stage_class[stage])].tolist())
    schedule, classes = programs.plans.structure.pipeline_schedule, len(division.chunk_counts)

    def made() -> _Moments:
        order = _order(schedule, stages, chunks, micro_batches)
        found = depths(order, stage, held, classes, rows, kinds)
        columns = np.arange(classes * kinds)[:, None]
        states = equal_rows([*found.waiting.T, *found.in_flight.T, found.at_work])
        return _Moments(
            task=found.task,
            kind=order.kind[stage][found.task],
            chunk=order.chunk[stage][found.task],
            micro_batch=order.micro_batch[stage][found.task],
            state=states.group,
            counts=(
                found.waiting[states.first].T.astype(np.float64, order="C"),
                found.in_flight[states.first].T.astype(np.float64, order="C"),
                (found.at_work[states.first] == columns).astype(np.float64),
            ),
        )

    key = schedule, stages, chunks, micro_batches, stage, held, classes, rows, kinds
    return MOMENTS.of(key, made, lambda moments: moments.num_bytes)


@lru_cache(maxsize=2)  # the stages of a pipeline ask for it one after the other
def _order(schedule: str | OwnSchedule, stages: int, chunks: int, micro_batches: int) -> Order:
    return schedule_of(schedule).order(stages, chunks, micro_batches)


def _on_class(of_kinds: _Sizes, at: int) -> _ClassSizes:
    """Return the sizes of one stage class; a single row is that of all classes."""

    def of_class(sizes: dict[str, Floats]) -> dict[str, Any]:
        return {name: size[at if len(size) > 1 else 0].tolist() for name, size in sizes.items()}

    standing, update = of_class(of_kinds.standing), of_class(of_kinds.update)
    columns = [
        [
            (name, held if len(held) == of_kinds.columns else held * of_kinds.columns)
            for name, held in of_class(part).items()
            if any(held)
        ]
        for part in of_kinds.by_column
    ]
    names = [name for name, size in standing.items() if size or update.get(name)]
    return _ClassSizes(
        standing=standing,
        updating=standing | {name: size + standing.get(name, 0.0) for name, size in update.items()},
        held_bytes=np.array([standing[name] for name in names]),
        names=(*dict.fromkeys((*names, *(name for part in columns for name, _ in part))),),
        columns=columns,
    )


def _curve(of_class: _ClassSizes, moments: _Moments) -> MemoryCurve:
    names, held_bytes = of_class.names, of_class.held_bytes
    level = np.zeros((len(names), moments.counts[0].shape[1]))
    level[: len(held_bytes)] = held_bytes[:, None]
    for part, counts in zip(of_class.columns, moments.counts, strict=True):
        for name, sizes in part:
            row = level[names.index(name)]
            for each_bytes, count in zip(sizes, counts, strict=True):
                if each_bytes:
                    row += each_bytes * count
    return MemoryCurve(
        task=moments.task,
        kind=moments.kind,
        chunk=moments.chunk,
        micro_batch=moments.micro_batch,
        state=moments.state,
        names=names,
        state_bytes=level,
        standing=of_class.standing,
        updating=of_class.updating,
    )


def peak_of(curve: MemoryCurve) -> StagePeak:
    """Return the first of the fullest moments of a stage.

    The update counts as the fullest moment only if it needs more than every task. Its chunk and micro-batch
    are then -1. Categories of size 0 are left out.
    """
    level = curve.level_bytes
    best = int(level.argmax())
    if curve.update_bytes > level[best]:
        held = curve.updating
        moment, chunk, micro_batch = "update", -1, -1
    else:
        held = dict(zip(curve.names, curve.state_bytes[:, curve.state[best]].tolist(), strict=True))
        moment = PASSES[int(curve.kind[best])]
        chunk, micro_batch = int(curve.chunk[best]), int(curve.micro_batch[best])
    return StagePeak(
        allocated_bytes=max(curve.update_bytes, float(level[best])),
        moment=moment,
        chunk=chunk,
        micro_batch=micro_batch,
        by_category={name: size for name, size in held.items() if size > 0},
    )


def _first_plan(sizes: dict[str, Floats]) -> dict[str, Floats]:
    """Return the sizes of the first plan. The arrays lose their first axis, which counts plans."""
    return {name: size[0] for name, size in sizes.items()}
