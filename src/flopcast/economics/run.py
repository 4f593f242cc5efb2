"""A whole training run: phases, each with its own tokens and step, and the time lost to failures.

Answers: how many days does a run take, how much of this time is useful, what does it cost, and how much
energy does it take?
Elsewhere: one step (step.py), lost time (failures.py), text and JSON (render/training_run.py).

A phase trains a number of tokens with one batch and one sequence length. A growing batch, a final phase
with long contexts, or changing numbers of data-parallel ranks in an elastic run are sequences of phases.
The amounts of phases add up and depend on the factors of all phases.
"""

from functools import reduce
from operator import add

from flopcast.economics.amount import Amount
from flopcast.economics.failures import LostTime, lost_time, pause_s
from flopcast.economics.step import StepCost
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.operations import HOUR_S
from flopcast.units import Number


class Phase(Record):
    """A phase of a run with one kind of step, including the time lost to failures.

    `useful_s` is the time of useful steps and `wall_s` the wall-clock time; `usd` and `joules` are None if
    those of the step are. `resized_s` is the part of `wall_s` in which the run stops before the phase,
    because it has another number of devices than the phase before.
    """

    name: str
    phase_tokens: float
    num_steps: Number
    cost: StepCost
    lost: LostTime
    useful_s: Amount
    wall_s: Amount
    resized_s: Amount
    num_failures: Number
    usd: Amount | None
    joules: Amount | None


class TrainingRun(Record):
    """All phases, one after the other."""

    phases: tuple[Phase, ...]

    @property
    def useful_s(self) -> Amount:
        """Return the seconds of useful steps."""
        return reduce(add, (phase.useful_s for phase in self.phases))

    @property
    def wall_s(self) -> Amount:
        """Return the seconds from the first step to the last."""
        return reduce(add, (phase.wall_s for phase in self.phases))

    @property
    def goodput(self) -> tuple[float, float, float]:
        """Return the share of useful time, with its 90 % interval."""
        lost = self.wall_s * self.useful_s.inverse + Amount(-1.0)
        low, high = lost.bounds
        return 1 / (1 + lost.value), 1 / (1 + high), 1 / (1 + low)

    @property
    def num_failures(self) -> Number:
        """Return the expected number of interruptions."""
        return sum(phase.num_failures for phase in self.phases)

    @property
    def usd(self) -> Amount | None:
        """Return the cost in dollars, or None if a phase has no price."""
        return _total([phase.usd for phase in self.phases])

    @property
    def joules(self) -> Amount | None:
        """Return the energy of the building in joules, or None if a phase has none."""
        return _total([phase.joules for phase in self.phases])


def _total(parts: list[Amount | None]) -> Amount | None:
    known = [part for part in parts if part is not None]
    return reduce(add, known) if len(known) == len(parts) else None


def phase_of(
    name: str, phase_tokens: float, cost: StepCost, cluster: Cluster, *, resized: bool = False
) -> Phase:
    """Return one phase of a run.

    Parameters
    ----------
    phase_tokens : tokens to train; the last step may be a part of one
    cost : of the phase's step on that cluster
    resized : whether the previous phase has another number of devices; the run then saves a checkpoint and
        starts again

    Returns
    -------
    Phase
        The user pays for all devices during the whole time. Devices draw the power of a step while steps
        run, including steps that are repeated after a failure, and idle power while they save and restart.

    Raises
    ------
    InfeasibleError
        The job fails faster than it can start.
    """
    reliability = cost.reliability or cluster.reliability
    lost = lost_time(reliability, cost.num_devices, cluster.name)
    num_steps = phase_tokens / cost.step_tokens
    useful_s = cost.step_s * num_steps
    resized_s = pause_s(reliability, cluster.name) if resized else Amount(0.0)
    wall_s = useful_s * lost.wall + resized_s
    usd = joules = None
    if cost.price_usd_per_hour is not None:
        usd = wall_s * cost.price_usd_per_hour * (cost.num_devices / HOUR_S)
    if cost.energy is not None:
        steps_j = cost.energy.step_j * num_steps * (lost.redone + Amount(1.0))
        joules = steps_j + cost.energy.stopped_w * (useful_s * lost.stopped + resized_s)
    return Phase(
        name=name,
        phase_tokens=phase_tokens,
        num_steps=num_steps,
        cost=cost,
        lost=lost,
        useful_s=useful_s,
        wall_s=wall_s,
        resized_s=resized_s,
        num_failures=wall_s.value / lost.time_between_failures_s,
        usd=usd,
        joules=joules,
    )
