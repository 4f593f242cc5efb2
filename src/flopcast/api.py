"""The few functions that a program calls: they load what the pure core needs."""

from pathlib import Path

from flopcast import prediction
from flopcast.io.curves import load_book
from flopcast.io.jobs import load_job as read_job
from flopcast.io.suites import load_suite
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.validation.compare import Comparison, compare


def load_job(path: str | Path) -> Job:
    """Read and check a job file (YAML or JSON).

    Raises
    ------
    SpecError
        Every fault of the file, each with its line.
    """
    return read_job(Path(path))


def predict(job: Job) -> Report:
    """Predict one training step with the curves of the catalogue.

    Raises
    ------
    SpecError
        The job contradicts itself, or asks for what is not built.
    """
    return prediction.predict(job, load_book(job.cluster))


def validate_suite(name: str) -> Comparison:
    """Predict a suite of measured runs: "paper", "sc21" or "korthikanti"."""
    return compare(load_suite(name), predict)
