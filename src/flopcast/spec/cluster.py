"""The cluster: devices, hosts, nodes, and the links between them.

Answers: what can one device do, how many are there, through which tiers do they talk?
Elsewhere: how fast kernels and collectives really run (catalog/curves, cost/), what this particular
machine sustains (spec/site.py). Bandwidths count one direction per device; peaks are dense.
"""

from pydantic import BaseModel, ConfigDict, Field

from flopcast.spec.model import Source

_NOUN = ConfigDict(frozen=True, extra="forbid")


class Device(BaseModel):
    """An accelerator, from its data sheet."""

    model_config = _NOUN

    name: str
    memory_bytes: float = Field(gt=0)
    memory_bytes_per_s: float = Field(gt=0)
    peak_flop_per_s: dict[str, float] = Field(description="dense, by dtype")
    multiprocessors: int = Field(ge=1)
    kernel_launch_s: float = Field(gt=0, description="shortest time of an empty kernel")
    curves: str = Field(default="", description="whose curves are used; default: its own")
    relatives: tuple[str, ...] = Field(default=(), description="whose curves replace missing ones")
    source: tuple[Source, ...] = ()


class Host(BaseModel):
    """The processor that launches kernels."""

    model_config = _NOUN

    name: str
    speed_ratio: float = Field(default=1.0, gt=0, description="single-thread speed; EPYC 7763 = 1")
    source: tuple[Source, ...] = ()


class Tier(BaseModel):
    """One level of the network. `devices` share it without leaving it; 0 means the whole cluster."""

    model_config = _NOUN

    name: str
    devices: int = Field(ge=0)
    bytes_per_s: float = Field(gt=0, description="one direction, per device")
    latency_s: float = Field(ge=0, description="one hop")
    fabric: str = Field(default="", description="whose collective curves are used")
    attained_fraction: float = Field(default=0.8, gt=0, le=1, description="where no curve covers")
    source: tuple[Source, ...] = ()


class Node(BaseModel):
    """One server."""

    model_config = _NOUN

    device: Device
    devices: int = Field(ge=1)
    host: Host


class NodeGroup(BaseModel):
    """Equal nodes."""

    model_config = _NOUN

    node: Node
    count: int = Field(ge=1)


class Jitter(BaseModel):
    """Mean step over best step, as a distribution: what shared machines add to a clean step."""

    model_config = _NOUN

    ratio: float = Field(default=1.0, ge=1.0)
    log_sigma_factor: float = Field(default=0.01, ge=0)
    source: tuple[Source, ...] = ()


class Cluster(BaseModel):
    """Groups of equal nodes, joined by tiers from the fastest to the widest."""

    model_config = _NOUN

    name: str = "unnamed"
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    tiers: tuple[Tier, ...] = Field(min_length=1)
    jitter: Jitter = Jitter()
    source: tuple[Source, ...] = ()

    @property
    def node(self) -> Node:
        """The node of the first group (more than one group is refused for now)."""
        return self.groups[0].node

    @property
    def num_devices(self) -> int:
        """Devices over all groups."""
        return sum(group.count * group.node.devices for group in self.groups)
