"""Memory of every stage: over the step, and by category at its peak.

Answers: what fills a device, when, on which stage?
Elsewhere: the bars of the stages (memory_bars.py), the levels (report/events.py, memory/curve.py), the time
axis that the pipeline shares (time_axis.py).

All rows have one scale, up to the device's memory, or to the fullest stage if that needs more. If there are
too many moments to draw, the step is divided into equal columns, and each column shows its highest level.
If there are many stages, the same ones as in the drawing of the pipeline are shown.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.render.page.drawing import legend
from flopcast.render.page.frame import Section
from flopcast.render.page.memory_bars import DRIVER_HUE, OTHERS, memory_bars, tier_bars
from flopcast.render.page.pipeline import chosen, end_of, units
from flopcast.render.page.table import Cell, size, table
from flopcast.render.page.time_axis import TIME_UNITS, Plot, over_time, stacked
from flopcast.report.events import MemoryLevels, memory_levels
from flopcast.report.labels import memory_label
from flopcast.report.memory_report import StageMemory
from flopcast.report.report import Report
from flopcast.units import show_memory

MEMORY = "Memory"  # the heading of the section
MOST_CORNERS = 12_000  # of all areas together
MOST_HEIGHT, ROW_HEIGHT, LEAST_HEIGHT = 900, 90, 12


def memory(report: Report) -> Section:
    """Return bars of the stages, a chart over time and two tables: by category, and what tools show.

    Stages are thinned if there are many (`chosen`), and moments are thinned so that the drawing has a
    bounded number of corners. The largest categories have colours of their own; all others share one.
    """
    stages = chosen(len(report.memory.per_stage)).tolist()
    curves = [memory_levels(report, stage) for stage in stages]
    outside = [tier.by_category for tier in report.memory.tiers]
    names = _named([curve.by_category for curve in curves], outside)
    height = min(ROW_HEIGHT, max(LEAST_HEIGHT, MOST_HEIGHT // len(stages)))
    full_bytes = max(report.memory.capacity_bytes, report.memory.allocated_bytes)
    columns = max(50, MOST_CORNERS // (len(stages) * len(names)))
    end_s = end_of(report)
    drawn = []
    for row, curve in enumerate(curves):
        moments_s, state = thinned(curve, end_s, columns)
        by_category = _by_name(curve.by_category, names)
        heights = np.array([*by_category.values()]) / full_bytes * (height - 3)
        hues = [names.index(name) for name in by_category]
        across = units(moments_s, end_s)
        drawn.append(stacked(across, heights.take(state, axis=1), (row + 1) * height, hues))
        limit = (row + 1) * height - report.memory.capacity_bytes / full_bytes * (height - 3)
        drawn.append(f'<path class="rule box" d="M0,{limit:.1f}H{TIME_UNITS}"/>')
    title = f"Allocated memory of {len(stages)} stage{'s' if len(stages) > 1 else ''} over one step"
    described = (
        "One row per stage, all with the same scale. The line marks the memory of the device,"
        f" {show_memory(report.memory.capacity_bytes)}. A pixel that covers several moments shows the"
        " largest memory of them."
    )
    rows, below = [f"stage {stage}" for stage in stages], legend([*enumerate(map(memory_label, names))])
    plot = Plot(drawn="".join(drawn), rows=rows, height=height * len(stages), end_s=end_s)
    figure = over_time("memory-drawing", title, described, plot, below)
    html = (
        f"{memory_bars(report.memory, names)}{tier_bars(report.memory, names)}"
        f"<h3>Over the step</h3><p>{described}</p>{figure}"
        f"<h3>By category</h3>{_categories(report)}<h3>By stage</h3>{_stages(report)}"
    )
    return Section("memory", MEMORY, html=html)


def _named(curves: Sequence[dict[str, Floats]], outside: Sequence[dict[str, float]] = ()) -> list[str]:
    """Return the categories that have their own colour, then OTHERS if any category is left.

    A category can be present during the step and absent at the fullest moment, so the names come from the
    curves that are drawn and not from the peaks.
    """
    most_bytes: dict[str, float] = {}
    for levels in curves:
        for name, most in zip(levels, np.max([*levels.values()], axis=1).tolist(), strict=True):
            most_bytes[name] = max(most_bytes.get(name, 0.0), most)
    for held in outside:
        for name, held_bytes in held.items():
            most_bytes[name] = max(most_bytes.get(name, 0.0), held_bytes)
    largest = sorted(most_bytes, key=lambda name: -most_bytes[name])
    if len(largest) > DRIVER_HUE:
        largest = largest[: DRIVER_HUE - 1]
    named = [name for name in most_bytes if name in largest]
    return named + [OTHERS] * (len(most_bytes) > len(named))


def _by_name(levels: dict[str, Floats], names: list[str]) -> dict[str, Floats]:
    known = {name: levels[name] for name in names if name in levels}
    rest = [level for name, level in levels.items() if name not in names]
    return known | ({OTHERS: np.sum(rest, axis=0)} if rest else {})


def thinned(levels: MemoryLevels, end_s: float, columns: int) -> tuple[Floats, Integers]:
    """Keep at most one moment per column of the step: the fullest, placed at the start of the column.

    Returns
    -------
    two arrays of shape (moments,)
        Moments (s) and states, unchanged if there are at most as many moments as columns.
    """
    moments_s, state = levels.moments_s, levels.state
    if len(moments_s) <= columns:
        return moments_s, state
    column = np.minimum((moments_s / end_s * columns).astype(np.intp), columns - 1)
    order = column.argsort(kind="stable")
    column, state = column[order], state[order]
    total = levels.total_bytes[state]
    begins = _changes(column)
    most = np.maximum.reduceat(total, begins).repeat(np.diff(begins, append=len(column)))
    fullest = np.flatnonzero(total == most)
    first = fullest[_changes(column[fullest])]
    return column[first] * (end_s / columns), state[first]


def _changes(values: Integers) -> Integers:
    """Return the places at which rising values change, and the first one."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def _categories(report: Report) -> str:
    """Return a table of each stage's memory by category at its peak; a row sums to its last number."""
    names = list(dict.fromkeys(name for stage in report.memory.per_stage for name in stage.by_category))
    rows = []
    for stage in report.memory.per_stage:
        held: list[Cell] = [
            size(stage.by_category[name]) if name in stage.by_category else "–" for name in names
        ]
        rows.append((f"{stage.stage}", *held, size(stage.allocated_bytes)))
    headings = ("stage", *(memory_label(name) for name in names), "allocated")
    return table("Memory of one rank of each stage at its peak.", headings, rows)


def _stages(report: Report) -> str:
    """Return a table of when each stage is fullest, and of the sizes that tools show."""
    rows = [
        (
            f"{stage.stage}",
            stage.moment + _of_task(stage),
            size(stage.allocated_bytes),
            size(stage.reserved_bytes),
            size(stage.device_used_bytes),
        )
        for stage in report.memory.per_stage
    ]
    headings = ("stage", "fullest at", "allocated", "reserved", "in use")
    caption = (
        "Allocated: all tensors. Reserved: memory that the allocator has reserved. In use: memory that"
        f" the driver reports as used, of {show_memory(report.memory.capacity_bytes)}."
    )
    return table(caption, headings, rows)


def _of_task(stage: StageMemory) -> str:
    """Return the micro-batch and chunk of the peak as text; "" at the update."""
    if stage.micro_batch < 0:
        return ""
    return f" of micro-batch {stage.micro_batch}" + (f", chunk {stage.chunk}" if stage.chunk else "")
