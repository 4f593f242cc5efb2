"""Memory outside the devices that an engine uses: host memory and the drives of a node.

Answers: how many bytes of weights are in each memory of a node, and how many cached tokens fit?
Elsewhere: the memory of a device (memory.py), what is stored outside the devices (spec/streaming.py).
"""

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.records import Record
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import fractions_of

UNLIMITED = 10**12  # tokens
NAMES = {"host": "host memory", "nvme": "drives"}


class TierMemory(Record):
    """The bytes of all devices of one node in one memory outside the devices.

    `token_bytes` is the number of bytes of one token of each instance on the node.
    """

    name: str  # "host" or "nvme"
    capacity_bytes: float
    weight_bytes: float
    activation_bytes: float = 0.0
    token_bytes: float = 0.0

    @property
    def room_bytes(self) -> float:
        """Return the bytes that are left for keys and values; below 0 if the weights do not fit."""
        return self.capacity_bytes - self.weight_bytes - self.activation_bytes

    @property
    def cache_tokens(self) -> int:
        """Return the number of tokens of one instance for which this memory has room."""
        if self.room_bytes < 0:
            return 0
        return int(self.room_bytes / self.token_bytes) if self.token_bytes else UNLIMITED

    def parts(self, tokens: int) -> dict[str, float]:
        """Return the bytes in the memory by category, if each instance caches this many tokens."""
        caches = tokens * self.token_bytes
        named = {"weights": self.weight_bytes, "hidden states": self.activation_bytes, "KV cache": caches}
        return {name: size for name, size in named.items() if size} | {"free": self.room_bytes - caches}


def tier_memories(
    job: ServingJob, weight_bytes: float, token_bytes: float, cache_fraction: float
) -> tuple[TierMemory, ...]:
    """Return the memories of a node in which a job keeps anything.

    A memory that the cluster does not describe has a capacity of 0 (checks_tiers.py refuses it).

    Parameters
    ----------
    weight_bytes, token_bytes : bytes of all blocks, and of one token in all blocks, on one device
    cache_fraction : of keys and values outside the devices
    """
    plan, node = job.plan, job.cluster.node
    if not plan.streams:
        return ()
    placed = [fractions_of(each) for each in (plan.weights_on, plan.kv_on, plan.activations_on)]
    capacities = {
        "host": 0.0 if node.memory is None else node.memory.capacity_bytes,
        "nvme": 0.0 if node.nvme is None else node.nvme.capacity_bytes,
    }
    tokens = float(plan.max_tokens or job.engine.max_tokens)
    hidden = tokens * job.model.hidden * ELEMENT_BYTES["bf16"]
    weights, caches, activations = placed
    if cache_fraction > sum(caches.values()):
        caches = {"host": cache_fraction}  # of the layers that the host computes
    return tuple(
        TierMemory(
            name=name,
            capacity_bytes=capacity,
            weight_bytes=job.node_devices * weights.get(name, 0.0) * weight_bytes,
            activation_bytes=job.node_devices * activations.get(name, 0.0) * hidden,
            token_bytes=job.node_devices * caches.get(name, 0.0) * token_bytes,
        )
        for name, capacity in capacities.items()
        if name in weights or name in caches or name in activations
    )
