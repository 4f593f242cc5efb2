"""The cluster: devices, hosts, nodes, and the links between them.

Answers: what can one device do, how many are there, through which tiers do they talk?
Elsewhere: how fast kernels and collectives really run (catalog/curves, cost/), what this particular
machine sustains (spec/site.py). Bandwidths count one direction per device; peaks are dense.
"""

from typing import ClassVar

from pydantic import ConfigDict, Field

from flopcast.operators.formats import MIXED_ENGINES, NARROW_ENGINES
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.spec.operations import Facility, Power, Price, Reliability
from flopcast.spec.source import Sources
from flopcast.spec.tier import Tier
from flopcast.strict_model import FrozenMapping, PositiveByName, StrictModel, nameable
from flopcast.units import Hertz


class Sustained(StrictModel):
    """How much longer a GEMM takes on a busy device than its curve says.

    Benchmarks time each GEMM for milliseconds, before the power limit lowers the clock; a training step
    keeps the device busy for seconds (cost/kernels/sustained.py).

    Attributes
    ----------
    ratio : float
        Time of a GEMM on a busy device over the time that its curve gives.
    long_kernel_share : float
        Share of the logarithm of `ratio` that applies to GEMMs of 2 ms and more. These reach the power
        limit while a benchmark times them, so a device's own curve contains the rest. The share is 1 if the
        curve was measured on another device, which had more power for each FLOP.
    log_sigma_factor : float
        Standard deviation of the logarithm of `ratio`.
    """

    ratio: float = Field(default=1.0, ge=1)
    long_kernel_share: float = Field(default=0.35, ge=0, le=1)
    log_sigma_factor: float = Field(default=0.0, ge=0)


class Device(StrictModel):
    """An accelerator, from its data sheet.

    Attributes
    ----------
    name : str
        Name of the device, as `flopcast catalog devices` lists it.
    generation : str
        Architecture, such as "hopper". Constants that were fitted on one generation are less certain on
        another (cost/constant_transfer.py).
    memory_bytes : float
        Memory capacity as the driver shows it, with error correction switched on.
    memory_bytes_per_s : float
        Peak memory bandwidth. Curves say which part of it kernels reach.
    peak_flop_per_s : mapping of float
        Peak rate of dense matrix products, by dtype. The larger figure that data sheets print for sparse
        products is twice this rate.
    multiprocessors : int
        Number of streaming multiprocessors. The tiles of a GEMM run on them in waves.
    clock_hz : float or None
        Highest clock of the multiprocessors; None if it is not known. Memory-bound kernels
        with curves of another device then reach the same share of the bandwidth as there
        (cost/kernels/curve_conversion.py).
    cache_bytes : float
        Size of the last-level cache; 0 if it is not known.
    kernel_launch_s : float
        Time of an empty kernel, which is the shortest time of any kernel.
    host_bytes_per_s : float
        Rate at which the device copies from pinned memory of its host. The default is what PCIe 4.0 with 16
        lanes reaches, 0.8 of 32 GB/s.
    one_narrow_layout : bool
        Whether the 8-bit tensor cores read their operands in one memory layout only. A tensor that is used
        along both of its dimensions then needs a transposed copy (Hopper, Ada).
    writes_results_after : bool
        Whether grouped GEMMs in 8 and 4 bits write their 16-bit results after the products instead of at
        the same time (Blackwell; cost/kernels/narrow_results.py).
    collective_slowdown_fraction : float
        Fraction of its speed that compute loses while a collective runs at the same time. The default lies
        between the share of multiprocessors that NCCL's 24 blocks occupy (24 of 132 on H100, 0.18; of 108
        on A100, 0.22) and the loss of a GEMM of one whole wave on H100 (0.41: 80 % of the peak alone, 47 %
        during an all-gather; forums.developer.nvidia.com, topic 337991).
    sustained : Sustained
        How much longer GEMMs take on a busy device than their curves say.
    board_power_w : float or None
        Board power limit from the data sheet. Without it, flopcast predicts no energy.
    power : Power
        Power of each kind of work, as fractions of the board power.
    curves : str
        Name of the device whose measured curves are used; "" for the device itself.
    usual_stack : str
        Default stack of jobs on this device; "" means megatron-core, or torch-fsdp2 for most fine-tunes.
    usual_expert_stack : str
        Default stack of mixtures of experts on this device; "" means the default of all models.
    relatives : tuple of str
        Devices whose curves replace missing ones, the most similar first. flopcast uses the efficiency of a
        relative and not its seconds, and converts memory-bound curves (cost/kernels/curve_conversion.py).
    """

    name: str
    generation: str = ""
    memory_bytes: float = Field(gt=0)
    memory_bytes_per_s: float = Field(gt=0)
    peak_flop_per_s: PositiveByName
    multiprocessors: int = Field(ge=1)
    clock_hz: Hertz | None = Field(default=None, gt=0)
    cache_bytes: float = Field(default=0.0, ge=0)
    kernel_launch_s: float = Field(gt=0)
    host_bytes_per_s: float = Field(default=25e9, gt=0)
    one_narrow_layout: bool = False
    writes_results_after: bool = False
    collective_slowdown_fraction: float = Field(default=0.3, ge=0, le=1)
    sustained: Sustained = Sustained()
    board_power_w: float | None = Field(default=None, gt=0)
    power: Power = Power()
    usual_stack: str = ""
    usual_expert_stack: str = ""
    curves: str = ""
    relatives: tuple[str, ...] = ()
    source: Sources = ()

    def peak(self, dtype: str) -> float:
        """Return dense FLOP/s of a dtype; if unlisted, of the dtype that its products have then.

        Elements of 8 and 4 bits are widened to 16 before. All others count as fp32, or as the slowest
        listed dtype where that is not listed either. Products in several formats at once have a rate of
        their own (`MIXED_ENGINES`).
        """
        peaks = self.peak_flop_per_s
        if (mixed := MIXED_ENGINES.get(dtype)) is not None:
            rates = {engine: self.peak(engine) for engine, _ in mixed.shares}
            return mixed.flop_per_s(rates, self.peak("fp32"))
        wider = ("bf16", "fp16") if dtype in NARROW_ENGINES else ()
        for name in (dtype, *wider):
            if name in peaks:
                return peaks[name]
        return peaks["fp32"] if "fp32" in peaks else min(peaks.values())

    @property
    def in_16_bits(self) -> "Device":
        """Return the device with its fp16 engine in place of one for bf16, if it has no such engine."""
        peaks = self.peak_flop_per_s
        if "bf16" in peaks or "fp16" not in peaks:
            return self
        peaks = FrozenMapping({**peaks, "bf16": peaks["fp16"]})
        return self.model_copy(update={"peak_flop_per_s": peaks})

    def engine_ratio(self, dtype: str) -> float:
        """Return the peak of a dtype's engine over that of 16 bits."""
        return self.peak(dtype) / self.peak("bf16" if "bf16" in self.peak_flop_per_s else "fp16")


class Host(StrictModel):
    """The processor that launches kernels.

    Eager frameworks issue kernels from one Python thread. A host scales all host times by one ratio.

    Attributes
    ----------
    name : str
        Name of the host, as `flopcast catalog hosts` lists it.
    speed_ratio : float
        Single-thread speed relative to an AMD EPYC 7763.
    """

    name: str
    speed_ratio: float = Field(default=1.0, gt=0)
    source: Sources = ()


class Node(StrictModel):
    """One server: equal accelerators behind one host.

    Ranks are numbered node by node.

    Attributes
    ----------
    device : Device
        The accelerator.
    devices : int
        Number of accelerators in a node.
    host : Host
        The processor that launches kernels.
    memory : HostMemory or None
        The main memory of the node, for states that a plan places on the host.
    nvme : Storage or None
        The drives of the node, for states and checkpoints.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=nameable("device", "host"))

    device: Device
    devices: int = Field(ge=1)
    host: Host
    memory: HostMemory | None = None
    nvme: Storage | None = None


class NodeGroup(StrictModel):
    """A number of equal nodes.

    Attributes
    ----------
    node : Node
        The kind of node.
    count : int
        Number of nodes.
    tiers : tuple of Tier
        Network tiers between the nodes of this group, from the fastest to the widest, if they are not those
        of the cluster. The last tier of the cluster joins the groups.
    micro_batches : int or None
        Micro-batches of a step that each replica on this group runs, if slower replicas run fewer. None if
        all replicas run the same number.
    """

    node: Node
    count: int = Field(ge=1)
    tiers: tuple[Tier, ...] = ()
    micro_batches: int | None = Field(default=None, ge=1)


# Median over fastest step of 192 functional tests of Megatron-LM, each on one node of 8 A100 or H100; half
# of them lie between 1.009 and 1.030.
ORDINARY_JITTER_RATIO, ORDINARY_JITTER_LOG_SIGMA = 1.017, 0.015


class Jitter(StrictModel):
    """Mean step time over best step time.

    The defaults are those of functional tests of Megatron-LM.

    Attributes
    ----------
    ratio : float
        Mean step time over best step time, at least 1.
    log_sigma_factor : float
        Standard deviation of the logarithm of `ratio` between runs.
    """

    ratio: float = Field(default=ORDINARY_JITTER_RATIO, ge=1.0)
    log_sigma_factor: float = Field(default=ORDINARY_JITTER_LOG_SIGMA, ge=0)
    source: Sources = ()


class Cluster(StrictModel):
    """Groups of equal nodes, and the network tiers that join them.

    Attributes
    ----------
    name : str
        Name of the cluster in reports.
    groups : tuple of NodeGroup
        Groups of equal nodes. Ranks fill them in this order; each stage of each replica runs on one group.
    tiers : tuple of Tier
        Network tiers from the fastest to the widest. The last one must reach every device (`devices: 0`).
    jitter : Jitter
        Ratio of the mean to the best step time of a run. It is a property of the machine: two clusters that
        run the same stack can have different jitter.
    price : Price or None
        Price of a device per hour. Without it, reports state no cost.
    facility : Facility
        Power that is drawn in addition to the devices.
    reliability : Reliability
        How often a run is interrupted, and the time that interruptions and checkpoints take.
    file_system : Storage or None
        The parallel file system that all nodes share.
    object_store : Storage or None
        The object store that all nodes share.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=nameable("price"))

    name: str = "unnamed"
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    tiers: tuple[Tier, ...] = Field(min_length=1)
    jitter: Jitter = Jitter()
    price: Price | None = None
    facility: Facility = Facility()
    reliability: Reliability = Reliability()
    file_system: Storage | None = None
    object_store: Storage | None = None
    source: Sources = ()

    @property
    def node(self) -> Node:
        """Return the node of the first group; nodes of other groups have as many devices."""
        return self.groups[0].node

    @property
    def inner_tiers(self) -> int:
        """Return the number of leading tiers that join fewer devices than a node has: dies of a package."""
        return sum(0 < tier.devices < self.node.devices for tier in self.tiers[:-1])

    @property
    def machine(self) -> str:
        """Return the number of devices with their names: "16 × a100-sxm4-80gb"."""
        counts: dict[str, int] = {}
        for group in self.groups:
            name = group.node.device.name
            counts[name] = counts.get(name, 0) + group.count * group.node.devices
        return " + ".join(f"{count} × {name}" for name, count in counts.items())

    @property
    def has_mixed_devices(self) -> bool:
        """Return whether groups have different devices."""
        return len({group.node.device.name for group in self.groups}) > 1

    def mean_peak_flop_per_s(self, dtype: str) -> float:
        """Return the mean peak rate of a dtype over all devices."""
        if not self.has_mixed_devices:
            return self.node.device.peak_flop_per_s[dtype]
        sums = (g.count * g.node.devices * g.node.device.peak(dtype) for g in self.groups)
        return sum(sums) / self.num_devices

    @property
    def scale_up_devices(self) -> int:
        """Return devices of one scale-up domain: of a node, or of all nodes that its tier joins.

        8 in a DGX; 72 where one NVLink fabric joins 18 nodes of 4. With the network alone, it is a node.
        """
        return max(self.node.devices, self.tiers[self.inner_tiers].devices)

    @property
    def num_devices(self) -> int:
        """Return devices over all groups; a plan must use every one of them."""
        return sum(group.count * group.node.devices for group in self.groups)
