"""Memory outside the devices: the host's, drives of a node, and storage that the whole cluster shares.

Answers: how much does a tier hold, how fast is it, and how many devices share it?
Elsewhere: what a plan places there (offload.py), how long a copy takes (cost/tier_copies.py), what fills
a tier (memory/tiers.py). Rates count one direction.
"""

from pydantic import Field

from flopcast.spec.source import Sources
from flopcast.strict_model import StrictModel


class HostMemory(StrictModel):
    """The main memory of a node, which all of its devices share.

    Attributes
    ----------
    capacity_bytes : float
        Memory of a node.
    bytes_per_s : float
        Peak bandwidth of the memory of a node, over all its channels and sockets.
    optimizer_bytes_per_s : float or None
        Rate at which the processors of a node pass through the states of an optimizer, when every rank
        updates its share: 28 bytes for each parameter of AdamW. None takes the usual share of
        `bytes_per_s` (cost/tier_copies.py).
    pageable_bytes_per_s : float
        Rate at which one device copies to or from memory that is not pinned. The default was measured on
        nodes of 4 A100 and of 4 H100 (validation/zero3_offload_runs.csv: 4.4 to 7 GB/s).
    devices_per_link : int
        Devices that share one link to the host. The rate of a link is the device's `host_bytes_per_s`.
    """

    capacity_bytes: float = Field(gt=0)
    bytes_per_s: float = Field(gt=0)
    optimizer_bytes_per_s: float | None = Field(default=None, gt=0)
    pageable_bytes_per_s: float = Field(default=5e9, gt=0)
    devices_per_link: int = Field(default=1, ge=1)
    source: Sources = ()


class Storage(StrictModel):
    """Drives or a file system, with their total rates.

    Attributes
    ----------
    name : str
        Name of the storage in reports, such as "4 x 3.84 TB NVMe".
    capacity_bytes : float
        Number of bytes that fit into the storage.
    read_bytes_per_s : float
        Total rate at which all readers read.
    write_bytes_per_s : float
        Total rate at which all writers write.
    node_bytes_per_s : float or None
        Largest rate of one node, in each direction; None if only the totals limit it. Drives of a node need
        none.
    latency_s : float
        Time until the first byte of a request arrives.
    """

    name: str = ""
    capacity_bytes: float = Field(gt=0)
    read_bytes_per_s: float = Field(gt=0)
    write_bytes_per_s: float = Field(gt=0)
    node_bytes_per_s: float | None = Field(default=None, gt=0)
    latency_s: float = Field(default=0.0, ge=0)
    source: Sources = ()
