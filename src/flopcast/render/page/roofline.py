"""The roofline: how close every kernel of the job comes to the limits of its device.

Answers: which kernels are limited by memory, which by the matrix engine, and how close to it do they come?
Elsewhere: the work of a kernel (operators/), its time (cost/price.py).

A kernel is drawn at its FLOP per byte moved and at its attained FLOP/s; if its size varies between stages
or micro-batches, its longest execution counts. Kernels without products count no FLOP and are not drawn;
the table shows the share of the memory bandwidth that they attain. Bytes are a lower bound, since each
tensor counts once, so the true FLOP per byte may be lower.

References
----------
Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from collections.abc import Sequence
from html import escape

import numpy as np

from flopcast.operators.base import AbstractOperator
from flopcast.records import Record
from flopcast.render.page.drawing import Axis, figure, grid, label, line, mark, names, spanning
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, rate, seconds, share, table
from flopcast.render.page.time_breakdown import one_step
from flopcast.report.report import Report
from flopcast.units import Number, show

HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 112, 985, 16, 390
MARK = 7  # half the width of a mark, and a margin
LETTER, LINE = 8, 16  # width of a letter and height of a line of text, at most
Box = tuple[float, float, float, float]  # left, top, right, bottom of a text
SLOPE_RATIO = 8.0  # a roof is drawn at least down to 1 / SLOPE_RATIO of its bend


class KernelPoint(Record):
    """One execution of a kernel while nothing else runs. `path_s` is the time of all its executions on the
    critical path.
    """

    name: str
    phase: str
    kernel: str
    unit: str  # the matrix engine's precision
    flop: float
    moved_bytes: float
    alone_s: float
    compute_s: float  # of its FLOP at the engine's peak
    memory_s: float  # of its bytes at the memory's bandwidth
    path_s: float

    @property
    def intensity_flop_per_byte(self) -> float:
        """Return the FLOP per byte moved."""
        return self.flop / self.moved_bytes

    @property
    def attained_flop_per_s(self) -> float:
        """Return the FLOP/s of one execution."""
        return self.flop / self.alone_s

    @property
    def bound_s(self) -> float:
        """Return the seconds of one execution at the device's peak rates."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound_share(self) -> float:
        """Return the attained share of the roof; 1 at the roof."""
        return self.bound_s / self.alone_s


def kernels(report: Report) -> tuple[KernelPoint, ...]:
    """Return every kernel of the job that takes time, the one with the most time in the step first.

    Items with the same name and pass in several kinds of layers count as one kernel, the longest.
    """
    spent_s: dict[tuple[str, str], float] = {}
    for each in report.timeline.bottleneck_attribution:
        if each.item is not None and isinstance(each.item.work, AbstractOperator):
            key = (each.item.name, each.item.phase)
            spent_s[key] = spent_s.get(key, 0.0) + each.path_s
    points: dict[tuple[str, str], KernelPoint] = {}
    for item in report.priced.programs.items():
        key = (item.name, item.phase)
        if isinstance(item.work, AbstractOperator):
            kernel = _kernel(report, item.work, report.priced.of(item).alone_s, key, spent_s.get(key, 0.0))
            if kernel.bound_s > 0 and (key not in points or kernel.alone_s > points[key].alone_s):
                points[key] = kernel
    return tuple(sorted(points.values(), key=lambda one: (-one.path_s, one.name, one.phase)))


def _kernel(
    report: Report, work: AbstractOperator, alone: np.ndarray, key: tuple[str, str], path_s: float
) -> KernelPoint:
    device, need = report.job.cluster.node.device, work.work()
    flop, moved_bytes, alone_s = np.broadcast_arrays(need.flop, need.moved_bytes, alone)
    at = np.unravel_index(int(alone_s.argmax()), alone_s.shape)
    return KernelPoint(
        name=key[0],
        phase=key[1],
        kernel=work.kernel,
        unit=need.unit,
        flop=float(flop[at]),
        moved_bytes=float(moved_bytes[at]),
        alone_s=float(alone_s[at]),
        compute_s=float(flop[at]) / device.peak(need.unit),
        memory_s=float(moved_bytes[at]) / device.memory_bytes_per_s,
        path_s=path_s,
    )


def roofline(report: Report) -> Section:
    """Return the section with the drawing, and a table with one row per kernel.

    The drawing has a roof for each precision whose products the job runs. Without products there is only
    the table.
    """
    points = kernels(report)
    device = report.job.cluster.node.device
    products = [one for one in points if one.flop > 0]
    drawn = _drawing(report, products) if products else ""
    text, peaks = (
        "",
        ", ".join(f"{show(device.peak(unit), 'FLOP/s')} in {unit}" for unit in _units(products)),
    )
    if products:
        text = (
            f"<p>One device ({escape(device.name)}): memory {show(device.memory_bytes_per_s, 'B/s')};"
            f" matrix engine {escape(peaks)}. FLOP are those of matrix multiplications only, and bytes"
            " count each tensor once.</p>"
        )
    return Section("roofline", "Roofline", html=text + drawn + _table(report, points))


def _units(products: list[KernelPoint]) -> list[str]:
    return list(dict.fromkeys(one.unit for one in products))


def axes(report: Report, products: list[KernelPoint]) -> tuple[Axis, Axis]:
    """Return the axes of intensity and rate, which contain every mark and every bend of a roof."""
    device = report.job.cluster.node.device
    peaks = [device.peak(unit) for unit in _units(products)]
    bends = [peak / device.memory_bytes_per_s for peak in peaks]
    intensities = [one.intensity_flop_per_byte for one in products]
    across = spanning([*intensities, *bends, min(bends) / SLOPE_RATIO], LEFT, RIGHT)
    rates = [one.attained_flop_per_s for one in products]
    up = spanning([*rates, *peaks, min(peaks) / SLOPE_RATIO], BOTTOM, TOP)
    return across, up


def _drawing(report: Report, products: list[KernelPoint]) -> str:
    """Return the drawing: roofs as lines, kernels as marks with the numbers of the table."""
    across, up = axes(report, products)
    device = report.job.cluster.node.device
    lines = [*grid(across, up, lambda value: f"{value:g}", lambda value: show(value, "FLOP/s"))]
    places = [(across.at(p.intensity_flop_per_byte), up.at(p.attained_flop_per_s)) for p in products]
    boxes: list[Box] = []
    for unit in _units(products):
        peak = device.peak(unit)
        low = max(across.low, up.low / device.memory_bytes_per_s)
        bend = peak / device.memory_bytes_per_s
        corners = ((low, low * device.memory_bytes_per_s), (bend, peak), (across.high, peak))
        name = f"{unit}: {show(peak, 'FLOP/s')}"
        box = _free_box(name, across.at(bend), up.at(peak), places)
        boxes.append(box)
        lines.append(line(corners, across, up, "rule") + label(box[0], box[3] - 4, name, "start", "soft"))
    marks = []
    for number, (one, (x, y)) in enumerate(zip(products, places, strict=True), 1):
        box = (x + 8, y - LINE / 2, x + 8 + LETTER * len(f"{number}"), y + LINE / 2)
        others = [place for place in places if place != (x, y)]
        free = not _covers(box, others) and not any(_overlap(box, each) for each in boxes)
        boxes += [box] * free
        marks.append(
            _mark(one, x, y, number) + (label(x + 8, y + 4.5, f"{number}", "start") if free else "")
        )
    described = (
        "Attained FLOP/s against FLOP per byte, on logarithmic axes. The line is the roof: the memory"
        f" bandwidth, then the peak FLOP rate. Each mark is one of the {len(products)}"
        " kernels with matrix multiplications, numbered as in the table."
    )
    drawn = "".join(lines) + "".join(reversed(marks))
    drawn += names(across, up, "FLOP per byte moved", "attained FLOP/s")
    return figure("roofline-drawing", "Roofline of one device", described, HEIGHT, drawn, escape(described))


def _free_box(text: str, bend: Number, y: Number, places: Sequence[tuple[float, float]]) -> Box:
    """Return the place of a roof's name: above or below the roof, at its right end or at its bend.

    It is the first of these that covers no mark, or the first of all if each covers one.
    """
    width = LETTER * len(text)
    boxes: list[Box] = [
        (left, top, left + width, top + LINE)
        for left in (RIGHT - 4 - width, bend + 30, (bend + RIGHT - width) / 2)
        for top in (y - LINE - 2, y + 3)
    ]
    return next((box for box in boxes if not _covers(box, places)), boxes[0])


def _covers(box: Box, places: Sequence[tuple[float, float]]) -> bool:
    """Return whether a text covers a part of any mark."""
    left, top, right, bottom = box
    return any(left - MARK < x < right + MARK and top - MARK / 2 < y < bottom + MARK / 2 for x, y in places)


def _overlap(one: Box, other: Box) -> bool:
    """Return whether two texts overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _mark(one: KernelPoint, x: Number, y: Number, number: int) -> str:
    """Return the mark of a kernel, whose colour and shape depend on the pass."""
    hue, shape = {
        "forward": (0, "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z"),
        "backward": (1, "M-4.5,-4.5H4.5V4.5H-4.5z"),
        "recompute": (3, "M0,-6L5.5,4.5H-5.5z"),
    }.get(one.phase, (2, "M0,-6.5L6,0L0,6.5L-6,0z"))
    label = (
        f"{number}. {one.name}, {one.phase}: {show(one.attained_flop_per_s, 'FLOP/s')},"
        f" {one.bound_share:.0%} of its roof"
    )
    return mark(label, f"hue-{hue}", shape, x, y)


def _table(report: Report, points: tuple[KernelPoint, ...]) -> str:
    rows: list[tuple[Cell, ...]] = []
    number = 0
    for one in points:
        number += one.flop > 0
        of_mark, flop = (f"{number}", rate(one.flop, "FLOP")) if one.flop > 0 else ("", "–")
        costs = (flop, rate(one.moved_bytes, "B"), seconds(one.alone_s))
        limit = ("compute" if one.compute_s > one.memory_s else "memory", share(one.bound_share))
        rows.append((one.name, of_mark, one.phase, one.kernel, *costs, *limit, seconds(one.path_s)))
    headings = (
        "kernel", "mark", "pass", "class", "FLOP", "bytes", "time", "limited by", "share of roof",
        "time in the step",
    )  # fmt: skip
    caption = (
        "Times of kernels without overlap. Each kernel has its longest shape. The last column is the "
        f"time in {one_step(report).lower()}."
    )
    rows_table = table(caption, headings, rows)
    return f"<details><summary>All {len(points)} kernels</summary>{rows_table}</details>"
