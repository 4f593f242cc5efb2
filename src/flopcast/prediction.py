"""The spine: job in, report out. It reads as the table of contents of flopcast.

Nothing here opens a file: the curves come from `library.curves.load_book` (or a calibration of your own).
"""

from dataclasses import dataclass

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price
from flopcast.errors import SpecError
from flopcast.memory.peak import PeakMemory, peak_memory
from flopcast.report.memory_report import MemoryReport, memory_report
from flopcast.report.report import Report, summarise
from flopcast.spec.job import Job
from flopcast.spec.plan import one_plan
from flopcast.strict_model import cached_results
from flopcast.timeline.step import run_step
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise
from flopcast.workload.suggested_fixes import causes


def predict(job: Job, book: CurveBook) -> Report:
    """Predict one training step.

    The curves in `book` must be those of the job's cluster; kernels without one are estimated and say so.

    Raises
    ------
    SpecError
        The job contradicts itself, or asks for what is not supported; every fault is listed.
    """
    realised = realised_job(job)  # what this software really runs, and what must fit; no hardware yet
    return predict_realised(realised, book)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class RealisedJob:
    """The part of a prediction that does not depend on curves: what a job runs."""

    job: Job
    programs: Programs


@cached_results(8)  # memory is often asked for before a prediction
def realised_job(job: Job) -> RealisedJob:
    """Return what a job's software runs.

    Raises
    ------
    SpecError
        As `predict`.
    """
    problems = causes(job)
    if problems:
        raise SpecError(problems)
    workload = lower(job.model, one_plan(job.plan), job.batch)  # what must be computed, sent and kept
    return RealisedJob(job=job, programs=realise(workload, job.software))


def predict_realised(realised: RealisedJob, book: CurveBook) -> Report:
    """Predict as `predict` does, for several books: the workload of the job is computed once."""
    job, programs = realised.job, realised.programs
    priced = price(programs, job.cluster, book, FactorBook(job.site, book.levels))  # each item alone
    timeline = run_step(priced)  # when each runs, and what the step waits for
    return summarise(job, priced, timeline)


def memory_of(job: Job) -> MemoryReport:
    """Return what the job keeps on each device; needs no prices, and so no curves.

    Returns
    -------
    MemoryReport
        The same as in the report of `predict`, for machines that were never measured too.

    Raises
    ------
    SpecError
        As `predict`.
    """
    return memory_report(realised_job(job).programs, job.cluster)


def memory_by_class(job: Job) -> tuple[PeakMemory, tuple[int, ...]]:
    """Return the memory of every kind of stage of a job, and which kind each stage is.

    Raises
    ------
    SpecError
        As `predict`.
    """
    programs = realised_job(job).programs
    return peak_memory(programs), tuple(programs.stages.of(0).stage_class.tolist())
