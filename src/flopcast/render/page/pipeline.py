"""The pipeline over one step: which task runs on which stage, from when to when.

Answers: how does a page draw a pipeline with few tasks, and how one with a million?
Elsewhere: when tasks run (timeline/), every operator inside them (interop/exports/perfetto.py).

Up to MOST_TASKS tasks are drawn one by one. If there are more, the step is divided into COLUMNS equal
columns, and each column shows the share of its time that a stage spends in each pass; and at most
MOST_STAGES stages are drawn, evenly spaced, including the first and the last. The table always has all
stages.
"""

import math

import numpy as np

from flopcast.dtypes import Floats, Integers, distinct
from flopcast.memory.curve import PASSES
from flopcast.render.page.drawing import legend
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, seconds, share, table
from flopcast.render.page.time_axis import TIME_UNITS, Plot, over_time, stacked
from flopcast.report.report import Report
from flopcast.units import show_seconds

MOST_TASKS, COLUMNS, MOST_STAGES = 10_000, 400, 32
MOST_HEIGHT, ROW_HEIGHT, LEAST_HEIGHT = 900, 24, 7  # dots: of the drawing, of a row
END_HUE = 7  # update and reduction


def pipeline(report: Report) -> Section:
    """Return the section with the drawing, and a table with one row per stage."""
    timeline = report.timeline
    stages = len(timeline.update_s)
    drawn_stages = chosen(stages) if _is_large(report) else np.arange(stages)
    height = min(ROW_HEIGHT, max(LEAST_HEIGHT, MOST_HEIGHT // len(drawn_stages)))
    places = [*enumerate(drawn_stages.tolist())] if _is_large(report) else []
    rows = [_columns(report, stage, row * height, height) for row, stage in places]
    rows = rows or _tasks(report, height)
    end_s = end_of(report)
    passes = PASSES[: int(timeline.kind.max()) + 1]
    hues = [*enumerate(passes), (END_HUE, "update and reduction")]
    title = f"{stages} pipeline stage{'s' if stages > 1 else ''} over {show_seconds(end_s)}"
    plot = Plot(
        drawn="".join(rows),
        rows=[f"stage {stage}" for stage in drawn_stages.tolist()],
        height=height * len(rows),
        end_s=end_s,
        kind="" if _is_large(report) else "tasks",
    )
    described = "Time runs to the right, and stages from top to bottom. Empty space is waiting time."
    described += f" {rule(report)}"
    figure = over_time("pipeline-drawing", title, described, plot, legend(hues))
    alone = report.job.plan.pipeline_parallel == 1
    between = "" if alone else ", between two synchronisations of all stages"
    text = f"<p>One step without jitter{between}. {rule(report)}</p>"
    return Section("pipeline", heading(report), html=text + figure + _table(report))


def heading(report: Report) -> str:
    """Return the heading of the section."""
    alone = report.job.plan.pipeline_parallel == 1
    return "One step over time" if alone else "The pipeline over one step"


def rule(report: Report) -> str:
    """Return a sentence that states which tasks are drawn."""
    if not _is_large(report):
        return "Every task is a box."
    stages = len(report.timeline.update_s)
    some = f"{MOST_STAGES} of {stages} stages, evenly spaced; " if stages > MOST_STAGES else ""
    return (
        f"{len(report.timeline.stage)} tasks are too many to draw one by one: {some}the step is cut into"
        f" {COLUMNS} columns, and the height of a colour is the share of the column that the stage spends"
        " in that pass. The trace file (--trace) holds every task."
    )


def _is_large(report: Report) -> bool:
    """Return whether there are too many tasks to draw each one."""
    return len(report.timeline.stage) > MOST_TASKS


def chosen(stages: int) -> Integers:
    """Return the stages to draw: evenly spaced, including the first and the last."""
    return np.array(distinct(np.linspace(0, stages - 1, min(stages, MOST_STAGES)).round().astype(np.intp)))


def end_of(report: Report) -> float:
    """Return the seconds that the drawing spans: the step, or up to the last reduction if that is later."""
    timeline = report.timeline
    return max(report.clean_step_time_s, float((timeline.reduce_start_s + timeline.reduce_s).max()))


def units(moment_s: Floats, end_s: float) -> Integers:
    """Return times of a step in whole units of a drawing."""
    rounded: Integers = np.rint(moment_s / end_s * TIME_UNITS).astype(np.intp)
    return rounded


def _tasks(report: Report, height: int) -> list[str]:
    """Return one path for each kind of task of every stage, and one for its update and reduction."""
    timeline, end_s, rows = report.timeline, end_of(report), []
    kinds, starts, stops = (
        each.reshape(len(timeline.update_s), -1)
        for each in (timeline.kind, units(timeline.start_s, end_s), units(timeline.end_s, end_s))
    )
    end_starts_s = np.stack([np.zeros_like(timeline.update_s), timeline.reduce_start_s], axis=1)
    end_stops_s = end_starts_s + np.stack([timeline.update_s, timeline.reduce_s], axis=1)
    ends = zip(units(end_starts_s, end_s), units(end_stops_s, end_s), strict=True)
    for row, (kind, start, stop, end) in enumerate(zip(kinds, starts, stops, ends, strict=True)):
        present = [kind == each for each in range(int(kind.max()) + 1)]
        boxes = [
            _boxes(start[mine], stop[mine], row * height, height, hue)
            for hue, mine in enumerate(mine for mine in present if mine.any())
        ]
        rows.append("".join(boxes) + _boxes(*end, row * height, height, END_HUE))
    return rows


def _boxes(start: Integers, stop: Integers, top: int, height: int, hue: int) -> str:
    """Return boxes of one colour as a single path, to keep pages small; each is at least 1 unit wide."""
    wide = np.maximum(stop - start, 1)
    numbers = np.stack([start, wide, wide], axis=1).ravel().tolist()
    drawn = f"M%d,{top + 1}h%dv{height - 2}h-%dz" * len(start) % tuple(numbers)
    return f'<path class="hue-{hue} box" d="{drawn}"/>'


def busy_by_column(report: Report, stage: int, columns: int = COLUMNS) -> Floats:
    """Return the seconds that a stage spends in each pass, and in update and reduction, per column.

    Returns
    -------
    array of shape (passes + 1, columns)
        Forward, backward, weight gradients if they are separate; the last row is update and reduction.
    """
    timeline = report.timeline
    edges = np.linspace(0.0, end_of(report), columns + 1)
    mine = timeline.stage == stage
    kinds = (mine & (timeline.kind == kind) for kind in range(int(timeline.kind.max()) + 1))
    busy = [_spent(timeline.start_s[tasks], timeline.end_s[tasks], edges) for tasks in kinds]
    begin_s = timeline.reduce_start_s[stage]
    starts = np.array([0.0, begin_s])
    stops = np.array([timeline.update_s[stage], begin_s + timeline.reduce_s[stage]])
    return np.stack([*busy, _spent(starts, stops, edges)])


def _spent(start_s: Floats, stop_s: Floats, edges_s: Floats) -> Floats:
    """Return seconds of spans, which do not overlap, between edges."""
    order = np.argsort(start_s)
    moments = np.stack([start_s[order], stop_s[order]], axis=1).ravel()
    spent = np.stack([np.zeros(len(order)), (stop_s - start_s)[order]], axis=1).ravel().cumsum()
    return np.diff(np.asarray(np.interp(edges_s, moments, spent)))


def _columns(report: Report, stage: int, top: int, height: int) -> str:
    """Return a stage's columns: stacked areas with the shares of the passes."""
    heights = busy_by_column(report, stage) / (end_of(report) / COLUMNS) * (height - 1)
    hues = (*range(len(heights) - 1), END_HUE)
    return stacked(np.arange(COLUMNS) * (TIME_UNITS // COLUMNS), [*heights], top + height, hues)


def tasks_as_data(report: Report) -> dict[str, object]:
    """Return the tasks for the script, as [kind, chunk, micro-batch, start, length] per stage.

    Moments are whole units of the drawing; empty where tasks are not drawn one by one.
    """
    timeline = report.timeline
    stages = len(timeline.update_s)
    if _is_large(report):
        return {"stages": chosen(stages).tolist(), "tasks": []}
    end_s = end_of(report)
    start, stop = units(timeline.start_s, end_s), units(timeline.end_s, end_s)
    columns = np.stack([timeline.kind, timeline.chunk, timeline.micro_batch, start, stop - start], axis=1)
    each = [columns[timeline.stage == stage] for stage in range(stages)]
    tasks = [one[np.argsort(one[:, 3], kind="stable")].ravel().tolist() for one in each]
    return {"stages": list(range(stages)), "tasks": tasks}


def _table(report: Report) -> str:
    """Return a table of every stage's seconds by activity; in the rest it waits or communicates."""
    timeline = report.timeline
    passes = PASSES[: int(timeline.kind.max()) + 1]
    stages = len(timeline.update_s)
    kind, lasts_s = (
        each.reshape(stages, -1) for each in (timeline.kind, timeline.end_s - timeline.start_s)
    )
    busy_s = [np.where(kind == each, lasts_s, 0.0).sum(axis=1) for each in range(len(passes))]
    rows = []
    for stage, spent_s in enumerate(
        np.stack([*busy_s, timeline.update_s + timeline.reduce_s], axis=1).tolist()
    ):
        waits_s = max(0.0, report.clean_step_time_s - math.fsum(spent_s))
        cells: list[Cell] = [f"{stage}", *(seconds(each) for each in spent_s), seconds(waits_s)]
        rows.append((*cells, share(waits_s / report.clean_step_time_s)))
    waits = "waits and transfers"
    headings = ("stage", *passes, "update and reduction", waits, f"{waits}, share of the step")
    caption = "Time of each stage over the step, including communication that compute waits for."
    return table(caption, headings, rows)
