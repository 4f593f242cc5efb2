"""Measured numbers with their predictions, for every kind of measurement, and their statistics.

Answers: what is a measured run, how large are the errors of some rows, and how many measurements lie in
their interval?
Elsewhere: runs of serving engines (serving_runs), of states outside the devices (offload_runs) and of
graphs (graph_runs), the tables that hold them (measured_tables.py), how scores are shown
(render/measured_scores.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from flopcast.records import Record
from flopcast.serving.serving_report import Estimate
from flopcast.units import Number


class MeasuredNumber(Record, eq=False, slots=False):
    """One measured number: the header of its column, its unit and its value."""

    quantity: str
    unit: str
    value: Number


Number_co = TypeVar("Number_co", bound=MeasuredNumber, covariant=True)


class MeasuredRun(Record, Generic[Number_co], eq=False, slots=False):
    """One row of a table.

    `source` states who measured it, and `reason` why it cannot be predicted, or "" if it can. Statistics
    are grouped by the names in `groups`: engine, model, device and others.
    """

    id: str
    source: str
    measured: tuple[Number_co, ...]
    groups: Mapping[str, str]
    reason: str = ""


Run_co = TypeVar("Run_co", bound=MeasuredRun[MeasuredNumber], covariant=True)


class Compared(Record, Generic[Run_co, Number_co], eq=False, slots=False):
    """One measured number of a row and its prediction, in the measured unit."""

    run: Run_co
    measured: Number_co
    predicted: Estimate

    @property
    def relative_error(self) -> float:
        """Return predicted over measured, minus 1."""
        return self.predicted.value / self.measured.value - 1.0

    @property
    def is_inside(self) -> bool:
        """Return whether the 90 % interval contains the measured value."""
        return self.predicted.low <= self.measured.value <= self.predicted.high


class Scores(Record, Generic[Run_co, Number_co], eq=False, slots=False):
    """All compared numbers of some tables, the left-out runs, and a sentence about the constants."""

    rows: tuple[Compared[Run_co, Number_co], ...]
    left_out: tuple[Run_co, ...] = ()
    constants: str


ComparedNumber = Compared[MeasuredRun[MeasuredNumber], MeasuredNumber]
AnyScores = Scores[MeasuredRun[MeasuredNumber], MeasuredNumber]


def statistics(rows: Sequence[ComparedNumber]) -> dict[str, float]:
    """Return the count, median, mean and 90th percentile of the absolute error, the bias, and the share
    inside the interval.

    The bias is the median of predicted over measured, minus 1.
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


def by_group(scores: AnyScores, quantity: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the statistics of one quantity over all rows, then for each group of the runs."""
    rows = [row for row in scores.rows if row.measured.quantity == quantity]
    if not rows:
        return
    yield "all", statistics(rows)
    for group in rows[0].run.groups:
        for name in sorted({row.run.groups[group] for row in rows}):
            yield f"{group} {name}", statistics([row for row in rows if row.run.groups[group] == name])
