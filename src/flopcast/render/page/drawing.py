"""Drawings of a page: axes, grid lines, names, and the frame with a description in words.

Answers: where is a value drawn, which round values does an axis show, how is a drawing described to a
reader who cannot see it?
Elsewhere: drawings over time (time_axis.py), what is drawn (pipeline.py, memory.py, roofline.py,
scaling.py), colours (style.py).
Lengths are in units of the drawing, which scales with the page; y increases downwards.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from flopcast.records import Record, replace
from flopcast.units import Number

WIDTH = 1000
FEW_RATIO = 500.0  # a logarithmic axis whose ends differ by more shows only powers of ten


class Axis(Record):
    """An axis with values from `low` to `high`, drawn from `start` to `end`, linear or logarithmic.

    `marked` are the values with a grid line; by default, round multiples of `unit` are chosen.
    """

    low: Number
    high: Number
    start: Number
    end: Number
    logarithmic: bool = False
    marked: tuple[Number, ...] = ()
    unit: Number = 1.0

    def at(self, value: Number) -> float:
        """Return where a value is drawn. Values outside of the axis are drawn at its end."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    @property
    def ticks(self) -> list[Number]:
        """Return the values with a grid line.

        A linear axis has four to eight round values. A wide logarithmic axis has the powers of ten, with
        their multiples by 2 and 5 if there are few.
        """
        if self.marked:
            return [tick for tick in self.marked if self.low <= tick <= self.high]
        if self.unit != 1.0:
            plain = replace(self, low=self.low / self.unit, high=self.high / self.unit, unit=1.0)
            return [tick * self.unit for tick in plain.ticks]
        if self.logarithmic and self.high > 3.0 * self.low:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            each = (1.0,) if self.high > FEW_RATIO * self.low else (1.0, 2.0, 5.0)
            tried = [one * 10.0**decade for decade in decades for one in each]
            return [tick for tick in tried if self.low <= tick <= self.high]
        rough = (self.high - self.low) / 8
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(each * unit for each in (1, 2, 5, 10) if each * unit >= rough)
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, math.floor(self.high / step) + 1)]


def spanning(values: Sequence[Number], start: Number, end: Number) -> Axis:
    """Return a logarithmic axis that contains all values, with a little room at both ends."""
    return Axis(low=min(values) / 1.25, high=max(values) * 1.25, start=start, end=end, logarithmic=True)


def label(x: Number, y: Number, text: str, anchor: str = "middle", kind: str = "") -> str:
    """Return a text of a drawing as SVG."""
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def grid(
    across: Axis, up: Axis, name_across: Callable[[Number], str], name_up: Callable[[Number], str]
) -> Iterator[str]:
    """Yield grid lines at the ticks of both axes, and their labels.

    Parameters
    ----------
    across, up : Axis
        The horizontal and the vertical axis.
    name_across, name_up : function
        Return the label of a value.

    Yields
    ------
    str
        SVG elements, with coordinates in units of the drawing.
    """
    for tick in across.ticks:
        x = across.at(tick)
        yield f'<path class="grid" d="M{x:.1f},{up.start}V{up.end}"/>'
        yield label(x, up.start + 18, name_across(tick), "end" if x > WIDTH - 24 else "middle")
    for tick in up.ticks:
        y = up.at(tick)
        yield f'<path class="grid" d="M{across.start},{y:.1f}H{across.end}"/>'
        yield label(across.start - 8, y + 4.5, name_up(tick), "end")


def line(points: Iterable[tuple[Number, Number]], across: Axis, up: Axis, kind: str) -> str:
    """Return a line through points, which are values of both axes, as SVG."""
    corners = "L".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{corners}"/>'


def mark(text: str, kind: str, shape: str, x: Number, y: Number) -> str:
    """Return a mark with its text, which browsers show without any script."""
    return (
        f'<g><title>{escape(text)}</title><path class="{kind}" d="{shape}"'
        f' transform="translate({x:.1f},{y:.1f})"/></g>'
    )


def names(across: Axis, up: Axis, below: str, beside: str) -> str:
    """Return the names of both axes as SVG."""
    y = (up.start + up.end) / 2
    return (
        label((across.start + across.end) / 2, up.start + 40, below, kind="soft")
        + f'<text class="soft" x="14" y="{y:.0f}" text-anchor="middle"'
        f' transform="rotate(-90 14 {y:.0f})">{escape(beside)}</text>'
    )


def described_svg(key: str, title: str, described: str, height: Number, drawn: str, top: Number = 0) -> str:
    """Return a drawing as SVG with a title and a description, whose ids begin with `key`.

    The drawing is clipped above `top`. A drawing without texts shrinks to the width of the page.
    """
    bare = "" if "<text" in drawn else ' class="bare"'
    return (
        f'<svg role="img"{bare} aria-labelledby="{key}-title {key}-desc" viewBox="0 {top} {WIDTH}'
        f' {height - top:.0f}">'
        f'<title id="{key}-title">{escape(title)}</title>'
        f'<desc id="{key}-desc">{escape(described)}</desc>{drawn}</svg>'
    )


def figure(
    key: str, title: str, described: str, height: Number, drawn: str, below: str = "", top: Number = 0
) -> str:
    """Return a drawing in a frame that scrolls on narrow pages; `below` is the HTML under it."""
    svg = described_svg(key, title, described, height, drawn, top)
    return f'<figure id="{key}"><div class="scroll">{svg}</div><figcaption>{below}</figcaption></figure>'


def legend(entries: Sequence[tuple[int, str]]) -> str:
    """Return a legend that names each hue."""
    marks = "".join(
        f'<span><svg class="mark" viewBox="0 0 10 10" aria-hidden="true"><rect class="hue-{hue}" width="10"'
        f' height="10"/></svg> {escape(name)}</span> '
        for hue, name in entries
    )
    return f'<p class="legend">{marks}</p>'
