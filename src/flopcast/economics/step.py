"""Cost and energy of one step: the price of the devices' time, and the energy that they draw.

Answers: what do a step and 1e12 tokens cost, how much energy do they take, and how wide are the intervals?
Elsewhere: joules of a device (energy.py), a whole run with its failures (run.py), default prices and powers
(spec/operations.py).
The user pays for every device and second of the step, busy or not. Energy is that of the building: devices,
the rest of the nodes, and the share that cooling and conversion add to both (PUE).
"""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from flopcast.cost.factors import Factor
from flopcast.cost.item_prices import Priced
from flopcast.economics.amount import Amount, amount_of
from flopcast.economics.energy import WAITING, device_energy, drawn_w
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.operations import HOUR_S, Price, Reliability
from flopcast.spec.site import Site
from flopcast.timeline.step import Timeline
from flopcast.timeline.uncertainty import sensitivities
from flopcast.units import Number

if TYPE_CHECKING:
    from flopcast.economics.checkpoint_cost import CheckpointCost

MANY_TOKENS = 1e12  # what costs are quoted for
KWH_J = 3.6e6
ENERGY_INCLUDES = "with hosts and cooling"


class Energy(Record):
    """Energy of a step. The power of a device is that which its sensor shows.

    `step_j` is the energy of the whole cluster, including cooling and power conversion. `stopped_w` is the
    power that the cluster draws while nothing runs. `busy` contains the fraction of the step that a device
    spends on each kind of work, as a mean over all devices.
    """

    step_j: Amount
    device_power_w: Amount  # mean over the step and over devices
    stopped_w: Amount
    busy: dict[str, float]


class StepCost(Record):
    """The cost and energy of a step.

    `step_usd` is None if the price of a device is unknown, `energy` if no data sheet states its power.
    `reliability` is that of the cluster with the checkpoints of the job; None if the job describes no
    checkpoints. The time of the step is an amount, too, so that the time of a run depends on the same
    factors.
    """

    step_s: Amount
    step_tokens: float
    num_devices: int
    price: Price | None
    price_usd_per_hour: Amount | None  # of one device
    step_usd: Amount | None
    energy: Energy | None
    reliability: Reliability | None = None

    def per_many_tokens(self, of_step: Amount) -> Amount:
        """Convert an amount per step to an amount per 1e12 tokens."""
        return of_step * (MANY_TOKENS / self.step_tokens)

    @property
    def many_tokens_usd(self) -> Amount | None:
        """Return the dollars of 1e12 tokens."""
        return None if self.step_usd is None else self.per_many_tokens(self.step_usd)

    @property
    def many_tokens_kwh(self) -> Amount | None:
        """Return the kilowatt-hours of 1e12 tokens, including cooling and power conversion."""
        return None if self.energy is None else self.per_many_tokens(self.energy.step_j) * (1 / KWH_J)


def step_cost(
    job: Job,
    step_s: Amount,
    timeline: Timeline,
    priced: Priced,
    whole: Mapping[str, Factor],
    *,
    energy: bool = True,
) -> StepCost:
    """Return the cost and energy of one step.

    Parameters
    ----------
    step_s : seconds of the step, including jitter
    whole : factors of the whole step
    energy : whether to compute the energy

    Returns
    -------
    StepCost
        Amounts depend on the factors of the step and on `price[...]`, `power_...[DEVICE]`,
        `node_power[CLUSTER]` and `pue[CLUSTER]`. Factors of the same name in two predictions cancel in
        their ratio.
    """
    cluster = job.cluster
    described = described_checkpoint(job, step_s.value, timeline, priced)
    hourly = None if cluster.price is None else _hourly(cluster.price, cluster)
    return StepCost(
        step_s=step_s,
        step_tokens=job.step_tokens,
        num_devices=cluster.num_devices,
        price=cluster.price,
        price_usd_per_hour=hourly,
        step_usd=None if hourly is None else step_s * hourly * (cluster.num_devices / HOUR_S),
        energy=None
        if not energy or cluster.node.device.board_power_w is None or cluster.has_mixed_devices
        else _energy(cluster, job.site, step_s, *_of_device(job, step_s, timeline, priced, whole)),
        reliability=None if described is None else described.reliability,
    )


def _of_device(
    job: Job, step_s: Amount, timeline: Timeline, priced: Priced, whole: Mapping[str, Factor]
) -> tuple[Amount, dict[str, float]]:
    """Return the joules of a device, and how busy it is, with the time in which it waits for data."""
    cluster = job.cluster
    joules, busy = device_energy(timeline, priced, cluster, job.site, whole)
    if job.loader is None and job.plan.peers == 1:
        return joules, busy
    own_s = timeline.step_time_s * prod(factor.ratio for factor in whole.values())
    own = amount_of(own_s, sensitivities(timeline, priced, whole))
    device, share = cluster.node.device, own_s / step_s.value
    watts = Amount(drawn_w(WAITING, device, job.site)).hanging_on(
        f"power_{WAITING}[{device.name}]", device.power.waiting.log_sigma_factor
    )
    joules += (step_s + own * -1.0) * watts
    busy = {name: part * share for name, part in busy.items()}
    busy[WAITING] = busy.get(WAITING, 0.0) + 1 - share
    return joules, dict(sorted(busy.items(), key=lambda pair: (-pair[1], pair[0])))


def described_checkpoint(
    job: Job, step_s: Number, timeline: Timeline, priced: Priced
) -> "CheckpointCost | None":
    """Return the cost of the checkpoints that a job describes; None if it describes none."""
    if job.checkpoint is None:
        return None
    from flopcast.economics.checkpoint_cost import checkpoint_cost
    from flopcast.economics.checkpoints import SaveRates

    rates = SaveRates.of(priced.levels)
    return checkpoint_cost(job, job.checkpoint, priced.programs, step_s, update_s(timeline, priced), rates)


def update_s(timeline: Timeline, priced: Priced) -> Number:
    """Return the seconds of the optimizer's update on the busiest stage.

    Only time that no other work hides counts. Checkpoints need it, because states must not be copied while
    they change.
    """
    components = {item.component for item in priced.programs.update}
    return sum(
        each.path_s
        for each in timeline.bottleneck_attribution
        if each.item is not None and each.item.component in components
    )


def _hourly(price: Price, cluster: Cluster) -> Amount:
    """Return the dollars of a device per hour; a user's own price has its own factor for each cluster."""
    name = f"price[{cluster.name}]" if price.terms == "own" else f"price[{price.name}]"
    fixed = Amount(price.device_usd_per_hour)
    return fixed.hanging_on(name, price.log_sigma_factor) if price.log_sigma_factor else fixed


def _energy(
    cluster: Cluster, site: Site, step_s: Amount, device_j: Amount, busy: dict[str, float]
) -> Energy:
    """Return the joules of the building, given those of a device."""
    device, facility = cluster.node.device, cluster.facility
    beside_w = Amount(facility.node_overhead_fraction * (device.board_power_w or 0.0)).hanging_on(
        f"node_power[{cluster.name}]", facility.node_overhead_log_sigma_factor
    )
    idle_w = Amount(drawn_w("idle", device, site)).hanging_on(
        f"power_idle[{device.name}]", device.power.idle.log_sigma_factor
    )
    building = Amount(facility.power_usage_effectiveness_ratio * cluster.num_devices).hanging_on(
        f"pue[{cluster.name}]", facility.power_usage_effectiveness_log_sigma_factor
    )
    return Energy(
        step_j=(device_j + beside_w * step_s) * building,
        device_power_w=device_j * step_s.inverse,
        stopped_w=(idle_w + beside_w) * building,
        busy=busy,
    )
