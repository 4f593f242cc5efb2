"""One training step: update, pipeline, reduction, synchronisation, as a period of repeated steps.

Answers: how long is a step, what is on its critical path, when does each task run?
Elsewhere: the inside of a task (program.py), the pipeline (pipeline.py), metrics (report/).

All stages of a pipeline agree on overflow flags and the gradient norm before any of them updates. A step is
measured from one such time to the next: each stage updates its weights, runs its tasks, reduces its
gradients and waits for the others. This period is exact without the simulation of a second step.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from flopcast.cost.item_prices import Pattern, Priced
from flopcast.cost.placement import crossings
from flopcast.dtypes import Floats, Integers
from flopcast.records import Record
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT
from flopcast.spec.batch import Rows
from flopcast.timeline.critical_path import (
    View,
    attributed,
    busy_seconds,
    pass_seconds,
    view_of_all_stages,
    view_of_critical_path,
    view_of_stage,
)
from flopcast.timeline.pipeline import graph, of_kinds, play
from flopcast.timeline.program import Simulated, simulate
from flopcast.timeline.serial import stage_seconds
from flopcast.timeline.simulation import StepSimulation
from flopcast.timeline.steady import SteadyStep, steady_step
from flopcast.timeline.task_times import (
    Passes,
    parameters_arrived,
    programs_of_tasks,
    reductions_end,
    task_seconds,
)
from flopcast.timeline.time_attribution import TimeAttribution
from flopcast.timeline.transfers import transfer_leaves_node, transfer_seconds
from flopcast.units import Number

Amount = TypeVar("Amount", float, Floats)
Column = TypeVar("Column", Integers, Floats)
Shares = tuple[TimeAttribution, ...]


class Timeline(Record, eq=False, slots=False):
    """The tasks of one plan, and the components of the step.

    Times are measured from the synchronisation that begins the step. Columns (`stage` to `end_s`) have one
    entry per task, stage after stage. `shares`, `bottleneck_attribution` and `mean_attribution` are views
    of critical_path.py, which are computed when they are first read.
    """

    play: Callable[[], StepSimulation]
    rank_class: int = 0  # of data-parallel ranks, where their micro-batches differ: the slowest one
    steady: SteadyStep | None = None  # of many micro-batches, which are not all played

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

    def _shares(self, view: Callable[[StepSimulation], View], part_ratio: float = 1.0) -> Shares:
        runs = ((1.0, self.run),) if self.steady is None else self.steady.runs
        return attributed([(weight * part_ratio, run) for weight, run in runs], view)

    @cached_property
    def pass_seconds(self) -> Floats:
        """Return the seconds of all tasks of each pass, (passes,)."""
        return self._total(pass_seconds)

    def _of_tasks(self, of: Callable[[StepSimulation], Column], added: Number = 0) -> Column:
        """Return a column of tasks, to which each period of many micro-batches adds a number."""
        return of(self.run) if self.steady is None else self.steady.of_tasks(of(self.steady.longer), added)

    @cached_property
    def stage(self) -> Integers:
        """Return the stage of each task."""
        stages = len(self._ends.update_s)
        return np.repeat(np.arange(stages), len(self.kind) // stages)

    @cached_property
    def chunk(self) -> Integers:
        """Return the virtual stage of each task."""
        return self._of_tasks(lambda run: run.played.graph.order.chunk.ravel())

    @cached_property
    def micro_batch(self) -> Integers:
        """Return the micro-batch of each task."""
        return self._of_tasks(
            lambda run: run.played.graph.order.micro_batch.ravel(), len(self._ends.update_s)
        )

    @cached_property
    def kind(self) -> Integers:
        """Return the kind of each task: FORWARD, BACKWARD or WEIGHT."""
        return self._of_tasks(lambda run: run.played.graph.order.kind.ravel())

    @property
    def position(self) -> Integers:
        """Return an index into POSITIONS for each task, which follows from its turn on its stage."""
        return self._of_tasks(lambda run: run.of_task.position)

    @property
    def row(self) -> Integers:
        """Return the row of arrays over plans: the plan or, if micro-batches differ, their kind."""
        return self._of_tasks(lambda run: run.of_task.row)

    @cached_property
    def start_s(self) -> Floats:
        """Return the start of each task."""
        return self._of_tasks(lambda run: run.played.start_s[run.played.graph.node_of_task], self._period_s)

    @cached_property
    def end_s(self) -> Floats:
        """Return the end of each task."""
        return self._of_tasks(lambda run: run.played.end_s[run.played.graph.node_of_task], self._period_s)

    @property
    def _period_s(self) -> float:
        """Return by how much later the tasks of a period begin than those of the period before it."""
        return 0.0 if self.steady is None else self.steady.period_s

    @cached_property
    def shares(self) -> Shares:
        """Return the shares of the critical path, whose sum is the step time."""
        return self._shares(view_of_critical_path)

    @cached_property
    def bottleneck(self) -> int:
        """Return the busiest stage."""
        return int(np.argmax(self._total(busy_seconds)))

    @cached_property
    def bottleneck_attribution(self) -> Shares:
        """Return the executions of the busiest stage."""
        found = self._shares(lambda run: view_of_stage(run, self.bottleneck))
        return tuple(share for share in found if share.path_s != 0)

    @cached_property
    def bottleneck_waits_s(self) -> float:
        """Return the waiting time of the busiest stage: the step time minus the time of its executions."""
        busy_s = sum(share.path_s for share in self.bottleneck_attribution)
        return max(0.0, self.step_time_s - busy_s)

    @cached_property
    def mean_attribution(self) -> Shares:
        """Return the executions of the mean stage."""
        found = self._shares(view_of_all_stages, 1.0 / len(self._ends.update_s))
        return tuple(share for share in found if share.path_s != 0)

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
        """Return the programs of weight gradients, if the backward pass is split."""
        return self._ends.weight

    @property
    def update_s(self) -> Floats:
        """Return the duration of the update, from the step's start, (stages,)."""
        return self._ends.update_s

    @property
    def reduce_start_s(self) -> Floats:
        """Return the start of the reductions that follow the last backward pass, (stages,)."""
        return self._total(lambda run: run.reduce_start_s)

    @property
    def reduce_s(self) -> Floats:
        """Return the duration of these reductions, (stages,)."""
        return self._ends.reduce_s

    @property
    def synchronise_s(self) -> float:
        """Return the time in which all stages synchronise."""
        return self._ends.synchronise_s


def simulate_passes(priced: Priced) -> Passes:
    """Return the programs of every pass of all plans of the batch, which `run_step` simulates."""
    return tuple(simulate(segments, priced, attribute=True) for segments in priced.programs.passes)


def run_step(priced: Priced, plan: int = 0, passes: Passes | None = None) -> Timeline:
    """Simulate one plan of the batch exactly.

    Parameters
    ----------
    plan : index of the plan in the batch; the result does not depend on the other plans
    passes : the result of `simulate_passes`, if several plans of the batch are simulated

    Returns
    -------
    Timeline
        `step_time_s` is the period of repeated steps, without jitter: work that is concurrent with the
        tasks (reductions during the last backward pass) ends before the stages synchronise, so no second
        step is needed. If data-parallel ranks have different micro-batches, or run on parts with different
        speeds (cost/parts.py), the step is that of the slowest pipeline. The ranks of each stage reduce
        their gradients together, so the last rank to begin determines the time, and all ranks have the step
        time of the slowest.

    Raises
    ------
    InternalError
        The schedule deadlocks with the stack's transfers (spec/checks.py refuses such plans).
    """
    passes = passes or simulate_passes(priced)
    if not priced.programs.workload.rows:
        alike = Pattern((plan,) * len(priced.programs.stages.of(plan).stage_class))
        steps = [_step_of(each, priced, passes, plan) for each in priced.patterns or (alike,)]
        return max(steps, key=lambda step: step.step_time_s) if len(steps) > 1 else steps[0]
    runs = [_run(priced, passes, plan, kinds, ()) for kinds in priced.programs.workload.rows]
    slowest = int(np.argmax([run.step_time_s for run in runs]))
    return Timeline(play=lambda: runs[slowest], rank_class=slowest)


def _step_of(pattern: Pattern, priced: Priced, passes: Passes, plan: int) -> Timeline:
    """Return the step of one kind of replica; of many micro-batches, not all are played."""
    programs = priced.programs
    stages, chunks = programs.stages.of(plan).chunk_class.shape
    micro_batches = pattern.micro_batches or int(programs.plans.num_micro_batches[plan, 0])
    play = partial(_run, priced, passes, plan, (), pattern.rows, micro_batches=micro_batches)
    steady = steady_step(lambda some: play(micro_batches=some), micro_batches, chunks, stages)
    return Timeline(play=play, steady=steady)


def _run(
    priced: Priced,
    passes: Passes,
    plan: int,
    kinds: Rows,
    row_of_stage: Rows,
    micro_batches: int | None = None,
) -> StepSimulation:
    """Return the played pipeline of simulated programs with its start and end, without a breakdown.

    `kinds` are those of its micro-batches, in order; where they are alike, `row_of_stage` are the rows of
    prices of its stages instead. `micro_batches` are the plan's, unless others are given.
    """
    programs = priced.programs
    division = programs.stages.of(plan)
    stages, virtual = division.chunk_class.shape
    micro = micro_batches or len(kinds) or int(programs.plans.num_micro_batches[plan, 0])
    style = programs.transfers(interleaved=virtual > 1)
    pipeline = graph(programs.plans.structure.pipeline_schedule, stages, virtual, micro, style)
    stage_row = np.array(row_of_stage or (plan,) * stages)
    update_s = stage_seconds(programs.update, priced, stage_row, division.stage_class)
    of_task = programs_of_tasks(pipeline, division.chunk_class, kinds, stage_row)
    task_s = task_seconds(pipeline, of_task, passes)
    leaves = transfer_leaves_node(crossings(programs.plans, plan, stages, priced.cluster.scale_up_devices))
    transfer_s = transfer_seconds(priced, plan, leaves)
    if kinds or priced.patterns:
        pipeline = of_kinds(pipeline, of_task.row)
        rows = range(int(of_task.row.max()) + 1)
        transfer_s = np.concatenate([transfer_seconds(priced, row, leaves) for row in rows])
    arrived_s = parameters_arrived(pipeline, of_task, passes[FORWARD], update_s)
    played = play(pipeline, task_s, transfer_s, update_s, arrived_s)
    reduced_s, chain_start = reductions_end(played, of_task, passes)
    return StepSimulation(
        priced=priced,
        plan=plan,
        played=played,
        of_task=of_task,
        stage_row=stage_row,
        forward=passes[FORWARD],
        backward=passes[BACKWARD],
        weight=passes[WEIGHT] if len(passes) > WEIGHT else None,
        update_s=update_s,
        leaves=leaves,
        reduce_start_s=reduced_s,
        chain_start=chain_start,
        reduce_s=stage_seconds(programs.reduce, priced, stage_row, division.stage_class),
        synchronise_s=float(
            stage_seconds(programs.synchronise, priced, stage_row, division.stage_class).max()
        ),
    )


def simulated_seconds(priced: Priced, plan: int = 0) -> float:
    """Return the step time of a plan by the simulation of `run_step`, without its shares."""
    passes = tuple(simulate(segments, priced, attribute=False) for segments in priced.programs.passes)
    return run_step(priced, plan, passes).step_time_s
