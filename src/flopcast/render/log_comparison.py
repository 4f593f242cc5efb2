"""A prediction and the log of a run, as text and as JSON.

Answers: what does `flopcast predict --log` print about the measured run?
Elsewhere: the compared numbers (lab/logs/prediction_check.py).
"""

from collections.abc import Callable
from functools import partial

from flopcast.lab.logs.prediction_check import LogComparison
from flopcast.render.plain_data import FORMAT_VERSION, fields_of
from flopcast.render.terminal import caution, good
from flopcast.report.flop_conventions import CONVENTIONS, WORST_MISMATCH
from flopcast.units import Number, show, show_memory, show_seconds

Shown = Callable[[Number], str]


def marked_text(measured: LogComparison) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    lines = [_used(measured)]
    step, match = measured.step, measured.convention
    if step:
        bounds = (measured.predicted_low_s, measured.predicted_high_s)
        low, high = (show_seconds(bound, like=measured.predicted_step_time_s) for bound in bounds)
        verdict = good("inside") if measured.inside else caution("OUTSIDE")
        lines.append(
            f"step      {show_seconds(step.median_s)} measured,"
            f" {show_seconds(measured.predicted_step_time_s)} predicted"
            f" ({_off(measured.predicted_step_time_s, step.median_s)}): {verdict} the interval"
            f" {low} to {high}"
        )
    if step and step.num_used > 1:
        lines.append(
            f"          80 % of the steps: {show_seconds(step.low_s)} to {show_seconds(step.high_s)},"
            f" mean {show_seconds(step.mean_s)}, best {show_seconds(step.best_s)}"
        )
    rate, predicted = measured.measured_device_flop_per_s, measured.predicted_device_flop_per_s
    if match and rate and predicted:
        line = _line("rate", rate, predicted, partial(show, unit="FLOP/s"))
        lines.append(f"{line} per device, counted as {match.name} (off by {match.mismatch_ratio:+.1%})")
    elif match and rate:
        lines.append(
            f"rate      {show(rate, 'FLOP/s')} per device measured; no known formula gives a rate within"
            f" {WORST_MISMATCH:.0%} of it; the nearest is {match.name} ({match.mismatch_ratio:+.1%})"
        )
    for name, theirs, ours, shown in _pairs(measured):
        if theirs is not None:
            lines.append(_line(name, theirs, ours, shown))
    return "\n".join(lines + [f"warning   {text}" for text in measured.warnings])


def _used(measured: LogComparison) -> str:
    """Return the line that names the log and how many of its steps were used."""
    step = measured.step
    line = f"log       {measured.name}: {measured.framework}"
    if step:
        line += f", {step.num_used} of {step.num_used + step.num_skipped} printed steps used"
    if measured.num_restarts:
        line += f", {measured.num_restarts} restart{'s' if measured.num_restarts > 1 else ''}"
    if measured.num_repeated:
        line += f", {measured.num_repeated} lines ignored (repeated, or of other ranks)"
    return line


def _pairs(measured: LogComparison) -> tuple[tuple[str, float | None, float, Shown], ...]:
    """Return the other quantities as name, measured, predicted, and how they are shown."""
    tokens = partial(show, unit="tokens/s")
    return (
        ("tokens", measured.measured_tokens_per_s, measured.predicted_tokens_per_s, tokens),
        ("allocated", measured.measured_allocated_bytes, measured.predicted_allocated_bytes, show_memory),
        ("reserved", measured.measured_reserved_bytes, measured.predicted_reserved_bytes, show_memory),
    )


def _line(name: str, theirs: Number, ours: Number, shown: Shown) -> str:
    return f"{name:10}{shown(theirs)} measured, {shown(ours)} predicted ({_off(ours, theirs)})"


def _off(ours: Number, theirs: Number) -> str:
    """Return predicted / measured - 1 as a signed percentage."""
    return f"{ours / theirs - 1.0:+.1%}"


def as_json(measured: LogComparison) -> dict[str, object]:
    """Return the comparison as JSON data; keys may be added, never renamed.

    Returns
    -------
    dict
        Fields of LogComparison by name; None if the log does not state a value. `step` holds the fields of
        SteadyTime with the prefix `measured_`; `convention` holds its name, source and mismatch, and
        whether the mismatch is within 5 %. Floats are rounded to nine digits.
    """
    data = {"format_version": FORMAT_VERSION, **fields_of(measured)}
    if step := measured.step:
        values = fields_of(step)
        data["step"] = {(f"measured_{k}" if k.endswith("_s") else k): value for k, value in values.items()}
    if match := measured.convention:
        source = {"source": CONVENTIONS[match.name].source}
        data["convention"] = fields_of(match, "name") | source | fields_of(match, "mismatch_ratio", "known")
    return data
