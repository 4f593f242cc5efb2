"""The limits of the step: by kind of limit, by factor, and how much time a faster part would save.

Answers: do compute, memory, communication, waiting or the host limit the step, and how much does each
uncertain factor widen the interval?
Elsewhere: factors and their shares (timeline/uncertainty.py), single kernels (roofline.py).
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.kept_results import KeptResults
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.render.page.drawing import Axis, figure
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, part_row, seconds, share, table
from flopcast.render.page.time_breakdown import one_step
from flopcast.report.report import BUBBLE, JITTER, Report
from flopcast.spec.cluster import Device
from flopcast.spec.factor_kinds import in_words, kind_of
from flopcast.timeline.uncertainty import Sensitivity, saved_share
from flopcast.units import Number, show_seconds

LIMITING = "What limits it"  # the heading of the section
LEFT, RIGHT, ROW_HEIGHT = 390, 960, 24
MOST_DRAWN = 8
LEAST_SHOWN = 0.0005  # share of the step; factors that move it by less are folded
HOST, VARIATION = "kernel launches and host work", "variation from step to step"
LIMITS = ("compute", "memory bandwidth", "communication", HOST, "pipeline bubble", VARIATION)


@lru_cache(maxsize=1)  # the head of a page and its section about limits ask for the same report
def by_limit(report: Report) -> Mapping[str, float]:
    """Return the seconds of the step by limit, in the order of LIMITS; they sum to the step.

    A kernel is limited by the matrix engine if its FLOP at the peak rate take longer than its bytes at the
    memory bandwidth, and else by memory. Messages count with the time that no compute hides.
    """
    seconds_by_limit, device = dict.fromkeys(LIMITS, 0.0), report.job.cluster.node.device
    for each in report.timeline.bottleneck_attribution:
        seconds_by_limit[_limit(each.item, device, report.priced.kept)] += each.path_s
    seconds_by_limit[LIMITS[4]] += report.breakdown.get(BUBBLE, 0.0)
    seconds_by_limit[LIMITS[5]] += report.breakdown.get(JITTER, 0.0)
    return seconds_by_limit


def _limit(item: Item | None, device: Device, kept: KeptResults) -> str:
    """Return what limits an item, one of LIMITS; jobs that differ in a field have most work in common."""
    if item is not None and isinstance(item.work, AbstractMessage):
        return LIMITS[2]
    if item is None or not isinstance(item.work, AbstractOperator):
        return HOST
    work = item.work
    return kept.of(("limit", item.work_content(), device), lambda: _limit_of_kernel(work, device))


def _limit_of_kernel(work: AbstractOperator, device: Device) -> str:
    need = work.work()
    compute_s = (need.flop / device.peak(need.unit)).max()
    return LIMITS[0] if compute_s > (need.moved_bytes / device.memory_bytes_per_s).max() else LIMITS[1]


def limits(report: Report) -> Section:
    """Return the section with two tables, and a drawing of the interval.

    The first table divides the step by what limits it. The second lists the factors of the interval: their
    share of the critical path, their uncertainty, the product of both, and the time that a part 10 % faster
    would save. Factors with a small effect are folded.
    """
    kinds = [
        part_row(name, seconds(spent_s), spent_s / report.step_time_s, hue)
        for hue, (name, spent_s) in enumerate(by_limit(report).items())
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            in_words(factor.name),
            share(factor.share),
            share(factor.log_sigma_factor),
            share(factor.share * factor.log_sigma_factor),
            share(saved_share(factor)) if saved_share(factor) else "–",
        )
        for factor in report.factors
    ]
    num_shown = sum(one.share * one.log_sigma_factor >= LEAST_SHOWN for one in report.factors)
    headings = (
        "factor", "share of the step", "× uncertainty", "= effect on the step", "saved if 10 % faster"
    )  # fmt: skip
    caption = (
        "The factors that determine the interval, ordered by their effect. An uncertainty is one standard"
        " deviation. The share of a factor is the fraction of the step that this factor scales. The shares"
        " add up to more than 100 %, because several factors scale the same kernels. A dash in the last"
        " column marks factors that faster hardware does not change."
    )
    html = (
        table(f"{one_step(report)}, by what limits it.", ("limited by", "time", "share", ""), kinds)
        + "<h3>What the uncertainty depends on</h3>"
        + (_drawing(report) if report.factors else "")
        + table(caption, headings, rows[:num_shown])
        + _folded(headings, rows[num_shown:])
    )
    return Section("limits", LIMITING, html=html)


def _folded(headings: tuple[str, ...], rows: list[tuple[Cell, ...]]) -> str:
    """Return a folded table of the factors that barely move the step."""
    if not rows:
        return ""
    caption = f"Each of these factors changes the step by less than {LEAST_SHOWN:.2%}."
    return f"<details><summary>{len(rows)} more</summary>{table(caption, headings, rows)}</details>"


def axis(report: Report) -> Axis:
    """Return the axis of log(step / predicted step), which is as wide as the widest bar on each side."""
    low, high = (max(one.sigmas[side] for one in report.factors) or 1.0 for side in (0, 1))
    return Axis(low=-NINETY_PERCENT * low, high=NINETY_PERCENT * high, start=LEFT, end=RIGHT)


def _drawing(report: Report) -> str:
    """Return a drawing of the step's interval from each factor alone, the widest first."""
    drawn_factors, across = report.factors[:MOST_DRAWN], axis(report)
    base = len(drawn_factors) * ROW_HEIGHT + 6
    lines = [
        f'<path class="grid" d="M{across.at(tick):.1f},0V{base}"/>'
        f'<text x="{across.at(tick):.1f}" y="{base + 18}" text-anchor="middle">'
        f"{moved(report, tick)}</text>"
        for tick in across.ticks
    ]
    names = short_names(drawn_factors)
    for row, (one, name) in enumerate(zip(drawn_factors, names, strict=True)):
        below, above = (NINETY_PERCENT * sigma for sigma in one.sigmas)
        left, right = across.at(-below), across.at(above)
        middle = row * ROW_HEIGHT + ROW_HEIGHT / 2
        lines.append(
            f'<text x="{LEFT - 8}" y="{middle + 4.5:.1f}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="hue-0" x="{left:.1f}" y="{middle - 7:.1f}" width="{right - left:.1f}"'
            ' height="14"/>'
        )
    described = (
        f"The step of {show_seconds(report.step_time_s)} if a single factor were at either end of its 90 %"
        " interval."
    )
    title = "How much each uncertain factor changes the step"
    return figure("limits-drawing", title, described, base + 28, "".join(lines), escape(described))


def short_names(factors: Sequence[Sensitivity]) -> list[str]:
    """Return the meaning of each factor, with its kernels or fabric if others have the same meaning."""
    labels = [kind_of(one.name).label for one in factors]
    owners = [one.name.partition("[")[2].removesuffix("]").rpartition(": ")[2] for one in factors]
    return [
        f"{label}: {owner}" if labels.count(label) > 1 else label
        for label, owner in zip(labels, owners, strict=True)
    ]


def moved(report: Report, tick: Number) -> str:
    """Return the step time scaled by a ratio, as text; `tick` is the logarithm of the ratio."""
    return show_seconds(report.step_time_s * math.exp(tick), like=report.step_time_s)
