"""A report as text: first the step time, then its breakdown, the memory, costs, and the uncertainty.

Answers: what does the terminal show?
Elsewhere: the report as a page (report_page.py) and as JSON data (report_json.py).
Components below 0.05 % of the step are omitted; one character of a bar is 1/24 of the step.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from flopcast.economics.amount import Amount
from flopcast.economics.power import PowerDraw
from flopcast.economics.step import ENERGY_INCLUDES, KWH_J, StepCost
from flopcast.memory.verdict import VERDICTS
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.loader_text import loader_lines
from flopcast.render.outer_text import outer_lines
from flopcast.render.tables import BAR_WIDTH, aligned, bar, in_paragraphs
from flopcast.render.terminal import OF_VERDICT, answer
from flopcast.render.trained_text import subject_lines, trained_lines
from flopcast.report.evidence import Evidence
from flopcast.report.labels import component_label, memory_label, work_label
from flopcast.report.memory_report import MemoryReport
from flopcast.report.report import Report
from flopcast.search.chosen_plan import FASTER_PLAN
from flopcast.spec.factor_kinds import in_words
from flopcast.spec.job import Job
from flopcast.timeline.uncertainty import Sensitivity
from flopcast.units import Number, counted, show, show_count, show_memory, show_seconds, show_usd

if TYPE_CHECKING:
    from flopcast.economics.run import TrainingRun

NO_CHECKPOINT = "the run ends before a checkpoint is due"
NO_PRICE = (
    "unknown: set the price of a device with --price '2.10 USD/h', or with cluster.price in a job file"
)
FEW = 0.01  # interruptions: fewer are not told
WORTH_TELLING = 0.01  # share of the energy; smaller savings are below the accuracy of the estimate
NO_POWER = "unknown: board_power_w of the device is not stated"


def marked_text(report: Report, changes: Iterable[str] = (), helpful: Sequence[str] = ()) -> str:
    """Return the printed report: paragraphs with marks for a terminal (terminal.py), no final newline.

    The first three lines state the job (model, machine and stack), the plan, and the step with its 90 %
    interval. Then follow rate, MFU, memory with its verdict (in capitals if the job does not fit),
    warnings, and the changes that make the job fit. `helpful` is the line below the answer that states
    which change would save most.
    """
    from flopcast.render.checkpoint_text import checkpoint_lines

    parts = (
        _answer(report) + change_lines(changes),
        helpful,
        _run(report),
        _times(report),
        loader_lines(report.loader),
        outer_lines(report.outer, report.peers),
        straggler_lines(report),
        _memory(report.memory),
        _outside(report.memory),
        cost_lines(report),
        [] if report.checkpoint is None else checkpoint_lines(report.checkpoint),
        _certainty(report),
        assumption_lines(text for text in report.assumptions if not text.startswith(FASTER_PLAN)),
    )
    return in_paragraphs(*parts)


def _answer(report: Report) -> list[str]:
    """Return the lines of the answer: job, step time, rate, MFU, memory and warnings."""
    job, metrics = report.job, report.metrics
    low, high = (show_seconds(bound, like=report.step_time_s) for bound in report.bounds_s)
    mfu, hfu = f"{metrics.mfu_ratio:.1%}", f"{metrics.hfu_ratio:.1%}"
    shares = mfu if hfu == mfu else f"{mfu}, HFU {hfu}"
    unit = f"{job.batch_unit}/s"
    of_one = f", {show(metrics.device_tokens_per_s, unit)} per device" * (job.cluster.num_devices > 1)
    lines = [
        *subject_lines(job),
        *trained_lines(job),
        f"step      {answer(show_seconds(report.step_time_s))}   (90 %: {low} to {high})",
        f"rate      {show(metrics.tokens_per_s, unit)}{of_one}",
        f"MFU       {shares}  ({metrics.attained} per device{job.flop_note})",
        *_needs(report.memory),
    ]
    return lines + [f"warning   {text}" for text in report.warnings]


def _run(report: Report) -> list[str]:
    """Return the lines of the whole run; none if the job does not state its length."""
    if report.run is None or report.job.run is None:
        return []
    head = f"the whole run: {report.job.run.text()}"
    return [head, *(f"  {line}" for line in run_lines(report.run))]


def run_lines(run: "TrainingRun") -> list[str]:
    """Return a line each for tokens, time, goodput, failures, cost and energy of a run, with intervals.

    Fewer failures than `FEW` are shown as "fewer than". Cost and energy say why they are unknown
    if a price or a power is missing.
    """
    share, low_share, high_share = run.goodput
    lost = run.phases[0].lost
    failures = f"fewer than {FEW}" if run.num_failures < FEW else f"{run.num_failures:.3g}"
    low, high = (show_seconds(bound, like=run.wall_s.value) for bound in run.wall_s.bounds)
    return [
        f"tokens    {show_count(sum(phase.phase_tokens for phase in run.phases))} in"
        f" {counted(round(sum(phase.num_steps for phase in run.phases)), 'step')}",
        f"time      {answer(show_seconds(run.wall_s.value))}   (90 %: {low} to {high})",
        f"goodput   {share:.1%}   (90 %: {low_share:.1%} to {high_share:.1%})",
        f"failures  {failures} expected interruptions,"
        f" one every {show_seconds(lost.time_between_failures_s)};"
        f" {_checkpoints(run)}",
        f"cost      {_run_money(run)}",
        f"energy    {_run_energy(run)}",
    ]


def _checkpoints(run: "TrainingRun") -> str:
    """Return how often a checkpoint is saved; none is due if the interval is longer than the run."""
    interval_s = run.phases[0].lost.interval_s
    due = interval_s < run.wall_s.value
    return f"a checkpoint every {show_seconds(interval_s)}" if due else NO_CHECKPOINT


def _run_money(run: "TrainingRun") -> str:
    price = run.phases[0].cost.price
    if run.usd is None or price is None:
        return NO_PRICE
    low, high = run.usd.bounds
    usd = answer(show_usd(run.usd.value))
    return f"{usd}   (90 %: {show_usd(low)} to {show_usd(high)}), at {price.text()}"


def _run_energy(run: "TrainingRun") -> str:
    if run.joules is None:
        return NO_POWER
    hours = run.joules * (1000 / KWH_J)
    low, high = hours.bounds
    interval = f"(90 %: {show(low, 'Wh')} to {show(high, 'Wh')})"
    return f"{show(hours.value, 'Wh')}   {interval}, {ENERGY_INCLUDES}"


def _needs(memory: MemoryReport) -> list[str]:
    """Return the need and the verdict of the device, then of every tier that the plan uses."""
    return [
        f"{name:<10}{need}: {OF_VERDICT[word](word.upper() if word == VERDICTS[-1] else word)}"
        for name, need, word in memory.needs
    ]


def _times(report: Report) -> list[str]:
    """Return the breakdown of the busiest stage's time, with bars."""
    rows = []
    for name, seconds in report.breakdown.items():
        share = seconds / report.step_time_s
        if share >= 0.0005:
            drawn = bar(max(share, 1 / BAR_WIDTH)) if share > 0.02 else ""
            rows.append((component_label(name), show_seconds(seconds), f"{share:.1%}", drawn))
    several = report.job.plan.pipeline_parallel > 1
    head = f"where the time goes{' (on the busiest stage)' if several else ''}"
    return [head, *(f"  {line}" for line in aligned(rows, "<>><"))]


def straggler_lines(report: Report) -> list[str]:
    """Return the cost of slow devices, hosts and links; empty if the job states none.

    The first line has the cost of all of them together. The other lines state the cost of each slow part
    alone. Their sum may be larger, because stages wait only for the slowest part.
    """
    found = report.stragglers
    if found is None:
        return []
    speeds = [f"{one.part.label} at {one.part.speed_fraction:g} of its speed" for one in found.each]
    costs = [show_seconds(one.alone_s) for one in found.each]
    rows = [(speed, cost, "alone") for speed, cost in zip(speeds, costs, strict=True)]
    head = f"slow parts cost {show_seconds(found.lost_s)} per step, {found.lost_fraction:.1%} of it"
    return [
        f"{head}; without them, the step takes {show_seconds(found.without_s)}",
        *(f"  {line}" for line in aligned(rows, "<><")),
    ]


def _memory(memory: MemoryReport) -> list[str]:
    """Return the memory by category, largest first, then the totals, each with what it contains."""
    driver = "driver context + communication buffers"
    sizes = [(memory_label(name), size, "") for name, size in memory.by_category.items()]
    totals = [
        ("allocated", memory.allocated_bytes, "sum of the rows above"),
        ("expected need", memory.expected_bytes, f"allocated + {driver}"),
        ("reserved", memory.reserved_bytes, "allocated + memory that the allocator caches"),
        ("in use on the device", memory.device_used_bytes, f"reserved + {driver}"),
    ]
    rows = sorted(sizes, key=lambda row: -row[1]) + totals
    lines = aligned([(name, show_memory(size), note) for name, size, note in rows], "<><")
    head = "peak memory of the fullest stage" if memory.num_stages > 1 else "peak memory"
    head += " (the expected need decides whether the job fits)"
    return [head, *(f"  {line}" for line in lines)]


def _outside(memory: MemoryReport) -> list[str]:
    """Return what fills each tier outside the devices, largest first; nothing if the plan uses none."""
    lines = []
    for tier in memory.tiers:
        sizes = sorted(tier.by_category.items(), key=lambda pair: -pair[1])
        rows = [(memory_label(name), show_memory(size), "") for name, size in sizes]
        share = f"sum of the rows above, {tier.expected_bytes / tier.capacity_bytes:.0%} of the capacity"
        rows.append(("expected need", show_memory(tier.expected_bytes), share))
        lines += [f"{tier.label} of {tier.owner}", *(f"  {line}" for line in aligned(rows, "<><"))]
    return lines


def change_lines(changes: Iterable[str]) -> list[str]:
    """Return a line for each change with which a job fits."""
    return [f"change    {text}" for text in changes]


def marked_memory_text(job: Job, memory: MemoryReport, changes: Iterable[str] = ()) -> str:
    """Return the memory of a job, stage by stage, with marks for a terminal, and changes that make it fit.

    The text has the job in two lines, the verdict, the fullest stage by category, a table of all stages,
    and the assumptions. It needs no measured curves.
    """
    lines = [
        *subject_lines(job),
        *_needs(memory),
        *change_lines(changes),
        "",
        *_memory(memory),
        "",
        *([*_outside(memory), ""] if memory.tiers else []),
        f"{'stage':>5} {'fullest at':>10} {'allocated':>10} {'reserved':>10} {'in use':>10}",
    ]
    for stage in memory.per_stage:
        lines.append(
            f"{stage.stage:5} {stage.moment:>10} {show_memory(stage.allocated_bytes):>10}"
            f" {show_memory(stage.reserved_bytes):>10} {show_memory(stage.device_used_bytes):>10}"
        )
    return in_paragraphs(lines, assumption_lines(job.assumptions))


def _certainty(report: Report) -> list[str]:
    """Return the factors that widen the interval most, the weakest curves, and extrapolated curves."""
    head = "what the uncertainty depends on (one standard deviation each; shares overlap)"
    lines = [head, *factor_lines(report.factors[:6], "step")]
    worst = sorted(report.evidence, key=lambda e: -e.relative_error)[:3]
    errors = ", ".join(f"{_measured(e)} {e.relative_error:.0%}" for e in worst)
    lines.append(f"  least accurate efficiency curves, by mean error: {errors}")
    outside = [_measured(e) for e in report.evidence if e.extrapolated]
    if outside:
        lines.append(f"  curves used outside their measured range: {', '.join(outside)}")
    return lines


def _measured(evidence: Evidence) -> str:
    """Return what was measured where: "flash_attention on h100-sxm5-80gb"."""
    owner, _, kernel = evidence.curve.partition("/")
    return f"{kernel} on {owner}"


def factor_lines(factors: Iterable[Sensitivity], whole: str) -> list[str]:
    """Return a table of share, sigma and their product of factors, without those of less than 0.05 %.

    `whole` is the amount of which the factors scale a part: "step" or "run".
    """
    rows = [(f"share of the {whole}", "× uncertainty", f"= effect on the {whole}", "")]
    for one in factors:
        wide = abs(one.share) * one.log_sigma_factor
        shares = (f"{one.share:.0%}", f"{one.log_sigma_factor:.0%}", f"{wide:.1%}")
        rows += [(*shares, in_words(one.name))] if wide >= 0.0005 else []
    return [f"  {line}" for line in aligned(rows, ">>><")]


def cost_lines(report: Report) -> list[str]:
    """Return one line each for cost, price, energy, power, and how busy the devices are.

    Cost and energy are those of a step and, if the job has an open length, of 1e12 tokens.
    """
    cost, drawn, quoted = report.cost, report.watts, report.job.has_open_length
    usd = NO_PRICE if cost.step_usd is None else _of_tokens(cost, cost.step_usd, show_usd, quoted=quoted)
    price = [] if cost.price is None else [f"price     {cost.price.text()}"]
    limits = [] if drawn is None else _power_limits(drawn)
    lines = [f"cost      {usd}", *price, *_energy(cost, quoted=quoted), *limits]
    return [
        "cost and energy (power and activity are means over all devices)",
        *(f"  {line}" for line in lines),
    ]


def _of_tokens(cost: StepCost, of_step: Amount, shown: Callable[[Number], str], *, quoted: bool) -> str:
    """Return an amount per step and, if `quoted`, per 1e12 tokens, the last with its interval."""
    last, words = (cost.per_many_tokens(of_step), "per 1e12 tokens") if quoted else (of_step, "per step")
    low, high = last.bounds
    first = f"{shown(of_step.value)} per step, " if quoted else ""
    return f"{first}{shown(last.value)} {words} (90 %: {shown(low)} to {shown(high)})"


def _power_limits(drawn: PowerDraw) -> list[str]:
    share, limit = f"{drawn.at_limit_fraction:.0%}", f"{drawn.limit_w:.0f} W"
    at_limit = f"operators at the {limit} limit take {share} of the step"
    return [
        f"peak      {drawn.peak_w:.0f} W per device in the busiest 0.1 s; {at_limit}",
        f"limit     {_least(drawn)}",
    ]


def _least(drawn: PowerDraw) -> str:
    """Return the power limit of least energy, with the energy that it saves and the time that it costs."""
    if drawn.least_energy_ratio > 1.0 - WORTH_TELLING:
        return "a lower power limit would save less than 1% of the energy"
    return (
        f"{drawn.least_energy_limit_w:.0f} W per device would minimise the energy: about"
        f" {1 - drawn.least_energy_ratio:.0%} less, but the step would be"
        f" {drawn.least_energy_time_ratio - 1:.0%} longer"
    )


def _energy(cost: StepCost, *, quoted: bool) -> list[str]:
    """Return lines about the energy of the building and the mean power of a device."""
    if cost.energy is None:
        return [f"energy    {NO_POWER}"]
    power = cost.energy.device_power_w
    energy = _of_tokens(cost, cost.energy.step_j, lambda joules: show(joules / 3600, "Wh"), quoted=quoted)
    low_w, high_w = power.bounds
    busy = ", ".join(
        f"{work_label(name)} {share:.0%}" for name, share in cost.energy.busy.items() if share >= 0.005
    )
    return [
        f"energy    {energy}, {ENERGY_INCLUDES}",
        f"power     {power.value:.0f} W per device on average (90 %: {low_w:.0f} to {high_w:.0f})",
        f"activity  {busy} of the step",
    ]
