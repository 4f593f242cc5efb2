"""Variants of good plans in settings that a space does not contain: uneven stages, partial recompute, rank
orders.

Answers: which variants of these plans are also simulated?
Elsewhere: the best division of one plan (uneven_stages.py), the kept plans (top_candidates.py).

Screening divides blocks evenly, recomputes all of them or none, and numbers ranks in one order. The search
creates variants of the best plans, and of plans that would be better but lack memory:

- levelled stages: the division that fits into memory and has the fastest slowest stage;
- the least recompute that fits: the first N blocks of every chunk run again ("full:block:N"). Memory never
  grows with N, so N is found by bisection. Stages are then also levelled;
- another order of ranks that a switch of the stack offers, if hops between stages then stay inside a
  scale-up domain and replicas are outside of it. The exact simulation shows which variant is faster,
  because the closed form overestimates the time of hops.

Every variant keeps every rule, and all variants are simulated exactly.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import crossings
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.peak import peak_memory
from flopcast.memory.tiers import outside_ratio
from flopcast.records import Record
from flopcast.search.memory_limit import with_outside, within_memory
from flopcast.search.question import Question
from flopcast.search.space import RECOMPUTE
from flopcast.search.uneven_stages import balanced_stages
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.checks import check
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

LEVELLED = 32  # plans whose stages are levelled
AGAIN = 8  # plans whose recompute is lessened
REORDERED = 8  # plans, and variants of plans, whose ranks are put in another order
USUAL_ORDER = Plan().rank_order
SHARED_STATES = 1  # the last ZeRO stage of which switches of the order are known to be possible


class Refining(Record):
    """Fields that refinement may change, and the part of the memory that a plan may use.

    Attributes
    ----------
    stages : bool
        Whether blocks are divided over stages unequally.
    recompute : bool
        Whether the search looks for the least recompute that fits.
    orders : bool
        Whether ranks are numbered in other orders that the stack offers.
    headroom_fraction : float or None
        See `memory_limit.within_memory`.
    """

    stages: bool = True
    recompute: bool = True
    orders: bool = True
    headroom_fraction: float | None = 1.0


class Refinement(Record):
    """A plan, and the kinds of its variants: with less recompute, with more equal stages.

    `slower_ratio` is the largest useful slowdown of the plan. It is 1 if the plan already fits.
    """

    job: Job
    recompute: bool
    stages: bool
    slower_ratio: float = 1.0


class Variants(Record):
    """Variants of one plan: with less recompute, with more equal stages, and with both."""

    recomputed: tuple[Job, ...] = ()
    levelled: tuple[Job, ...] = ()
    both: tuple[Job, ...] = ()


def asked_variants(question: Question) -> Refining:
    """Return the kinds of variants that a question requests.

    A field that the user fixes is never refined: stages if a plan lists them, recompute if the space does
    not contain both none and full, the order of ranks if a plan has an unusual one.
    """
    space, modes = question.space, question.space.recompute or RECOMPUTE
    return Refining(
        stages=space.refine and not any(job.plan.stage_layers for job in question.jobs),
        recompute=space.refine and len(modes) > 1 and "full" in modes,
        orders=space.refine and all(job.plan.rank_order == USUAL_ORDER for job in question.jobs),
        headroom_fraction=space.headroom_fraction,
    )


def refinements(
    best: Sequence[Job], lacking: Sequence[tuple[Job, float]], asked: Refining
) -> tuple[Refinement, ...]:
    """Return the plans of which variants are made, each with the kinds of its variants.

    Parameters
    ----------
    best : sequence of Job
        Jobs with feasible plans, the best first.
    lacking : sequence of (Job, float)
        Jobs with plans that would be better but lack memory, and the slowdown that each may have.
    """
    lessened = [job.plan.recompute_word == "full" and _recomputes_parts(job) for job in best]
    whole = [place for place, lessens in enumerate(lessened) if lessens][:AGAIN]
    piped = [place for place, job in enumerate(best) if job.plan.pipeline_parallel > 1][:LEVELLED]
    of_best = (
        Refinement(
            job=job, recompute=asked.recompute and place in whole, stages=asked.stages and place in piped
        )
        for place, job in enumerate(best)
    )
    of_lacking = (
        Refinement(
            job=job,
            recompute=asked.recompute and place < AGAIN and _recomputes_parts(job),
            stages=asked.stages,
            slower_ratio=ratio,
        )
        for place, (job, ratio) in enumerate(lacking)
    )
    return tuple(one for one in (*of_best, *of_lacking) if one.recompute or one.stages)


def _recomputes_parts(job: Job) -> bool:
    """Return whether the stack can recompute some of the blocks, but not all."""
    return "recompute_layers" not in job.stack.switches.fixed


def variants(one: Refinement, asked: Refining, book: CurveBook, kept: KeptResults) -> Variants:
    """Return the variants of one plan that satisfy all rules and fit as `asked` requires.

    Parameters
    ----------
    one : Refinement
        The plan, the kinds of variants that are useful for it, and its largest slowdown.
    asked : Refining
    book : CurveBook
    kept : KeptResults

    Returns
    -------
    Variants
        Variants with both changes start from those with less recompute, because less memory is left then
        for unequal stages.
    """
    room = asked.headroom_fraction
    recomputed = tuple(_least_recompute(one.job, room, kept)) if one.recompute else ()
    both = chain.from_iterable(_levelled(job, book, room, kept) for job in recomputed if asked.stages)
    return Variants(
        recomputed=recomputed,
        levelled=tuple(_levelled(one.job, book, room, kept, one.slower_ratio)) if one.stages else (),
        both=tuple(both),
    )


def gathered(
    best: Sequence[Job], lacking: Sequence[Job], asked: Refining, found: Sequence[Variants]
) -> tuple[Job, ...]:
    """Return all variants of good plans, and some with their ranks in another order, each once.

    Parameters
    ----------
    best, lacking : sequences of Job
        As for `refinements`.
    found : sequence of Variants
        The variants of each of these jobs.

    Returns
    -------
    tuple of Job
        None of them is one of the original plans.
    """
    names = ("recomputed", "levelled", "both")
    jobs = [job for name in names for one in found for job in getattr(one, name)]
    if asked.orders:
        for some in (best, tuple(jobs)):
            jobs += islice(chain.from_iterable(map(_reordered, some)), REORDERED)
    known = {(job.cluster, job.plan) for job in (*best, *lacking)}
    distinct = {(job.cluster, job.plan): job for job in jobs}
    return tuple(job for key, job in distinct.items() if key not in known)


def refined(
    best: Sequence[Job],
    lacking: Sequence[tuple[Job, float]],
    asked: Refining,
    book_of: Callable[[Cluster], CurveBook],
    kept: KeptResults = NOTHING_KEPT,
) -> tuple[Job, ...]:
    """Return the variants of good plans, each once, without the original plans.

    Parameters
    ----------
    best, lacking : sequences
        As for `refinements`.
    kept : KeptResults
        Layers and prices of earlier predictions.

    Returns
    -------
    tuple of Job
        Jobs that differ from one of these jobs only in their plans, keep every rule, and fit as `asked`
        requires.
    """
    each = refinements(best, lacking, asked)
    found = [variants(one, asked, book_of(one.job.cluster), kept) for one in each]
    return gathered(best, [job for job, _ in lacking], asked, found)


def _levelled(
    job: Job, book: CurveBook, headroom_fraction: float | None, kept: KeptResults, slower_ratio: float = 1.0
) -> Iterator[Job]:
    """Yield the job with more equal stages, or None if its division does not change."""
    layers = balanced_stages(job, book, headroom_fraction, kept, slower_ratio)
    if layers is None or layers == (job.plan.stage_layers or (layers[0],) * len(layers)):
        return
    yield from _possible(job, {"stage_layers": layers})


def _least_recompute(job: Job, headroom_fraction: float | None, kept: KeptResults) -> Iterator[Job]:
    """Yield the job with as few recomputed blocks as fit: some of them, but not all."""
    plan, blocks = job.plan, job.model.num_blocks
    chunks = plan.pipeline_parallel * plan.virtual_stages
    most = max(plan.stage_layers) if plan.stage_layers else blocks // chunks

    def with_blocks(number: int) -> Job:
        return job.model_copy(update={"plan": partly_recomputed(plan, number)})

    low, high = 1, most  # the least number that fits is in low … high
    if most < 2 or not _fits(with_blocks(most - 1), headroom_fraction, kept):
        return
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if _fits(with_blocks(middle), headroom_fraction, kept) else (middle + 1, high)
        )
    yield from _possible(with_blocks(low), {})


def partly_recomputed(plan: Plan, blocks: int) -> Plan:
    """Return the plan in which this number of blocks at the beginning of every chunk is recomputed.

    >>> partly_recomputed(Plan(recompute="selective:core_attention"), 2).recompute_word
    'full:block:2'
    """
    return plan.model_copy(
        update={
            "recompute": "full",
            "recompute_method": "block",
            "recompute_layers": blocks,
            "recompute_modules": (),
        }
    )


def _reordered(job: Job) -> Iterator[Job]:
    """Yield the job with its ranks in other orders that its stack supports and that shorten a transfer.

    Megatron-Bridge rules out shared sequences, experts (so do our rules) and FSDP.
    """
    plan = job.plan
    if plan.context_parallel > 1 or plan.zero > SHARED_STATES:
        return
    for order in job.stack.rank_orders:
        for other in _possible(job, {"rank_order": order}):
            if _hops_across(other) < _hops_across(job):
                yield other


def _hops_across(job: Job) -> int:
    """Return the number of hops between stages that leave a scale-up domain."""
    devices = job.cluster.scale_up_devices
    return int(crossings(one_plan(job.plan), 0, job.plan.pipeline_parallel, devices).sum())


def _possible(job: Job, changes: dict[str, object]) -> Iterator[Job]:
    """Yield the job with the changed plan if the plan keeps every rule."""
    changed = job.with_part("plan", **changes)
    if not check(changed):
        yield changed


def _fits(job: Job, headroom_fraction: float | None, kept: KeptResults) -> bool:
    """Return whether the plan fits the part of the memory that may be used."""
    workload = lower(job.model, one_plan(job.plan), job.batch, kept)
    programs = realise(workload, job.software, kept=kept)
    on_device = within_memory(peak_memory(programs, kept), job.cluster, headroom_fraction).all()
    outside = outside_ratio(programs, job.cluster)
    return bool(on_device and (with_outside(np.zeros(1), outside, headroom_fraction) <= 1.0).all())
