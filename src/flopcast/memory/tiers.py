"""Memory outside the devices: the states of a plan on the host, on drives and in the file system.

Answers: how many bytes of which state does a node keep in each tier, and does the tier hold them?
Elsewhere: placements (spec/offload.py), the memory of devices (peak.py), copies (workload/offload.py).

Each rank of a node counts as a rank of the fullest stage. In addition to states, a host holds the buffers
through which states on storage are copied (`stack.offload.buffer_bytes`).
"""

import math
from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats, Integers, any_of
from flopcast.memory.batch_peaks import CategoryBytes, fullest_bytes
from flopcast.memory.categories import sizes
from flopcast.memory.outer import all_outer_states, pseudo_gradients
from flopcast.memory.outside import outside_of_chunks, placements_of
from flopcast.memory.sharded import all_parameter_shards, trained_shard
from flopcast.memory.verdict import SIGMAS, Verdict, verdict
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import tier_of
from flopcast.spec.node_groups import as_cluster
from flopcast.spec.offload import OUTER, PEER, TIERS, fraction_in
from flopcast.spec.optimizers import FP32_BYTES
from flopcast.spec.orders import filled_after
from flopcast.spec.rows import of_rows
from flopcast.units import show_memory
from flopcast.workload.host_updates import buffers_gradients
from flopcast.workload.optimizer import optimizer_state_bytes
from flopcast.workload.program import Programs

OUTSIDE_LOG_SIGMA = 0.1  # an estimate: buffers and caches of the software that no field counts
OUTSIDE_HIGH_RATIO = math.exp(SIGMAS * OUTSIDE_LOG_SIGMA)
TIER_LABELS = {
    "host": "host memory",
    "nvme": "NVMe drives",
    "file_system": "file system",
    "peer": "memory of peer devices",
}
TIER_NAMES = {
    "host": "host",
    "nvme": "NVMe",
    "file_system": "files",
    "peer": "peers",
}  # at the start of a line


class TierMemory(Record):
    """Bytes of one tier: the memory or the drives of a node, or the whole file system.

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

    @property
    def label(self) -> str:
        """Return the name of the tier in text."""
        return TIER_LABELS[self.tier]

    @property
    def name(self) -> str:
        """Return the short name of the tier."""
        return TIER_NAMES[self.tier]

    @property
    def owner(self) -> str:
        """Return the owner of one such tier: a node, or the cluster."""
        return "the cluster" if self.tier == "file_system" else "a node"

    @property
    def need(self) -> str:
        """Return the expected need, its 90 % interval and the capacity, as text."""
        sizes_bytes = self.expected_bytes, self.low_bytes, self.high_bytes, self.capacity_bytes
        expected, low, high, there = map(show_memory, sizes_bytes)
        return f"{expected} expected (90 %: {low} to {high}) of {there}, {self.label} of {self.owner}"


def outside_bytes(
    programs: Programs, tier: str, plan: Integers, micro_batches: Counts
) -> dict[str, Floats]:
    """Return the bytes that one rank keeps in a tier, by category; (pairs, stage classes).

    As in peak.py, a pair consists of a plan and the number of micro-batches after which its stages hold
    most memory. If blocks have their own layouts, the result is the sum over the layouts.
    """
    found: dict[str, Floats] = {}
    for one in programs.legs or (programs,):
        for name, size in _of_layout(programs, one, tier, plan, micro_batches).items():
            found[name] = found.get(name, ZERO) + size
    placed = any(each.tier not in ("host", PEER) for each in placements_of(programs))
    if tier == "host" and placed:
        shape = of_rows(trained_shard(programs.legs[0] if programs.legs else programs), plan)
        found["buffers"] = np.full_like(shape, programs.stack.offload.buffer_bytes)
    return {name: size for name, size in found.items() if any_of(size)}


def _of_layout(
    programs: Programs, leg: Programs, tier: str, plan: Integers, micro_batches: Counts
) -> dict[str, Floats]:
    """Return what one rank keeps of the blocks of one layout (`leg`) in a tier, by category."""
    structure = leg.plans.structure
    shard = trained_shard(leg)
    on_host = leg.stack.offload.updates_on == "host"  # otherwise gradients stay for the device's update
    buffers_bytes = ZERO
    if tier == "host" and buffers_gradients(leg.stack, structure):
        buffers_bytes = _pinned_bytes(shard * ELEMENT_BYTES[structure.activations])
    found = {
        "optimizer_states": optimizer_state_bytes(leg) * fraction_in(structure.offload, "optimizer", tier),
        "gradients": shard * FP32_BYTES * fraction_in(structure.offload, "gradients", tier) * on_host
        + buffers_bytes,
        "parameters": all_parameter_shards(leg) * fraction_in(structure.offload, "parameters", tier),
        "outer_states": (all_outer_states(leg) + pseudo_gradients(leg))
        * fraction_in(structure.offload, OUTER, tier),
    }
    found = {name: of_rows(size, plan) for name, size in found.items()}
    placed = fraction_in(structure.offload, "activations")
    if share := fraction_in(structure.offload, "activations", tier):
        found["activations"] = _most_activations(programs, leg, plan, micro_batches) * (share / placed)
    return found


def _pinned_bytes(size_bytes: Floats) -> Floats:
    """Return what PyTorch reserves for one pinned tensor: the next power of two.

    References
    ----------
    `aten/src/ATen/core/CachingHostAllocator.h`. In a log of Deep Optimizer States, a buffer of 20.9 GiB for
    11.2 billion parameters takes 32.7 GiB (lab/offload_runs/zero3.py).
    """
    return np.where(size_bytes > 0, 2.0 ** np.ceil(np.log2(np.maximum(size_bytes, 1.0))), 0.0)


def _most_activations(programs: Programs, leg: Programs, plan: Integers, micro_batches: Counts) -> Floats:
    """Return the most bytes of a layout's activations that a rank keeps outside, (pairs, stage classes)."""
    none = {"": ZERO[:, :, None]}
    flying = sizes({"activations": outside_of_chunks}, leg)
    shape = CategoryBytes.of(programs).shape
    weights = CategoryBytes(in_flight=flying, waiting=none, at_work=none, shape=shape)
    return fullest_bytes(programs, weights, plan, micro_batches)


def _each_plan(programs: Programs) -> tuple[Integers, Counts]:
    """Return the pairs of every plan."""
    plans = programs.plans
    micro_batches = plans.num_micro_batches if programs.workload.rows else filled_after(plans)
    return np.arange(plans.size), micro_batches[:, 0]


def _capacity_and_ranks(tier: str, cluster: Cluster) -> tuple[float, int]:
    """Return the bytes of a tier, and how many ranks share it; a tier that is not described holds all.

    Of several groups of nodes, the one with the smallest memory counts.
    """
    ranks = cluster.num_devices if tier == "file_system" else cluster.node.devices
    memories = [tier_of(as_cluster(cluster, group), tier) for group in cluster.groups]
    return min(memory.capacity_bytes if memory else math.inf for memory in memories), ranks


def tier_memories(programs: Programs, cluster: Cluster) -> Iterator[TierMemory]:
    """Yield the memory of every tier outside the devices that the first plan uses.

    Sizes are those of a node for the host and its drives, and those of the job for a file system. Every
    rank counts as a rank of the fullest stage, so the expectation is an upper estimate for pipelines with
    uneven stages. The interval is that of `OUTSIDE_HIGH_RATIO` in both directions.
    """
    for tier in TIERS if placements_of(programs) else ():
        sizes = outside_bytes(programs, tier, *_each_plan(programs))
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


def outside_ratio(
    programs: Programs, cluster: Cluster, pairs: tuple[Integers, Counts] | None = None
) -> Floats:
    """Return the upper end of the bytes of the fullest tier divided by its capacity, (pairs,); 0 without a
    tier.

    Parameters
    ----------
    pairs : pairs of plans and micro-batches, as for `outside_bytes`; None means every plan with its number
        of micro-batches
    """
    plan, micro_batches = pairs or _each_plan(programs)
    most_ratio: Floats = np.zeros(len(plan))
    for tier in TIERS if placements_of(programs) else ():
        capacity_bytes, ranks = _capacity_and_ranks(tier, cluster)
        held = sum(outside_bytes(programs, tier, plan, micro_batches).values(), ZERO).max(axis=1)
        most_ratio = np.maximum(most_ratio, held * ranks * OUTSIDE_HIGH_RATIO / capacity_bytes)
    return most_ratio


def outside_verdict(ratio: float) -> Verdict:
    """Return the verdict of the fullest tier, from the ratio that `outside_ratio` gives.

    >>> outside_verdict(0.0), outside_verdict(1.1), outside_verdict(1.5)
    ('fits', 'tight', 'does not fit')
    """
    return verdict(ratio / OUTSIDE_HIGH_RATIO, ratio, 1.0)
