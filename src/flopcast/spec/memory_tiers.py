"""Memory outside the devices: host memory, drives of a node, and storage that the whole cluster shares.

Answers: how large and how fast is a memory, and how many devices share it?
Elsewhere: what a plan stores there (offload.py), how long a copy takes (cost/tier_copies.py), how full the
memory is (memory/tiers.py). Rates count one direction.
"""

from pydantic import Field

from flopcast.spec.source import Sources
from flopcast.strict_model import StrictModel


class HostMemory(StrictModel):
    """The host memory of a node, which all devices of the node share.

    Attributes
    ----------
    capacity_bytes : float
        Size of the host memory of a node, such as "2 TB".
    bytes_per_s : float
        Peak bandwidth of the host memory of a node: the sum of all channels of all sockets.
    optimizer_bytes_per_s : float or None
        Rate at which the CPUs of a node read and write optimizer states when all of its ranks run the
        optimizer on the host. AdamW reads and writes 28 bytes per parameter. By default (null), flopcast
        takes a measured fraction of `bytes_per_s` (cost/tier_copies.py).
    pageable_bytes_per_s : float
        Rate at which fp32 gradients of one device reach pageable (not pinned) host memory, including casts
        on the host. The default, 8 GB/s, is based on nodes with 4 A100 and with 4 H100, which reach 5.3 to
        11.7 GB/s (validation/zero3_offload_runs.csv).
    devices_per_link : int
        Number of devices that share one PCIe link to the host. The bandwidth of the link is the device's
        `host_bytes_per_s`.
    """

    capacity_bytes: float = Field(gt=0)
    bytes_per_s: float = Field(gt=0)
    optimizer_bytes_per_s: float | None = Field(default=None, gt=0)
    pageable_bytes_per_s: float = Field(default=8e9, gt=0)
    devices_per_link: int = Field(default=1, ge=1)
    source: Sources = ()


class Storage(StrictModel):
    """NVMe drives, a file system or an object store.

    Attributes
    ----------
    name : str
        Name of the storage in reports, such as "4 x 3.84 TB NVMe".
    capacity_bytes : float
        Capacity of the storage, such as "30 TB".
    read_bytes_per_s : float
        Read bandwidth of all readers together.
    write_bytes_per_s : float
        Write bandwidth of all writers together.
    node_bytes_per_s : float or None
        Highest bandwidth that one node reaches, in each direction. By default (null), a node can reach the
        whole bandwidth. It is not needed for drives of a node.
    latency_s : float
        Time from a request to its first byte.
    """

    name: str = ""
    capacity_bytes: float = Field(gt=0)
    read_bytes_per_s: float = Field(gt=0)
    write_bytes_per_s: float = Field(gt=0)
    node_bytes_per_s: float | None = Field(default=None, gt=0)
    latency_s: float = Field(default=0.0, ge=0)
    source: Sources = ()
