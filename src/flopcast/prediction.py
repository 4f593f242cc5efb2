"""The prediction of a training job, from the job to the report.

This module is the best place to start reading.

It opens no file. The curves come from `library.curves.load_book` or from your calibration.
"""

from collections.abc import Sequence

from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.leg_prices import price_legs
from flopcast.cost.levelled import Levels, levelled
from flopcast.cost.part_prices import axes_of, priced_in_groups, with_parts
from flopcast.cost.parts import layout_of
from flopcast.cost.price import price
from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.peak import PeakMemory, peak_memory
from flopcast.records import replace
from flopcast.report.memory_report import MemoryReport, memory_report
from flopcast.report.report import Report, summarise
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.shared_sequences import plans_of
from flopcast.timeline.step import run_step, simulate_passes
from flopcast.workload.layer_strategies import with_strategies
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise
from flopcast.workload.suggested_fixes import causes


def predict(job: Job, book: CurveBook, kept: KeptResults = NOTHING_KEPT) -> Report:
    """Predict one training step, and reuse the results of earlier predictions in `kept`.

    The curves in `book` must be those of the job's cluster; the times of kernels without a curve are
    estimated, with a warning.

    Raises
    ------
    SpecError
        The job contradicts itself, or needs a feature that is not supported. The error lists every fault.
    """
    programs = programs_of(job, kept)  # what this software really runs; no hardware yet
    priced = priced_job(job, programs, book, kept)  # each item alone
    timeline = run_step(priced)  # when each runs, and what the step waits for
    return summarise(job, priced, timeline)


def predict_each(job: Job, bare: Priced, levels: Sequence[Levels]) -> tuple[Report, ...]:
    """Return the reports of a job with several sets of levels, for which its programs run only once.

    Parameters
    ----------
    bare : the prices of the job without levels, for which `can_be_levelled` is true
    levels : sets of levels; an empty set is none
    """
    together, alone = levelled(bare, levels)
    passes = simulate_passes(together)
    return tuple(
        summarise(job, priced, run_step(priced, passes=tuple(each.of_row(row) for each in passes)))
        for row, priced in enumerate(alone)
    )


def priced_job(job: Job, programs: Programs, book: CurveBook, kept: KeptResults = NOTHING_KEPT) -> Priced:
    """Return the price of every item, with rows for the parts of the job that have other speeds."""

    def price_on(cluster: Cluster, own_book: CurveBook) -> Priced:
        factors = FactorBook(job.site, own_book.levels)
        if programs.legs:
            return price_legs(programs, cluster, own_book, factors, kept)
        if not kept:
            return price(programs, cluster, own_book, factors)
        key = ("prices", programs.layers, cluster, job.site, own_book)  # of any global batch
        found = kept.of(key, lambda: price(programs, cluster, own_book, factors, kept))
        return replace(found, programs=programs)

    layout = layout_of(job.plan, job.cluster, job.site, axes_of(programs))
    return with_parts(priced_in_groups(job.cluster, book, price_on), layout, job.cluster)


def programs_of(job: Job, kept: KeptResults = NOTHING_KEPT) -> Programs:
    """Return the programs that a job's software runs.

    Raises
    ------
    SpecError
        In the same cases as `predict`.
    """
    problems = causes(job)
    if problems:
        raise SpecError(problems)
    return realised(job, kept)


def realised(job: Job, kept: KeptResults) -> Programs:
    """Return the programs that a job's software runs, for a plan without faults.

    Plans that differ only in their global batch run the same programs, only more or less often.
    """
    plan = job.plan

    def of_any_batch() -> Programs:
        plans = plans_of(plan, job.batch)
        workload = lower(job.model, plans, job.batch, kept)  # what must be computed and sent
        return realise(workload, job.software, kept=kept)

    def made() -> Programs:
        if plan.layers:
            return with_strategies(job.model, plan, job.batch, job.software, kept)
        if not kept:
            return of_any_batch()
        alike = plan.model_copy(update={"global_batch": 1})
        key = ("programs of any batch", job.model, alike, job.batch, job.software)
        programs = kept.of(key, of_any_batch)
        plans = replace(programs.plans, global_batch=constant(plan.global_batch))
        return replace(programs, workload=replace(programs.workload, plans=plans))

    return kept.of(("programs", job.model, plan, job.batch, job.software), made) if kept else made()


def memory_of(job: Job) -> MemoryReport:
    """Return the memory of the job on each device, which needs no prices and no curves.

    Returns
    -------
    MemoryReport
        The memory in the report of `predict`. It is also available for machines that were never measured.

    Raises
    ------
    SpecError
        In the same cases as `predict`.
    """
    return memory_report(programs_of(job), job.cluster)


def memory_by_class(job: Job) -> tuple[PeakMemory, tuple[int, ...]]:
    """Return the memory of every kind of stage of a job, and the kind of each stage.

    Raises
    ------
    SpecError
        In the same cases as `predict`.
    """
    programs = programs_of(job)
    return peak_memory(programs), tuple(programs.stages.of(0).stage_class.tolist())
