"""The simulation of one plan: the program of each task, and the end of its step.

Answers: from which data are the fractions of a step computed (critical_path.py)?
Elsewhere: the simulation itself (step.py).
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts, Floats, Integers
from flopcast.records import Record
from flopcast.timeline.pipeline import NodeTimes
from flopcast.timeline.program import Simulated
from flopcast.workload.program import Programs


class ProgramOfTask(Record, eq=False):
    """The program that each task of an order runs: flat arrays (stages · tasks,), stage after stage.

    Attributes
    ----------
    chunk_class : array of int
        Class of the chunk of the task.
    position : array of int
        Index into POSITIONS, which states whether the task is the first, the last or another one of its
        kind. Gathers and reductions run only in the first and the last.
    row : array of int
        Row of arrays over plans: the plan or, if micro-batches differ, their kind.
    """

    chunk_class: Integers
    position: Integers  # index into POSITIONS
    row: Integers  # of arrays over plans: the plan, or the kind of micro-batch where these differ

    def values(self, array: Counts, tasks: Integers | None = None) -> Counts:
        """Return the values of an array (positions, plans, chunk classes, …) for all tasks, or for
        `tasks`.
        """
        chosen = slice(None) if tasks is None else tasks
        row = np.minimum(self.row[chosen], array.shape[1] - 1)
        found: Counts = array[self.position[chosen], row, self.chunk_class[chosen]]
        return found

    def summed(self, array: Counts, tasks: Integers) -> Counts:
        """Return the sum of `values` over tasks. An entry of several tasks is read only once."""
        row = np.minimum(self.row[tasks], array.shape[1] - 1)
        at = (self.position[tasks], row, self.chunk_class[tasks])
        times = np.bincount(np.ravel_multi_index(at, array.shape[:3]))
        programs = times.nonzero()[0]
        found: Counts = times[programs] @ array.reshape(-1, array.shape[-1])[programs]
        return found


class StepSimulation(Record, eq=False):
    """The simulation of one plan. Arrays over tasks are flat, stage after stage.

    The update begins with the step and takes `update_s`; the reduction begins at `reduce_start_s` and takes
    `reduce_s`. A stage then waits for the last stage, and all stages synchronise. Between its tasks and
    `reduce_start_s`, a stage waits for the longer of two times: the end of its queue of reductions, and the
    time that it loses to messages.
    """

    priced: Priced
    plan: int
    played: NodeTimes
    of_task: ProgramOfTask
    stage_row: Integers  # (stages,): row of the prices of a stage's update and reduction
    forward: Simulated
    backward: Simulated
    weight: Simulated | None  # where the backward is split
    leaves: Integers  # by hop index: 1 where the hop leaves its node
    update_s: Floats  # (stages,)
    chain_start: Integers  # (stages,): task that reductions running on waited for; -1: the loss decides
    reduce_start_s: Floats  # (stages,)
    reduce_s: Floats  # (stages,)
    synchronise_s: float

    @property
    def passes(self) -> tuple[Simulated, ...]:
        """Return the programs by kind of task. In the last kind, gradients are complete and are reduced."""
        return (self.forward, self.backward, *([self.weight] if self.weight else []))

    @property
    def begin_s(self) -> Floats:
        """Return the start of the step on each stage, (stages,): 0 unless steps are skewed.

        A skewed step begins just before its update, which ends when the first input arrives. Every stage
        may therefore have the same delay in the next step as in this one.
        """
        if not self.programs.plans.structure.order_rule.skews_steps:
            return np.zeros(len(self.update_s))
        g = self.played.graph
        first = g.node_of_task[:: g.order.kind.shape[1]]
        return self.played.start_s[first] - self.update_s

    @property
    def last(self) -> int:
        """Return the stage with the longest step, for which all other stages wait; the first if there
        are several.
        """
        return int(np.argmax(self.reduce_start_s + self.reduce_s - self.begin_s))

    @property
    def step_time_s(self) -> float:
        """Return the period of repeated steps: the longest step of a stage, plus the synchronisation."""
        return float((self.reduce_start_s + self.reduce_s - self.begin_s).max()) + self.synchronise_s

    @property
    def programs(self) -> Programs:
        """Return the programs that were simulated."""
        return self.priced.programs
