"""A measured run with states outside the devices, and its prediction.

Answers: what was measured of a run, which job was it, how far is the prediction?
Elsewhere: the tables that hold runs (tables.py), predicting them (score.py).
"""

from collections.abc import Mapping
from typing import Literal

from flopcast.lab.scores import Compared
from flopcast.records import dataclass
from flopcast.spec.job import Job
from flopcast.units import Number

Part = Literal["iteration", "forward", "backward", "update"]
PARTS_OF_COLUMNS: Mapping[str, Part] = {
    "iteration_ms": "iteration",
    "fwd_ms": "forward",
    "bwd_ms": "backward",
    "update_ms": "update",
}
MILLISECONDS = 1e3  # of a second


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPart:
    """One measured number, in milliseconds, and the part of a step that it times."""

    quantity: str  # the header of its column
    value: Number
    part: Part

    @property
    def unit(self) -> str:
        """Return the unit of the value."""
        return "ms"


@dataclass(frozen=True, kw_only=True, slots=True)
class OffloadRun:
    """One row of a table: the job that it describes, or the reason why it cannot be predicted.

    `groups` has the machine, the model, the folder of its logs and the method.
    """

    id: str
    source: str
    job: Job | None
    reason: str
    measured: tuple[MeasuredPart, ...]
    groups: Mapping[str, str]


ComparedPart = Compared[OffloadRun, MeasuredPart]


@dataclass(frozen=True, kw_only=True, slots=True)
class OffloadScores:
    """All compared numbers of some tables, and the runs that were left out."""

    rows: tuple[ComparedPart, ...]
    left_out: tuple[OffloadRun, ...]
    constants: str


def measured_parts(row: Mapping[str, str]) -> tuple[MeasuredPart, ...]:
    """Return the measured numbers of a row."""
    return tuple(
        MeasuredPart(quantity=name, value=float(row[name]), part=part)
        for name, part in PARTS_OF_COLUMNS.items()
        if row.get(name)
    )
