"""One tier of the network: how fast its links are, and what shares them.

Answers: what does a message find on this level of the network?
Elsewhere: the tiers of a cluster (cluster.py), measured pairs of nodes (link_matrix.py), the time of a
message (cost/collectives/collective_time.py).
"""

from pydantic import Field, model_validator

from flopcast.operators.exchanges import OF_LIBRARIES
from flopcast.spec.link_matrix import LinkMatrix
from flopcast.spec.source import Sources
from flopcast.strict_model import FractionByName, StrictModel


class HashedPaths(StrictModel):
    """Equal-cost paths (ECMP) over which a switch distributes flows by a hash of their headers.

    Several flows may get the same path while others are idle. A collective ends with its slowest flow
    (cost/collectives/collisions.py).

    Attributes
    ----------
    devices : int
        Number of devices below one switch that send through its uplinks at the same time. Count those of
        other jobs too.
    uplinks : int
        Number of uplinks of the switch, the paths that the hash chooses from.
    flows_per_device : int
        Number of flows into which the traffic of a device is divided: connections times queue pairs of
        each. Each flow carries an equal part.
    uplink_ratio : float
        Bandwidth of one uplink over the bandwidth of one device.
    planned : bool
        Whether paths are assigned to flows evenly instead of by a hash, as C4P does (arXiv:2406.04594).
    """

    devices: int = Field(ge=1)
    uplinks: int = Field(ge=1)
    flows_per_device: int = Field(default=1, ge=1)
    uplink_ratio: float = Field(default=1.0, gt=0)
    planned: bool = False


class Tier(StrictModel):
    """One level of the network, which joins groups of `devices` devices.

    A tier is not a node: where a fast fabric spans several nodes, its `devices` are more than a node has.

    Attributes
    ----------
    name : str
        Name of the tier in reports, such as "nvlink".
    devices : int
        Number of devices that reach each other through this tier; 0 means the whole cluster.
    bytes_per_s : float
        Hardware bandwidth of one device in one direction: 300 GB/s for NVLink 3, whose data sheet adds both
        directions to 600. For network cards, divide the bandwidth of all cards of a node by its number of
        devices. Devices with the same index in their nodes are assumed to share a rail. Messages to other
        indices change rails over NVLink (NCCL's PXN) or over the spine (`oversubscription_ratio`).
    latency_s : float
        Latency of one hop, software included. A collective pays it for each level of a tree over its ranks.
    fabric : str
        Name of the fabric whose measured collective curves are used. A fabric is the hardware together with
        the transport of the collective library, so clusters with equal hardware may differ in it.
    oversubscription_ratio : float
        Bandwidth of the devices below the tier over the bandwidth of their uplinks into it. It slows
        traffic that leaves a block in all directions at once (an all-to-all of tokens, transfers between
        pipeline stages), and a ring if each block is a single node.
    in_network_reduction : bool
        Whether switches reduce the data that they forward (SHARP). Not supported yet: true raises an error.
    attained_fraction : float
        Fraction of `bytes_per_s` that large messages reach if the fabric has no measured curve.
    library_fraction : mapping of float
        Fraction of `bytes_per_s` that a library's own collective reaches, by collective (dispatch,
        hybrid_dispatch, combine, hybrid_combine), as the library's authors measured it. It replaces curves.
    links : LinkMatrix or None
        Measured bandwidths of all pairs of nodes. Messages then take as long as on the slowest pair that
        they cross, and the mean of the matrix replaces `attained_fraction`.
    paths : HashedPaths or None
        The equal-cost paths that flows share. Without them, flows never collide.
    """

    name: str
    devices: int = Field(ge=0)
    bytes_per_s: float = Field(gt=0)
    latency_s: float = Field(ge=0)
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
            raise ValueError(f"library_fraction of {', '.join(OF_LIBRARIES)}, not of {', '.join(unknown)}")
        return self
