"""A measured run and its prediction: the steps, and the likely causes of the difference.

Answers: how long did each step take, is it inside the predicted interval, and what explains the difference?
Elsewhere: how suspects are found (lab/diagnosis/), the same as text (render/diagnosis.py).
"""

from html import escape

import numpy as np

from flopcast.dtypes import Floats
from flopcast.lab.diagnosis.suspect import SlowStep, Suspect
from flopcast.lab.logs.log import Log
from flopcast.render.diagnosis import BASIS, contradictions, verdict
from flopcast.render.page.drawing import Axis, figure, grid, label, line, names
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, Markup, listing, seconds, share, table
from flopcast.render.terminal import capital, plain
from flopcast.units import Number, show_seconds

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 104, 970, 16, 260, 310
MOST_POINTS = 500  # records that are drawn; of more, each point is the median of some
MOST_RATIO = 4.0  # of the highest drawn step to the median; higher ones are drawn at the edge


def measured(found: SlowStep) -> Section:
    """Return the section with the measured step, the steps of the log, and the suspects."""
    drawn = "" if found.log is None else _steps(found, found.log)
    rows = [_row(each, found.report.step_time_s) for each in found.suspects]
    suspects = "<p>There are no suspects: flopcast knows no change that would make this step shorter.</p>"
    if rows:
        caption = (
            "Reasons why the step may be slower than necessary, with the seconds that each costs and their"
            " certainty."
        )
        costs = ("cost per step", "share of the predicted step")
        suspects = table(caption, ("suspect", *costs, "basis", "evidence, and what to change"), rows)
    notes = [*(f"Not longer than predicted: {text}" for text in found.cleared), *found.advice]
    html = f"{_contradicted(found)}<p>{_verdict(found)}</p>{drawn}{suspects}{listing(notes)}"
    return Section("measured", "Measured and predicted steps", html=html)


def _verdict(found: SlowStep) -> str:
    """Return the measured and the predicted step, one line each."""
    return "<br>".join(
        f"<strong>{word.capitalize()}</strong> {escape(plain(text))}" for word, text in verdict(found)
    )


def _contradicted(found: SlowStep) -> str:
    """Return what the log says otherwise than the job, as a warning with a list; "" if nothing."""
    told = contradictions(found)
    if not told:
        return ""
    listed = "".join(f"<li>{escape(capital(text))}.</li>" for text in told[1:])
    return f'<p class="warning"><strong>{escape(capital(told[0]))}.</strong></p><ul>{listed}</ul>'


def _row(suspect: Suspect, step_s: float) -> tuple[Cell, ...]:
    """Return the line of a suspect in the table."""
    texts = [*suspect.evidence, *(f"against it: {text}" for text in suspect.against)]
    texts.append(f"change: {suspect.change}")
    about = Markup("<br>".join(escape(capital(text)) for text in texts))
    cost_s = suspect.cost_s
    spent: tuple[Cell, Cell] = ("unknown", "–")
    if cost_s is not None:
        spent = seconds(cost_s), share(cost_s / step_s)
    return (suspect.title, *spent, BASIS[suspect.basis], about)


def drawn_steps(found: SlowStep, log: Log) -> tuple[Floats, Floats]:
    """Return the steps that are drawn and their seconds, each array (points,); empty without times.

    Of more than MOST_POINTS records, equal groups of neighbours are drawn at their median.
    """
    job = found.report.job
    sizes = job.plan.global_batch, job.batch.mean_sequence_tokens, job.cluster.num_devices
    times_s = log.times_s(*sizes)
    known = np.isfinite(times_s) & np.isfinite(log.steps.step)
    steps, times_s = np.asarray(log.steps.step, dtype=float)[known], times_s[known]
    if len(steps) <= MOST_POINTS:
        return steps, times_s
    groups = np.array_split(np.arange(len(steps)), MOST_POINTS)
    return (
        np.array([np.median(steps[each]) for each in groups]),
        np.array([np.median(times_s[each]) for each in groups]),
    )


def _steps(found: SlowStep, log: Log) -> str:
    """Return the steps of the log as a drawing, with the predicted step and its interval."""
    steps, times_s = drawn_steps(found, log)
    if not len(steps):
        return ""
    report = found.report
    low_s, high_s = report.bounds_s
    most_s = max(high_s, min(float(times_s.max()), MOST_RATIO * float(np.median(times_s))))
    first, last = float(steps.min()), float(steps.max())
    across = Axis(low=first, high=max(last, first + 1.0), start=LEFT, end=RIGHT)
    up = Axis(low=0.0, high=1.05 * most_s, start=BOTTOM, end=TOP)
    ends = (across.low, across.high)
    top, base = up.at(high_s), up.at(low_s)
    drawn = [
        f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{RIGHT - LEFT}" height="{base - top:.1f}"/>',
        *grid(across, up, _number, show_seconds),
        line([(end, report.step_time_s) for end in ends], across, up, "rule"),
        *(
            f'<circle class="hue-1" cx="{across.at(step):.1f}" cy="{up.at(taken_s):.1f}" r="2"/>'
            for step, taken_s in zip(steps.tolist(), times_s.tolist(), strict=True)
        ),
        label(RIGHT, up.at(low_s) + 15, "predicted", "end", "soft"),
    ]
    described = (
        f"Seconds of {len(steps)} steps of the log. The line is the predicted step, the band its 90 %"
        " interval."
    )
    named = "".join(drawn) + names(across, up, "step", "seconds")
    return figure("steps-drawing", "Measured and predicted steps", described, HEIGHT, named, described)


def _number(value: Number) -> str:
    return f"{value:,.0f}"
