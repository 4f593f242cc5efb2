"""The exchange of peers: the bytes that they send, and the time that it adds to the mean step.

Answers: how many bytes does a peer send and receive in a round, how long does that take, and which part of
it does training wait for?
Elsewhere: the settings of a round (spec/outer.py), the memory of its states (memory/outer.py), the inner
step (timeline/step.py).

All devices of a peer send their part of its values at the same time, over the last tier of the cluster. A
ring sends and receives at the same time; with an object store, peers download after all peers have
uploaded. The outer update reads and writes its states in device memory, or copies them from the host and
back. The time to select values for `topk`, and the work of a coordinator, are not counted.
"""

import numpy as np

from flopcast.cost.crossed_links import node_of_ranks
from flopcast.cost.factors import Factor, FactorBook
from flopcast.cost.tier_copies import device_rate
from flopcast.dtypes import Floats, constant
from flopcast.records import Record, replace
from flopcast.spec.job import Job
from flopcast.spec.node_groups import as_cluster
from flopcast.spec.offload import OUTER, fraction_in
from flopcast.spec.optimizers import FP32_BYTES
from flopcast.spec.plan import Plans, one_plan
from flopcast.spec.slow_parts import LINK, PEER_LINK
from flopcast.timeline.uncertainty import Sensitivity
from flopcast.units import Number

OUTER_ROUND = "outer_round"  # the component of a breakdown
LINK_LOG_SIGMA = 0.3  # an estimate: peers share the links between them with other traffic
BYTE_BITS = 8


class OuterRound(Record):
    """One round: `inner_steps` steps of every peer, and the exchange after them.

    Attributes
    ----------
    inner_step_s : seconds of an inner step, including jitter and waits for samples
    compute_s : seconds of all inner steps, with the wait for the end of a fixed window
    exchange_s, update_s : seconds of the exchange, and of the outer update
    exposed_s : seconds of both for which training waits
    sent_bytes, received_bytes : of one peer
    compression_ratio : fp32 bytes of all trained parameters divided by the bytes that a peer sends of its
        values
    factor : uncertainty of the exchange
    """

    peers: int
    inner_steps: int
    inner_step_s: Number
    compute_s: Number
    exchange_s: Number
    update_s: Number
    exposed_s: Number
    sent_bytes: Number
    received_bytes: Number
    compression_ratio: Number
    factor: Factor

    @property
    def round_s(self) -> Number:
        """Return the seconds from one exchange to the next."""
        return self.compute_s + self.exposed_s

    @property
    def step_time_s(self) -> Number:
        """Return the mean step: an inner step, and its part of the round."""
        return self.round_s / self.inner_steps

    @property
    def utilisation(self) -> Number:
        """Return the fraction of a round in which peers train, with the wait for the end of a window."""
        return self.compute_s / self.round_s

    @property
    def _dependence(self) -> tuple[float, float]:
        """Return the shares of inner steps and of the exchange in the mean step, by their derivatives."""
        inner_s = self.inner_step_s * self.inner_steps
        inner_s = inner_s if inner_s >= self.compute_s else 0.0
        waited_s = self.exposed_s - self.update_s
        if waited_s <= 0:
            return inner_s / self.round_s, 0.0
        hidden_s = self.exchange_s - waited_s
        return (inner_s - hidden_s) / self.round_s, self.exchange_s / self.round_s

    def factors(self, of_inner: tuple[Sensitivity, ...]) -> tuple[Sensitivity, ...]:
        """Return the factors of the mean step from those of an inner step, the most uncertain first."""
        inner, exchange = self._dependence
        sigma = self.factor.log_sigma_factor
        link = Sensitivity(name=self.factor.name, log_sigma_factor=sigma, share=exchange)
        found = [replace(one, share=one.share * inner) for one in of_inner] + [link] * (exchange > 0)
        return tuple(sorted(found, key=lambda one: (-one.share * one.log_sigma_factor, one.name)))

    def breakdown(self, of_inner: dict[str, float]) -> dict[str, float]:
        """Return the breakdown of the mean step, given the breakdown of an inner step."""
        found = of_inner | {OUTER_ROUND: self.step_time_s - self.inner_step_s}
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def outer_round(job: Job, factors: FactorBook, inner_step_s: Number) -> OuterRound | None:
    """Return the round of a job with these inner steps; None if it has one peer."""
    plan = job.plan
    if plan.peers == 1:
        return None
    payload_bytes = job.model.trained_parameters() * plan.outer.sent_bits / BYTE_BITS
    sent_bytes, received_bytes = plan.outer.traffic_bytes(payload_bytes, plan.peers)
    factor = factors.get(f"{OUTER_ROUND}[{job.cluster.name}]", LINK_LOG_SIGMA)
    exchange_s = factor.ratio * _exchange_s(job, sent_bytes, received_bytes)
    update_s = float(_update_s(job, one_plan(plan))[0])
    waited_s = plan.outer.exposed_s(exchange_s, plan.inner_steps, np.array([inner_step_s]))
    return OuterRound(
        peers=plan.peers,
        inner_steps=plan.inner_steps,
        inner_step_s=inner_step_s,
        compute_s=max(inner_step_s * plan.inner_steps, plan.outer.window_s),
        exchange_s=exchange_s,
        update_s=update_s,
        exposed_s=float(waited_s[0]) + update_s,
        sent_bytes=sent_bytes,
        received_bytes=received_bytes,
        compression_ratio=FP32_BYTES * BYTE_BITS / plan.outer.sent_bits,
        factor=factor,
    )


def with_outer_round(step_s: Floats, job: Job, plans: Plans, factors: FactorBook) -> Floats:
    """Return the mean steps of many plans with their part of the outer round; both arrays (plans,).

    A lower bound for the inner steps becomes a lower bound for the mean steps.
    """
    plan = plans.structure
    one = outer_round(job.model_copy(update={"plan": plan}), factors, 1.0)
    if one is None:
        return step_s
    compute_s = np.maximum(step_s * plan.inner_steps, plan.outer.window_s)
    waited_s = plan.outer.exposed_s(one.exchange_s, plan.inner_steps, step_s)
    mean_s: Floats = (compute_s + waited_s + _update_s(job, plans)) / plan.inner_steps
    return mean_s


def _exchange_s(job: Job, sent_bytes: Number, received_bytes: Number) -> Number:
    """Return the seconds in which the slowest peer sends and receives, over all fragments of a round."""
    plan, cluster = job.plan, job.cluster
    tier, outer = cluster.tiers[-1], plan.outer
    reached = min(link_fractions(job)) * tier.reached_fraction
    devices = cluster.num_devices / plan.peers * reached
    sending_s = sent_bytes / (tier.bytes_per_s * devices)
    receiving_s = received_bytes / ((tier.receive_bytes_per_s or tier.bytes_per_s) * devices)
    return outer.pattern.seconds(sending_s, receiving_s, outer.fragments * tier.latency_s, plan.peers)


def link_fractions(job: Job) -> tuple[float, ...]:
    """Return the speed of each peer's link to the next peer, relative to the mean link of the cluster.

    The devices of a peer send equal parts at the same time, so the slowest device determines the speed.
    """
    tier, devices = job.cluster.tiers[-1], job.cluster.num_devices
    each = np.ones((job.plan.peers, max(devices // job.plan.peers, 1)))
    if (links := tier.links) is not None:
        nodes = node_of_ranks(devices, job.cluster).reshape(each.shape)
        relative = links.bytes_per_s[nodes, np.roll(nodes, -1, axis=0)] / links.mean_bytes_per_s
        each = np.where(np.isfinite(relative), relative, each)
    slowest = each.min(axis=1)
    for part in job.site.slow:
        if part.kind == PEER_LINK or part.kind in (LINK, tier.name):
            peer = part.index if part.kind == PEER_LINK else part.index // each.shape[1]
            slowest[peer] = min(slowest[peer], part.speed_fraction)
    return tuple(slowest.tolist())


def _update_s(job: Job, plans: Plans) -> Floats:
    """Return the seconds of the outer update of a round, (plans,), on the slowest group of nodes.

    States are read and written once.
    """
    plan = plans.structure
    shares = plans.tensor_parallel * plans.pipeline_parallel * plans.state_shards
    states_bytes = plan.outer.state_bytes + FP32_BYTES  # and the pseudo-gradients
    moved_bytes = 2 * states_bytes * constant(job.model.trained_parameters()) / shares
    outside = fraction_in(plan.offload, OUTER)
    each_s = 0.0
    for group in job.cluster.groups:
        own_s = (1 - outside) / group.node.device.memory_bytes_per_s
        if outside:
            own_s += outside / device_rate(as_cluster(job.cluster, group), pinned=True)
        each_s = max(each_s, own_s)
    update_s: Floats = (moved_bytes * each_s)[:, 0]
    return update_s
