"""The report: all values of one prediction.

Answers: what does a report contain, and how is it computed from the timeline and the kernel times?
Elsewhere: memory (memory_report.py), how it is shown (render/report_text.py, render/report_page.py), drawn
over time (events.py, interop/exports/perfetto.py) and written as JSON (render/report_json.py).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.factors import Factor, FactorBook, unexplained_on
from flopcast.cost.item_prices import Priced
from flopcast.cost.site_runs import condition, prior_log_sigmas
from flopcast.cost.unknown_site import site_factors
from flopcast.economics.amount import Amount, amount_of
from flopcast.economics.power import PowerDraw, power_draw
from flopcast.economics.run import TrainingRun, phase_of
from flopcast.economics.step import StepCost, described_checkpoint, step_cost
from flopcast.layers.traced import division_note, is_graph
from flopcast.records import Record, replace
from flopcast.report.evidence import Evidence, evidence_of
from flopcast.report.labels import component_label
from flopcast.report.loader import LoadedStep, loaded_step
from flopcast.report.memory_report import MemoryReport, memory_report, memory_warnings
from flopcast.report.metrics import Metrics, measure
from flopcast.report.outer_round import OuterRound, outer_round
from flopcast.report.stragglers import EqualPeers, Stragglers, equal_peers, stragglers_of
from flopcast.report.summary import Summarised, Summary
from flopcast.report.unknown_operators import unknown_warnings, warnings_of_prices
from flopcast.spec.job import Job
from flopcast.timeline.step import Timeline
from flopcast.timeline.uncertainty import Sensitivity, interval, sensitivities
from flopcast.units import Number, show, show_memory, show_seconds, show_usd

if TYPE_CHECKING:
    from flopcast.economics.checkpoint_cost import CheckpointCost
    from flopcast.render.page.table import Cell

BUBBLE, JITTER, LAUNCH = "pipeline_bubble", "jitter", "host"
LARGEST = 3  # components that a notebook shows
ROUNDING_SHARE = 1e-12  # of a step: less is the rounding of a sum


class Report(Record, Summarised, eq=False, slots=False, repr=False):
    """One prediction. Times include jitter. The components of the breakdown add up to the step time.

    flopcast computes throughput, shares, intervals, memory, cost and energy when they are first read.
    `timeline` contains the start and end of each task, and `priced` the time of each kernel. `whole`
    contains the uncertain factors that scale the whole step. If the job describes an input pipeline,
    `loader` contains the time that it adds. If the plan has peers (DiLoCo), `outer` describes a round, and
    the step time is the mean over its steps.
    """

    job: Job
    step_time_s: float
    whole: Mapping[str, Factor]
    timeline: Timeline
    priced: Priced
    loader: LoadedStep | None = None
    outer: OuterRound | None = None

    @property
    def clean_step_time_s(self) -> float:
        """Return the step time without jitter, as on an otherwise idle machine."""
        clean_s = self.timeline.step_time_s
        if self.loader is not None:
            clean_s = replace(self.loader, device_step_s=clean_s).step_time_s
        mean = outer_round(self.job, FactorBook(self.priced.site, self.priced.levels), clean_s)
        return clean_s if mean is None else mean.step_time_s

    @property
    def device_step_time_s(self) -> float:
        """Return the step time of a peer with jitter, without the time in which it waits for samples."""
        if self.loader is not None:
            return self.loader.device_step_s
        return self.step_time_s if self.outer is None else self.outer.inner_step_s

    @cached_property
    def factors(self) -> tuple[Sensitivity, ...]:
        """Return the uncertain factors of the step time, the largest contribution to the interval first."""
        of_device = sensitivities(self.timeline, self.priced, self.whole)
        of_step = of_device if self.loader is None else self.loader.factors(of_device)
        return of_step if self.outer is None else self.outer.factors(of_step)

    @property
    def added_factors(self) -> dict[str, Factor]:
        """Return the uncertain factors of the input pipeline and of the exchange between peers, by name."""
        of_loader = () if self.loader is None else (each.factor for each in self.loader.stages)
        of_round = () if self.outer is None else (self.outer.factor,)
        return {factor.name: factor for factor in (*of_loader, *of_round)}

    @cached_property
    def bounds_s(self) -> tuple[float, float]:
        """Return the 90 % interval of the step time."""
        return interval(self.step_time_s, self.factors)

    @property
    def step_time_low_s(self) -> float:
        """Return the lower end of the interval."""
        return self.bounds_s[0]

    @property
    def step_time_high_s(self) -> float:
        """Return the upper end of the interval."""
        return self.bounds_s[1]

    @cached_property
    def metrics(self) -> Metrics:
        """Return rates and utilisation."""
        return measure(self.job, self.step_time_s)

    @cached_property
    def breakdown(self) -> dict[str, float]:
        """Return the seconds of each component of the step, the largest first."""
        of_device = breakdown(self.timeline, self.device_step_time_s - self.timeline.step_time_s)
        of_step = of_device if self.loader is None else self.loader.breakdown(of_device)
        return of_step if self.outer is None else self.outer.breakdown(of_step)

    @cached_property
    def memory(self) -> MemoryReport:
        """Return the memory of the job on each device."""
        equal = (*self.priced.equal, self.priced)[0]  # with the results of earlier predictions
        return memory_report(self.priced.programs, self.job.cluster, equal.kept)

    @cached_property
    def cost(self) -> StepCost:
        """Return the cost and energy."""
        step_s = amount_of(self.step_time_s, self.factors)
        return step_cost(self.job, step_s, self.timeline, self.priced, self.whole)

    @cached_property
    def checkpoint(self) -> "CheckpointCost | None":
        """Return the checkpoints; None if the job does not describe them.

        Raises
        ------
        SpecError
            Checkpoints are saved faster than they are written, or do not fit into a memory or storage.
        """
        found = described_checkpoint(self.job, self.step_time_s, self.timeline, self.priced)
        if found is not None:
            from flopcast.economics.checkpoint_cost import refuse_impossible

            refuse_impossible(found, self.job.cluster)
        return found

    @cached_property
    def run(self) -> TrainingRun | None:
        """Return the whole run, with failures and checkpoints; None if the job does not state its length.

        Raises
        ------
        InfeasibleError
            The devices fail more often than the run can restart.
        """
        tokens, cluster = self.job.run_tokens, self.job.cluster
        if tokens is None:
            return None
        return TrainingRun(phases=(phase_of("phase 1", tokens, self.cost, cluster),))

    @cached_property
    def stragglers(self) -> Stragglers | None:
        """Return the cost of slow devices, hosts and links; None if the job states none."""
        return stragglers_of(self.job, self.priced, self.device_step_time_s, self.timeline.step_time_s)

    @cached_property
    def peers(self) -> tuple[EqualPeers, ...]:
        """Return the peers of each speed, the slowest first; nothing if all peers are equal."""
        jitter_ratio = self.device_step_time_s / self.timeline.step_time_s
        return equal_peers(self.job, self.priced, self.outer, self.loader, jitter_ratio)

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """Return the curves on which the times are based."""
        return evidence_of(self.priced)

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions about values that the job does not state."""
        return (*self.job.assumptions, *_assumed(self.job))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings."""
        return (
            *warnings_of_prices(self.priced, self.timeline),
            *memory_warnings(self.memory),
            *self.metrics.warnings,
            *unknown_warnings(self.breakdown, self.step_time_s),
            *(() if self.loader is None else self.loader.warnings),
            *_unused(self),
        )

    @cached_property
    def watts(self) -> PowerDraw | None:
        """Return the peak power of a device, and the power limit with which a step needs the least
        energy."""
        if self.cost.energy is None:
            return None
        return power_draw(
            self.timeline, self.priced, self.job.cluster, self.job.site, self.cost.energy.busy
        )

    def summary(self) -> Summary:
        """Return the result as a table."""
        from flopcast.render.page.table import rate, seconds, share, size

        low, high = (show_seconds(bound, like=self.step_time_s) for bound in self.bounds_s)
        unit = f"{self.job.batch_unit}/s"
        per_device = show(self.metrics.device_tokens_per_s, unit)
        attained = show(self.metrics.device_flop_per_s, "FLOP/s")
        need = self.memory.need.removeprefix(f"{show_memory(self.memory.expected_bytes)} ")
        run = self.run
        rows: list[tuple[Cell, ...]] = [
            ("step", seconds(self.step_time_s), f"90 %: {low} to {high}"),
            ("rate", rate(self.metrics.tokens_per_s, unit), f"{per_device} per device"),
            ("MFU", share(self.metrics.mfu_ratio), f"{attained} per device{self.job.flop_note}"),
            ("memory", size(self.memory.expected_bytes), f"{need}: {self.memory.device_verdict}"),
            *(
                (tier.label, size(tier.expected_bytes), f"{tier.need}: {tier.verdict}")
                for tier in self.memory.tiers
            ),
            *(
                (component_label(name), seconds(spent_s), f"{spent_s / self.step_time_s:.1%} of the step")
                for name, spent_s in [*self.breakdown.items()][:LARGEST]
            ),
            *(("warning", "–", text) for text in self.warnings),
        ]
        if run is not None:
            rows[1:1] = [_of_run("whole run", run.wall_s, show_seconds)]
            rows[2:2] = [] if run.usd is None else [_of_run("cost of the run", run.usd, show_usd)]
        caption = f"{self.job.model.name} on {self.job.cluster.machine}: {self.job.plan.short()}"
        return Summary(caption=caption, headings=("quantity", "predicted", "details"), rows=rows)


def _of_run(name: str, amount: Amount, show_value: Callable[[Number], str]) -> "tuple[Cell, ...]":
    """Return a row of the summary with an amount of the whole run and its interval."""
    from flopcast.render.page.table import Quantity

    low, high = map(show_value, amount.bounds)
    return name, Quantity(amount.value, show_value(amount.value)), f"90 %: {low} to {high}"


def summarise(job: Job, priced: Priced, timeline: Timeline) -> Report:
    """Return the report of one plan.

    Parameters
    ----------
    job, priced, timeline
        These belong to the same plan, the first of its batch.

    Returns
    -------
    Report
        Jitter multiplies the simulated step, because machines that share a network or a power budget are
        slower on average than in their best step. Rates and utilisation are those of the mean step.
    """
    whole = whole_step(job, priced, timeline)
    step_time_s = timeline.step_time_s * math.prod(factor.ratio for factor in whole.values())
    book = FactorBook(priced.site, priced.levels)
    loader = loaded_step(job, book, step_time_s)
    loaded_s = step_time_s if loader is None else loader.step_time_s
    outer = outer_round(job, book, loaded_s)
    return Report(
        job=job,
        step_time_s=loaded_s if outer is None else outer.step_time_s,
        whole=whole,
        timeline=timeline,
        priced=priced,
        loader=loader,
        outer=outer,
    )


def _assumed(job: Job) -> list[str]:
    """Return what ranks are assumed to run: listed micro-batches, and the divided operators of a graph."""
    found, blocks = list[str](), job.model.blocks
    if len(job.batch.kinds) > 1 and not job.batch.ranks and job.plan.data_parallel > 1:
        ranks = f"all {job.plan.data_parallel} data-parallel ranks"
        found.append(f"{ranks} run the same micro-batches in the same order")
    if job.plan.tensor_parallel > 1 and is_graph(blocks):
        found.append(division_note(blocks, [block.count for block in blocks]))
    return found


def whole_step(job: Job, priced: Priced, timeline: Timeline) -> dict[str, Factor]:
    """Return the factors of the whole step: jitter, and the unexplained differences between runs and sites.

    The unexplained difference is partly known if the site contains runs that are similar to this step.
    """
    known = job.cluster.jitter
    jitter = FactorBook(priced.site).get(JITTER, known.log_sigma_factor, known.ratio)
    name = unexplained_on(job.model.family, job.stack, job.cluster)
    whole = {JITTER: jitter} | {
        each: priced.factors[each] for each in (name, BETWEEN_PLANS) if each in priced.factors
    }
    if is_graph(job.model.blocks):  # their factors are judged by left-out devices and software
        whole = {each: replace(factor, faster_side_ratio=1.0) for each, factor in whole.items()}
    else:
        whole |= site_factors(job, FactorBook(priced.site, priced.levels))
    if job.site.runs and name in whole:
        factors = sensitivities(timeline, priced, whole)
        runs = condition(job.site.runs, prior_log_sigmas(factors))
        row = runs.row({factor.name: factor.share for factor in factors})
        whole[name] = replace(
            whole[name],
            ratio=whole[name].ratio * math.exp(runs.specific_mean(row)),
            log_sigma_factor=math.sqrt(runs.specific_variance(row, whole[name].log_sigma_factor)),
        )
    return whole


def breakdown(timeline: Timeline, jitter_s: float) -> dict[str, float]:
    """Return seconds by component on the busiest stage, largest first; they sum to the step.

    The bubble is the time that the stage waits for other stages, with filling and draining of the pipeline.
    Forward, recompute and backward of a component count together. Hidden communication does not count.

    Parameters
    ----------
    timeline : Timeline
    jitter_s : seconds that jitter adds to the simulated step

    Returns
    -------
    dict from component to seconds
        Components are those of the items, `pipeline_bubble`, `jitter`, and `host` for the fixed work of the
        host and for launches for which the device waits. Components without time are left out.
    """
    seconds: dict[str, float] = defaultdict(float)
    for each in timeline.bottleneck_attribution:
        seconds[each.item.component if each.item is not None else LAUNCH] += each.path_s
    for name, extra in ((BUBBLE, timeline.bottleneck_waits_s), (JITTER, jitter_s)):
        if extra > ROUNDING_SHARE * timeline.step_time_s:
            seconds[name] += extra
    return dict(sorted(seconds.items(), key=lambda pair: (-pair[1], pair[0])))


def _unused(report: Report) -> list[str]:
    """Return the site's factors that scale nothing here: misspelt, or of another machine."""
    known = {*report.priced.factors, *report.added_factors, JITTER}
    return [
        f"the site's factor {factor.name} is none of the factors of this job: {', '.join(sorted(known))}"
        for factor in report.job.site.factors
        if factor.name not in known
    ]
