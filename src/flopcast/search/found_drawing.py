"""The front of a search as one drawing: every played plan a mark, the front joined, nothing to load.

Answers: what does `flopcast search --plot FILE` write?
Elsewhere: the numbers (find.py), the style that the page shares (report/html.py). Every text is escaped;
each mark carries its plan as a `<title>`, which browsers show without any script.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from flopcast.report.html import STYLE
from flopcast.search.find import Found
from flopcast.search.found_text import name_of
from flopcast.search.objectives import OBJECTIVES, Objective
from flopcast.search.rank import Ranked
from flopcast.units import Number

WIDTH, HEIGHT, EDGE = 1000, 560, 90
WIDE_RATIO = 10.0  # of the largest value to the smallest: linear, all but one mark would share a corner
OWN_STYLE = """
svg { font: 14px system-ui, sans-serif; color-scheme: light dark; }
svg text { fill: currentcolor; } .grid { stroke: #8886; stroke-width: .6; fill: none; }
.plan { fill: #8a8a8a; opacity: .55; } .equal { fill: #3d8b4f; } .front { fill: #2f6db3; }
.first { fill: #c9601f; } .line { stroke: #2f6db3; fill: none; stroke-width: 1.2; }
.bounds { stroke: currentcolor; opacity: .3; }
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Where values of one objective stand, from `start` to `end` in dots: by their logarithms where they
    differ more than tenfold, as fast and frugal plans of a front do.
    """

    objective: Objective
    low: Number
    high: Number
    start: int
    end: int

    @property
    def by_logarithm(self) -> bool:
        """Whether equal ratios are equally far apart."""
        return 0 < self.low * WIDE_RATIO < self.high

    def at(self, value: Number) -> Number:
        """The dot of a value; beyond an end, the end."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.by_logarithm:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    @property
    def ticks(self) -> list[Number]:
        """Round values between the ends, about five."""
        if self.by_logarithm:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
            tried = [each * 10.0**decade for decade in decades for each in (1, 2, 5)]
            return [tick for tick in tried if self.low <= tick <= self.high]
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(each * unit for each in (1, 2, 5, 10) if each * unit >= rough)
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, math.floor(self.high / step) + 1)]


def as_svg(found: Found) -> str:
    """The drawing alone: the first two objectives, one against the other.

    Grey marks are plans that were played, green ones equal the best, blue ones stand on the front, the
    recommended one is orange; lines are 90 % intervals of the ratio to the best, at the best's value.
    """
    style = f"<style>{OWN_STYLE}</style>"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    names = [_name(objective) for objective in found.question.asked[:2]]
    label = f' aria-label="{names[0]} against {names[1]} of {len(found.plans)} plans">'
    if not found.plans:
        return f'{start}{label}{style}<text x="40" y="60">no plan is feasible</text></svg>\n'
    across, up = (_scale(found, place) for place in (0, 1))
    drawn = [*_grid(across, up), _line(found, across, up), *_marks(found, across, up)]
    return f"{start}{label}{style}{''.join(drawn)}</svg>\n"


def as_html(found: Found, text: str) -> str:
    """A page with the drawing, what its colours mean, and the printed answer."""
    title = f"Plans for {found.question.jobs[0].model.name}"
    legend = (
        "A mark is a plan, played exactly: orange the recommended one, green those that cannot be told"
        " apart from the best, blue the front, grey the others. Lines: 90 % interval of the ratio to the"
        " best. Point at a mark for its plan."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE} body {{ max-width: 75rem; }}</style></head>"
        f'<body><h1>{escape(title)}</h1><div class="scroll">{as_svg(found)}</div><p>{legend}</p>'
        f'<div class="scroll"><pre>{escape(text)}</pre></div></body></html>\n'
    )


def _name(objective: Objective) -> str:
    """The objective as an axis is called."""
    return next(name for name, one in OBJECTIVES.items() if one is objective).replace("_", " ")


def _values(found: Found, place: int) -> Callable[[Ranked], Number]:
    """What a plan shows of an objective."""
    objective = found.question.asked[place]
    return lambda one: objective.shown(one.losses[place].value)


def _scale(found: Found, place: int) -> Scale:
    """The scale of an objective, over all plans that were played."""
    value = _values(found, place)
    values = [value(one) for one in found.plans]
    margin = 0.05 * (max(values) - min(values)) or 0.05 * max(values) or 1.0
    start, end = (EDGE, WIDTH - 30) if place == 0 else (HEIGHT - 60, 20)
    low, high = min(values) - margin, max(values) + margin
    if 0 < min(values) * WIDE_RATIO < max(values):
        low, high = min(values) / 1.1, max(values) * 1.1
    return Scale(objective=found.question.asked[place], low=low, high=high, start=start, end=end)


def _grid(across: Scale, up: Scale) -> Iterator[str]:
    """Lines at round values, with names of both axes."""
    for tick in across.ticks:
        x = f"{across.at(tick):.1f}"
        yield f'<path class="grid" d="M{x},{up.start}V{up.end}"/>'
        yield f'<text x="{x}" y="{up.start + 20}" text-anchor="middle">{across.objective.show(tick)}</text>'
    for tick in up.ticks:
        y = up.at(tick)
        yield f'<path class="grid" d="M{across.start},{y:.1f}H{across.end}"/>'
        yield f'<text x="{EDGE - 8}" y="{y + 5:.1f}" text-anchor="end">{up.objective.show(tick)}</text>'
    middle = (up.start + up.end) / 2
    below = f'x="{WIDTH / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle"'
    yield f"<text {below}>{_name(across.objective)}</text>"
    yield (
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 16 {middle:.0f})">'
        f"{_name(up.objective)}</text>"
    )


def _line(found: Found, across: Scale, up: Scale) -> str:
    """The front as steps: what may be had for what. None of more objectives: it does not lie flat."""
    if len(found.question.asked) > 2 or len(found.on_front) < 2:
        return ""
    points = [(across.at(_values(found, 0)(one)), up.at(_values(found, 1)(one))) for one in found.on_front]
    corners = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    corners += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
    return f'<path class="line" d="{"".join(corners)}"/>'


def _marks(found: Found, across: Scale, up: Scale) -> Iterator[str]:
    """A mark a plan; those that matter most are drawn last, on top."""
    on_front = {id(one) for one in found.on_front}

    def kind(one: Ranked) -> int:
        return 3 if one is found.plans[0] else 2 if id(one) in on_front else 1 if one.equal else 0

    styles = ("plan", "equal", "front", "first")
    best = min(one.losses[0].value for one in found.plans)
    for one in sorted(found.plans, key=kind):
        x, y = across.at(_values(found, 0)(one)), up.at(_values(found, 1)(one))
        ends = [
            across.at(across.objective.shown(best * ratio)) for ratio in (one.ratio_low, one.ratio_high)
        ]
        bounds = f'<path class="bounds" d="M{ends[0]:.1f},{y:.1f}H{ends[1]:.1f}"/>' if kind(one) else ""
        yield (
            f"<g><title>{escape(_told(one, found.question.asked))}</title>{bounds}"
            f'<circle class="{styles[kind(one)]}" cx="{x:.1f}" cy="{y:.1f}" r="{4 + (kind(one) > 1)}"/></g>'
        )


def _told(one: Ranked, asked: Sequence[Objective]) -> str:
    """What a mark says of its plan."""
    values = ", ".join(
        f"{_name(objective)} {objective.show(objective.shown(loss.value))}"
        for objective, loss in zip(asked, one.losses, strict=True)
    )
    return f"{one.played.plan.short()} on {name_of(one.played.job)}: {values}"
