"""Steps of many micro-batches, extrapolated from two short steps by the period in which the pipeline
repeats.

Answers: is the state of a pipeline periodic, and what does each period add?
Elsewhere: the complete simulation of a step (step.py).

A pipeline is a max-plus recurrence that does not depend on when it begins. Let a longer step have one
period of tasks more than a shorter step. Up to some task, both steps have equal times. From an earlier task
on, the times of the longer step are those of the shorter step plus a constant. If both conditions hold for
more tasks than the longest dependency spans, the state of all stages repeats. Every further period then
adds the same time and the same items.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from flopcast.dtypes import Flags, Floats, Integers
from flopcast.records import Record
from flopcast.schedules.base import Order
from flopcast.timeline.simulation import StepSimulation
from flopcast.units import Number

PLAYED_TASKS = 1024  # steps of fewer tasks are played whole
SHORT_PERIODS = (8, 48)  # of the shorter step, tried one after the other
WINDOW_PERIODS = 4  # over which the state must repeat: dependencies reach back less than two periods
ROUNDING = 1e-13  # of a period
Amount = TypeVar("Amount", float, Floats)
Column = TypeVar("Column", Integers, Floats)


class SteadyStep(Record, eq=False):
    """A step that is `times` periods longer than `longer`, which is one period longer than `shorter`.

    Times and numbers of this step are linear in `times`: value = longer + times · (longer - shorter). On
    every stage, the repeated period of tasks starts at the task `begin` of its order.
    """

    shorter: StepSimulation
    longer: StepSimulation
    times: int
    begin: int

    @property
    def period_s(self) -> float:
        """Return the seconds of a period."""
        return self.longer.step_time_s - self.shorter.step_time_s

    @property
    def repeated_s(self) -> float:
        """Return the time for which both steps certainly repeat a period, minus one period."""
        return (WINDOW_PERIODS - 1) * self.period_s

    def total(self, of: Callable[[StepSimulation], Amount]) -> Amount:
        """Return a quantity that grows by the same amount with every period, such as the step time."""
        long = of(self.longer)
        return long + self.times * (long - of(self.shorter))

    def of_tasks(self, column: Column, added: Number = 0) -> Column:
        """Return a column with an entry for each task of this step, from that of `longer`.

        Parameters
        ----------
        column : array
            An entry for each task of `longer`, flat, stage after stage.
        added : number
            Difference between the entries of a period and those of the previous period.
        """
        short, long = (run.played.graph.order.kind.shape for run in (self.shorter, self.longer))
        period = long[1] - short[1]
        task = np.arange(long[1] + self.times * period)
        periods = np.clip((task - self.begin) // period, 0, self.times)
        found: Column = column.reshape(long)[:, task - periods * period]
        return (found + periods * added if added else found).ravel()

    @property
    def runs(self) -> tuple[tuple[float, StepSimulation], ...]:
        """Return both simulations and their weights. The weighted sum is this step."""
        return ((1.0 + self.times, self.longer), (-float(self.times), self.shorter))


def steady_step(
    play: Callable[[int], StepSimulation], micro_batches: int, chunks: int, stages: int
) -> SteadyStep | None:
    """Return the step of many micro-batches, or None if it has few tasks or its state does not repeat.

    Parameters
    ----------
    play : simulates a step of some micro-batches exactly
    chunks, stages : those of the pipeline. As in interleaved orders, a period has as many micro-batches as
        there are stages.
    """
    for periods in SHORT_PERIODS:
        short = periods * stages + micro_batches % stages
        if 2 * stages * chunks * micro_batches < PLAYED_TASKS or micro_batches < 4 * short:
            return None
        shorter, longer = play(short), play(short + stages)
        begin = _repeats_from(shorter, longer)
        if begin is not None:
            times = (micro_batches - short) // stages - 1
            return SteadyStep(shorter=shorter, longer=longer, times=times, begin=begin)
    return None


def _repeats_from(shorter: StepSimulation, longer: StepSimulation) -> int | None:
    """Return the task of each stage from which every further period adds what the one of `longer` adds.

    None: not every period adds that.
    """
    short, long = shorter.played.graph.order, longer.played.graph.order
    period = long.kind.shape[1] - short.kind.shape[1]
    micro_batches = int(long.micro_batch.max() - short.micro_batch.max())
    same = _alike(short, long, slice(None, -period), 0)
    later = _alike(short, long, slice(period, None), micro_batches)
    front = len(same) if same.all() else int(same.argmin())  # up to here both run the same
    begin = front - WINDOW_PERIODS * period
    if begin < 0 or not later[begin:].all():
        return None
    shift_s = (_ends(longer)[:, period:] - _ends(shorter))[:, begin:]
    added_s = longer.reduce_start_s - shorter.reduce_start_s
    most = ROUNDING * float(shift_s[0, 0])
    same_shift = (abs(shift_s - shift_s[0, 0]) <= most).all() and (
        abs(added_s - shift_s[0, 0]) <= most
    ).all()
    return begin if same_shift else None


def _alike(short: Order, long: Order, columns: slice, later: int) -> Flags:
    """Return which columns of the shorter order are columns of the longer one, `later` micro-batches on."""
    kind, chunk = long.kind[:, columns] == short.kind, long.chunk[:, columns] == short.chunk
    found: Flags = (kind & chunk & (long.micro_batch[:, columns] == short.micro_batch + later)).all(axis=0)
    return found


def _ends(run: StepSimulation) -> Floats:
    """Return the end of every task, (stages, tasks of a stage)."""
    g = run.played.graph
    return run.played.end_s[g.node_of_task].reshape(g.order.kind.shape)
