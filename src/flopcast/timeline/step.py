"""One training step: update, pipeline, reduction, synchronisation, as a period of repeated steps.

Answers: how long is a step, what is on its critical path, when does each task run?
Elsewhere: the inside of a task (program.py), the pipeline (pipeline.py), metrics (report/).

All stages of a pipeline agree on overflow flags and the gradient norm before any of them updates. A
step is measured from one such moment to the next: each stage updates its weights, runs its tasks,
reduces its gradients and waits for the others. That period is exact without simulating a second step.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.cost.placement import crossings
from flopcast.cost.price import Priced
from flopcast.dtypes import Counts, Floats, Integers
from flopcast.operators.item import Item
from flopcast.schedules.base import BACKWARD, FORWARD
from flopcast.timeline.pipeline import MESSAGE, TASK, Graph, Played, critical_path, graph, hop_index, play
from flopcast.timeline.program import NEVER, Simulated, simulate
from flopcast.workload.program import POSITIONS


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Share:
    """How often an item runs on the critical path, and in what role.

    `on_bottleneck`: on the stage that decides the step (the rest fills and drains the pipeline).
    """

    item: Item | None  # None: launches by the host
    path_s: float
    on_bottleneck: bool


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Timeline:
    """Columns of tasks, and the critical path; of one plan."""

    step_time_s: float  # without jitter
    stage: Integers
    chunk: Integers
    micro_batch: Integers
    kind: Integers
    start_s: Floats
    end_s: Floats
    shares: tuple[Share, ...]  # sum to step_time_s
    forward: Simulated
    backward: Simulated
    update_s: Floats  # (stages,): from the step's start
    reduce_start_s: Floats  # (stages,): after the last backward and what runs on beside it
    reduce_s: Floats  # (stages,)
    synchronise_s: float
    bottleneck: int


def run_step(priced: Priced, plan: int = 0) -> Timeline:
    """Play one plan of the batch exactly."""
    programs = priced.programs
    structure = programs.plans.structure
    division = programs.stages.of(plan)
    stages, virtual = division.chunk_class.shape
    micro = int(programs.plans.num_micro_batches[plan, 0])
    forward = simulate(programs.forward, priced, attribute=True)
    backward = simulate(programs.backward, priced, attribute=True)
    pipeline = graph(structure.pipeline_schedule, stages, virtual, micro, programs.stack.pipeline.transfers)
    phases = {
        name: _serial(items, priced, plan)[division.stage_class]
        for name, items in (("update", programs.update), ("reduce", programs.reduce))
    }
    synchronise = float(_serial(programs.synchronise, priced, plan).max())
    rows = _rows(pipeline, division.chunk_class, micro)
    task_s = _task_seconds(pipeline, rows, forward, backward, plan)
    leaves = crossings(programs.plans, plan, stages, priced.cluster.node.devices)
    hop_s = _hop_seconds(priced, plan, stages, leaves)
    played = play(pipeline, task_s, hop_s, phases["update"])
    reduce_start_s = _reduced(played, rows, backward, plan)
    reduced = reduce_start_s + phases["reduce"]
    last = int(np.argmax(reduced))
    step = float(reduced[last]) + synchronise
    shares, bottleneck = _shares(played, last, rows, forward, backward, priced, plan, step)
    nodes = pipeline.node_of_task
    return Timeline(
        step_time_s=step,
        stage=np.repeat(np.arange(stages), pipeline.order.kind.shape[1]),
        chunk=pipeline.order.chunk.ravel(),
        micro_batch=pipeline.order.micro_batch.ravel(),
        kind=pipeline.order.kind.ravel(),
        start_s=played.start_s[nodes],
        end_s=played.end_s[nodes],
        shares=shares,
        forward=forward,
        backward=backward,
        update_s=phases["update"],
        reduce_start_s=reduce_start_s,
        reduce_s=phases["reduce"],
        synchronise_s=synchronise,
        bottleneck=bottleneck,
    )


def _serial(items: tuple[Item, ...], priced: Priced, plan: int) -> Floats:
    """Seconds of items that run one after the other, by stage class."""
    classes = priced.programs.stages.stage_counts.shape[1]
    total = np.zeros(classes)
    for item in items:
        seconds = priced.of(item).alone_s * item.count
        total = total + np.broadcast_to(seconds, (priced.programs.plans.size, classes))[plan]
    return total


def _rows(pipeline: Graph, chunk_class: Integers, micro: int) -> tuple[Integers, Integers]:
    """Chunk class and position (index into POSITIONS) of every task."""
    order = pipeline.order
    stage = np.repeat(np.arange(order.kind.shape[0])[:, None], order.kind.shape[1], axis=1)
    position = np.where(order.micro_batch == 0, 0, np.where(order.micro_batch == micro - 1, 2, 1))
    if micro == 1:
        position[:] = POSITIONS.index("only")
    return chunk_class[stage, order.chunk].ravel(), position.ravel()


def _task_seconds(
    pipeline: Graph, rows: tuple[Integers, Integers], forward: Simulated, backward: Simulated, plan: int
) -> Floats:
    chunk, position = rows
    of = [_of_plan(simulated.duration_s, plan) for simulated in (forward, backward)]
    is_backward = pipeline.order.kind.ravel() == BACKWARD
    return np.where(is_backward, of[1][position, chunk], of[0][position, chunk])


def _of_plan(array: Counts, plan: int) -> Counts:
    """One plan of an array over (positions, plans, classes, …)."""
    chosen: Counts = array[:, min(plan, array.shape[1] - 1)]
    return chosen


def _hop_items(priced: Priced, kind: int, crosses: int) -> tuple[Item, ...]:
    """The messages of one transfer; `kind` is FORWARD or BACKWARD."""
    programs = priced.programs
    hop = programs.hop_across if crosses else programs.hop_inside
    return hop.backward if kind == BACKWARD else hop.forward


def _hop_seconds(priced: Priced, plan: int, stages: int, leaves: Integers) -> Floats:
    """Durations by hop index: (kind, sender). Backward, stage s sends to stage s - 1."""
    seconds = np.zeros(1 + 2 * stages)
    for kind in (FORWARD, BACKWARD):
        each = np.array(
            [
                sum(_one(priced.of(item).alone_s, plan) for item in _hop_items(priced, kind, crosses))
                for crosses in (0, 1)
            ]
        )
        sender = np.arange(stages)
        boundary = (sender - 1) % stages if kind == BACKWARD else sender
        seconds[hop_index(np.full(stages, kind), sender)] = each[leaves[boundary]]
    return seconds


def _reduced(played: Played, rows: tuple[Integers, Integers], backward: Simulated, plan: int) -> Floats:
    """When each stage has finished its tasks and the reductions that ran beside them."""
    g = played.graph
    done = played.end_s[g.last].copy()
    if not (backward.tail_s > NEVER).any():
        return done
    tail, reduction = _of_plan(backward.tail_s, plan), _of_plan(backward.reduction_s, plan)
    chunk, position = rows
    num_stages, tasks = g.order.kind.shape
    for stage in range(num_stages):
        free = NEVER
        for task in range(stage * tasks, (stage + 1) * tasks):
            at = position[task], chunk[task]
            if g.order.kind.ravel()[task] == BACKWARD and tail[at] > NEVER and reduction[at] > 0:
                free = max(free + reduction[at], played.end_s[g.node_of_task[task]] + tail[at])
        done[stage] = max(done[stage], free)
    return done


def _shares(
    played: Played,
    last: int,
    rows: tuple[Integers, Integers],
    forward: Simulated,
    backward: Simulated,
    priced: Priced,
    plan: int,
    step_s: float,
) -> tuple[tuple[Share, ...], int]:
    """The critical path of the step, as items; and the stage that most of it runs on."""
    g = played.graph
    path, hops = critical_path(played, int(g.last[last]))
    first = int(g.stage[path[-1]])
    durations = played.duration_s[path]
    bottleneck = int(np.argmax(np.bincount(g.stage[path], durations, minlength=len(g.last))))
    shares: list[Share] = []
    tasks = path[g.kind[path] == TASK]
    for simulated, wanted in ((forward, False), (backward, True)):
        chosen = tasks[(g.order.kind.ravel()[g.task[tasks]] == BACKWARD) == wanted]
        for here in (True, False):
            on = chosen[(g.stage[chosen] == bottleneck) == here]
            shares += _task_shares(simulated, g.task[on], rows, priced, plan, here)
    shares += _hop_shares(played, path, hops, priced)
    classes = priced.programs.stages.of(plan).stage_class
    programs = priced.programs
    for items, stage in ((programs.update, first), (programs.reduce, last), (programs.synchronise, last)):
        shares += _phase_shares(items, priced, plan, int(classes[stage]))
    covered = sum(share.path_s for share in shares)
    if step_s - covered > 1e-9 * step_s:  # reductions that ran on after the last backward
        exposed = next(item for item in programs.items() if item.name == "gradients.reduce")
        shares.append(Share(item=exposed, path_s=step_s - covered, on_bottleneck=True))
    return tuple(shares), bottleneck


def _task_shares(
    simulated: Simulated,
    tasks: Integers,
    rows: tuple[Integers, Integers],
    priced: Priced,
    plan: int,
    on_bottleneck: bool,
) -> list[Share]:
    if not len(tasks):
        return []
    chunk, position = rows
    counts = _of_plan(simulated.counts, plan)
    executions = counts[position[tasks], chunk[tasks]].sum(axis=0)
    found = [
        Share(
            item=item,
            path_s=float(executions[column] * _one(priced.of(item).alone_s, plan)),
            on_bottleneck=on_bottleneck,
        )
        for column, item in enumerate(simulated.columns)
        if executions[column]
    ]
    if executions[-1]:
        found.append(Share(item=None, path_s=float(executions[-1]), on_bottleneck=on_bottleneck))
    return found


def _one(alone_s: Floats, plan: int) -> float:
    """An item's seconds in one plan (items of layers do not depend on the stage)."""
    return float(alone_s[min(plan, alone_s.shape[0] - 1), 0])


def _hop_shares(played: Played, path: Integers, hops: Integers, priced: Priced) -> list[Share]:
    """Transfers on the path: lags between tasks, or nodes of their own where they block."""
    g = played.graph
    messages = path[g.kind[path] == MESSAGE]
    sender = g.task[messages] // g.order.kind.shape[1]
    taken = np.concatenate([hops[hops > 0], hop_index(g.order.kind.ravel()[g.task[messages]], sender)])
    found = []
    for kind in (FORWARD, BACKWARD):
        total = float(played.hop_s[taken[(taken - 1) % 2 == kind]].sum())
        items = _hop_items(priced, kind, 1)
        each = np.array([float(priced.of(item).alone_s.max()) for item in items])
        if total > 0 and each.sum() > 0:
            found += [
                Share(item=item, path_s=total * part, on_bottleneck=True)
                for item, part in zip(items, each / each.sum(), strict=True)
            ]
    return found


def _phase_shares(items: tuple[Item, ...], priced: Priced, plan: int, stage_class: int) -> list[Share]:
    found = []
    for item in items:
        seconds = priced.of(item).alone_s * item.count
        at = seconds[min(plan, seconds.shape[0] - 1), min(stage_class, seconds.shape[1] - 1)]
        if at > 0:
            found.append(Share(item=item, path_s=float(at), on_bottleneck=True))
    return found
