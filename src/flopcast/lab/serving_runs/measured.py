"""A measured run of a serving engine, and its prediction.

Answers: what was measured of a run, which job was it, how far is the prediction?
Elsewhere: the tables that hold runs (tables.py), predicting them (score.py).
"""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Literal, cast

from flopcast.lab.scores import Compared
from flopcast.records import dataclass
from flopcast.serving.requests import Requests
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number

Teaches = Literal["", "iterations", "requests"]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Measured:
    """One measured number: its value in `unit`, and where a report says the same.

    `read` returns the prediction in `unit` (quantities.py). `teaches` says which constants of engines are
    fitted on the number: those of iterations, those of requests, or none.
    """

    quantity: str  # the header of its column
    unit: str
    value: Number
    read: Callable[[ServingReport], Estimate]
    teaches: Teaches = ""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ServingRun:
    """One row of a table: the job that it describes, or the reason why it cannot be predicted.

    `trace` has the requests of a job whose traffic names one. `leave_out_share` of the requests is not
    judged at the beginning and at the end each; benchmarks that do not wait for a steady state judge all.
    """

    id: str
    source: str
    job: ServingJob | None
    reason: str
    measured: tuple[Measured, ...]
    groups: Mapping[str, str]  # engine, model, device: what statistics are told apart by
    trace: Requests | None = None
    leave_out_share: Number = 0.0


ComparedServing = Compared[ServingRun, Measured]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ServingScores:
    """All compared numbers of some tables, and the runs that were left out."""

    rows: tuple[ComparedServing, ...]
    left_out: tuple[ServingRun, ...]
    constants: str  # on which runs the constants of engines were fitted, in a sentence


def opened(path: Path) -> IO[str]:
    """Open a table as text, plain or packed."""
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")
