"""One training step: update, pipeline, reduction, synchronisation, as a period of repeated steps.

Answers: how long is a step, what is on its critical path, when does each task run?
Elsewhere: the inside of a task (program.py), the pipeline (pipeline.py), metrics (report/).

All stages of a pipeline agree on overflow flags and the gradient norm before any of them updates. A step is
measured from one such moment to the next: each stage updates its weights, runs its tasks, reduces its
gradients and waits for the others. That period is exact without simulating a second step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.cost.placement import crossings
from flopcast.dtypes import Floats, Integers
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT
from flopcast.spec.batch import Rows
from flopcast.timeline.critical_path import (
    attribute_critical_path,
    attribute_mean_stage,
    attribute_stage,
    busy_seconds,
    pass_seconds,
)
from flopcast.timeline.max_plus import NEVER
from flopcast.timeline.pipeline import Graph, NodeTimes, graph, of_kinds, play
from flopcast.timeline.program import Simulated, simulate
from flopcast.timeline.serial import serial_seconds
from flopcast.timeline.simulation import ProgramOfTask, StepSimulation
from flopcast.timeline.steady import Shares, SteadyStep, steady_step
from flopcast.timeline.time_attribution import TimeAttribution
from flopcast.timeline.transfers import transfer_leaves_node, transfer_seconds
from flopcast.workload.program import positions

Amount = TypeVar("Amount", float, Floats)
Passes = tuple[Simulated, ...]  # forward, backward, and weight gradients where they are apart


@dataclass(frozen=True, eq=False, kw_only=True)
class Timeline:
    """The tasks of one plan, and what the step is made of.

    Moments count from the synchronisation that begins the step. Columns (`stage` to `end_s`) have one
    entry a task, flat, stage after stage. `shares`, `bottleneck_attribution` and `mean_attribution` are
    views of critical_path.py, which are worked out when they are first read.
    """

    play: Callable[[], StepSimulation]
    rank_class: int = 0  # of data-parallel ranks, where their micro-batches differ: the slowest one
    steady: SteadyStep | None = None  # of very many micro-batches, which are played when a task is read

    @cached_property
    def run(self) -> StepSimulation:
        """Return the whole simulation."""
        return self.play()

    @property
    def _ends(self) -> StepSimulation:
        """Return a simulation that begins and ends as the step does."""
        return self.run if self.steady is None else self.steady.longer

    @cached_property
    def step_time_s(self) -> float:
        """Return the period of repeated steps, without jitter."""
        return self._total(lambda run: run.step_time_s)

    def _total(self, of: Callable[[StepSimulation], Amount]) -> Amount:
        return of(self.run) if self.steady is None else self.steady.total(of)

    def _shares(self, of: Callable[[StepSimulation], Shares]) -> tuple[TimeAttribution, ...]:
        return tuple(of(self.run)) if self.steady is None else self.steady.shares(of)

    @cached_property
    def pass_seconds(self) -> Floats:
        """Return the seconds of all tasks of each pass, (passes,)."""
        return self._total(pass_seconds)

    @cached_property
    def stage(self) -> Integers:
        """Return the stage of each task."""
        stages, tasks = self.run.played.graph.order.kind.shape
        return np.repeat(np.arange(stages), tasks)

    @property
    def chunk(self) -> Integers:
        """Return the virtual stage of each task."""
        return self.run.played.graph.order.chunk.ravel()

    @property
    def micro_batch(self) -> Integers:
        """Return the micro-batch of each task."""
        return self.run.played.graph.order.micro_batch.ravel()

    @property
    def kind(self) -> Integers:
        """Return the kind of each task: FORWARD, BACKWARD or WEIGHT."""
        return self.run.played.graph.order.kind.ravel()

    @property
    def position(self) -> Integers:
        """Return an index into POSITIONS for each task, by the turn at which its stage runs it."""
        return self.run.of_task.position

    @property
    def row(self) -> Integers:
        """Return the row of arrays over plans: the plan, or the kind of micro-batch where these differ."""
        return self.run.of_task.row

    @cached_property
    def start_s(self) -> Floats:
        """Return the start of each task."""
        return self.run.played.start_s[self.run.played.graph.node_of_task]

    @cached_property
    def end_s(self) -> Floats:
        """Return the end of each task."""
        return self.run.played.end_s[self.run.played.graph.node_of_task]

    @cached_property
    def shares(self) -> tuple[TimeAttribution, ...]:
        """Return what the step consists of: shares of the critical path, which sum to the step."""
        return self._shares(attribute_critical_path)

    @cached_property
    def bottleneck(self) -> int:
        """Return the busiest stage."""
        return int(np.argmax(self._total(busy_seconds)))

    @cached_property
    def bottleneck_attribution(self) -> tuple[TimeAttribution, ...]:
        """Return what the busiest stage does."""
        return self._shares(lambda run: attribute_stage(run, self.bottleneck))

    @cached_property
    def bottleneck_waits_s(self) -> float:
        """Return how long the busiest stage waits: with what it does, the step."""
        busy_s = sum(share.path_s for share in self.bottleneck_attribution)
        return max(0.0, self.step_time_s - busy_s)

    @cached_property
    def mean_attribution(self) -> tuple[TimeAttribution, ...]:
        """Return what the mean stage does."""
        return self._shares(attribute_mean_stage)

    @property
    def forward(self) -> Simulated:
        """Return the forward programs."""
        return self._ends.forward

    @property
    def backward(self) -> Simulated:
        """Return the backward programs."""
        return self._ends.backward

    @property
    def weight(self) -> Simulated | None:
        """Return the programs of weight gradients, where the backward is split."""
        return self._ends.weight

    @property
    def update_s(self) -> Floats:
        """Return the duration of the update, from the step's start, (stages,)."""
        return self._ends.update_s

    @property
    def reduce_start_s(self) -> Floats:
        """Return the start of the reductions after the last backward and what runs on, (stages,)."""
        return self._total(lambda run: run.reduce_start_s)

    @property
    def reduce_s(self) -> Floats:
        """Return the duration of these reductions, (stages,)."""
        return self._ends.reduce_s

    @property
    def synchronise_s(self) -> float:
        """Return the time that all stages take to agree."""
        return self._ends.synchronise_s


def simulate_passes(priced: Priced) -> Passes:
    """Return the programs of every pass of all plans of the batch, for `run_step` to play each plan."""
    return tuple(simulate(segments, priced, attribute=True) for segments in priced.programs.passes)


def run_step(priced: Priced, plan: int = 0, passes: Passes | None = None) -> Timeline:
    """Simulate one plan of the batch exactly.

    Parameters
    ----------
    plan : index of the plan in the batch; it plays as it would alone
    passes : of `simulate_passes`, where several plans of the batch are played

    Returns
    -------
    Timeline
        `step_time_s` is the period of repeated steps, without jitter: what runs beside the tasks
        (reductions under the last backward) is finished before the stages agree, so no second step is
        needed. Where data-parallel ranks have other micro-batches than each other, the pipeline of the
        slowest: stage by stage they reduce their gradients together, so the last to begin decides, and the
        longest step of a rank is that of all.

    Raises
    ------
    InternalError
        The schedule deadlocks with the stack's transfers (spec/checks.py refuses such plans).
    """
    passes = passes or simulate_passes(priced)
    plays = [partial(_run, priced, passes, plan, rows) for rows in priced.programs.workload.rows or ((),)]
    if len(plays) == 1 and not priced.programs.workload.rows:
        return Timeline(play=plays[0], steady=_steady(priced, plan, plays[0]))
    runs = [play() for play in plays]
    slowest = int(np.argmax([run.step_time_s for run in runs]))
    return Timeline(play=lambda: runs[slowest], rank_class=slowest)


def _steady(priced: Priced, plan: int, play: Callable[..., StepSimulation]) -> SteadyStep | None:
    """Return the step of a plan of very many micro-batches without playing all of them."""
    programs = priced.programs
    stages, chunks = programs.stages.of(plan).chunk_class.shape
    micro_batches = int(programs.plans.num_micro_batches[plan, 0])
    return steady_step(lambda some: play(micro_batches=some), micro_batches, chunks, stages)


def _run(
    priced: Priced, passes: Passes, plan: int, kinds: Rows, micro_batches: int | None = None
) -> StepSimulation:
    """Return the played pipeline of simulated programs with its start and end, without a breakdown.

    `kinds` are those of its micro-batches, in order; empty where they are alike. `micro_batches` are the
    plan's, unless others are given.
    """
    programs = priced.programs
    division = programs.stages.of(plan)
    stages, virtual = division.chunk_class.shape
    micro = micro_batches or int(programs.plans.num_micro_batches[plan, 0])
    style = programs.transfers(interleaved=virtual > 1)
    pipeline = graph(programs.plans.structure.pipeline_schedule, stages, virtual, micro, style)
    update_s = serial_seconds(programs.update, priced)[plan, division.stage_class]
    programs_of_tasks = _rows(pipeline, division.chunk_class, micro, kinds, plan)
    task_s = _task_seconds(pipeline, programs_of_tasks, passes)
    leaves = transfer_leaves_node(crossings(programs.plans, plan, stages, priced.cluster.scale_up_devices))
    transfer_s = transfer_seconds(priced, plan, leaves)
    if kinds:
        pipeline = of_kinds(pipeline, programs_of_tasks.row)
        transfer_s = np.concatenate(
            [transfer_seconds(priced, row, leaves) for row in range(max(kinds) + 1)]
        )
    arrived_s = _arrived(pipeline, programs_of_tasks, passes[FORWARD], update_s)
    played = play(pipeline, task_s, transfer_s, update_s, arrived_s)
    reduced_s, chain_start = _reduced(played, programs_of_tasks, passes)
    return StepSimulation(
        priced=priced,
        plan=plan,
        played=played,
        of_task=programs_of_tasks,
        forward=passes[FORWARD],
        backward=passes[BACKWARD],
        weight=passes[WEIGHT] if len(passes) > WEIGHT else None,
        update_s=update_s,
        leaves=leaves,
        reduce_start_s=reduced_s,
        chain_start=chain_start,
        reduce_s=serial_seconds(programs.reduce, priced)[plan, division.stage_class],
        synchronise_s=float(serial_seconds(programs.synchronise, priced)[plan].max()),
    )


def _rows(pipeline: Graph, chunk_class: Integers, micro: int, kinds: Rows, plan: int) -> ProgramOfTask:
    """Return the program that each task runs."""
    order = pipeline.order
    stage = np.repeat(np.arange(order.kind.shape[0])[:, None], order.kind.shape[1], axis=1)
    row = np.array(kinds)[order.micro_batch] if kinds else np.full(order.kind.shape, plan)
    return ProgramOfTask(
        chunk_class=chunk_class[stage, order.chunk].ravel(),
        position=positions(order.turn, micro).ravel(),
        row=row.ravel(),
    )


def _task_seconds(pipeline: Graph, of_task: ProgramOfTask, passes: Passes) -> Floats:
    """Return the seconds of every task of the order, (stages · tasks,), from the program that it runs."""
    return np.choose(pipeline.order.kind.ravel(), [of_task.values(one.duration_s) for one in passes])


def _arrived(pipeline: Graph, of_task: ProgramOfTask, forward: Simulated, update_s: Floats) -> Floats:
    """Return the time at which all parameters of each forward have arrived, (stages · tasks,).

    The gathers of a stage queue up after its update. The time is -inf if a program has no overlapped
    gather, or waits for its gathers itself. The last layer of a chunk, which still runs after its
    parameters have arrived, is not counted.
    """
    beside_s = of_task.values(np.where(forward.tail_s > NEVER, forward.reduction_s, 0.0))
    gathers_s = np.where(pipeline.order.kind.ravel() == FORWARD, beside_s, 0.0).reshape(len(update_s), -1)
    there_s = update_s[:, None] + gathers_s.cumsum(axis=1)
    return np.asarray(np.where(gathers_s > 0, there_s, NEVER).ravel())


def _reduced(played: NodeTimes, of_task: ProgramOfTask, passes: Passes) -> tuple[Floats, Integers]:
    """Return when each stage ends its tasks and overlapped reductions, and the task that began the wait.

    Gradients are complete in the last kind of pass: the backward, or separate weight gradients.

    The reductions of a stage queue on one stream. Those of a program end `tail_s` after the program, or
    `reduction_s` after the reductions of earlier programs, whichever is later. The returned task is
    the last one for whose gradients the queue waited; -1 if the tasks, with the time that they lose to
    messages, end last. (stages,) each.
    """
    g = played.graph
    kind, backward = len(passes) - 1, passes[-1]
    lost = _lost(g, of_task, passes)
    done = played.end_s[g.last] + lost.sum(axis=1)
    chain = np.full(len(done), -1)
    if not (backward.tail_s > NEVER).any():
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
    if not any(one.lost_s.any() for one in passes):
        return np.zeros(kind.shape)
    each_s: Floats = np.choose(kind.ravel(), [of_task.values(one.lost_s) for one in passes])
    return each_s.reshape(kind.shape)


def simulated_seconds(priced: Priced, plan: int = 0) -> float:
    """Return the step time of a plan, simulated exactly as `run_step` does, without its shares."""
    passes = tuple(simulate(segments, priced, attribute=False) for segments in priced.programs.passes)
    return run_step(priced, plan, passes).step_time_s
