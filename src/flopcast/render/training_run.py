"""A whole training run, as text and as JSON: days, goodput, dollars, kilowatt-hours.

Answers: what does `flopcast run` print?
Elsewhere: the run itself (economics/run.py).
"""

from flopcast.economics.amount import Amount
from flopcast.economics.run import Phase
from flopcast.economics.step import KWH_J
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.checkpoint_text import checkpoint_as_json, checkpoint_lines
from flopcast.render.plain_data import FORMAT_VERSION
from flopcast.render.report_json import factors_as_json, job_as_json, run_as_json, with_bounds
from flopcast.render.report_text import factor_lines, run_lines
from flopcast.render.tables import in_paragraphs
from flopcast.render.trained_text import subject_lines
from flopcast.report.report import Report
from flopcast.report.training import DAY_S, Training
from flopcast.units import nine_digits, show_count, show_seconds, show_usd


def marked_text(whole: Training) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    run = whole.run
    texts = dict.fromkeys(text for report in whole.reports for text in report.warnings)
    lines = [
        subject_lines(whole.reports[0].job)[0],
        *run_lines(run),
        *[f"warning   {text}" for text in texts],
        "",
        *_phases(whole),
        *_resized(whole),
        "",
        *_saving(whole),
        "what the uncertainty depends on (one standard deviation each; shares overlap)",
        *factor_lines(run.wall_s.factors[:5], "run"),
    ]
    assumed = assumption_lines(text for report in whole.reports for text in report.assumptions)
    return in_paragraphs(lines, assumed)


def _saving(whole: Training) -> list[str]:
    """Return the lines about the checkpoints of every phase that describes them; equal ones once."""
    found = [report.checkpoint for report in whole.reports]
    texts = dict.fromkeys(tuple(checkpoint_lines(each)) for each in found if each is not None)
    return [line for lines in texts for line in (*lines, "")]


def _phases(whole: Training) -> list[str]:
    lines = [f"{'phase':12} {'tokens':>12} {'steps':>9} {'step':>9} {'time':>9} {'cost':>9}  plan"]
    for phase, report in zip(whole.run.phases, whole.reports, strict=True):
        usd = "" if phase.usd is None else show_usd(phase.usd.value)
        lines.append(
            f"{phase.name:12} {show_count(phase.phase_tokens):>12} {phase.num_steps:9,.0f}"
            f" {show_seconds(report.step_time_s):>9} {show_seconds(phase.wall_s.value):>9} {usd:>9}"
            f"  {report.job.plan.short()} {report.job.batch_text}"
        )
    return lines


def _resized(whole: Training) -> list[str]:
    """Return what changes of the number of devices during the run cost; nothing if there are none."""
    stops = [phase.resized_s for phase in whole.run.phases if phase.resized_s.value > 0]
    if not stops:
        return []
    counts = " → ".join(str(report.job.cluster.num_devices) for report in whole.reports)
    spent = show_seconds(sum(each.value for each in stops))
    restarts = "1 planned restart" if len(stops) == 1 else f"{len(stops)} planned restarts"
    return [f"devices   {counts}: {restarts}, {spent} in all"]


def as_json(whole: Training) -> dict[str, object]:
    """Return the run as JSON data; keys may be added, never renamed.

    Returns
    -------
    dict
        Totals, each with `_low` and `_high`, `factors` of the days with `d_log_days`, and `phases`. Dollars
        are null without a price, and energy is null without a board power.
    """
    run = whole.run
    days = run.wall_s * (1 / DAY_S)
    return {
        "format_version": FORMAT_VERSION,
        **run_as_json(run),
        "factors": factors_as_json(days.factors, "d_log_days"),
        "phases": [_phase(*pair) for pair in zip(run.phases, whole.reports, strict=True)],
        "warnings": list(dict.fromkeys(text for report in whole.reports for text in report.warnings)),
    }


def _phase(phase: Phase, report: Report) -> dict[str, object]:
    described = report.checkpoint
    return {
        "name": phase.name,
        "job": job_as_json(report.job),
        "tokens": phase.phase_tokens,
        "steps": nine_digits(phase.num_steps),
        **with_bounds("step_time_s", phase.cost.step_s),
        **with_bounds("days", phase.wall_s * (1 / DAY_S)),
        "resized_s": nine_digits(phase.resized_s.value),
        "goodput": nine_digits(phase.useful_s.value / phase.wall_s.value),
        "hours_between_interruptions": nine_digits(phase.lost.time_between_failures_s / 3600),
        "checkpoint_interval_s": nine_digits(phase.lost.interval_s),
        "price": None if phase.cost.price is None else phase.cost.price.model_dump(exclude={"source"}),
        "checkpoint": None if described is None else checkpoint_as_json(described),
        **_costs(phase.usd, phase.joules),
        "assumptions": list(report.assumptions),
    }


def _costs(usd: Amount | None, joules: Amount | None) -> dict[str, object]:
    kwh = None if joules is None else joules * (1 / KWH_J)
    return with_bounds("cost_usd", usd) | with_bounds("energy_kwh", kwh)
