"""Exact predictions of many plans at once, with the numbers of `predict`.

Answers: how long does the step of each plan take, on which factors does it depend, and how is the time of
the busiest stage divided?
Elsewhere: the full report of one plan (prediction.py), estimates for millions of plans (screen.py).

Plans of one structure on one cluster are lowered, realised, priced and simulated as one batch; only the
pipeline is simulated plan by plan. The numbers equal those of `predict` up to rounding.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price
from flopcast.economics.amount import amount_of
from flopcast.economics.step import StepCost, step_cost
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.peak import peak_memory, seen_bytes
from flopcast.memory.tiers import outside_ratio, outside_verdict
from flopcast.memory.verdict import VERDICTS, Verdict, verdict
from flopcast.records import Record
from flopcast.report.loader import loaded_step
from flopcast.report.outer_round import outer_round
from flopcast.report.report import breakdown, whole_step
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan, batch_plans, structure_of
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.timeline.step import run_step, simulate_passes
from flopcast.timeline.uncertainty import Sensitivity, interval, sensitivities
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

BATCH = 32  # plans that are simulated together: what counts executions on paths grows with them


class Exact(Record, eq=False):
    """A simulated plan: the part of its report that a search needs to rank and explain plans.

    `step_low_s` and `step_high_s` are the ends of the step's 90 % interval, by `factors`. `breakdown`
    describes the busiest stage and sums to the step. `device_used_bytes`, `expected_bytes` and `high_bytes`
    belong to the fullest stage, and `outside_ratio` to the fullest memory outside the devices
    (memory/tiers.py). `warnings` name kernels that were not measured on the device.
    """

    job: Job
    step_time_s: float
    step_low_s: float
    step_high_s: float
    factors: tuple[Sensitivity, ...]
    cost: StepCost  # money and energy
    breakdown: dict[str, float]
    device_used_bytes: float
    expected_bytes: float
    high_bytes: float
    outside_ratio: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """Return the plan that was simulated."""
        return self.job.plan

    @property
    def capacity_bytes(self) -> float:
        """Return the memory of a device."""
        return self.job.cluster.node.device.memory_bytes

    @property
    def device_verdict(self) -> Verdict:
        """Return the verdict of the device alone (memory/verdict.py)."""
        return verdict(self.expected_bytes, self.high_bytes, self.capacity_bytes)

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of the device and of memory outside it."""
        return max(self.device_verdict, outside_verdict(self.outside_ratio), key=VERDICTS.index)

    @property
    def fits(self) -> bool:
        """Return whether the plan fits, possibly with the verdict "tight"."""
        return self.verdict != "does not fit"


def play_each(
    jobs: Sequence[Job],
    book_of: Callable[[Cluster], CurveBook],
    kept: KeptResults = NOTHING_KEPT,
    *,
    energy: bool = True,
) -> Iterator[tuple[int, Exact]]:
    """Simulate jobs that differ only in their plans, clusters, stacks and sites.

    Parameters
    ----------
    jobs : jobs that keep every rule, and whose batches list no micro-batches
    book_of : the curves of a cluster
    kept : layers and prices of earlier batches, for a batch of few plans
    energy : whether costs include the energy of a step, whose computation takes a tenth of the time

    Yields
    ------
    int, Exact
        The index of a job in `jobs`, and its prediction. Jobs of one structure are consecutive.

    Examples
    --------
    >>> from flopcast.library.curves import load_book
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> [place for place, exact in play_each([job, job], load_book)]
    [0, 1]
    """
    for places in groups(jobs):
        some = [jobs[place] for place in places]
        book, known = book_of(some[0].cluster), kept.of_few(len(some))
        yield from zip(places, _batch(some, book, known, energy=energy), strict=True)


def groups(jobs: Sequence[Job]) -> tuple[tuple[int, ...], ...]:
    """Return groups of job indices to simulate as one batch.

    The jobs of a group have one structure and machine, and their number is limited.

    The largest groups come first, so that no worker starts a large group after the others have finished.
    """
    alike: dict[tuple[Cluster, Stack, Site, Plan], list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        alike[job.cluster, job.stack, job.site, structure_of(job.plan)].append(place)
    parts = (
        tuple(places[first : first + BATCH])
        for places in alike.values()
        for first in range(0, len(places), BATCH)
    )
    return tuple(sorted(parts, key=len, reverse=True))


def _batch(jobs: Sequence[Job], book: CurveBook, kept: KeptResults, *, energy: bool) -> Iterator[Exact]:
    """Simulate jobs whose plans have one structure, on one machine; the array form of prediction.py."""
    one = jobs[0]
    workload = lower(one.model, batch_plans([job.plan for job in jobs]), one.batch, kept)
    programs = realise(workload, one.software, kept=kept)
    memory = peak_memory(programs)
    priced = price(programs, one.cluster, book, FactorBook(one.site, book.levels), kept)
    passes = simulate_passes(priced)
    used = seen_bytes(memory, one.cluster).max(axis=1)
    expected, high = memory.needed_bytes.max(axis=1), memory.high_bytes.max(axis=1)
    outside = outside_ratio(programs, one.cluster)
    for row, job in enumerate(jobs):
        timeline = run_step(priced, row, passes)
        whole = whole_step(one, priced, timeline)
        step_s = timeline.step_time_s * math.prod(factor.ratio for factor in whole.values())
        factors = sensitivities(timeline, priced, whole)
        shares = breakdown(timeline, step_s - timeline.step_time_s)
        known = FactorBook(one.site, book.levels)
        for extended in (loaded_step, outer_round):
            if (found := extended(job, known, step_s)) is not None:
                step_s, factors, shares = found.step_time_s, found.factors(factors), found.breakdown(shares)
        cost = step_cost(job, amount_of(step_s, factors), timeline, priced, whole, energy=energy)
        low_s, high_s = interval(step_s, factors)
        yield Exact(
            job=job,
            step_time_s=step_s,
            step_low_s=low_s,
            step_high_s=high_s,
            factors=factors,
            cost=cost,
            breakdown=shares,
            device_used_bytes=float(used[row]),
            expected_bytes=float(expected[row]),
            high_bytes=float(high[row]),
            outside_ratio=float(outside[row]),
            warnings=priced.warnings,
        )
