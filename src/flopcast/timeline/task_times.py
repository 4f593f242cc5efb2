"""When the tasks of a stage can begin and end, and which program each of them runs.

Answers: how long does every task of a pipeline take, when have its parameters arrived, and when are all
gradients of a stage reduced?
Elsewhere: when tasks run (pipeline.py), the inside of a task (program.py), the step (step.py).
"""

import numpy as np

from flopcast.dtypes import Floats, Integers, any_of
from flopcast.schedules.base import FORWARD
from flopcast.spec.batch import Rows
from flopcast.timeline.max_plus import NEVER
from flopcast.timeline.pipeline import Graph, NodeTimes
from flopcast.timeline.program import Simulated
from flopcast.timeline.simulation import ProgramOfTask

Passes = tuple[Simulated, ...]  # forward, backward, and weight gradients where they are apart


def programs_of_tasks(
    pipeline: Graph, chunk_class: Integers, kinds: Rows, row_of_stage: Integers
) -> ProgramOfTask:
    """Return the program that each task runs.

    If `kinds` are given, the row of its prices is the kind of its micro-batch; otherwise, it is that of its
    stage.
    """
    order = pipeline.order
    row = np.array(kinds)[order.micro_batch] if kinds else row_of_stage.repeat(order.kind.shape[1])
    return ProgramOfTask(
        chunk_class=np.take_along_axis(chunk_class, order.chunk, axis=1).ravel(),
        position=pipeline.position,
        row=row.ravel(),
    )


def task_seconds(pipeline: Graph, of_task: ProgramOfTask, passes: Passes) -> Floats:
    """Return the seconds of every task of the order, (stages · tasks,), from the program that it runs."""
    return np.choose(pipeline.order.kind.ravel(), [of_task.values(one.duration_s) for one in passes])


def parameters_arrived(
    pipeline: Graph, of_task: ProgramOfTask, forward: Simulated, update_s: Floats
) -> Floats:
    """Return the time at which all parameters of each forward pass have arrived, (stages · tasks,).

    The gathers of a stage run after its update. The time is -inf if a program has no overlapped gather, or
    waits for its gathers itself. The last layer of a chunk, which still runs after its parameters have
    arrived, is not counted.
    """
    beside_s = of_task.values(np.where(forward.tail_s > NEVER, forward.reduction_s, 0.0))
    gathers_s = np.where(pipeline.order.kind.ravel() == FORWARD, beside_s, 0.0).reshape(len(update_s), -1)
    there_s = update_s[:, None] + gathers_s.cumsum(axis=1)
    return np.asarray(np.where(gathers_s > 0, there_s, NEVER).ravel())


def reductions_end(played: NodeTimes, of_task: ProgramOfTask, passes: Passes) -> tuple[Floats, Integers]:
    """Return the end of tasks and overlapped reductions of each stage, and the task that determines it.

    Gradients are complete in the last kind of pass: the backward, or separate weight gradients.

    The reductions of a stage queue on one stream. Those of a program end `tail_s` after the program, or
    `reduction_s` after the reductions of earlier programs, whichever is later. The returned task is the
    last one for whose gradients the queue waited, or -1 if the tasks, with the time that they lose to
    messages, end last. Both have shape (stages,).
    """
    g = played.graph
    kind, backward = len(passes) - 1, passes[-1]
    lost = _lost(g, of_task, passes)
    done = played.end_s[g.last] + lost.sum(axis=1)
    chain = np.full(len(done), -1)
    if not any_of(backward.tail_s > NEVER):
        return done, chain
    tail, reduction = of_task.values(backward.tail_s), of_task.values(backward.reduction_s)
    reducing = (g.order.kind.ravel() == kind) & (tail > NEVER) & (reduction > 0)
    ready = played.end_s[g.node_of_task] + tail + (lost.cumsum(axis=1) - lost).ravel()
    for stage, mine in enumerate(reducing.reshape(g.order.kind.shape)):
        tasks = np.flatnonzero(mine) + stage * len(mine)
        free, start = NEVER, -1
        columns = (tasks.tolist(), ready[tasks].tolist(), reduction[tasks].tolist())
        for task, ready_s, reduction_s in zip(*columns, strict=True):
            free, start = max((free + reduction_s, start), (ready_s, task))
        if free > done[stage]:
            done[stage], chain[stage] = free, start
    return done, chain


def _lost(pipeline: Graph, of_task: ProgramOfTask, passes: Passes) -> Floats:
    """Return each task's part of the time that its stage loses to messages of its end micro-batches.

    Shape (stages, tasks of a stage).
    """
    kind = pipeline.order.kind
    if not any(any_of(one.lost_s) for one in passes):
        return np.zeros(kind.shape)
    each_s: Floats = np.choose(kind.ravel(), [of_task.values(one.lost_s) for one in passes])
    return each_s.reshape(kind.shape)
