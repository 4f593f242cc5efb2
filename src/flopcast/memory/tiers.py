"""Memory outside the devices: what the host, the drives and the file system hold of a plan's states.

Answers: how many bytes of which state does a node keep in each tier, and does the tier hold them?
Elsewhere: placements (spec/offload.py), the memory of devices (peak.py), copies (workload/offload.py).

Each rank of a node is counted as one of the fullest stage. Beside states, a host holds the buffers through
which states on storage pass (`stack.offload.buffer_bytes`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import ZERO, Flags, Floats
from flopcast.memory.batch_peaks import CategoryBytes, fullest_bytes
from flopcast.memory.outside import outside_of_chunks
from flopcast.memory.sharded import all_parameter_shards, trained_shard
from flopcast.memory.verdict import SIGMAS, Verdict, verdict
from flopcast.spec.cluster import Cluster
from flopcast.spec.offload import TIERS, fraction_in
from flopcast.spec.optimizers import FP32_BYTES
from flopcast.spec.orders import filled_after
from flopcast.workload.optimizer import optimizer_state_bytes
from flopcast.workload.program import Programs

OUTSIDE_LOG_SIGMA = 0.1  # an estimate: buffers and caches of the software that no field counts
OUTSIDE_HIGH_RATIO = math.exp(SIGMAS * OUTSIDE_LOG_SIGMA)


@dataclass(frozen=True, kw_only=True, slots=True)
class TierMemory:
    """Bytes of one tier: of a node's memory and drives, or of the whole file system.

    `by_category` adds up to `expected_bytes`; `low_bytes` and `high_bytes` are a 90 % interval.
    """

    tier: str
    by_category: dict[str, float]
    expected_bytes: float
    low_bytes: float
    high_bytes: float
    capacity_bytes: float

    @property
    def verdict(self) -> Verdict:
        """Return "fits", "tight" or "does not fit"."""
        return verdict(self.expected_bytes, self.high_bytes, self.capacity_bytes)


def outside_bytes(programs: Programs, tier: str) -> dict[str, Floats]:
    """Return what one rank keeps in a tier, by category; (plans, stage classes)."""
    plan, stack = programs.plans.structure, programs.stack
    shard = trained_shard(programs)
    shares = {kind: fraction_in(plan.offload, kind, tier) for kind in ("optimizer", "gradients")}
    found = {
        "optimizer_states": optimizer_state_bytes(programs) * shares["optimizer"],
        "gradients": shard * FP32_BYTES * shares["gradients"],
        "parameters": all_parameter_shards(programs) * fraction_in(plan.offload, "parameters", tier),
    }
    placed = fraction_in(plan.offload, "activations")
    if share := fraction_in(plan.offload, "activations", tier):
        found["activations"] = _most_activations(programs) * (share / placed)
    if tier == "host" and any(one.tier != "host" for one in plan.offload):
        found["buffers"] = np.full_like(shard, stack.offload.buffer_bytes)
    return {name: size for name, size in found.items() if size.any()}


def _most_activations(programs: Programs) -> Floats:
    """Return the most bytes of activations that a rank keeps outside its device, (plans, stage classes)."""
    plans, none = programs.plans, {"": ZERO[:, :, None]}
    flying = {"activations": outside_of_chunks(programs)}
    shape = CategoryBytes.of(programs).shape
    weights = CategoryBytes(in_flight=flying, waiting=none, at_work=none, shape=shape)
    micro_batches = plans.num_micro_batches if programs.workload.rows else filled_after(plans)
    return fullest_bytes(programs, weights, np.arange(shape[0]), micro_batches[:, 0])


def _capacity_and_ranks(tier: str, cluster: Cluster) -> tuple[float, int]:
    """Return the bytes of a tier, and how many ranks share it; a tier that is not described holds all."""
    node = cluster.node
    if tier == "file_system":
        return (
            cluster.file_system.capacity_bytes if cluster.file_system else math.inf
        ), cluster.num_devices
    memory = node.memory if tier == "host" else node.nvme
    return (memory.capacity_bytes if memory else math.inf), node.devices


def tier_memories(programs: Programs, cluster: Cluster) -> Iterator[TierMemory]:
    """Yield the memory of every tier that the first plan uses."""
    for tier in TIERS:
        sizes = outside_bytes(programs, tier)
        if not sizes:
            continue
        capacity_bytes, ranks = _capacity_and_ranks(tier, cluster)
        fullest = int(np.argmax(sum(sizes.values(), ZERO)[0]))
        by_category = {name: float(size[0, fullest]) * ranks for name, size in sizes.items()}
        expected_bytes = sum(by_category.values())
        yield TierMemory(
            tier=tier,
            by_category=by_category,
            expected_bytes=expected_bytes,
            low_bytes=expected_bytes / OUTSIDE_HIGH_RATIO,
            high_bytes=expected_bytes * OUTSIDE_HIGH_RATIO,
            capacity_bytes=capacity_bytes,
        )


def outside_ratio(programs: Programs, cluster: Cluster) -> Floats:
    """Return the high end of what the fullest tier holds over its capacity, (plans, 1); 0 for no tier."""
    most_ratio: Floats = np.zeros((programs.plans.size, 1))
    for tier in TIERS if programs.plans.structure.offload else ():
        capacity_bytes, ranks = _capacity_and_ranks(tier, cluster)
        held = sum(outside_bytes(programs, tier).values(), ZERO).max(axis=1, keepdims=True)
        ratio = held * ranks * OUTSIDE_HIGH_RATIO / capacity_bytes
        most_ratio = np.maximum(most_ratio, ratio)
    return most_ratio


def tiers_hold(programs: Programs, cluster: Cluster) -> Flags:
    """Return whether every tier is expected to hold what a plan places there, tightly or not; (plans,)."""
    return np.asarray(outside_ratio(programs, cluster)[:, 0] <= OUTSIDE_HIGH_RATIO)
