"""Work outside the device: copies between memories, and updates on the host.

Answers: how many bytes does a rank copy over which link, and how many parameters does its host update?
Elsewhere: where states are placed (spec/offload.py), when copies run (workload/offload.py), their seconds
(cost/tier_copies.py).
"""

from typing import Literal, get_args

from flopcast.dtypes import Counts, Floats
from flopcast.records import Record
from flopcast.units import Number

Link = Literal["to_device", "to_host", "disk_read", "disk_write", "peer_read", "peer_write"]
LINKS: tuple[Link, ...] = get_args(Link)


class TierCopy(Record, eq=False):
    """Bytes that every rank copies at the same time over one link.

    `link` is "to_device" or "to_host" between a device and its host, "disk_read" or "disk_write" between
    the host and the storage `tier`, and "peer_read" or "peer_write" between a device and its peers.
    `pinned` states whether the memory on the host is pinned; `link_fraction` is the fraction of the link's
    rate that the software reaches with pinned memory; None takes the constant `state_copies`
    (cost/tier_constants.py).
    """

    link: Link
    tier: str
    size_bytes: Floats
    pinned: bool = True
    link_fraction: Number | None = 1.0


class StorageTraffic(Record, eq=False):
    """The bytes that one rank reads from and writes to a storage during its update.

    `tier` is the name of the storage in a plan's placement, "nvme" or "file_system". Both sizes are arrays
    of shape (plans, 1), and reads and writes run at the same time as the update on the host.
    """

    tier: str
    read_bytes: Floats
    written_bytes: Floats


class HostUpdate(Record, eq=False):
    """The optimizer's update of a rank's parameters on the CPUs of its node, concurrently with other ranks.

    `moved_bytes` are the bytes of states and gradients in host memory, for one rank. The bytes of `storage`
    are read and written at the same time, and the copies of `beside` run at the same time. With a `stride`
    of k, every k-th subgroup is updated on the device.
    """

    parameters: Counts
    moved_bytes: Floats
    stride: int = 0
    storage: tuple[StorageTraffic, ...] = ()
    beside: tuple[TierCopy, ...] = ()
