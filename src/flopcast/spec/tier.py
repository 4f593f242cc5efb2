"""One tier of the network: the speed of its links, and the devices that share them.

Answers: which properties does this tier have?
Elsewhere: the tiers of a cluster (cluster.py), measured pairs of nodes (link_matrix.py), the time of a
message (cost/collectives/collective_time.py).
"""

from pydantic import Field, model_validator

from flopcast.operators.exchanges import OF_LIBRARIES
from flopcast.spec.link_matrix import LinkMatrix
from flopcast.spec.source import Sources
from flopcast.strict_model import FractionByName, StrictModel


class HashedPaths(StrictModel):
    """Equal-cost paths (ECMP): a switch assigns each network flow to a path by a hash.

    Several flows may share one path while other paths are idle. A collective ends when its slowest flow has
    ended.

    Attributes
    ----------
    devices : int
        Number of devices that send through the uplinks of one switch at the same time, devices of other
        jobs included.
    uplinks : int
        Number of uplinks of the switch. The hash chooses one of them for each flow.
    flows_per_device : int
        Number of flows into which the traffic of a device is divided: the number of connections times the
        queue pairs of each connection. All flows carry the same number of bytes.
    uplink_ratio : float
        Bandwidth of one uplink divided by the bandwidth of one device.
    planned : bool
        Whether paths are assigned to flows evenly instead of by a hash, as C4P does (arXiv:2406.04594).
    """

    devices: int = Field(ge=1)
    uplinks: int = Field(ge=1)
    flows_per_device: int = Field(default=1, ge=1)
    uplink_ratio: float = Field(default=1.0, gt=0)
    planned: bool = False


class Tier(StrictModel):
    """One network of the cluster, such as NVLink or InfiniBand.

    It connects groups of `devices` devices. A fast network can connect several nodes, as in NVL72.

    Attributes
    ----------
    name : str
        Name of the tier in reports, such as "nvlink".
    devices : int
        Number of devices that this network connects: 8 for NVLink in a node with 8 devices, 72 for NVL72. 0
        means all devices of the cluster.
    bytes_per_s : float
        Hardware bandwidth of one device in one direction. For NVLink 3, write 300 GB/s: data sheets state
        the sum of both directions, 600 GB/s. For network cards, divide the bandwidth of all cards of a node
        by its number of devices. Devices with the same index in their nodes are assumed to be connected to
        the same rail.
    receive_bytes_per_s : float or None
        Hardware bandwidth at which one device receives, for links whose two directions differ, such as the
        internet. Only peers may use such a tier, and it must be the last one. By default, the same as
        `bytes_per_s`.
    latency_s : float
        Latency of one hop, software included. A collective over n ranks takes about log2(n) hops.
    fabric : str
        Name of the fabric whose measured bandwidths of collectives are used. A fabric is the network
        hardware together with the transport of the collective library. Clusters with equal hardware can
        therefore have different fabrics.
    oversubscription_ratio : float
        Oversubscription of the network: the bandwidth of all devices below a switch divided by the
        bandwidth of the switch's uplinks. 1 means that the network is not oversubscribed. A higher ratio
        slows all-to-alls and transfers between pipeline stages.
    in_network_reduction : bool
        Whether switches reduce data inside the network (SHARP). It is not supported yet, so true raises an
        error.
    attained_fraction : float
        Fraction of `bytes_per_s` that large messages reach if no bandwidths were measured for the fabric.
    library_fraction : mapping of float
        Fraction of `bytes_per_s` that the collectives of an expert library reach: dispatch and combine for
        DeepEP, hybrid_dispatch and hybrid_combine for HybridEP. It replaces measured curves of the fabric
        for these collectives.
    links : LinkMatrix or None
        Measured bandwidths between all pairs of nodes. The slowest pair of nodes in a group then determines
        the time of its messages. By default, all pairs have the same bandwidth.
    paths : HashedPaths or None
        Equal-cost paths that network flows share. By default, flopcast assumes that flows never collide.
    """

    name: str
    devices: int = Field(ge=0)
    bytes_per_s: float = Field(gt=0)
    latency_s: float = Field(ge=0)
    receive_bytes_per_s: float | None = Field(default=None, gt=0)
    fabric: str = ""
    oversubscription_ratio: float = Field(default=1.0, ge=1)
    in_network_reduction: bool = False
    attained_fraction: float = Field(default=0.8, gt=0, le=1)
    library_fraction: FractionByName = Field(default_factory=dict, validate_default=True)
    links: LinkMatrix | None = None
    paths: HashedPaths | None = None
    source: Sources = ()

    @property
    def reached_fraction(self) -> float:
        """Return the fraction of `bytes_per_s` that large messages reach without a curve."""
        if self.links is None:
            return self.attained_fraction
        return min(1.0, self.links.mean_bytes_per_s / self.bytes_per_s)

    @model_validator(mode="after")
    def _libraries_measured_their_own_collectives(self) -> "Tier":
        unknown = [name for name in self.library_fraction if name not in OF_LIBRARIES]
        if unknown:
            raise ValueError(
                f"library_fraction: only the keys {', '.join(OF_LIBRARIES)}, not {', '.join(unknown)}"
            )
        return self
