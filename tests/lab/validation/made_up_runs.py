"""Made-up runs whose jobs are given, and their comparison."""

from conftest import make_job

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.lab.validation.published import compare_each
from flopcast.lab.validation.run import Observed, Run, Software

JOB = make_job()


def run(name="one", source="made-up", job=JOB, version="", **observed):
    """A run whose job is given; it took a tenth of a second unless it says otherwise."""
    seen = Observed(**(observed or {"step_time_s": 0.1}))
    software = Software(framework="made-up", version=version)
    return Run(id=name, source=source, where=f"{name}.csv:2", software=software, observed=seen), job


def judged(*tables, broken=()):
    """Runs with jobs of their own, compared."""
    jobs = {run.id: job for table in tables for run, job in table}

    def reproduce(run):
        if isinstance(jobs[run.id], SpecError):
            raise jobs[run.id]
        return jobs[run.id]

    runs = [[run for run, _ in table] for table in tables]
    return compare_each(runs, reproduce, lambda job: (predict(job),), 1, broken)[0]
