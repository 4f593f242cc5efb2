"""Predicted and measured step times as SVG: one mark for each run, with the colour and shape of its source.

Answers: how do the drawings of the page of published runs look?
Elsewhere: the page around them (published_page.py).
Both axes are logarithmic, so a deviation by a factor has the same length everywhere. Every mark names its
run in a `<title>`, which browsers show without a script.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from flopcast.lab.validation.published import ComparedRun
from flopcast.records import replace
from flopcast.render.page.drawing import WIDTH, Axis, figure, grid, line, names
from flopcast.render.published_text import plan_words
from flopcast.units import show_seconds

HEIGHT, EDGE = 500, 84
BAND_RATIO = 1.1
COLOURS = 6  # the first hues of the page's style
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",
    "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "M0,-6L5.5,4.5H-5.5Z",
    "M0,-6.5L6,0L0,6.5L-6,0Z",
    "M0,6L5.5,-4.5H-5.5Z",
)
RATIO_TICKS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def mark(place: int) -> str:
    """Return the mark of a source by its place in the list. The shape changes when colours repeat."""
    shape = SHAPES[(place + place // COLOURS) % len(SHAPES)]
    return f'<path d="{shape}" class="hue-{place % COLOURS}"/>'


def times_drawing(rows: Sequence[ComparedRun], sources: Sequence[str]) -> str:
    """Return a drawing of predicted against measured times, with a ±10 % band and 90 % intervals."""
    axes = _times(*_decades([time_s for row in rows for time_s in _times_s(row)]), WIDTH)
    inside = [
        *grid(*axes, show_seconds, show_seconds),
        *_drawn(rows, sources, *axes, lambda time_s: time_s),
    ]
    return _whole("times", inside, *axes, "predicted step")


def ratios_drawing(rows: Sequence[ComparedRun], sources: Sequence[str]) -> str:
    """Return a drawing of predicted / measured against measured time; ratios are clipped to 1/4 and 4."""
    across, up = _times(*_decades([row.measured_step_time_s for row in rows]), HEIGHT)
    up = replace(up, low=RATIO_TICKS[0], high=RATIO_TICKS[-1], marked=RATIO_TICKS)
    inside = [
        *grid(across, up, show_seconds, lambda ratio: f"× {ratio:g}"),
        *_drawn(rows, sources, across, up, lambda _: 1.0),
    ]
    return _whole("ratios", inside, across, up, "predicted over measured")


def _drawn(
    rows: Iterable[ComparedRun],
    sources: Sequence[str],
    across: Axis,
    up: Axis,
    right: Callable[[float], float],
) -> Iterator[str]:
    """Yield a ±10 % band around what is `right` for a measured time, and a mark per row."""
    ends = [(x, right(x)) for x in (across.low, across.high)]
    band = [(x, y * BAND_RATIO) for x, y in ends] + [(x, y / BAND_RATIO) for x, y in reversed(ends)]
    yield line(band, across, up, "band")
    yield line(ends, across, up, "rule")
    for row in rows:
        measured_s = row.measured_step_time_s
        x, unit_s = across.at(measured_s), measured_s / right(measured_s)
        low, y, high = (up.at(each / unit_s) for each in (row.low_s, row.predicted_step_time_s, row.high_s))
        yield (
            f"<g><title>{escape(_label(row))}</title>"
            f'<path class="faint" d="M{x:.1f},{low:.1f}V{high:.1f}"/>'
            f'<g transform="translate({x:.1f},{y:.1f})">'
            f"{mark(sources.index(row.run.source))}</g></g>"
        )


def _times(low_s: float, high_s: float, height: int) -> tuple[Axis, Axis]:
    """Return the axes of seconds, as long as the drawing is high, with a line at each power of ten."""
    powers = tuple(10.0**power for power in range(round(math.log10(low_s)), round(math.log10(high_s)) + 1))
    across = Axis(low=low_s, high=high_s, start=EDGE, end=WIDTH - EDGE, logarithmic=True, marked=powers)
    return across, replace(across, start=height - EDGE, end=EDGE)


def _times_s(row: ComparedRun) -> tuple[float, ...]:
    return row.measured_step_time_s, row.predicted_step_time_s, row.low_s, row.high_s


def _decades(times_s: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten around all times; at least one decade."""
    low, high = math.floor(math.log10(min(times_s))), math.ceil(math.log10(max(times_s)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _label(row: ComparedRun) -> str:
    measured, predicted = show_seconds(row.measured_step_time_s), show_seconds(row.predicted_step_time_s)
    return (
        f"{row.run.id}: {row.run.model}, {row.job.cluster.num_devices} ×"
        f" {row.job.cluster.node.device.name}, {plan_words(row)}; measured {measured}, predicted"
        f" {predicted} ({row.relative_error:+.1%})"
    )


def _whole(key: str, drawn: Iterable[str], across: Axis, up: Axis, name_up: str) -> str:
    title = f"{name_up} against measured step".capitalize()
    described = (
        "Each mark is a run; both axes are logarithmic. The tables below show the errors of each source."
    )
    inside = "".join(drawn) + names(across, up, "measured step", name_up)
    return figure(f"{key}-drawing", title, described, up.start + 56, inside, top=EDGE - 16)
