"""A measured run of a serving engine, and its prediction.

Answers: what was measured of a run, which job was it, how far is the prediction?
Elsewhere: the tables that hold runs (tables.py), predicting them (score.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.serving.serving_report import Estimate
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Measured:
    """One measured number: its value in `unit`, and which latency or rate of a report it is.

    `of` is the name of a mean latency ("ttft", "tpot"), or "output_tokens_per_s".
    """

    quantity: str  # the header of its column
    unit: str
    value: Number
    of: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ServingRun:
    """One row of a table: the job that it describes, or the reason why it cannot be predicted."""

    id: str
    source: str
    job: ServingJob | None
    reason: str
    measured: tuple[Measured, ...]
    groups: Mapping[str, str]  # engine, model, device: what statistics are told apart by


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ComparedServing:
    """One measured number beside its prediction, in the measured unit."""

    run: ServingRun
    measured: Measured
    predicted: Estimate

    @property
    def relative_error(self) -> float:
        """Return predicted over measured, less 1."""
        return self.predicted.value / self.measured.value - 1.0

    @property
    def is_inside(self) -> bool:
        """Return whether the 90 % interval holds the measured value."""
        return self.predicted.low <= self.measured.value <= self.predicted.high


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ServingScores:
    """All compared numbers of some tables, and the runs that were left out."""

    rows: tuple[ComparedServing, ...]
    left_out: tuple[ServingRun, ...]
    constants: str  # on which runs the constants of engines were fitted, in a sentence
