"""The timeline as a table of rows.

Answers: when does each task, and each operator inside it, run, and on which stage and stream?
Elsewhere: the file format (interop/exports/perfetto.py), the drawing (render/report_page.py).
Columns: stage, chunk, micro_batch, layer, operator, phase, stream, start_s, end_s. Rows of whole tasks
have stream "tasks". In long steps, only the first and last micro-batches show their operators. Seconds
count from the synchronisation that begins the step, without jitter.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.schedules.base import BACKWARD, FORWARD
from flopcast.timeline.program_items import Inside, lay_out
from flopcast.workload.program import MIDDLE

MOST_INSIDE = 60_000  # rows of operators, so that a trace stays a few megabytes


class Event(Record, eq=False):
    """One row.

    `layer` counts the repetitions of a layer inside its chunk from 0, in the order of the pass, and is -1
    for rows that are not an operator of a layer. `micro_batch` is -1 at the beginning and the end of the
    step. `phase` is forward, recompute, backward or step, and `stream` is one of perfetto.STREAMS.
    """

    stage: int
    chunk: int
    micro_batch: int
    layer: int
    operator: str
    phase: str
    stream: str
    start_s: float
    end_s: float


def events(report: Report) -> Iterator[Event]:
    """Yield every task, and the operators inside the tasks that are shown in full.

    Yields
    ------
    Event
        First the update of all stages, then the tasks of stage 0, of stage 1 and so on, each followed by
        its operators, and finally the reduction of all stages.

    Notes
    -----
    The operators of a task have the same relative times in all tasks of its chunk class, position and kind
    of micro-batch, so they are computed once and shifted.
    """
    yield from _phase_events(report, "update")
    timeline, programs = report.timeline, report.priced.programs
    division = programs.stages.of(0)
    micro = int(timeline.micro_batch.max()) + 1

    @cache
    def inside(kind: int, chunk_class: int, position: int, row: int) -> Inside:
        return lay_out(programs.passes[kind], report.priced, row, chunk_class, position)

    reduced_s = dict.fromkeys(range(int(timeline.stage.max()) + 1), 0.0)
    shown = _shown_in_full(timeline.micro_batch, micro, len(inside(FORWARD, 0, MIDDLE, 0).items))
    for task in range(len(timeline.stage)):
        stage, chunk = int(timeline.stage[task]), int(timeline.chunk[task])
        micro_batch, kind = int(timeline.micro_batch[task]), int(timeline.kind[task])
        phase = "forward" if kind == FORWARD else "backward"
        start = float(timeline.start_s[task])
        yield Event(
            stage=stage,
            chunk=chunk,
            micro_batch=micro_batch,
            layer=-1,
            operator=f"{'FBW'[kind]}{micro_batch}" + (f".{chunk}" if chunk else ""),
            phase=phase,
            stream="tasks",
            start_s=start,
            end_s=float(timeline.end_s[task]),
        )
        if shown[task]:
            position, row = int(timeline.position[task]), int(timeline.row[task])
            at = inside(kind, int(division.chunk_class[stage, chunk]), position, row)
            yield from _inside_events(at, stage, chunk, micro_batch, start, reduced_s)
    yield from _phase_events(report, "reduce")


def _phase_events(report: Report, name: str) -> Iterator[Event]:
    """Yield the update that begins the step, or the reduction that ends it, on every stage.

    One row on stream "tasks" around the rows of its items, which follow each other.
    """
    timeline, priced = report.timeline, report.priced
    classes = priced.programs.stages.of(0).stage_class
    items = priced.programs.update if name == "update" else priced.programs.reduce
    for stage, at in enumerate(classes.tolist()):
        begin = 0.0 if name == "update" else float(timeline.reduce_start_s[stage])
        moment = begin
        rows = []
        for item in items:
            end = moment + priced.seconds(item, stage_class=at)
            if end > moment:
                rows.append(_phase_event(stage, item.name, item.stream, moment, end))
            moment = end
        if rows:
            yield _phase_event(stage, name, "tasks", begin, moment)
            yield from rows


def _phase_event(stage: int, operator: str, stream: str, start_s: float, end_s: float) -> Event:
    """Return a row that belongs to no micro-batch and no layer."""
    return Event(
        stage=stage,
        chunk=0,
        micro_batch=-1,
        layer=-1,
        operator=operator,
        phase="step",
        stream=stream,
        start_s=start_s,
        end_s=end_s,
    )


def _shown_in_full(micro_batch: Integers, micro: int, items: int) -> np.ndarray:
    """Return tasks whose operators are shown: all, or those of the first and last micro-batches.

    `items` is the length of one forward; the budget of MOST_INSIDE rows is met to within a factor of two or
    three, as a backward is longer. (tasks,) of bool.
    """
    budget = max(1, MOST_INSIDE // max(1, items))
    if len(micro_batch) <= budget:
        return np.ones(len(micro_batch), dtype=bool)
    each = max(1, budget // (2 * max(1, len(micro_batch) // micro)))
    return (micro_batch < each) | (micro_batch >= micro - each)


def _inside_events(
    inside: Inside, stage: int, chunk: int, micro_batch: int, start_s: float, reduced_s: dict[int, float]
) -> Iterator[Event]:
    """Yield the items of one program, moved to the start of its task.

    Reductions wait for those of the stage's programs before it, which may run on: `reduced_s` holds, by
    stage, when its data-parallel stream is free, and is brought up to date.
    """
    starts, ends = inside.start_s + start_s, inside.end_s + start_s
    for item, layer, begin, end in zip(
        inside.items, inside.layer.tolist(), starts.tolist(), ends.tolist(), strict=True
    ):
        wait = max(0.0, reduced_s[stage] - begin) if item.stream == "dp" else 0.0
        if item.stream == "dp":
            reduced_s[stage] = end + wait
        yield Event(
            stage=stage,
            chunk=chunk,
            micro_batch=micro_batch,
            layer=layer,
            operator=item.name,
            phase=item.phase,
            stream=item.stream,
            start_s=begin + wait,
            end_s=end + wait,
        )


def memory_over_time(report: Report, stage: int) -> tuple[Floats, Floats]:
    """Return moments (s) and allocated bytes of a stage over one step.

    The maximum is the peak of the stage.

    Returns
    -------
    two arrays of shape (moments,)
        Ascending moments, and the level from each moment on, which is the sum of all categories of
        `memory_levels`.
    """
    levels = memory_levels(report, stage)
    return levels.moments_s, levels.total_bytes[levels.state]


class MemoryLevels(Record, eq=False):
    """How the allocated memory of a pipeline stage changes during one step.

    The memory is constant between two entries of `moments_s`, which are in ascending order. `state` has the
    index of the state that begins at each of these moments. `by_category` has the bytes of every memory
    category in each state, as arrays of shape (states,).
    """

    moments_s: Floats
    state: Integers
    by_category: dict[str, Floats]

    @property
    def total_bytes(self) -> Floats:
        """Return the sum of all categories in each state, as an array of shape (states,)."""
        total_bytes: Floats = np.add.reduce([*self.by_category.values()])
        return total_bytes


def memory_levels(report: Report, stage: int) -> MemoryLevels:
    """Return the bytes of each category of a stage over one step.

    The activations of a forward pass count from its start, because they exist at its end at the latest.
    During a backward pass, its fullest layer counts. At its end, it frees its activations; tensors for
    weight gradients are freed after these. An update that needs additional memory holds it from its start
    to its end.
    """
    timeline = report.timeline
    curve = report.memory.curve(stage, timeline.rank_class)
    starts_s, ends_s = (
        moments.reshape(len(timeline.update_s), -1)[stage] for moments in (timeline.start_s, timeline.end_s)
    )
    starts = np.zeros(len(curve.task), dtype=bool)
    starts[::2] = True
    shown = np.flatnonzero((curve.kind == BACKWARD) | ~starts)
    at = curve.task[shown]
    moments = np.where((starts | (curve.kind == FORWARD))[shown], starts_s[at], ends_s[at])  # they rise
    states = curve.state_bytes.shape[1]
    updating, standing = states, states + 1  # further states
    before_s, before = [0.0], [standing]
    after_s, after = list[float](), list[int]()
    if curve.update_bytes > curve.standing_bytes:
        begin_s, reduce_s = timeline.reduce_start_s[stage], timeline.reduce_s[stage]
        before_s, before = [0.0, timeline.update_s[stage]], [updating, standing]
        after_s, after = [begin_s, begin_s + reduce_s], [updating, standing]
    names = [*dict.fromkeys((*curve.names, *curve.updating))]
    levels = np.zeros((len(names), states + 2))
    levels[: len(curve.names), :states] = curve.state_bytes
    levels[:, states:] = [
        [held.get(name, 0.0) for held in (curve.updating, curve.standing)] for name in names
    ]
    some = np.flatnonzero(levels.any(axis=1)).tolist()
    return MemoryLevels(
        moments_s=np.concatenate([before_s, moments, after_s]),
        state=np.concatenate([before, curve.state[shown], after]).astype(np.intp),
        by_category={names[row]: levels[row] for row in some},
    )
