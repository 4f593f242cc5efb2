"""A schedule of a user: the tasks of every stage in order.

Answers: can the tasks of the table run in this order, and if not, what is wrong?
Elsewhere: reading a table from a file (library/schedule_files.py), the rules for its plan
(spec/rules_schedule.py).

A task is written as in traces: kind, micro-batch and, after a dot, the chunk unless it is 0: "F3", "B3.1".
Stage 0 holds the embedding. Chunk c of stage s has the number c · stages + s in the order of the model. B
is the whole backward pass or, if there are tasks W, only the gradient of the input (arXiv:2401.10241,
section 2).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import model_validator

from flopcast.dtypes import Counts, Flags
from flopcast.errors import InternalError, Problem, shown
from flopcast.records import Record
from flopcast.schedules.base import BACKWARD, FORWARD, AbstractSchedule, Order
from flopcast.strict_model import StrictModel
from flopcast.units import counted

KINDS = ("F", "B", "W")
Task = tuple[str, int, int]  # kind, chunk, micro-batch


class Row(Record):
    """One task of one stage. `where` is its line in the file, for error messages."""

    stage: int
    kind: str  # of KINDS
    chunk: int
    micro_batch: int
    where: str = ""

    @property
    def task(self) -> Task:
        """Return the task without its stage."""
        return self.kind, self.chunk, self.micro_batch


class OwnSchedule(StrictModel, AbstractSchedule):
    """A schedule that a user has written.

    Attributes
    ----------
    name : str
        Name in reports: that of its file.
    tasks : tuple of str
        The tasks of each stage, one text per stage.

    Examples
    --------
    >>> own = OwnSchedule(name="mine.csv", tasks=("F0 F1 B0 B1", "F0 B0 F1 B1"))
    >>> own.stages, own.chunks, own.micro_batches, own.splits_backward
    (2, 1, 2, False)
    """

    name: str
    tasks: tuple[str, ...]
    blocks_because: ClassVar[str] = "a table of tasks cannot state when a stage waits for transfers"

    @model_validator(mode="after")
    def _runs(self) -> "OwnSchedule":
        problems = faults(list(self.rows()))
        if problems:
            raise ValueError(f"{problems[0].allowed}: {problems[0].because}")
        return self

    def rows(self) -> Iterator[Row]:
        """Yield every task, stage after stage.

        Raises
        ------
        ValueError
            A word is not a task.
        """
        for stage, text in enumerate(self.tasks):
            for word in text.split():
                micro_batch, _, chunk = word[1:].partition(".")
                if not (micro_batch.isdecimal() and (chunk or "0").isdecimal()):
                    raise ValueError(f"{word!r} is not a task such as F0 or B0.1")
                if word[0] not in KINDS:
                    raise ValueError(f"{word!r} is not a task: the kinds are F, B and W")
                yield Row(
                    stage=stage,
                    kind=word[0],
                    chunk=int(chunk or 0),
                    micro_batch=int(micro_batch),
                    where=f"stage {stage}",
                )

    @property
    def stages(self) -> int:
        """Return the number of pipeline stages."""
        return len(self.tasks)

    @cached_property
    def _extent(self) -> tuple[int, int]:
        rows = list(self.rows())
        return max(row.chunk for row in rows) + 1, max(row.micro_batch for row in rows) + 1

    @property
    def chunks(self) -> int:
        """Return the number of virtual stages."""
        return self._extent[0]

    @property
    def micro_batches(self) -> int:
        """Return the number of micro-batches per step."""
        return self._extent[1]

    @property
    def splits_backward(self) -> bool:
        """Return whether weight gradients are separate tasks."""
        return "W" in self.tasks[0]

    def takes_chunks(self, virtual: Counts) -> Flags:
        """Return a mask of plans whose stages have exactly the chunks of the table."""
        return np.asarray(virtual == self.chunks)

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the columns of the table.

        Raises
        ------
        InternalError
            The numbers differ from those of the table (spec/rules_schedule.py refuses such plans).
        """
        if (stages, virtual, micro_batches) != (self.stages, self.chunks, self.micro_batches):
            wanted = f"{stages} × {virtual} chunks and {micro_batches} micro-batches"
            raise InternalError(f"{self.name} is not an order of {wanted}")
        rows = [(KINDS.index(row.kind), row.chunk, row.micro_batch) for row in self.rows()]
        kind, chunk, micro_batch = np.array(rows, dtype=np.intp).T.reshape(3, stages, -1)
        return Order(kind=kind, chunk=chunk, micro_batch=micro_batch)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the number of micro-batches in flight at each stage's first backward pass."""
        order = self.order(self.stages, self.chunks, self.micro_batches)
        before = np.cumsum(order.kind == BACKWARD, axis=1) == 0
        flying = (before & (order.kind == FORWARD) & (order.chunk == chunk)).sum(axis=1)
        counted: Counts = flying.astype(np.float64)[np.asarray(stage, dtype=np.intp)]
        return counted + 0.0 * (stages + virtual + micro_batches)

    def __str__(self) -> str:
        """Return the name as a plan writes it."""
        return self.name


def schedule_of_rows(name: str, rows: Sequence[Row]) -> OwnSchedule:
    """Return the schedule of a table without faults. The rows of a stage are in order."""
    stages: dict[int, list[str]] = {}
    for row in rows:
        chunk = f".{row.chunk}" if row.chunk else ""
        stages.setdefault(row.stage, []).append(f"{row.kind}{row.micro_batch}{chunk}")
    return OwnSchedule(name=name, tasks=tuple(" ".join(stages[stage]) for stage in sorted(stages)))


def faults(rows: Sequence[Row]) -> tuple[Problem, ...]:
    """Return all faults because of which a table cannot run. Incomplete tables are not simulated."""
    if not rows:
        return (
            schedule_problem(
                "",
                None,
                "at least one task",
                "the table has no line below the names of its columns",
                "add a line for each task, such as 0,F,0",
            ),
        )
    problems = (*_incomplete(rows), *_repeated(rows), *_out_of_order(rows))
    return problems or _stuck(rows)


def _incomplete(rows: Sequence[Row]) -> Iterator[Problem]:
    """Yield tasks that a stage omits, of those that all chunks and micro-batches need."""
    stages, chunks, micro = (
        max(getattr(row, name) for row in rows) + 1 for name in ("stage", "chunk", "micro_batch")
    )
    kinds = KINDS if any(row.kind == "W" for row in rows) else KINDS[:2]
    tasks = {(row.stage, *row.task) for row in rows}
    for stage in range(min(stages, len(rows) + 1)):
        wanted = chunks * micro * len(kinds)
        had = sum(task[0] == stage for task in tasks)
        if had < wanted:
            missing = next(
                (stage, k, c, m)
                for m in range(micro)
                for c in range(chunks)
                for k in kinds
                if (stage, k, c, m) not in tasks
            )
            yield schedule_problem(
                [row.where for row in rows if row.stage == stage or not had][-1],
                f"{counted(had, 'task')} of stage {stage}",
                f"{counted(wanted, 'task')}: {', '.join(kinds)} of {counted(micro, 'micro-batch')}"
                f" and {counted(chunks, 'chunk')}",
                "every stage runs each task of a step once",
                f"add {_label(missing[1:])} of stage {stage}",
            )


def _repeated(rows: Sequence[Row]) -> Iterator[Problem]:
    seen: set[tuple[int, str, int, int]] = set()
    for row in rows:
        if (row.stage, *row.task) in seen:
            because = "every stage runs each task of a step once"
            fix = "remove this row"
            yield schedule_problem(row.where, _label(row.task), "each task once", because, fix)
        seen.add((row.stage, *row.task))


def _out_of_order(rows: Sequence[Row]) -> Iterator[Problem]:
    """Yield backwards before their own forward, weight gradients before their own backward."""
    seen: set[tuple[int, str, int, int]] = set()
    for row in rows:
        seen.add((row.stage, *row.task))
        if row.kind == "F":
            continue
        needs = (KINDS[KINDS.index(row.kind) - 1], row.chunk, row.micro_batch)
        if (row.stage, *needs) not in seen:
            yield schedule_problem(
                row.where,
                _label(row.task),
                f"after {_label(needs)} of stage {row.stage}",
                "a B task reads what its F task saves, and a W task reads what its B task writes",
                f"move this row after {_label(needs)}",
            )


def _stuck(rows: Sequence[Row]) -> tuple[Problem, ...]:
    """Return the tasks at which stages wait for each other forever, one per stage; none if all run."""
    stages, chunks = max(row.stage for row in rows) + 1, max(row.chunk for row in rows) + 1
    queues = [[row for row in rows if row.stage == stage][::-1] for stage in range(stages)]
    done: set[tuple[str, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for queue in queues:
            while queue and _needs(queue[-1], stages, chunks) <= done:
                row = queue.pop()
                done.add((row.kind, row.chunk * stages + row.stage, row.micro_batch))
                moved = True
    return tuple(
        schedule_problem(
            queue[-1].where,
            _label(queue[-1].task),
            f"after {_named(next(iter(_needs(queue[-1], stages, chunks) - done)), stages)}",
            "these stages wait for each other forever",
            "move this row down, or move the row for which it waits up",
        )
        for queue in queues
        if queue
    )


def _needs(row: Row, stages: int, chunks: int) -> set[tuple[str, int, int]]:
    """Return the task whose message a task needs, if any: (kind, number along the model, micro-batch)."""
    number = row.chunk * stages + row.stage
    source = number + {"F": -1, "B": 1, "W": 0}[row.kind]
    if row.kind == "W" or not 0 <= source < stages * chunks:
        return set()
    return {(row.kind, source, row.micro_batch)}


def _named(task: tuple[str, int, int], stages: int) -> str:
    """Return a task by its number along the model, as text."""
    kind, number, micro_batch = task
    return f"{_label((kind, number // stages, micro_batch))} of stage {number % stages}"


def _label(task: Task) -> str:
    kind, chunk, micro_batch = task
    return f"{kind}{micro_batch}" + (f".{chunk}" if chunk else "")


def schedule_problem(where: str, value: object, allowed: str, because: str, fix: str) -> Problem:
    """Return the error for a row of a user's schedule."""
    name, colon, wrong = str(value).partition(": ")
    fault = "has no tasks" if value is None else f"has {shown(wrong)} in the column {name}" if colon else ""
    return Problem("plan.schedule", value, allowed, because, fix, where=where, fault=fault)
