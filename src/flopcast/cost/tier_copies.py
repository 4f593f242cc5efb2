"""The seconds of copies between memories, and of updates on the host.

Answers: how fast is a link when every device of a node uses it, and how fast does a host update?
Elsewhere: which copies there are (workload/offload.py), kernels and messages (price.py).

All devices of a node copy at the same time, so each has its share of what they share: of the link to the
host, of the host's memory, of the drives, of the file system.

References
----------
Rates and shares: 162 runs of DeepSpeed with the optimizer on the host, on three machines, and ten with it
on NVMe drives (validation/zero3_offload_runs.csv and headlines.yaml, `zero3_nvme_offload_40b_120b`).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.item_prices import ItemPrice
from flopcast.cost.pricing import PricedItem, Pricing
from flopcast.dtypes import ZERO, Floats
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, StorageTraffic, TierCopy
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import storage_of
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.units import Number

UPDATE_SHARE = 0.43  # of the memory's peak, by the updates of all ranks: 0.35 to 0.52 on three machines
INTERLEAVED_HOST_RATIO, INTERLEAVED_DEVICE_RATIO = 0.72, 0.54
PINNED_LOG_SIGMA, PAGEABLE_LOG_SIGMA, STORAGE_LOG_SIGMA = 0.15, 0.2, 0.25
UPDATE_LOG_SIGMA, GUESSED_UPDATE_LOG_SIGMA = 0.1, 0.3


def described_storage(cluster: Cluster, tier: str) -> Storage:
    """Return the storage that a placement names; rules have seen that there is one."""
    found = storage_of(cluster, tier)
    if found is None:
        raise ValueError(f"the cluster describes no {tier}")
    return found


def host_memory(cluster: Cluster) -> HostMemory:
    """Return the memory of a node; rules have seen that it is described."""
    if cluster.node.memory is None:
        raise ValueError("the cluster describes no memory of its nodes")
    return cluster.node.memory


def device_rate(cluster: Cluster, pinned: bool, link_fraction: Number = 1.0) -> float:
    """Return bytes per second between one device and its host while all devices of the node copy.

    With pinned memory, the software reaches `link_fraction` of the link.
    """
    memory, node = host_memory(cluster), cluster.node
    link = node.device.host_bytes_per_s / memory.devices_per_link
    alone = link * link_fraction if pinned else min(link, memory.pageable_bytes_per_s)
    return min(alone, memory.bytes_per_s / node.devices)


def storage_rates(cluster: Cluster, tier: str) -> tuple[float, float]:
    """Return the bytes per second that one device reads and writes while all of them do.

    Drives are shared by the devices of a node, a file system by all nodes of the job.
    """
    storage, node = described_storage(cluster, tier), cluster.node
    sharers = cluster.num_devices if tier == "file_system" else node.devices
    limit = np.inf if storage.node_bytes_per_s is None else storage.node_bytes_per_s / node.devices
    read, write = storage.read_bytes_per_s / sharers, storage.write_bytes_per_s / sharers
    return min(read, limit), min(write, limit)


def update_rate(memory: HostMemory) -> float:
    """Return the bytes of states and gradients per second that all ranks of a node pass through.

    One rank alone is as fast as four: its update runs on all processors of the node.

    >>> update_rate(HostMemory(capacity_bytes=1e12, bytes_per_s=200e9)) / 1e9
    86.0
    """
    return memory.optimizer_bytes_per_s or UPDATE_SHARE * memory.bytes_per_s


def interleaved_ratio(stride: int) -> float:
    """Return the time of an update of which one subgroup in `stride` runs on the device, over all on the
    host.

    The host needs 0.72 of its time for the rest, because it does not wait between subgroups; a subgroup on
    the device costs 0.54 of what it replaces, because its states are copied there and back. Both were
    fitted together on the interleaved runs.

    >>> [round(interleaved_ratio(stride), 3) for stride in (0, 2, 4)]
    [1.0, 0.63, 0.675]
    """
    if stride < 2:
        return 1.0
    return (1 - 1 / stride) * INTERLEAVED_HOST_RATIO + INTERLEAVED_DEVICE_RATIO / stride


def price_copies(items: Sequence[Item], state: Pricing) -> list[PricedItem]:
    """Price copies and updates on the host, each with the factor of its link, memory or storage."""
    return [_priced(item.work, state) for item in items if isinstance(item.work, TierCopy | HostUpdate)]


def _priced(work: TierCopy | HostUpdate, state: Pricing) -> PricedItem:
    if isinstance(work, TierCopy):
        seconds, name, sigma = _copy_seconds(work, state.cluster)
        return _of_factors({name: (seconds, sigma)}, state)
    return _of_factors(_update_seconds(work, state.cluster), state)


def _copy_seconds(work: TierCopy, cluster: Cluster) -> tuple[Floats, str, float]:
    """Return the seconds of a copy, and the name and sigma of their factor."""
    if work.link in ("to_device", "to_host"):
        kind = "" if work.pinned else "_pageable"
        sigma = PINNED_LOG_SIGMA if work.pinned else PAGEABLE_LOG_SIGMA
        rate = device_rate(cluster, work.pinned, work.link_fraction)
        return work.size_bytes / rate, f"host_link{kind}[{cluster.node.device.name}]", sigma
    read, write = storage_rates(cluster, work.tier)
    latency_s = np.where(work.size_bytes > 0, described_storage(cluster, work.tier).latency_s, 0.0)
    seconds = work.size_bytes / (read if work.link == "disk_read" else write) + latency_s
    return seconds, _storage_factor(work.tier, cluster), STORAGE_LOG_SIGMA


def _storage_factor(tier: str, cluster: Cluster) -> str:
    return f"storage[{tier} of {cluster.name}]"


def _update_seconds(work: HostUpdate, cluster: Cluster) -> dict[str, tuple[Floats, float]]:
    """Return the seconds of an update by what may limit it: host, storage or link; all run together."""
    memory, ranks = host_memory(cluster), cluster.node.devices
    measured = memory.optimizer_bytes_per_s is not None
    each_rate = update_rate(memory) / ranks
    on_host = work.moved_bytes / each_rate * interleaved_ratio(work.stride)
    sigma = UPDATE_LOG_SIGMA if measured else GUESSED_UPDATE_LOG_SIGMA
    found = {f"host_update[{cluster.node.host.name}]": (on_host, sigma)}
    for traffic in work.storage:
        found[_storage_factor(traffic.tier, cluster)] = (_traffic_s(traffic, cluster), STORAGE_LOG_SIGMA)
    for copy in work.beside:
        seconds, name, sigma = _copy_seconds(copy, cluster)
        found[name] = np.maximum(seconds, found.get(name, (ZERO, 0.0))[0]), sigma  # both ways at a time
    return found


def _traffic_s(traffic: StorageTraffic, cluster: Cluster) -> Floats:
    """Return the seconds of reading and writing; drives do one at a time."""
    read, write = storage_rates(cluster, traffic.tier)
    return traffic.read_bytes / read + traffic.written_bytes / write


def _of_factors(parts: dict[str, tuple[Floats, float]], state: Pricing) -> PricedItem:
    """Return the price of work that takes the longest of some parts, each with a factor of its own."""
    factors = {name: state.factors.get(name, sigma) for name, (_, sigma) in parts.items()}
    seconds = {name: part * factors[name].ratio for name, (part, _) in parts.items()}
    longest = np.maximum.reduce(np.broadcast_arrays(*seconds.values()))
    if len(parts) == 1:
        price = ItemPrice(alone_s=longest, host_s=ZERO, wholly=tuple(parts))
        return PricedItem(price, tuple(factors.values()))
    limits = {
        name: np.asarray((part >= longest).any(axis=-1, keepdims=True)) for name, part in seconds.items()
    }
    price = ItemPrice(alone_s=longest, host_s=ZERO, wholly=(), partly=limits)
    return PricedItem(price, tuple(factors.values()))
