"""What limits the step: by kind of limit, by factor, and what a faster part would save.

Answers: is it products, memory, messages, waiting or the host that the step hangs on, and how wide is the
interval for each unknown?
Elsewhere: factors and their shares (timeline/uncertainty.py), single kernels (roofline.py).
"""

import math
from html import escape

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.report.page.drawing import Axis, figure
from flopcast.report.page.shell import Section
from flopcast.report.page.table import Cell, bar, seconds, share, table
from flopcast.report.report import BUBBLE, JITTER, Report
from flopcast.timeline.uncertainty import saved_share
from flopcast.units import Number, show_seconds

LEFT, RIGHT, ROW_HEIGHT = 390, 960, 24
MOST_DRAWN = 8
LEAST_TOLD = 0.0005  # of the step, what a factor moves it by: the rest of many is folded
HOST = "launches and the host"
LIMITS = (
    "the matrix engine",
    "the device's memory",
    "messages",
    HOST,
    "waiting for other stages",
    "jitter",
)


def by_limit(report: Report) -> dict[str, float]:
    """Seconds of the step by what they are bound by, in the order of LIMITS; they sum to the step.

    A kernel is bound by the engine where its FLOP at the peak take longer than its bytes at the memory's
    bandwidth, however far it stays below both. Messages are those that no compute hides.
    """
    found = dict.fromkeys(LIMITS, 0.0)
    for each in report.timeline.bottleneck_shares:
        found[_limit(report, each.item)] += each.path_s
    found[LIMITS[4]] += report.breakdown.get(BUBBLE, 0.0)
    found[LIMITS[5]] += report.breakdown.get(JITTER, 0.0)
    return found


def _limit(report: Report, item: Item | None) -> str:
    """What an item is bound by."""
    if item is not None and isinstance(item.work, AbstractMessage):
        return LIMITS[2]
    if item is None or not isinstance(item.work, AbstractOperator):
        return HOST
    need, device = item.work.work(), report.job.cluster.node.device
    compute_s = (need.flop / device.peak(need.unit)).max()
    return LIMITS[0] if compute_s > (need.moved_bytes / device.memory_bytes_per_s).max() else LIMITS[1]


def limits(report: Report) -> Section:
    """Two tables, and the interval as bars."""
    kinds = [
        (
            name,
            seconds(spent_s),
            share(spent_s / report.step_time_s),
            bar(spent_s / report.step_time_s, hue),
        )
        for hue, (name, spent_s) in enumerate(by_limit(report).items())
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            factor.name,
            share(factor.share),
            share(factor.log_sigma_factor),
            share(factor.share * factor.log_sigma_factor),
            share(saved_share(factor)) if saved_share(factor) else "–",
        )
        for factor in report.factors
    ]
    told_apart = sum(one.share * one.log_sigma_factor >= LEAST_TOLD for one in report.factors)
    headings = ("factor", "share of the step", "sigma", "share × sigma", "10 % faster saves")
    told = (
        "What the interval hangs on, widest first. A share is how much of the step's critical path a factor"
        " scales; shares overlap, as one kernel has several factors. What nobody can buy saves nothing."
    )
    return Section(
        key="limits",
        heading="What limits it",
        html=table(
            "One step of the busiest stage, by what it is bound by.",
            ("bound by", "time", "share", ""),
            kinds,
        )
        + "<h3>What the uncertainty hangs on</h3>"
        + (_drawing(report) if report.factors else "")
        + table(told, headings, rows[:told_apart])
        + _folded(headings, rows[told_apart:]),
    )


def _folded(headings: tuple[str, ...], rows: list[tuple[Cell, ...]]) -> str:
    """Factors that move nothing: there for who looks for them."""
    if not rows:
        return ""
    caption = f"Each moves the step by less than {LEAST_TOLD:.2%}."
    return f"<details><summary>{len(rows)} more</summary>{table(caption, headings, rows)}</details>"


def axis(report: Report) -> Axis:
    """Logarithms of the step over what is predicted, as far as the widest factor reaches."""
    reach = max(NINETY_PERCENT * abs(one.share) * one.log_sigma_factor for one in report.factors) or 1.0
    return Axis(low=-reach, high=reach, start=LEFT, end=RIGHT)


def _drawing(report: Report) -> str:
    """The step between the bounds of each factor alone, the widest first."""
    drawn_factors, across = report.factors[:MOST_DRAWN], axis(report)
    base = len(drawn_factors) * ROW_HEIGHT + 6
    lines = [
        f'<path class="grid" d="M{across.at(tick):.1f},0V{base}"/>'
        f'<text x="{across.at(tick):.1f}" y="{base + 18}" text-anchor="middle">'
        f"{moved(report, tick)}</text>"
        for tick in across.ticks
    ]
    for row, one in enumerate(drawn_factors):
        far = NINETY_PERCENT * abs(one.share) * one.log_sigma_factor
        left, right = across.at(-far), across.at(far)
        middle = row * ROW_HEIGHT + ROW_HEIGHT / 2
        lines.append(
            f'<text x="{LEFT - 8}" y="{middle + 4.5:.1f}" text-anchor="end">{escape(one.name)}</text>'
            f'<rect class="hue-0" x="{left:.1f}" y="{middle - 7:.1f}" width="{right - left:.1f}"'
            ' height="14"/>'
        )
    described = (
        f"The step of {show_seconds(report.step_time_s)} if one factor alone were at either end of its 90 %"
        " interval."
    )
    title = "What each unknown is worth"
    return figure("limits-drawing", title, described, base + 28, "".join(lines), escape(described))


def moved(report: Report, tick: Number) -> str:
    """The step so much longer; `tick` is the logarithm of a ratio."""
    return show_seconds(report.step_time_s * math.exp(tick), like=report.step_time_s)
