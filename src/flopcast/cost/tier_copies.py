"""The times of copies between memories, and of updates on the host.

Answers: how fast is a link when every device of a node uses it, and how fast does a host update?
Elsewhere: which copies there are (workload/offload.py), kernels and messages (price.py).

All devices of a node copy at the same time, so each device gets an equal share of the link to the host, the
memory of the host, the drives and the file system.

Software copies and updates more slowly than the hardware allows, by constants that were fitted on whole
runs (tier_constants.py).
"""

import math
from collections.abc import Sequence

import numpy as np

from flopcast.cost.factors import Factor
from flopcast.cost.item_prices import ItemPrice
from flopcast.cost.pricing import PricedItem, Pricing
from flopcast.cost.tier_constants import (
    HOST_UPDATES,
    INTERLEAVED_ON_DEVICE,
    INTERLEAVED_ON_HOST,
    LOG_SIGMAS,
    STATE_COPIES,
)
from flopcast.dtypes import ZERO, Floats
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, StorageTraffic, TierCopy
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import storage_of
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.units import Number

DEVICE_UPDATE_SHARE = 0.5  # of what it replaces, between hidden copies and serial ones: an estimate
PINNED_LOG_SIGMA, PAGEABLE_LOG_SIGMA, STORAGE_LOG_SIGMA = 0.15, 0.2, 0.25
UPDATE_LOG_SIGMA = 0.1


def described_storage(cluster: Cluster, tier: str) -> Storage:
    """Return the storage that a placement names; rules have checked that there is one."""
    found = storage_of(cluster, tier)
    if found is None:
        raise ValueError(f"the cluster describes no {tier}")
    return found


def host_memory(cluster: Cluster) -> HostMemory:
    """Return the memory of a node; rules have checked that it is described."""
    if cluster.node.memory is None:
        raise ValueError("the cluster describes no memory of its nodes")
    return cluster.node.memory


def link_bytes_per_s(cluster: Cluster) -> float:
    """Return the share that one device has of its link to the host."""
    return cluster.node.device.host_bytes_per_s / host_memory(cluster).devices_per_link


def device_rate(cluster: Cluster, pinned: bool, link_fraction: Number = 1.0) -> float:
    """Return bytes per second between one device and its host while all devices of the node copy.

    With pinned memory, the software reaches `link_fraction` of the link.
    """
    memory, node = host_memory(cluster), cluster.node
    link = link_bytes_per_s(cluster)
    alone = link * link_fraction if pinned else min(link, memory.pageable_bytes_per_s)
    return min(alone, memory.bytes_per_s / node.devices)


def storage_rates(cluster: Cluster, tier: str) -> tuple[float, float]:
    """Return the bytes per second that one device reads and writes while all devices do.

    Drives and peers are shared by the devices of a node, a file system by all nodes of the job.
    """
    storage, node = described_storage(cluster, tier), cluster.node
    sharers = cluster.num_devices if tier == "file_system" else node.devices
    limit = np.inf if storage.node_bytes_per_s is None else storage.node_bytes_per_s / node.devices
    read, write = storage.read_bytes_per_s / sharers, storage.write_bytes_per_s / sharers
    return min(read, limit), min(write, limit)


def update_rate(memory: HostMemory, time_ratio: Number = 1.0) -> float:
    """Return the bytes of states and gradients per second that all ranks of a node process together.

    One rank is as fast as four ranks, because its update runs on all processors of the node. `time_ratio`
    is the constant `host_updates`. A measured rate needs no such constant.

    >>> update_rate(HostMemory(capacity_bytes=1e12, bytes_per_s=200e9), 2.0) / 1e9
    100.0
    """
    return memory.optimizer_bytes_per_s or memory.bytes_per_s / time_ratio


def interleaved_ratio(stride: int, on_host: Number = 1.0, on_device: Number = 1.0) -> float:
    """Return the time of an update with one in `stride` subgroups on the device, divided by the time of an
    update on the host.

    `on_host` is a constant: the host needs less than its usual time for the rest if it does not wait
    between subgroups. A subgroup on the device takes half of the time that it would take on the host, times
    `on_device`, because its states are copied to the device and back.

    >>> [interleaved_ratio(stride) for stride in (0, 2, 4)]
    [1.0, 0.75, 0.875]
    """
    if stride < 2:
        return 1.0
    return (1 - 1 / stride) * on_host + DEVICE_UPDATE_SHARE * on_device / stride


def price_copies(items: Sequence[Item], state: Pricing) -> list[PricedItem]:
    """Price copies and updates on the host, each with the factor of its link, memory or storage."""
    return [_priced(item.work, state) for item in items if isinstance(item.work, TierCopy | HostUpdate)]


class _Part(Record, eq=False, kw_only=False):
    """Seconds with the factors in them, and these factors."""

    alone_s: Floats
    factors: tuple[Factor, ...]


def _part(alone_s: Floats, *factors: Factor) -> _Part:
    return _Part(alone_s * math.prod(factor.ratio for factor in factors), factors)


def _priced(work: TierCopy | HostUpdate, state: Pricing) -> PricedItem:
    if isinstance(work, TierCopy):
        return _longest([_copy(work, state)])
    return _longest(_update(work, state))


def _copy(work: TierCopy, state: Pricing) -> _Part:
    """Return the seconds of a copy."""
    cluster = state.cluster
    if work.link in ("to_device", "to_host"):
        return _host_copy(work, state)
    read, write = storage_rates(cluster, work.tier)
    latency_s = np.where(work.size_bytes > 0, described_storage(cluster, work.tier).latency_s, 0.0)
    seconds = work.size_bytes / (read if work.link.endswith("read") else write) + latency_s
    return _part(seconds, _of_storage(work.tier, state))


def _host_copy(work: TierCopy, state: Pricing) -> _Part:
    """Return the seconds of a copy between a device and its host; its share of the memory may limit it."""
    cluster = state.cluster
    kind = "" if work.pinned else "_pageable"
    sigma = PINNED_LOG_SIGMA if work.pinned else PAGEABLE_LOG_SIGMA
    link = state.factors.get(f"host_link{kind}[{cluster.node.device.name}]", sigma)
    if not work.pinned or work.link_fraction is not None:
        return _part(work.size_bytes / device_rate(cluster, work.pinned, work.link_fraction or 1.0), link)
    copies = state.factors.get(STATE_COPIES, LOG_SIGMAS[STATE_COPIES])
    rate = device_rate(cluster, work.pinned, 1 / copies.ratio)
    if rate < link_bytes_per_s(cluster) / copies.ratio:
        return _part(work.size_bytes / rate, link)
    return _part(work.size_bytes / link_bytes_per_s(cluster), link, copies)


def _of_storage(tier: str, state: Pricing) -> Factor:
    return state.factors.get(f"storage[{tier} of {state.cluster.name}]", STORAGE_LOG_SIGMA)


def _update(work: HostUpdate, state: Pricing) -> list[_Part]:
    """Return the seconds of an update by what may limit it: host, storage or link; all run together."""
    copies = [_copy(copy, state) for copy in work.beside]
    storage = [
        _part(_traffic_s(traffic, state.cluster), _of_storage(traffic.tier, state))
        for traffic in work.storage
    ]
    return [_on_host(work, state), *storage, *copies]


def _on_host(work: HostUpdate, state: Pricing) -> _Part:
    """Return the seconds of the host's part of an update.

    The uncertainty of an interleaved update is that of the part on the host, which is the larger part.
    """
    cluster, memory = state.cluster, host_memory(state.cluster)
    factors = [state.factors.get(f"host_update[{cluster.node.host.name}]", UPDATE_LOG_SIGMA)]
    if memory.optimizer_bytes_per_s is None:
        factors.append(state.factors.get(HOST_UPDATES, LOG_SIGMAS[HOST_UPDATES]))
    seconds = work.moved_bytes * cluster.node.devices / update_rate(memory)
    if work.stride >= 2:
        host, device = (
            state.factors.get(name, LOG_SIGMAS[name])
            for name in (INTERLEAVED_ON_HOST, INTERLEAVED_ON_DEVICE)
        )
        seconds = seconds * interleaved_ratio(work.stride, host.ratio, device.ratio) / host.ratio
        factors.append(host)
    return _part(seconds, *factors)


def _traffic_s(traffic: StorageTraffic, cluster: Cluster) -> Floats:
    """Return the seconds of reading and writing; drives do one at a time."""
    read, write = storage_rates(cluster, traffic.tier)
    return traffic.read_bytes / read + traffic.written_bytes / write


def _longest(parts: Sequence[_Part]) -> PricedItem:
    """Return the price of work that takes the longest of some parts, each with factors of its own."""
    used = {factor.name: factor for part in parts for factor in part.factors}
    longest = np.maximum.reduce(np.broadcast_arrays(*(part.alone_s for part in parts)))
    if len(parts) == 1:
        price = ItemPrice(alone_s=longest, host_s=ZERO, wholly=tuple(used))
        return PricedItem(price, tuple(used.values()))
    limits: dict[str, np.ndarray] = {}
    for part in parts:
        held = np.asarray((part.alone_s >= longest).any(axis=-1, keepdims=True))
        for factor in part.factors:
            limits[factor.name] = limits.get(factor.name, False) | held
    price = ItemPrice(alone_s=longest, host_s=ZERO, wholly=(), partly=limits)
    return PricedItem(price, tuple(used.values()))
