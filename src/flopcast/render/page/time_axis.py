"""Drawings over the time of one step: rows, a time axis, and buttons and keys to zoom.

Answers: how do the pipeline and the memory share one axis, and which parts can the script zoom?
Elsewhere: other drawings (drawing.py), what keys and buttons do (report.js).
Without the script, the whole step is shown.
"""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from flopcast.dtypes import Integers
from flopcast.records import Record
from flopcast.render.page.drawing import Axis, described_svg, label
from flopcast.units import Number, show_seconds

LEFT, RIGHT = 84, 990  # the names of the rows are left of LEFT
TIME_UNITS = 100_000  # times are drawn in units of 1 / TIME_UNITS of the step
LEAST_LINE = 13  # smallest distance between the names of rows
HINT = (
    "Point at the drawing to see the values at that time. Zoom with Ctrl and the mouse wheel, or + and −."
    " Move with ← and →, and reset with 0."
)


class Plot(Record):
    """The content of a drawing over time.

    `drawn` is SVG, with x from 0 to TIME_UNITS and y from 0 to `height`. `rows` are the names of the rows,
    from top to bottom. `kind` is "tasks" if the script can name the tasks in it, else "".
    """

    drawn: str
    rows: Sequence[str]
    height: Number
    end_s: float
    kind: str = ""


def over_time(key: str, title: str, described: str, plot: Plot, below: str) -> str:
    """Return a drawing with its buttons, which only the script enables; `below` is the HTML under it.

    In the line above the drawing, the script shows what is under the pointer.
    """
    buttons = "".join(
        f'<button type="button" data-key="{pressed}" aria-label="{name}: {escape(title)}" disabled>{name}'
        "</button>"
        for pressed, name in (("+", "Zoom in"), ("-", "Zoom out"), ("0", "Show all"))
    )
    named = f"{escape(title)}. Keys: plus and minus zoom, arrows move, 0 shows all."
    svg = described_svg(key, title, described, plot.height + 28, _inside(plot))
    return (
        f'<figure id="{key}"><div class="needs-script"><div class="tools">{buttons}</div>'
        f'<p class="told soft" role="status">{HINT}</p></div>'
        '<div class="scroll time" tabindex="0" role="group"'
        f' data-end="{plot.end_s:.9g}" aria-label="{named}">{svg}</div>'
        f"<figcaption>{below}</figcaption></figure>"
    )


def stacked(
    across: Integers, heights: Sequence[np.ndarray] | np.ndarray, base: Number, hues: Sequence[int]
) -> str:
    """Return stacked areas as SVG; each amount is constant until the next time.

    The highest area is painted first and the lower ones over it, so that an area needs no lower edge. Equal
    consecutive amounts are merged. Moments (`across`) are in whole units and increase; `heights` are those
    of each amount from each moment on, the lowest area first.
    """
    drawn, moves = [], [f"H{moment}" for moment in across.tolist()]
    tops = np.rint((base - np.asarray(heights).cumsum(axis=0)) * 10).astype(np.intp)
    changes = tops[:, 1:] != tops[:, :-1]
    for hue, top, changed in zip(hues, tops, changes, strict=True):
        later = 1 + np.flatnonzero(changed)
        first, *rises = map(_RISES.__getitem__, [top[0].item(), *top[later].tolist()])
        steps = [moves[place] + rise for place, rise in zip(later.tolist(), rises, strict=True)]
        corners = f"{first}{''.join(steps)}H{TIME_UNITS}"
        drawn.append(f'<path class="hue-{hue}" d="M{across[0]},{base}{corners}V{base}z"/>')
    return "".join(reversed(drawn))


class _Rises(dict[int, str]):
    """The vertical moves of a path by tenths of a unit, each written once."""

    def __missing__(self, tenths: int) -> str:
        """Write a move."""
        text = self[tenths] = f"V{tenths / 10:g}"
        return text


_RISES = _Rises()


def _inside(plot: Plot) -> str:
    """Return the names of the rows, the plot, and the axis below it as SVG."""
    axis = Axis(low=0.0, high=plot.end_s, start=LEFT, end=RIGHT)
    each = plot.height / len(plot.rows)
    every = max(1, math.ceil(LEAST_LINE / each))
    rows = "".join(
        label(LEFT - 8, (row + 0.5) * each + 4.5, name, "end")
        for row, name in enumerate(plot.rows)
        if row % every == 0
    )
    ticks = "".join(label(axis.at(tick), plot.height + 18, show_seconds(tick)) for tick in axis.ticks)
    kind = f"plot {plot.kind}".strip()
    return (
        f'{rows}<svg class="{kind}" x="{LEFT}" y="0" width="{RIGHT - LEFT}" height="{plot.height:.0f}"'
        f' viewBox="0 0 {TIME_UNITS} {plot.height:.0f}" preserveAspectRatio="none">{plot.drawn}</svg>'
        f'<path class="grid" d="M{LEFT},{plot.height:.0f}H{RIGHT}"/><g class="ticks">{ticks}</g>'
    )
