"""The report: everything that a reader may ask about one prediction.

Answers: what is in a report, and how do timeline, prices and memory become one?
Elsewhere: how it is shown (render/report_text.py, render/report_page.py), drawn over time (events.py,
interop/exports/perfetto.py) and written as JSON (render/report_json.py).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.factors import Factor, FactorBook, unexplained_on
from flopcast.cost.item_prices import Priced
from flopcast.cost.site_runs import condition, prior_log_sigmas
from flopcast.dtypes import Floats
from flopcast.economics.amount import amount_of
from flopcast.economics.power import PowerDraw, power_draw
from flopcast.economics.step import StepCost, step_cost
from flopcast.memory.curve import MemoryCurve, memory_curves, peak_of
from flopcast.memory.peak import PeakMemory, seen_bytes
from flopcast.memory.verdict import Verdict, verdict
from flopcast.report.metrics import Metrics, measure
from flopcast.spec.job import Job
from flopcast.timeline.step import Timeline
from flopcast.timeline.uncertainty import Sensitivity, interval, sensitivities
from flopcast.units import show, show_seconds
from flopcast.workload.program import Programs

BUBBLE, JITTER, LAUNCH = "pipeline_bubble", "jitter", "host"
LARGEST = 3  # components that a notebook shows
ROUNDING_SHARE = 1e-12  # of a step: less is the rounding of a sum


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One curve that the prediction used.

    `curve` is "owner/name": a kernel class on a device, or a collective on a fabric. `relative_error` is
    the mean error on measured rows that were kept out of its fit; `extrapolated` says that some shape of
    this job lies outside the measured range, where efficiency is held at the edge.
    """

    curve: str
    source: str
    relative_error: float
    extrapolated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes of a rank of one pipeline stage at its fullest moment.

    `moment` is the pass that runs then, "forward", "backward" or "weight", or "update" (gradients being
    applied); `chunk` and `micro_batch` are those of its task, -1 at the update. Sizes as in MemoryReport;
    `by_category` adds up to what is allocated.
    """

    stage: int
    moment: str
    chunk: int
    micro_batch: int
    standing_bytes: float  # while no activation is in flight
    allocated_bytes: float
    reserved_bytes: float
    device_used_bytes: float
    by_category: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryReport:
    """Memory of the fullest stage and of every stage.

    `resident_bytes` stay between steps. `allocated_bytes` is the peak of the framework's allocations
    (`torch.cuda.max_memory_allocated`), `reserved_bytes` the memory that its allocator holds, including
    fragments, and `device_used_bytes` the memory that the driver shows, with its context and communication
    buffers. `expected_bytes` cannot be freed: the allocations and the driver's own memory. `low_bytes` and
    `high_bytes` are the ends of a 90 % interval, the high one with the allocator's cache. `by_category`
    sums to `allocated_bytes`.
    """

    allocated_bytes: float
    resident_bytes: float
    reserved_bytes: float
    device_used_bytes: float
    capacity_bytes: float
    low_bytes: float
    expected_bytes: float
    high_bytes: float
    by_category: dict[str, float]
    per_stage: tuple[StageMemory, ...]

    @property
    def verdict(self) -> Verdict:
        """Return "fits", "tight" or "does not fit" (memory/verdict.py)."""
        return verdict(self.expected_bytes, self.high_bytes, self.capacity_bytes)

    @property
    def fits(self) -> bool:
        """Return whether it fits, even if only tightly."""
        return self.verdict != "does not fit"

    @property
    def need(self) -> str:
        """Return the expected need, its 90 % interval and the device's memory, as text."""
        low, high = (show(size_bytes, "B") for size_bytes in (self.low_bytes, self.high_bytes))
        there = show(self.capacity_bytes, "B")
        return (
            f"{show(self.expected_bytes, 'B')} expected ({low} to {high}) of {there} on the fullest stage"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One prediction. Times include jitter; the breakdown sums to the step.

    `step_time_low_s` and `step_time_high_s` hold the step with 90 % probability, by `factors`. `evidence`
    names the curves behind the times, `assumptions` what the job did not say, `warnings` what a reader must
    not miss. `timeline` and `priced` are kept for what is drawn from a report: traces, explanations.
    """

    job: Job
    step_time_s: float
    step_time_low_s: float
    step_time_high_s: float
    clean_step_time_s: float  # without jitter: the best step that a quiet machine runs
    metrics: Metrics
    breakdown: dict[str, float]  # component → seconds
    factors: tuple[Sensitivity, ...]
    memory: MemoryReport
    cost: StepCost  # money and energy
    evidence: tuple[Evidence, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    timeline: Timeline
    priced: Priced

    @property
    def bounds_s(self) -> tuple[float, float]:
        """Return the step time's 90 % interval."""
        return self.step_time_low_s, self.step_time_high_s

    @property
    def watts(self) -> PowerDraw | None:
        """Return a device's peak power and limit of least energy; None if no board power is known."""
        if self.cost.energy is None:
            return None
        return power_draw(
            self.timeline, self.priced, self.job.cluster, self.job.site, self.cost.energy.busy
        )

    def _repr_html_(self) -> str:
        """Return the answer as one HTML table for notebooks, without a style or a script."""
        from flopcast.render.page.table import Cell, rate, seconds, share, size, table

        low, high = (show_seconds(bound, like=self.step_time_s) for bound in self.bounds_s)
        per_device = show(self.metrics.device_tokens_per_s, "tokens/s")
        attained = show(self.metrics.device_flop_per_s, "FLOP/s")
        rows: list[tuple[Cell, ...]] = [
            ("step", seconds(self.step_time_s), f"90 %: {low} to {high}"),
            ("rate", rate(self.metrics.tokens_per_s, "tokens/s"), f"{per_device} per device"),
            ("MFU", share(self.metrics.mfu_ratio), f"{attained} per device, full attention counted"),
            ("memory", size(self.memory.expected_bytes), f"{self.memory.need}: {self.memory.verdict}"),
            *(
                (name.replace("_", " "), seconds(spent_s), f"{spent_s / self.step_time_s:.1%} of the step")
                for name, spent_s in [*self.breakdown.items()][:LARGEST]
            ),
            *(("warning", "–", text) for text in self.warnings),
        ]
        job = self.job
        title = f"{job.model.name} on {job.cluster.num_devices} × {job.cluster.node.device.name}"
        return table(f"{title}: {job.plan.short()}", ("of", "predicted", "more"), rows)


def summarise(job: Job, priced: Priced, timeline: Timeline, memory: MemoryReport) -> Report:
    """Make the report of one plan.

    Parameters
    ----------
    job, priced, timeline, memory
        All of the same plan, the first of its batch.

    Returns
    -------
    Report
        Jitter multiplies the played step: machines that share a network or a power budget are slower in the
        mean than in their best step. Rates and utilisation are those of the mean step.
    """
    whole = whole_step(job, priced, timeline)
    step_time_s = timeline.step_time_s * math.prod(factor.ratio for factor in whole.values())
    factors = sensitivities(timeline, priced, whole)
    low_s, high_s = interval(step_time_s, factors)
    metrics = measure(job, step_time_s)
    return Report(
        job=job,
        step_time_s=step_time_s,
        step_time_low_s=low_s,
        step_time_high_s=high_s,
        clean_step_time_s=timeline.step_time_s,
        metrics=metrics,
        breakdown=breakdown(timeline, step_time_s - timeline.step_time_s),
        factors=factors,
        memory=memory,
        cost=step_cost(job, amount_of(step_time_s, factors), timeline, priced, whole),
        evidence=_evidence(priced),
        assumptions=(*job.assumptions, *_assumed(job)),
        warnings=(*priced.warnings, *_warnings(memory, metrics), *_unused(job, priced)),
        timeline=timeline,
        priced=priced,
    )


def _assumed(job: Job) -> list[str]:
    """Return the assumption that all data-parallel ranks run the micro-batches listed for one rank."""
    if len(job.batch.kinds) == 1 or job.batch.ranks or job.plan.data_parallel == 1:
        return []
    ranks = f"all {job.plan.data_parallel} data-parallel ranks"
    return [f"{ranks} run the same micro-batches in the same order"]


def whole_step(job: Job, priced: Priced, timeline: Timeline) -> dict[str, Factor]:
    """Return the factors of the whole step: jitter, and the unexplained difference between runs.

    What is unexplained is known in part if the site holds runs that are like this step.
    """
    known = job.cluster.jitter
    jitter = FactorBook(priced.site).get(JITTER, known.log_sigma_factor, known.ratio)
    name = unexplained_on(job.model.family, job.stack, job.cluster)
    whole = {JITTER: jitter} | {
        each: priced.factors[each] for each in (name, BETWEEN_PLANS) if each in priced.factors
    }
    if job.site.runs and name in whole:
        factors = sensitivities(timeline, priced, whole)
        runs = condition(job.site.runs, prior_log_sigmas(factors))
        row = runs.row({factor.name: factor.share for factor in factors})
        whole[name] = replace(
            whole[name],
            ratio=whole[name].ratio * math.exp(runs.unexplained_mean(row)),
            log_sigma_factor=math.sqrt(runs.unexplained_variance(row)),
        )
    return whole


def breakdown(timeline: Timeline, jitter_s: float) -> dict[str, float]:
    """Return seconds by component on the busiest stage, largest first; they sum to the step.

    Waiting for other stages, filling and draining the pipeline included, is the bubble. Forward,
    recompute and backward of a component count together. Communication that compute hides is not included.

    Parameters
    ----------
    timeline : Timeline
    jitter_s : seconds that jitter adds to the played step

    Returns
    -------
    dict from component to seconds
        Components are those of the items, `pipeline_bubble`, `jitter`, and `host` for the host's fixed
        work and for launches that the device waits for. Components of no time are left out.
    """
    found: dict[str, float] = defaultdict(float)
    for each in timeline.bottleneck_attribution:
        found[each.item.component if each.item is not None else LAUNCH] += each.path_s
    for name, extra in ((BUBBLE, timeline.bottleneck_waits_s), (JITTER, jitter_s)):
        if extra > ROUNDING_SHARE * timeline.step_time_s:
            found[name] += extra
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def memory_report(job: Job, programs: Programs, memory: PeakMemory) -> MemoryReport:
    """Return memory of the fullest stage and of all stages of the first plan.

    Parameters
    ----------
    programs : Programs
        Of the plan: what each stage by itself holds is read off its own order of tasks (memory/curve.py).
    memory : PeakMemory
        Arrays (plans, stage classes): equal stages count as the fullest of them.
    """
    worst = memory.worst()
    shape = memory.allocated_bytes.shape
    seen = seen_bytes(memory, job.cluster)
    return MemoryReport(
        allocated_bytes=float(memory.allocated_bytes[0, worst]),
        resident_bytes=float(memory.resident_bytes[0, worst]),
        reserved_bytes=float(memory.reserved_bytes[0, worst]),
        device_used_bytes=float(seen[0, worst]),
        capacity_bytes=job.cluster.node.device.memory_bytes,
        low_bytes=float(memory.low_bytes[0].max()),
        expected_bytes=float(memory.needed_bytes[0].max()),
        high_bytes=float(memory.high_bytes[0].max()),
        by_category={
            name: float(np.broadcast_to(size, shape)[0, worst])
            for name, size in memory.by_category.items()
            if np.broadcast_to(size, shape)[0, worst] > 0
        },
        per_stage=tuple(_stages_memory(programs, memory, seen)),
    )


def _stages_memory(programs: Programs, memory: PeakMemory, seen_bytes: Floats) -> Iterator[StageMemory]:
    """Yield every stage at its own peak."""
    stage_class = programs.stages.of(0).stage_class.tolist()
    ranks = len(programs.workload.rows) or 1
    curves = memory_curves(programs, range(len(stage_class)), range(ranks))
    for stage, at in enumerate(stage_class):
        own = curves[stage * ranks : (stage + 1) * ranks]
        yield _stage_memory(own, memory, seen_bytes, stage, at)


def _stage_memory(
    curves: Sequence[MemoryCurve], memory: PeakMemory, seen_bytes: Floats, stage: int, at: int
) -> StageMemory:
    """Return one stage at its own peak; the driver's part is that of its class, `at`.

    A device shows no more than it has: the allocator's cache is then what is left. Where data-parallel
    ranks have other micro-batches than each other, the stage of the fullest of them.
    """
    peaks = [(peak_of(curve), curve) for curve in curves]
    peak, curve = max(peaks, key=lambda pair: pair[0].allocated_bytes)
    cached = memory.reserved_bytes[0, at] / memory.allocated_bytes[0, at]
    beside = memory.device_used_bytes[0, at] - memory.reserved_bytes[0, at]
    return StageMemory(
        stage=stage,
        moment=peak.moment,
        chunk=peak.chunk,
        micro_batch=peak.micro_batch,
        standing_bytes=curve.standing_bytes,
        allocated_bytes=peak.allocated_bytes,
        reserved_bytes=float(peak.allocated_bytes * cached),
        device_used_bytes=float(min(peak.allocated_bytes * cached + beside, seen_bytes[0, at])),
        by_category=peak.by_category,
    )


def _evidence(priced: Priced) -> tuple[Evidence, ...]:
    """Return the curves used, in the order of first use; the source of data-sheet estimates says so."""
    return tuple(
        Evidence(
            curve=f"{used.curve.owner}/{used.curve.name}",
            source=used.curve.evidence.source,
            relative_error=used.curve.evidence.relative_error,
            extrapolated=used.extrapolated,
        )
        for used in priced.used
    )


def _unused(job: Job, priced: Priced) -> list[str]:
    """Return the site's factors that scale nothing here: misspelt, or of another machine."""
    known = {*priced.factors, JITTER}
    return [
        f"the site's factor {factor.name} scales nothing here; there are {', '.join(sorted(known))}"
        for factor in job.site.factors
        if factor.name not in known
    ]


def _warnings(memory: MemoryReport, metrics: Metrics) -> list[str]:
    """Return warnings about memory, and about an MFU above 1 that only the convention explains."""
    told = []
    if not memory.fits:
        over = memory.expected_bytes / memory.capacity_bytes
        told.append(f"does not fit: the fullest stage needs {over:.0%} of the device's memory")
    elif memory.verdict == "tight":
        free = memory.capacity_bytes - memory.expected_bytes
        told.append(
            f"tight: {show(free, 'B')} are left of the expected need, and up to"
            f" {show(memory.high_bytes, 'B')} may be used; the run may end out of memory, or empty the"
            " allocator's cache on the way, which costs time that is not counted"
        )
    if metrics.mfu_ratio > 1:
        told.append("MFU is above 1: the FLOP convention counts the full attention, the kernel skips half")
    return told
