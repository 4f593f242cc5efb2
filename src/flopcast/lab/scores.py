"""Statistics of measured numbers and their predictions, for every kind of measurement.

Answers: how large are the errors of some rows, and how many measurements are in their interval?
Elsewhere: rows of serving engines (serving_runs) and of states outside the devices (offload_runs), how
scores are shown (render/measured_scores.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from flopcast.records import dataclass
from flopcast.serving.serving_report import Estimate
from flopcast.units import Number


class MeasuredNumber(Protocol):
    """One measured number: the header of its column, its unit and its value."""

    @property
    def quantity(self) -> str:
        """Return the header of the column."""

    @property
    def unit(self) -> str:
        """Return the unit of the value."""

    @property
    def value(self) -> Number:
        """Return the measured value."""


class MeasuredRun(Protocol):
    """One row of a table."""

    @property
    def id(self) -> str:
        """Return what identifies the row."""

    @property
    def source(self) -> str:
        """Return who measured it."""

    @property
    def reason(self) -> str:
        """Return why it cannot be predicted; empty if it can."""

    @property
    def groups(self) -> Mapping[str, str]:
        """Return the names by which statistics are grouped."""


Run_co = TypeVar("Run_co", bound=MeasuredRun, covariant=True)
Number_co = TypeVar("Number_co", bound=MeasuredNumber, covariant=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class Compared(Generic[Run_co, Number_co]):
    """One measured number of a row beside its prediction, in the measured unit."""

    run: Run_co
    measured: Number_co
    predicted: Estimate

    @property
    def relative_error(self) -> float:
        """Return predicted over measured, less 1."""
        return self.predicted.value / self.measured.value - 1.0

    @property
    def is_inside(self) -> bool:
        """Return whether the 90 % interval holds the measured value."""
        return self.predicted.low <= self.measured.value <= self.predicted.high


ComparedNumber = Compared[MeasuredRun, MeasuredNumber]


class Scores(Protocol):
    """All compared numbers of some tables, the runs that were left out, and the constants in a sentence."""

    @property
    def rows(self) -> Sequence[ComparedNumber]:
        """Return the compared numbers."""

    @property
    def left_out(self) -> Sequence[MeasuredRun]:
        """Return the rows that cannot be predicted."""

    @property
    def constants(self) -> str:
        """Return which constants were used, in a sentence."""


def statistics(rows: Sequence[ComparedNumber]) -> dict[str, float]:
    """Return count, median, mean and 90th percentile of the absolute error, bias, share inside.

    The bias is the median of predicted over measured, less 1.
    """
    errors = np.array([row.relative_error for row in rows])
    return {
        "rows": float(len(rows)),
        "median": float(np.median(np.abs(errors))),
        "mean": float(np.mean(np.abs(errors))),
        "p90": float(np.quantile(np.abs(errors), 0.9)),
        "bias": float(np.median(errors)),
        "inside": float(np.mean([row.is_inside for row in rows])),
    }


def by_group(scores: Scores, quantity: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield statistics of one quantity over all rows, then by each group of the runs."""
    rows = [row for row in scores.rows if row.measured.quantity == quantity]
    if not rows:
        return
    yield "all", statistics(rows)
    for group in rows[0].run.groups:
        for name in sorted({row.run.groups[group] for row in rows}):
            yield f"{group} {name}", statistics([row for row in rows if row.run.groups[group] == name])
