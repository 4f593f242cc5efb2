"""The cluster: devices, hosts, nodes, and the links between them.

Answers: what can one device do, how many are there, through which tiers do they talk?
Elsewhere: how fast kernels and collectives really run (catalog/curves, cost/), what this particular
machine sustains (spec/site.py). Bandwidths count one direction per device; peaks are dense.
"""

from pydantic import ConfigDict, Field, model_validator

from flopcast.operators.exchanges import OF_LIBRARIES
from flopcast.spec.model import Source
from flopcast.spec.operations import Facility, Power, Price, Reliability
from flopcast.strict_model import FractionByName, PositiveByName, StrictModel, nameable


class Sustained(StrictModel):
    """Time of a GEMM on a busy device over the time that its curve gives.

    Benchmarks time each GEMM for milliseconds, before the power limit lowers the clock. A training step
    keeps the device busy for seconds (cost/kernels/sustained.py). `log_sigma_factor` is the sigma of the
    ratio's logarithm. `long_kernel_share` is the share of this logarithm that is left for GEMMs of 2 ms and
    more. These reach the power limit while they are timed, so a device's own curve contains the rest. The
    share is 1 where the curve belongs to another device, which has more power for each FLOP.
    """

    ratio: float = Field(default=1.0, ge=1)
    long_kernel_share: float = Field(default=0.35, ge=0, le=1)
    log_sigma_factor: float = Field(default=0.0, ge=0)


class Device(StrictModel):
    """An accelerator, from its data sheet.

    Attributes
    ----------
    memory_bytes : float
        Capacity as the driver shows it, error correction included.
    memory_bytes_per_s : float
        Peak bandwidth between memory and compute units; curves say which part of it kernels reach.
    peak_flop_per_s : mapping of float
        Dense matrix peak by dtype. Data sheets print the sparse figure in large type: it is twice this.
    generation : str
        The architecture, such as "hopper": constants fitted on runs of one generation are less sure on
        another (cost/constant_transfer.py).
    multiprocessors : int
        Streaming multiprocessors, among which the tiles of a GEMM are dealt out in waves.
    clock_hz : float or None
        The highest clock of the multiprocessors. If it is not known (None), borrowed memory-bound curves
        keep their share of the bandwidth (cost/kernels/curve_conversion.py).
    cache_bytes : float
        Size of the last-level cache; 0 if it is not known.
    kernel_launch_s : float
        The shortest time of any kernel, which is that of an empty one.
    one_narrow_layout : bool
        Whether 8-bit engines multiply operands in one layout only, both along the sum: then a tensor that
        is used along both of its dimensions needs a transposed copy (Hopper, Ada).
    writes_results_after : bool
        Whether products of experts in 8 and 4 bits write their 16-bit results after them rather than
        beside them (Blackwell; cost/kernels/narrow_results.py).
    collective_slowdown_fraction : float
        The fraction of its speed that compute loses while a collective runs beside it. The default
        lies between the share of multiprocessors that NCCL's 24 blocks occupy (24 of 132 on H100, 0.18; of
        108 on A100, 0.22) and the loss of a GEMM of one whole wave on H100 (0.41: 80 % of the peak alone,
        47 % beside an all-gather; forums.developer.nvidia.com, topic 337991).
    sustained : Sustained
        How much longer GEMMs take on a busy device than their curves say.
    board_power_w, power : float or None, Power
        The board's power limit, without which no energy is predicted, and the power of each kind of work.
    curves, relatives : str, tuple of str
        The device whose measured curves are used, and devices whose curves replace missing ones, nearest
        first. The efficiency of a relative is used, not its seconds; memory-bound curves are converted
        (cost/kernels/curve_conversion.py).
    """

    name: str
    generation: str = Field(default="", description="architecture, such as hopper")
    memory_bytes: float = Field(gt=0)
    memory_bytes_per_s: float = Field(gt=0)
    peak_flop_per_s: PositiveByName = Field(description="dense, by dtype")
    multiprocessors: int = Field(ge=1)
    clock_hz: float | None = Field(default=None, gt=0, description="the highest of multiprocessors")
    cache_bytes: float = Field(default=0.0, ge=0, description="of the last cache before memory")
    kernel_launch_s: float = Field(gt=0, description="shortest time of an empty kernel")
    one_narrow_layout: bool = Field(default=False, description="8-bit engines read one layout of operands")
    writes_results_after: bool = Field(
        default=False, description="narrow products write their results after them"
    )
    collective_slowdown_fraction: float = Field(
        default=0.3, ge=0, le=1, description="compute lost beside collectives"
    )
    sustained: Sustained = Sustained()
    board_power_w: float | None = Field(default=None, gt=0, description="the data sheet's; for energy")
    power: Power = Power()
    curves: str = Field(default="", description="whose curves are used; default: its own")
    relatives: tuple[str, ...] = Field(default=(), description="whose curves replace missing ones")
    source: tuple[Source, ...] = ()

    def peak(self, dtype: str) -> float:
        """Return dense FLOP/s of a dtype; if unlisted, of fp32, or else of the slowest listed dtype."""
        peaks = self.peak_flop_per_s
        if dtype in peaks:
            return peaks[dtype]
        return peaks["fp32"] if "fp32" in peaks else min(peaks.values())

    def engine_ratio(self, dtype: str) -> float:
        """Return the peak of a dtype's engine over that of 16 bits."""
        return self.peak(dtype) / self.peak("bf16" if "bf16" in self.peak_flop_per_s else "fp16")


class Host(StrictModel):
    """The processor that launches kernels.

    An eager framework issues every kernel from one Python thread, so single-thread speed decides whether
    a device waits for its host. Only the ratio to the reference host is known, and it scales the host's
    times of a stack.
    """

    name: str
    speed_ratio: float = Field(default=1.0, gt=0, description="single-thread speed; EPYC 7763 = 1")
    source: tuple[Source, ...] = ()


class Tier(StrictModel):
    """One level of the network. `devices` share it without leaving it; 0 means the whole cluster.

    A tier is not a node: where a fast fabric spans several nodes, its `devices` are more than a node has.

    Attributes
    ----------
    bytes_per_s : float
        Hardware bandwidth of one direction and one device: 300 GB/s for NVLink 3, which is sold as 600.
        Of network cards, all of a node's over its devices: several cards of one device add up, and one that
        devices share counts in equal parts, for a rank that uses it alone too (an underestimate of that).
        Rails: ranks of equal index in their nodes talk card to card, in one leaf where there are leaves of
        rails; what goes to other indices is taken to change rail inside a node (NCCL's PXN) or in a network
        that blocks no more than `oversubscription_ratio` says.
    latency_s : float
        One hop, software included; a collective pays it for each level of a tree over its ranks.
    oversubscription_ratio : float
        What the devices of the tier below can send together over what their uplinks into this one carry.
        It slows what leaves a block in all directions at once (an exchange of tokens, stages of a
        pipeline), and a ring where blocks are single nodes.
    in_network_reduction : bool
        Whether switches add up what they pass on (SHARP). Refused so far.
    attained_fraction : float
        Of `bytes_per_s`, for large messages where the fabric has no measured curve.
    library_fraction : mapping of float
        The same of single collectives of libraries that publish their own measurements, by collective, one
        of OF_LIBRARIES; it comes before any curve.
    fabric : str
        Whose collective curves are used. Two clusters of equal hardware may run over different fabrics:
        the transport of the library belongs to the fabric.
    """

    name: str
    devices: int = Field(ge=0)
    bytes_per_s: float = Field(gt=0, description="one direction, per device")
    latency_s: float = Field(ge=0, description="one hop")
    fabric: str = Field(default="", description="whose collective curves are used")
    oversubscription_ratio: float = Field(default=1.0, ge=1, description="devices over uplinks, in bytes/s")
    in_network_reduction: bool = Field(default=False, description="switches add up; refused so far")
    attained_fraction: float = Field(default=0.8, gt=0, le=1, description="where no curve covers")
    library_fraction: FractionByName = Field(
        default_factory=dict, validate_default=True, description="attained, by a library's collective"
    )
    source: tuple[Source, ...] = ()

    @model_validator(mode="after")
    def _libraries_measured_their_own_collectives(self) -> "Tier":
        unknown = [name for name in self.library_fraction if name not in OF_LIBRARIES]
        if unknown:
            raise ValueError(f"library_fraction of {', '.join(OF_LIBRARIES)}, not of {', '.join(unknown)}")
        return self


class Node(StrictModel):
    """One server: `devices` equal accelerators behind one host.

    Ranks are numbered node by node, so this number decides which axes of a plan stay on fast links.
    """

    model_config = ConfigDict(json_schema_extra=nameable("device", "host"))

    device: Device
    devices: int = Field(ge=1)
    host: Host


class NodeGroup(StrictModel):
    """Equal nodes, `count` of them."""

    node: Node
    count: int = Field(ge=1)


# Median over fastest step in the logs of 192 functional tests of Megatron-LM, each on one node of 8 A100 or
# H100 (tests/functional_tests of github.com/NVIDIA/Megatron-LM). Half of them lie between 1.009 and 1.030.
ORDINARY_JITTER_RATIO, ORDINARY_JITTER_LOG_SIGMA = 1.017, 0.015


class Jitter(StrictModel):
    """Mean step over best step, as a distribution: what a machine adds to a clean step.

    `ratio` is its mean, never below 1; `log_sigma_factor` how much it differs from run to run. The defaults
    are those of functional tests of Megatron-LM, for clusters whose jitter is unknown.
    """

    ratio: float = Field(default=ORDINARY_JITTER_RATIO, ge=1.0)
    log_sigma_factor: float = Field(default=ORDINARY_JITTER_LOG_SIGMA, ge=0)
    source: tuple[Source, ...] = ()


class Cluster(StrictModel):
    """Groups of equal nodes, joined by tiers from the fastest to the widest.

    The last tier must reach every device (`devices: 0`). `jitter` belongs to the machine, not to the
    software: two clusters with one stack have two jitters. Without a `price` nothing is said of money.
    """

    model_config = ConfigDict(json_schema_extra=nameable("price"))

    name: str = "unnamed"
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    tiers: tuple[Tier, ...] = Field(min_length=1)
    jitter: Jitter = Jitter()
    price: Price | None = None
    facility: Facility = Facility()
    reliability: Reliability = Reliability()
    source: tuple[Source, ...] = ()

    @property
    def node(self) -> Node:
        """Return the node of the first group, which is the only one as long as a rule refuses several."""
        return self.groups[0].node

    @property
    def scale_up_devices(self) -> int:
        """Return devices of one scale-up domain: a node's, or those of all nodes that the first tier joins.

        8 in a DGX; 72 where one NVLink fabric joins 18 nodes of 4. Where the only tier is the network
        between nodes of one device (`devices: 0`), each node is a domain of its own.
        """
        return max(self.node.devices, self.tiers[0].devices)

    @property
    def num_devices(self) -> int:
        """Return devices over all groups; a plan must use every one of them."""
        return sum(group.count * group.node.devices for group in self.groups)
