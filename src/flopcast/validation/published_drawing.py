"""Predicted against measured as SVG: a mark a run, coloured and shaped by its source.

Answers: how do the drawings of the page of published runs look?
Elsewhere: the page around them (published_html.py).
Both axes are logarithmic: a deviation by a factor is as long everywhere. Every mark carries its run as a
`<title>`, which browsers show without any script.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from flopcast.units import show_seconds
from flopcast.validation.published import ComparedRun
from flopcast.validation.published_text import plan_words

WIDTH, HEIGHT, EDGE = 1000, 500, 84
BAND_RATIO = 1.1
COLOURS = 6  # --source-0 … in the page's style
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",
    "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "M0,-6L5.5,4.5H-5.5Z",
    "M0,-6.5L6,0L0,6.5L-6,0Z",
    "M0,6L5.5,-4.5H-5.5Z",
)
RATIO_TICKS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Values on a logarithmic scale, from `low_ratio` to `high_ratio` of its unit, over some length."""

    low_ratio: float
    high_ratio: float
    length: int
    upwards: bool = False

    def at(self, value_ratio: float) -> float:
        """Where a value stands; values beyond an end stand on it."""
        kept = min(max(value_ratio, self.low_ratio), self.high_ratio)
        part = math.log(kept / self.low_ratio) / math.log(self.high_ratio / self.low_ratio)
        return EDGE + self.length * (1.0 - part if self.upwards else part)


def mark(place: int) -> str:
    """The mark of a source by its place in the list: shapes change where colours begin anew."""
    shape = SHAPES[(place + place // COLOURS) % len(SHAPES)]
    return f'<path d="{shape}" fill="var(--source-{place % COLOURS})"/>'


def times_drawing(rows: Sequence[ComparedRun], sources: Sequence[str]) -> str:
    """Predicted against measured times, the diagonal with its ±10 % band, and 90 % intervals."""
    low_s, high_s = _decades([time_s for row in rows for time_s in _times_s(row)])
    across = Axis(low_ratio=low_s, high_ratio=high_s, length=WIDTH - 2 * EDGE)
    up = Axis(low_ratio=low_s, high_ratio=high_s, length=WIDTH - 2 * EDGE, upwards=True)
    ends = [(low_s, low_s), (high_s, high_s)]
    band = [(x, x * BAND_RATIO) for x, _ in ends] + [(x, x / BAND_RATIO) for x, _ in reversed(ends)]
    ticks = _powers(low_s, high_s)
    drawn = [
        *_grid(across, ticks, up, ticks, show_seconds),
        _line(band, across, up, "band"),
        _line(ends, across, up, "right"),
        *_marks(rows, sources, across, up, lambda _: 1.0),
    ]
    return _whole(drawn, WIDTH, "measured step", "predicted step")


def ratios_drawing(rows: Sequence[ComparedRun], sources: Sequence[str]) -> str:
    """Predicted over measured against measured time; beyond a quarter and four times, at the edge."""
    low_s, high_s = _decades([row.measured_step_time_s for row in rows])
    across = Axis(low_ratio=low_s, high_ratio=high_s, length=WIDTH - 2 * EDGE)
    up = Axis(low_ratio=RATIO_TICKS[0], high_ratio=RATIO_TICKS[-1], length=HEIGHT - 2 * EDGE, upwards=True)
    ends = [(low_s, 1.0), (high_s, 1.0)]
    band = [(x, BAND_RATIO) for x, _ in ends] + [(x, 1 / BAND_RATIO) for x, _ in reversed(ends)]
    drawn = [
        *_grid(across, _powers(low_s, high_s), up, RATIO_TICKS, lambda ratio: f"× {ratio:g}"),
        _line(band, across, up, "band"),
        _line(ends, across, up, "right"),
        *_marks(rows, sources, across, up, lambda row: row.measured_step_time_s),
    ]
    return _whole(drawn, HEIGHT, "measured step", "predicted over measured")


def _times_s(row: ComparedRun) -> tuple[float, ...]:
    return row.measured_step_time_s, row.predicted_step_time_s, row.low_s, row.high_s


def _decades(times_s: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around all times; one decade at least."""
    low, high = math.floor(math.log10(min(times_s))), math.ceil(math.log10(max(times_s)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _powers(low_s: float, high_s: float) -> tuple[float, ...]:
    low, high = round(math.log10(low_s)), round(math.log10(high_s))
    return tuple(10.0**power for power in range(low, high + 1))


def _grid(
    across: Axis,
    across_ticks: Iterable[float],
    up: Axis,
    up_ticks: Iterable[float],
    name_up: Callable[[float], str],
) -> list[str]:
    """Lines at the ticks of both axes, with their names."""
    left, right, bottom, top = EDGE, EDGE + across.length, EDGE + up.length, EDGE
    below = f'y="{bottom + 18:.1f}" text-anchor="middle"'
    lines = [
        f'<path class="grid" d="M{across.at(tick):.1f},{top:.1f}V{bottom:.1f}"/>'
        f'<text x="{across.at(tick):.1f}" {below}>{show_seconds(tick)}</text>'
        for tick in across_ticks
    ]
    lines += [
        f'<path class="grid" d="M{left:.1f},{up.at(tick):.1f}H{right:.1f}"/>'
        f'<text x="{left - 6:.1f}" y="{up.at(tick) + 4:.1f}" text-anchor="end">{name_up(tick)}</text>'
        for tick in up_ticks
    ]
    return lines


def _line(points: Iterable[tuple[float, float]], across: Axis, up: Axis, style: str) -> str:
    corners = "L".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)
    return f'<path class="{style}" d="M{corners}"/>'


def _marks(
    rows: Iterable[ComparedRun],
    sources: Sequence[str],
    across: Axis,
    up: Axis,
    unit_s: Callable[[ComparedRun], float],
) -> list[str]:
    """A mark a row with its interval, predictions counted in units of each row."""
    return [
        f"<g><title>{escape(_told(row))}</title>"
        f'<path class="interval" d="M{across.at(row.measured_step_time_s):.1f},'
        f'{up.at(row.low_s / unit_s(row)):.1f}V{up.at(row.high_s / unit_s(row)):.1f}"/>'
        f'<g transform="translate({across.at(row.measured_step_time_s):.1f},'
        f'{up.at(row.predicted_step_time_s / unit_s(row)):.1f})">'
        f"{mark(sources.index(row.run.source))}</g></g>"
        for row in rows
    ]


def _told(row: ComparedRun) -> str:
    """What a mark says of its run."""
    measured, predicted = show_seconds(row.measured_step_time_s), show_seconds(row.predicted_step_time_s)
    return (
        f"{row.run.id}: {row.run.model}, {row.job.cluster.num_devices} ×"
        f" {row.job.cluster.node.device.name}, {plan_words(row)}; measured {measured}, predicted"
        f" {predicted} ({row.relative_error:+.1%})"
    )


def _whole(drawn: Iterable[str], height: int, name_across: str, name_up: str) -> str:
    """The drawing with the names of its axes."""
    middle = height // 2
    return (
        f'<div class="scroll"><svg role="img" aria-label="{name_up} against {name_across}, both axes'
        f' logarithmic" viewBox="0 {EDGE - 12:.0f} {WIDTH:.0f} {height - EDGE + 12:.0f}">{"".join(drawn)}'
        f'<text x="{WIDTH / 2:.0f}" y="{height - 16:.0f}" text-anchor="middle">{name_across}</text>'
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 16 {middle:.0f})">'
        f"{name_up}</text></svg></div>"
    )
