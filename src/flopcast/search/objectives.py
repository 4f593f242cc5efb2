"""Objectives of a search as losses: estimated for millions of plans, exact for a few.

Answers: which objectives exist, in which units, and how is each computed from a step?
Elsewhere: the step itself (screen.py, exact.py), the best plans by an objective (top_candidates.py,
rank.py).

A loss is a number to minimise: seconds per token if the user asks for tokens per second. It is the step
time multiplied by a number that depends only on the plan, so its interval follows from the factors of the
step.
"""

from collections.abc import Callable, Mapping

from flopcast.dtypes import Counts, Floats
from flopcast.economics.amount import Amount
from flopcast.economics.checkpoint_cost import LEAST_S
from flopcast.economics.failures import lost_time
from flopcast.economics.run import Phase, phase_of
from flopcast.economics.step import KWH_J, MANY_TOKENS
from flopcast.errors import InfeasibleError, InternalError
from flopcast.records import Record
from flopcast.search.exact import Exact
from flopcast.spec.job import Job
from flopcast.spec.operations import HOUR_S
from flopcast.timeline.uncertainty import Sensitivity, interval
from flopcast.units import Number, show, show_memory, show_seconds, show_usd


class Estimates(Record, eq=False):
    """Estimates of the possible plans on one cluster; arrays have shape (plans,)."""

    job: Job  # with the cluster; its own plan is not used
    step_s: Floats
    global_batch: Counts
    used_bytes: Floats

    @property
    def token_s(self) -> Floats:
        """Return the seconds per token of the whole cluster."""
        each_s: Floats = self.step_s / (self.global_batch * self.job.plan.peers * self.job.sequence_tokens)
        return each_s


class Loss(Record):
    """One objective of one plan: a value in the objective's unit, and the factors that it depends on.

    Plans are compared by their losses, lower first. `factors` give the interval of the value and of the
    ratio of two plans, in which shared factors cancel.
    """

    value: Number
    factors: tuple[Sensitivity, ...] = ()

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the 90 % interval."""
        return interval(self.value, self.factors)


class Objective(Record):
    """One objective of a search.

    Attributes
    ----------
    key : str
        Name of the objective in JSON and tables, with the unit.
    comparative, gain : str
        Words for a plan with a larger loss and for a plan with a smaller loss: "slower", "faster".
    inverse : bool
        Whether the shown value is one over the loss, so that larger values are better.
    show : callable
        Returns the shown value as text.
    estimate, exact : callables
        Return the losses of screened plans, and the loss of a simulated plan. Both take the tokens of the
        run.
    needs : tuple of str
        Inputs that the objective needs: "tokens" of the run, the "price" of a device, its "power".
    per_step : bool
        Whether the objective cannot compare steps of different batches.
    label : str
        Its name in text, if this differs from `name`.
    axis_unit : number
        Unit of which round values on an axis are multiples.
    """

    key: str
    comparative: str = "slower"
    gain: str = "faster"
    show: Callable[[Number], str]
    estimate: Callable[[Estimates, Number], Floats]
    exact: Callable[[Exact, Number], Loss]
    inverse: bool = False
    needs: tuple[str, ...] = ()
    per_step: bool = False
    label: str = ""
    axis_unit: Number = 1.0

    @property
    def superlative(self) -> str:
        """Return the word for the plan with the smallest loss, such as "fastest".

        >>> [OBJECTIVES[name].superlative for name in ("step_time", "cost", "time_to_train")]
        ['fastest', 'cheapest', 'fastest']
        """
        return f"{self.gain[:-1]}st" if self.gain.endswith("er") else "best"

    def shown(self, loss: Number) -> Number:
        """Return the shown value of a loss, or the loss of a shown value."""
        return 1 / loss if self.inverse else loss


def _of_step(played: Exact, each: Number) -> Loss:
    return Loss(value=played.step_time_s * each, factors=played.factors)


def _of_token(played: Exact, each: Number) -> Loss:
    return _of_step(played, each / played.job.step_tokens)


def _loss(amount: Amount | None) -> Loss:
    """Return the loss as an amount; questions in which it is unknown were refused before."""
    if amount is None:
        raise InternalError(
            "the objective needs a value that the description of the cluster does not contain"
        )
    return Loss(value=amount.value, factors=amount.factors)


def run_of(played: Exact, run_tokens: Number) -> Phase | None:
    """Return the whole run of a plan: its time and its cost, with intervals.

    The result is None if the tokens of the run are unknown (0), or if devices fail so often that the run
    never ends.
    """
    try:
        return _run(played, run_tokens) if run_tokens else None
    except InfeasibleError:
        return None


def _run(played: Exact, run_tokens: Number) -> Phase:
    """Return the whole run at this step time, including losses by failures."""
    return phase_of("run", run_tokens, played.cost, played.job.cluster)


def _wall_ratio(job: Job) -> Number:
    """Return wall-clock time over time of steps; infinite if the cluster fails faster than it starts.

    Checkpoints that the job describes depend on the plan: they count as nothing here, so that no plan looks
    worse than it is.
    """
    cluster, reliability = job.cluster, job.cluster.reliability
    if job.checkpoint is not None:
        reliability = reliability.model_copy(
            update={"checkpoint_s": LEAST_S, "checkpoint_interval_s": None}
        )
    try:
        return lost_time(reliability, cluster.num_devices, cluster.name).wall.value
    except InfeasibleError:
        return float("inf")


def _usd_per_s(job: Job) -> Number:
    """Return the dollars per second of the whole cluster."""
    price = job.cluster.price
    return 0.0 if price is None else price.device_usd_per_hour * job.cluster.num_devices / HOUR_S


def _board_w(job: Job) -> Number:
    """Return the watts of all boards at their limit; plans of one cluster then rank by device-seconds."""
    return (job.cluster.node.device.board_power_w or 0.0) * job.cluster.num_devices


OBJECTIVES: Mapping[str, Objective] = {
    "step_time": Objective(
        key="step_time_s",
        show=show_seconds,
        estimate=lambda of, _: of.step_s,
        exact=lambda played, _: _of_step(played, 1.0),
        per_step=True,
    ),
    "tokens_per_s": Objective(
        key="tokens_per_s",
        show=lambda value: show(value, "tokens/s"),
        estimate=lambda of, _: of.token_s,
        exact=lambda played, _: _of_token(played, 1.0),
        inverse=True,
    ),
    "tokens_per_s_per_device": Objective(
        key="tokens_per_s_per_device",
        comparative="slower per device",
        gain="faster per device",
        show=lambda value: show(value, "tokens/s"),
        estimate=lambda of, _: of.token_s * of.job.cluster.num_devices,
        exact=lambda played, _: _of_token(played, played.job.cluster.num_devices),
        inverse=True,
    ),
    "time_to_train": Objective(
        key="time_to_train_s",
        label="time of the run",
        comparative="longer",
        show=show_seconds,
        estimate=lambda of, tokens: of.token_s * tokens * _wall_ratio(of.job),
        exact=lambda played, tokens: _loss(_run(played, tokens).wall_s),
        needs=("tokens",),
    ),
    "cost": Objective(
        key="cost_usd_per_1e12_tokens",
        label="cost of 1e12 tokens",
        comparative="more expensive",
        gain="cheaper",
        show=show_usd,
        estimate=lambda of, _: of.token_s * MANY_TOKENS * _usd_per_s(of.job),
        exact=lambda played, _: _loss(played.cost.many_tokens_usd),
        needs=("price",),
    ),
    "run_cost": Objective(
        key="run_cost_usd",
        label="cost of the run",
        comparative="more expensive",
        gain="cheaper",
        show=show_usd,
        estimate=lambda of, tokens: of.token_s * tokens * _wall_ratio(of.job) * _usd_per_s(of.job),
        exact=lambda played, tokens: _loss(_run(played, tokens).usd),
        needs=("tokens", "price"),
    ),
    "energy": Objective(
        key="energy_kwh_per_1e12_tokens",
        label="energy of 1e12 tokens",
        comparative="more energy",
        gain="less energy",
        show=lambda value: show(1000 * value, "Wh"),
        estimate=lambda of, _: of.token_s * MANY_TOKENS / KWH_J * _board_w(of.job),
        exact=lambda played, _: _loss(played.cost.many_tokens_kwh),
        needs=("power",),
    ),
    "memory": Objective(
        key="peak_memory_bytes",
        label="memory in use",
        comparative="larger",
        gain="smaller",
        show=show_memory,
        axis_unit=2.0**30,
        estimate=lambda of, _: of.used_bytes,
        exact=lambda played, _: Loss(value=played.device_used_bytes),
    ),
}  # a new objective is one entry here
