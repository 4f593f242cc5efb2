"""Predicted memory compared with the memory in logs, without prices and therefore without curves.

Answers: how large are the errors of predicted bytes, for each row and for all rows?
Elsewhere: the rows (lab/published/suite_files.py, lab/published/functional_tests.py), the bytes
(memory/peak.py).
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from flopcast.lab.calibration.watched import Watched
from flopcast.memory.peak import PeakMemory
from flopcast.records import Record
from flopcast.spec.job import Job
from flopcast.strict_model import StrictModel

Remember = Callable[[Job], tuple[PeakMemory, tuple[int, ...]]]


class MemoryRow(StrictModel):
    """One run's memory on one rank.

    `quantity`: "allocated" at the peak, or "resident" between steps. `stage`: the stage of the rank that
    was read; "fullest" if the source states the maximum over all ranks.
    """

    id: str
    job: Job
    quantity: Literal["allocated", "resident"] = "allocated"
    stage: Literal["fullest", "first", "last"] = "fullest"
    measured_bytes: float = Field(gt=0)


class MemorySuite(StrictModel):
    """Rows of one source; `fitted` states what was fitted to them, `remarks` what they omit."""

    name: str
    source: str
    fitted: str
    peers: str = ""
    remarks: tuple[str, ...] = ()
    rows: tuple[MemoryRow, ...] = Field(min_length=1)


class ComparedMemory(Record):
    """The measured and predicted bytes of one row."""

    id: str
    quantity: str
    measured_bytes: float
    predicted_bytes: float

    @property
    def relative_error(self) -> float:
        """Return predicted / measured - 1."""
        return self.predicted_bytes / self.measured_bytes - 1.0


def compare_memory(
    rows: Sequence[MemoryRow], remember: Remember, watched: Watched[MemoryRow] = iter
) -> tuple[ComparedMemory, ...]:
    """Return every row with its prediction.

    `remember` returns the memory of a job and the class of each of its stages (prediction.py,
    `memory_by_class`). `watched` wraps the iteration over the rows.
    """
    compared = []
    for row in watched(rows):
        memory, stage_class = remember(row.job)
        sizes = memory.allocated_bytes if row.quantity == "allocated" else memory.resident_bytes
        each = [float(sizes[0, at if sizes.shape[1] > 1 else 0]) for at in stage_class]
        predicted = {"fullest": max(each), "first": each[0], "last": each[-1]}[row.stage]
        compared.append(
            ComparedMemory(
                id=row.id,
                quantity=row.quantity,
                measured_bytes=row.measured_bytes,
                predicted_bytes=predicted,
            )
        )
    return tuple(compared)


def summary(compared: Sequence[ComparedMemory]) -> dict[str, float]:
    """Return mean, median, 90th percentile, largest and bias of the relative errors.

    Nine of ten rows have errors up to the percentile. Without rows, the result contains nothing else.
    """
    if not compared:
        return {"rows": 0.0}
    errors = sorted(abs(row.relative_error) for row in compared)
    return {
        "rows": float(len(errors)),
        "mean": statistics.mean(errors),
        "median": statistics.median(errors),
        "p90": errors[min(len(errors) - 1, round(0.9 * len(errors)))],
        "largest": errors[-1],
        "bias": statistics.mean(row.relative_error for row in compared),
    }
