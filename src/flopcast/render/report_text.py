"""A report as text: first the answer, then where the time goes, the memory, costs, and the uncertainty.

Answers: what does the terminal show? The text has no colours or control characters.
Elsewhere: the report as a page (report_page.py) and as JSON data (report_json.py).
Components below 0.05 % of the step are omitted; one character of a bar is 1/24 of the step.
"""

from flopcast.render.cost_text import as_text as cost_lines
from flopcast.report.memory_report import MemoryReport
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.units import show, show_seconds

BAR = "█"
WIDTH = 24


def as_text(report: Report) -> str:
    """Return the printed report: paragraphs, without a final newline.

    Returns
    -------
    str
        First the job in three lines (model, machine and stack; plan; step and its 90 % interval), then
        rate, MFU, memory with its verdict, in capitals where it does not fit, and every warning.
    """
    parts = (
        _answer(report),
        _times(report),
        _memory(report.memory),
        cost_lines(report.cost, report.watts),
        _certainty(report),
        ["assumed"] + [f"  {text}" for text in report.assumptions] if report.assumptions else [],
    )
    return "\n\n".join("\n".join(part) for part in parts if part)


def _answer(report: Report) -> list[str]:
    """Return the lines of the answer: job, step time, rate, MFU, memory and warnings."""
    job, metrics = report.job, report.metrics
    devices = job.cluster.num_devices
    low, high = (show_seconds(bound, like=report.step_time_s) for bound in report.bounds_s)
    lines = [
        f"{job.model.name} on {job.cluster.name}: {devices} × {job.cluster.node.device.name},"
        f" {job.stack.label}",
        f"plan      {job.plan.short()}  {job.batch.told()}",
        f"step      {show_seconds(report.step_time_s)}   (90 %: {low} to {high})",
        f"rate      {show(metrics.tokens_per_s, 'tokens/s')},"
        f" {show(metrics.device_tokens_per_s, 'tokens/s')} per device",
        f"MFU       {metrics.mfu_ratio:.1%}  ({metrics.device_flop_per_s / 1e12:.0f} TFLOP/s per"
        f" device, full attention counted; HFU {metrics.hfu_ratio:.1%})",
        f"memory    {report.memory.need}: {_verdict(report.memory)}",
    ]
    if job.model.adapters:
        trained = show(job.model.trained_parameters(), "parameters")
        lines.insert(2, f"trains    {trained} of {show(job.model.parameters(), 'parameters')}, in adapters")
    return lines + [f"warning   {text}" for text in report.warnings]


def _verdict(memory: MemoryReport) -> str:
    return memory.verdict if memory.fits else memory.verdict.upper()


def _times(report: Report) -> list[str]:
    """Return the breakdown of the busiest stage's time, with bars."""
    lines = ["where the time goes (on the busiest stage)"]
    for name, seconds in report.breakdown.items():
        share = seconds / report.step_time_s
        if share >= 0.0005:
            bar = BAR * max(1, round(share * WIDTH)) if share > 0.02 else ""
            lines.append(f"  {name.replace('_', ' '):20} {show_seconds(seconds):>9}  {share:6.1%}  {bar}")
    return lines


def _memory(memory: MemoryReport) -> list[str]:
    """Return the memory by category, largest first, then the allocated, reserved and device totals."""
    lines = ["peak memory of the fullest stage"]
    for name, size in sorted(memory.by_category.items(), key=lambda pair: -pair[1]):
        lines.append(f"  {name.replace('_', ' '):20} {show(size, 'B'):>9}")
    lines.append(
        f"  {'allocated':20} {show(memory.allocated_bytes, 'B'):>9}   reserved"
        f" {show(memory.reserved_bytes, 'B')}, device {show(memory.device_used_bytes, 'B')}"
    )
    return lines


def memory_text(job: Job, memory: MemoryReport) -> str:
    """Return the memory of a job, stage by stage, as text; it needs no measured curves.

    The verdict in the second line, the fullest stage by category, then a table of all stages.
    """
    lines = [
        f"{job.model.name}, {job.plan.short()}, {job.batch.told()},"
        f" {job.stack.label} on {job.cluster.node.device.name}",
        f"{memory.need}: {_verdict(memory)}",
        "",
        *_memory(memory),
        "",
        f"{'stage':>5} {'fullest at':>10} {'allocated':>10} {'reserved':>10} {'device':>10}",
    ]
    for stage in memory.per_stage:
        lines.append(
            f"{stage.stage:5} {stage.moment:>10} {show(stage.allocated_bytes, 'B'):>10}"
            f" {show(stage.reserved_bytes, 'B'):>10} {show(stage.device_used_bytes, 'B'):>10}"
        )
    return "\n".join(lines)


def _certainty(report: Report) -> list[str]:
    """Return the factors that widen the interval most, the weakest curves, and extrapolated curves."""
    lines = ["what the uncertainty depends on (share of the step × sigma)"]
    for factor in report.factors[:6]:
        if factor.share * factor.log_sigma_factor >= 0.0005:
            lines.append(
                f"  {factor.name:44} {factor.share:5.0%} × {factor.log_sigma_factor:.0%}"
                f" = {factor.share * factor.log_sigma_factor:.1%}"
            )
    worst = sorted(report.evidence, key=lambda e: -e.relative_error)[:3]
    lines.append("  weakest evidence: " + "; ".join(f"{e.curve} ({e.relative_error:.0%})" for e in worst))
    outside = [e.curve for e in report.evidence if e.extrapolated]
    if outside:
        lines.append("  outside the measured range: " + ", ".join(outside))
    return lines
