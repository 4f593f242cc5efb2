"""Work outside the device: copies between memories, and updates on the host.

Answers: how many bytes does a rank copy over which link, and how many parameters does its host update?
Elsewhere: where states are placed (spec/offload.py), when copies run (workload/offload.py), their seconds
(cost/tier_copies.py).
"""

from dataclasses import dataclass, field
from typing import Literal

from flopcast.dtypes import ZERO, Counts, Floats

Link = Literal["to_device", "to_host", "disk_read", "disk_write"]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TierCopy:
    """Bytes that every rank copies at the same time over one link.

    `link` is "to_device" or "to_host" between a device and its host, and "disk_read" or "disk_write"
    between the host and the storage `tier`. `pinned` says whether the memory on the host is pinned.
    """

    link: Link
    tier: str
    size_bytes: Floats
    pinned: bool = True


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class HostUpdate:
    """The optimizer's update of the parameters of every rank, on the processors of its node.

    `moved_bytes` are those of the states that pass through the memory of the host, for one rank.
    `storage_bytes` are read from and written to each storage meanwhile, in both directions together.
    With a `stride`, one subgroup in so many is updated on the device.
    """

    parameters: Counts
    moved_bytes: Floats
    stride: int = 0
    nvme_bytes: Floats = field(default_factory=lambda: ZERO)
    file_system_bytes: Floats = field(default_factory=lambda: ZERO)
