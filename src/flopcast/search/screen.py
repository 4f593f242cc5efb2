"""The step time in closed form, and the memory, of many plans at once.

Answers: which of these plans are possible, which of them fit, and what are their estimated steps?
Elsewhere: the closed form and its error (timeline/closed_form.py), the exact simulation (prediction.py).
Plans are grouped by structure; inside a group only numbers vary, and one evaluation of the core serves them
all. The numbers of a plan do not depend on the other plans of the batch.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price
from flopcast.cost.split_prices import split_seconds
from flopcast.dtypes import Flags, Floats, Integers
from flopcast.errors import Problem, SpecError
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.peak import fits, peaks, seen_bytes
from flopcast.memory.tiers import outside_ratio
from flopcast.records import Record
from flopcast.report.loader import with_loader
from flopcast.report.outer_round import with_outer_round
from flopcast.spec.checks import Case
from flopcast.spec.job import Job
from flopcast.spec.mirrored import halved
from flopcast.spec.orders import filled_after
from flopcast.spec.plan import Plans
from flopcast.spec.rows import EqualRows, of_equal_program, rows_of, runs
from flopcast.timeline.closed_form import StepTerms, joined_terms, step_terms, steps_of
from flopcast.timeline.lower_bounds import least_seconds, least_terms
from flopcast.workload.checks import valid
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise

CORE_ROWS = 16_384  # plans whose programs are in memory at once
FEW_ROWS = 256  # programs that are estimated at once, because leaving some out would save nothing
MANY_BATCHES = 4  # global batches of a program, the same: each but the first takes a microsecond


class Screened(Record, eq=False):
    """Results in the order of the plans, shape (plans,); NaN for plans that break a rule.

    `possible` plans keep every rule of spec/checks.py. `fits` marks the plans that fit their devices,
    tightly or not. A plan that does not fit still has a step time, which shows the gain from more memory. A
    step time is infinite if the caller did not request it.
    """

    possible: np.ndarray
    fits: np.ndarray
    step_time_s: Floats  # without jitter
    device_used_bytes: Floats  # of the fullest stage
    high_bytes: Floats  # high end of its interval
    outside_ratio: Floats  # high end of the fullest memory outside the devices, over its capacity


Wanted = Callable[[Screened, Floats], Flags]
Worth = Callable[[Screened], bool]
AfterMemory = Callable[..., bool]


def screen(
    job: Job,
    plans: Plans,
    book: CurveBook | None,
    kept: KeptResults = NOTHING_KEPT,
    wanted: Wanted | None = None,
    worth: Worth | None = None,
) -> Screened:
    """Screen plans for the model, cluster, stack and batch of `job`; its own plan is not used.

    Parameters
    ----------
    job : Job
    plans : of one structure, as grid.py makes them
    book : curves of the job's cluster (library/curves.py); None to compute only memory
    kept : results of earlier batches: layers and prices for a batch of few plans, and seconds of items for
        a larger batch
    wanted : returns a mask of the step times to compute, given the results so far and lower bounds in
        seconds, in the order of the plans. It is called until it returns no plan. None computes all
    worth : returns whether any step time of a batch of few plans is needed, given the results so far, in
        which step times are infinite. None computes step times in any case

    Returns
    -------
    Screened
        Step times are estimates: simulate the best plans exactly before you choose one.

    Raises
    ------
    SpecError
        The batch lists its micro-batches, which fixes their number and sizes.
    """
    if job.batch.listed:
        raise SpecError([of_lists(job)])
    result = _nothing(plans.size)
    rows = np.flatnonzero(valid(Case.of(job, plans))[:, 0])
    if not len(rows):
        return result
    result.possible[rows] = True
    possible = rows_of(plans, rows)
    distinct = _of_one_program(possible).size
    every = wanted is None or book is None or distinct <= FEW_ROWS or len(rows) > MANY_BATCHES * distinct

    def after_memory(*seen: np.ndarray) -> bool:
        _set_memory(result, rows, *seen)
        return worth is None or distinct > FEW_ROWS or worth(result)

    step_s = _estimates(possible, job, book, kept, least=not every, after_memory=after_memory)
    factors = FactorBook(job.site, book.levels if book is not None else {})
    step_s = _mean_steps(step_s, job, possible, factors)
    if every:
        result.step_time_s[rows] = step_s
    if wanted is not None and book is not None and not every:
        least_s = np.zeros(plans.size)
        least_s[rows] = step_s
        while len(some := np.flatnonzero(wanted(result, least_s) & np.isposinf(result.step_time_s))):
            asked = rows_of(plans, some)
            estimated_s = _steps(asked, job, book, kept.of_few(len(some)))
            result.step_time_s[some] = _mean_steps(estimated_s, job, asked, factors)
    return result


def _mean_steps(step_s: Floats, job: Job, plans: Plans, factors: FactorBook) -> Floats:
    """Return the steps of the devices with what the input pipeline and the outer round add, (plans,)."""
    return with_outer_round(with_loader(step_s, job, plans, factors), job, plans, factors)


def _of_one_program(plans: Plans) -> EqualRows:
    """Return adjacent rows with the same program, which differ only in their global batch.

    Their programs are the same, their steps differ in how often these run. A step of one micro-batch
    reduces its gradients at once.
    """
    return runs([of_equal_program(plans).group, plans.num_micro_batches[:, 0] == 1])


def _estimates(
    plans: Plans,
    job: Job,
    book: CurveBook | None,
    kept: KeptResults,
    *,
    least: bool,
    after_memory: AfterMemory,
) -> Floats:
    """Return step times, (plans,), and report the memory of the fullest stage before that.

    `after_memory` takes that memory, its high end, whether it fits, and the ratios of the fullest memory
    outside the devices, all (plans,). It says whether few plans are priced; many are priced in any case.
    With `least`, step times are seconds that the estimates are not below; those that are not priced are
    infinite. Memory differs between plans of one program until their pipelines are full.
    """
    plans = halved(plans)
    equal, filled, few = _of_one_program(plans), filled_after(plans)[:, 0], kept.of_few(plans.size)
    pairs = runs([equal.group, filled])
    terms: list[StepTerms] = []
    least_terms_s: list[Floats] = []
    found: list[tuple[Floats, Floats, Flags, Floats]] = []

    def estimate(programs: Programs, book: CurveBook) -> None:
        if least:
            known = split_seconds(programs, job.cluster, book, FactorBook(job.site, book.levels), kept)
            least_terms_s.append(least_terms(programs, known))
        else:
            terms.append(_terms(programs, job, book, few))

    for start, programs in _programs(plans, equal, job, few):
        plan = equal.group[pairs.first] - start
        here = (plan >= 0) & (plan < programs.plans.size)
        held = plan[here], filled[pairs.first[here]]
        memory = peaks(programs, *held)
        used_bytes = seen_bytes(memory, job.cluster).max(axis=1)
        high_bytes = memory.high_bytes.max(axis=1)
        outside = outside_ratio(programs, job.cluster, held)
        found.append((used_bytes, high_bytes, fits(memory, job.cluster), outside))
        if book is not None and equal.size > FEW_ROWS:
            estimate(programs, book)
    worth = after_memory(*(np.concatenate(each)[pairs.group] for each in zip(*found, strict=True)))
    if book is None or not worth:
        return np.full(plans.size, np.inf)
    if equal.size <= FEW_ROWS:
        estimate(programs, book)  # the only part
    if least:
        return least_seconds(np.concatenate(least_terms_s)[equal.group], plans.num_micro_batches)
    return _of_terms(terms, equal, plans)


def _steps(plans: Plans, job: Job, book: CurveBook, kept: KeptResults) -> Floats:
    plans = halved(plans)
    equal = _of_one_program(plans)
    terms = [_terms(programs, job, book, kept) for _, programs in _programs(plans, equal, job, kept)]
    return _of_terms(terms, equal, plans)


def _programs(
    plans: Plans, equal: EqualRows, job: Job, kept: KeptResults
) -> Iterator[tuple[int, Programs]]:
    """Yield the distinct programs in parts of at most CORE_ROWS, to bound the memory in use.

    With each part comes the number of programs before it.
    """
    for start in range(0, equal.size, CORE_ROWS):
        core = rows_of(plans, equal.first[start : start + CORE_ROWS])
        yield start, realise(lower(job.model, core, job.batch, kept), job.software, kept=kept)


def _terms(programs: Programs, job: Job, book: CurveBook, kept: KeptResults) -> StepTerms:
    return step_terms(price(programs, job.cluster, book, FactorBook(job.site, book.levels), kept))


def _of_terms(terms: Sequence[StepTerms], equal: EqualRows, plans: Plans) -> Floats:
    """Return the step times of plans, given the terms of their distinct programs."""
    schedule = plans.structure.pipeline_schedule
    return steps_of(joined_terms(terms).of(equal.group), schedule, plans.num_micro_batches)


def _set_memory(
    result: Screened, rows: Integers, used_bytes: Floats, high_bytes: Floats, fit: Flags, ratio: Floats
) -> None:
    """Enter the memory of some rows into a result; their steps are not estimated yet."""
    result.device_used_bytes[rows], result.high_bytes[rows] = used_bytes, high_bytes
    result.fits[rows], result.outside_ratio[rows] = fit, ratio
    result.step_time_s[rows] = np.inf


def _nothing(size: int) -> Screened:
    """Return the results of plans none of which is possible."""
    return Screened(
        possible=np.zeros(size, dtype=bool),
        fits=np.zeros(size, dtype=bool),
        step_time_s=np.full(size, np.nan),
        device_used_bytes=np.full(size, np.nan),
        high_bytes=np.full(size, np.nan),
        outside_ratio=np.full(size, np.nan),
    )


def of_lists(job: Job) -> Problem:
    """Return the fault of a search for a job that lists its micro-batches, which differ from plan to
    plan.
    """
    field = "batch.ranks" if job.batch.ranks else "batch.micro_batches"
    allowed = "no list of micro-batches, unless the job states a whole plan"
    because = "a list of micro-batches fits only one plan, and flopcast would choose another"
    whole = f"one whole plan for {job.cluster.num_devices} devices (degrees, mbs and gbs)"
    fix = f"predict {whole}, or remove {field}"
    return Problem(field, f"{len(job.batch.kinds)} kinds of micro-batches", allowed, because, fix)
