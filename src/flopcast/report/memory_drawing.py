"""Memory over one step as SVG: a row a stage, what stands at the bottom, what comes and goes above it.

Answers: how does the drawing of memory in the HTML report look?
Elsewhere: the levels (events.py), the page around it (html.py).
"""

import numpy as np

from flopcast.dtypes import Floats
from flopcast.report.events import memory_over_time
from flopcast.report.report import Report
from flopcast.units import show

WIDTH, ROW_HEIGHT, MOST_POINTS = 1000, 60, 40_000


def memory_drawing(report: Report) -> str:
    """One area a stage over the step without jitter, all rows on one scale: that of the fullest stage.

    Returns
    -------
    str
        An SVG and its legend; a sentence where there are more than MOST_POINTS moments.
    """
    stages = report.memory.per_stage
    courses = [memory_over_time(report, stage.stage) for stage in stages]
    if sum(len(moments) for moments, _ in courses) > MOST_POINTS:
        return "<p>Too many tasks to draw memory over time; see the counters of the trace file.</p>"
    end_s = max(report.clean_step_time_s, *(float(moments.max()) for moments, _ in courses))
    most_bytes = max(stage.allocated_bytes for stage in stages)
    drawn = "".join(
        _area(moments / end_s, level / most_bytes, row, "forward")
        + _area(np.zeros(1), np.array([stage.standing_bytes / most_bytes]), row, "update")
        for row, (stage, (moments, level)) in enumerate(zip(stages, courses, strict=True))
    )
    label = (
        f"{len(stages)} stage{'s' if len(stages) > 1 else ''}, first above; full height is"
        f" {show(most_bytes, 'B')}: states and buffers grey, activations and layers at work blue"
    )
    return (
        f'<div class="scroll"><svg role="img" aria-label="{label}"'
        f' viewBox="0 0 {WIDTH} {len(stages) * ROW_HEIGHT}">{drawn}</svg></div><p>{label}</p>'
    )


def _area(moment_fraction: Floats, level_fraction: Floats, row: int, colour: str) -> str:
    """Levels that hold until the next moment, as an area on the base of a row."""
    base = (row + 1) * ROW_HEIGHT
    across = moment_fraction * WIDTH
    held = np.concatenate([across[1:], [float(WIDTH)]]).tolist()
    tops = (base - level_fraction * (ROW_HEIGHT - 4)).tolist()
    corners = "".join(f"V{top:.1f}H{right:.1f}" for top, right in zip(tops, held, strict=True))
    return f'<path d="M{across[0]:.1f},{base}{corners}V{base}Z" fill="var(--{colour})"/>'
