"""Drawings of a page: axes, their lines and names, and the frame that tells a drawing in words.

Answers: where does a value stand, which round values does an axis show, how is a drawing announced to a
reader who does not see it?
Elsewhere: drawings over time (over_time.py), what is drawn (pipeline.py, memory.py, roofline.py,
scaling.py), colours (style.py).
Lengths are dots of the drawing, which scales with the page; y counts downwards.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from flopcast.units import Number

WIDTH = 1000
FEW_RATIO = 500.0  # of the ends of a logarithmic axis: above it powers of ten are enough


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Values from `low` to `high`, drawn from dot `start` to dot `end`: linear, or by logarithms.

    `marked` are the values that have a line; without them, round ones.
    """

    low: Number
    high: Number
    start: Number
    end: Number
    logarithmic: bool = False
    marked: tuple[Number, ...] = ()

    def at(self, value: Number) -> float:
        """The dot of a value; beyond an end, the end."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    @property
    def ticks(self) -> list[Number]:
        """Values between the ends that have a line.

        Round ones are four to eight; of a wide logarithmic axis all powers of ten, with 2 and 5 of each
        where they are few.
        """
        if self.marked:
            return [tick for tick in self.marked if self.low <= tick <= self.high]
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
    """The logarithmic axis that holds all values, with a little room at both ends."""
    return Axis(low=min(values) / 1.25, high=max(values) * 1.25, start=start, end=end, logarithmic=True)


def label(x: Number, y: Number, told: str, anchor: str = "middle", kind: str = "") -> str:
    """A text of a drawing."""
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(told)}</text>'


def grid(
    across: Axis, up: Axis, name_across: Callable[[Number], str], name_up: Callable[[Number], str]
) -> Iterator[str]:
    """Lines at the ticks of both axes, and what they stand for."""
    for tick in across.ticks:
        x = across.at(tick)
        yield f'<path class="grid" d="M{x:.1f},{up.start}V{up.end}"/>'
        yield label(x, up.start + 18, name_across(tick))
    for tick in up.ticks:
        y = up.at(tick)
        yield f'<path class="grid" d="M{across.start},{y:.1f}H{across.end}"/>'
        yield label(across.start - 8, y + 4.5, name_up(tick), "end")


def names(across: Axis, up: Axis, below: str, beside: str) -> str:
    """What the axes are of: one name under the numbers, one beside them."""
    y = (up.start + up.end) / 2
    return (
        label((across.start + across.end) / 2, up.start + 40, below, kind="soft")
        + f'<text class="soft" x="14" y="{y:.0f}" text-anchor="middle"'
        f' transform="rotate(-90 14 {y:.0f})">{escape(beside)}</text>'
    )


def described_svg(key: str, title: str, described: str, height: Number, drawn: str, top: Number = 0) -> str:
    """A drawing with its name and what it shows in words, in ids that begin with `key`.

    It is cut off above `top`. One without texts may be as narrow as the page.
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
    """A drawing in a frame that scrolls where the page is narrow; `below` is HTML under it."""
    svg = described_svg(key, title, described, height, drawn, top)
    return f'<figure id="{key}"><div class="scroll">{svg}</div><figcaption>{below}</figcaption></figure>'


def legend(entries: Sequence[tuple[int, str]]) -> str:
    """Which hue stands for what."""
    marks = "".join(
        f'<span><svg class="mark" viewBox="0 0 10 10" aria-hidden="true"><rect class="hue-{hue}" width="10"'
        f' height="10"/></svg> {escape(name)}</span> '
        for hue, name in entries
    )
    return f'<p class="legend">{marks}</p>'
