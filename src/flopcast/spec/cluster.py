"""The cluster: devices, hosts, nodes, and the links between them.

Answers: how fast are devices and links, and how many are there?
Elsewhere: how fast kernels and collectives really run (catalog/curves, cost/, spec/site.py). Bandwidths
count one direction per device; peak rates are dense.
"""

from typing import ClassVar

from pydantic import ConfigDict, Field

from flopcast.operators.formats import MIXED_ENGINES, NARROW_ENGINES
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.spec.operations import Facility, Power, Price, Reliability
from flopcast.spec.source import Sources
from flopcast.spec.tier import Tier
from flopcast.strict_model import FrozenMapping, PositiveByName, StrictModel, TextByName, nameable
from flopcast.units import Hertz


class Sustained(StrictModel):
    """The ratio by which a GEMM takes longer in training than in a benchmark, because of the power limit.

    A benchmark times a GEMM for milliseconds. A training step keeps the device busy for seconds, and the
    power limit then lowers the clock (cost/kernels/sustained.py).

    Attributes
    ----------
    ratio : float
        Time of a GEMM on a busy device divided by its time in a benchmark.
    long_kernel_share : float
        Fraction of the logarithm of `ratio` that applies to GEMMs of 2 ms and more. It is below 1 because
        long GEMMs reach the power limit in benchmarks too, so their measured times already contain some of
        the slowdown. Set it to 1 if the efficiency curve was measured on another device with more power for
        each FLOP.
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
        Architecture, such as "hopper". Constants that were fitted to one architecture are less certain on
        another.
    memory_bytes : float
        Memory capacity as the driver reports it with error correction.
    memory_bytes_per_s : float
        Peak memory bandwidth, of which kernels reach the fraction that curves state.
    peak_flop_per_s : mapping of float
        Peak rate of dense GEMMs for each dtype. Many data sheets state twice this rate, the sparse one.
    multiprocessors : int
        Number of streaming multiprocessors, on which the tiles of a GEMM run in waves.
    matrix_side : int
        Rows and columns of a systolic array (TPU). Attention with narrower heads uses only a part of it.
    clock_hz : float or None
        Highest clock of the multiprocessors. If it is null, memory-bound kernels and attention reach the
        same fraction of the peak as on the device that lends their curves.
    cache_bytes : float
        Size of the last-level cache; 0 if it is not known.
    cache_bytes_per_s : float
        Rate at which memory-bound kernels move tensors that the previous kernel left in this cache; 0 for
        devices on which these kernels were measured, because their curves contain this effect.
    kernel_launch_s : float
        Time that an empty kernel takes.
    host_bytes_per_s : float
        Rate at which the device copies from pinned memory of its host. The default is 25 GB/s, about 80 %
        of the 32 GB/s of PCIe 4.0 with 16 lanes.
    one_narrow_layout : bool
        Whether 8-bit tensor cores read operands in only one memory layout (Hopper, Ada), so that operands
        of the forward and the backward pass need a transposed copy.
    writes_results_after : bool
        Whether the epilogue of 8- and 4-bit grouped GEMMs does not overlap with the main loop (Blackwell).
    collective_slowdown_fraction : float
        Fraction of its speed that compute loses while a collective runs at the same time. The default, 0.3,
        lies between two estimates. NCCL's 24 thread blocks occupy 18 % of the 132 multiprocessors of an
        H100 and 22 % of the 108 of an A100. A GEMM on H100 was measured to fall from 80 % to 47 % of the
        peak during an all-gather, a loss of 41 % (forums.developer.nvidia.com, topic 337991).
    sustained : Sustained
        How much longer GEMMs take than in a short benchmark if the device is busy for seconds.
    board_power_w : float or None
        Board power limit from the data sheet. Without it, flopcast predicts no energy.
    power : Power
        Power that the device draws during each kind of work, as a fraction of its board power.
    is_processor : bool
        Whether the device is a CPU, so that kernels of exported graphs have the efficiencies of CPUs.
    curves : str
        Name of the device whose measured efficiency curves are used. "" means this device.
    usual_stack : str
        Default stack of jobs on this device. "" means torch-fsdp2 for most fine-tuning jobs.
    usual_pretraining_stack : str
        Default stack for pretraining, unless usual_stack is stated. "" means megatron-core.
    usual_expert_stacks : mapping of str to str
        Default stacks for mixture-of-experts models, by precision; `other` stands for all other precisions.
    relatives : tuple of str
        Devices whose measured curves are used for kernels that were not measured on this device, the most
        similar device first. flopcast takes over efficiencies, and converts those of memory-bound kernels
        and of attention.
    """

    name: str
    generation: str = ""
    memory_bytes: float = Field(gt=0)
    memory_bytes_per_s: float = Field(gt=0)
    peak_flop_per_s: PositiveByName
    multiprocessors: int = Field(ge=1)
    matrix_side: int = Field(default=1, ge=1)
    clock_hz: Hertz | None = Field(default=None, gt=0)
    cache_bytes: float = Field(default=0.0, ge=0)
    cache_bytes_per_s: float = Field(default=0.0, ge=0)
    kernel_launch_s: float = Field(gt=0)
    host_bytes_per_s: float = Field(default=25e9, gt=0)
    one_narrow_layout: bool = False
    writes_results_after: bool = False
    collective_slowdown_fraction: float = Field(default=0.3, ge=0, le=1)
    sustained: Sustained = Sustained()
    board_power_w: float | None = Field(default=None, gt=0)
    power: Power = Power()
    is_processor: bool = False
    usual_stack: str = ""
    usual_pretraining_stack: str = ""
    usual_expert_stacks: TextByName = Field(default_factory=dict, validate_default=True)
    curves: str = ""
    relatives: tuple[str, ...] = ()
    source: Sources = ()

    def peak(self, dtype: str) -> float:
        """Return the dense FLOP/s of a dtype or, if it is not listed, of the dtype in which its GEMMs run.

        Elements of 8 and 4 bits are first converted to 16 bits. All other dtypes count as fp32 or, if fp32
        is not listed, as the slowest listed dtype. GEMMs in several formats at once have a separate rate
        (`MIXED_ENGINES`).
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
        """Return the device with its fp16 engine as the bf16 engine, if it has no bf16 engine."""
        peaks = self.peak_flop_per_s
        if "bf16" in peaks or "fp16" not in peaks:
            return self
        return self.model_copy(update={"peak_flop_per_s": FrozenMapping({**peaks, "bf16": peaks["fp16"]})})

    @property
    def dtype_of_16_bits(self) -> str:
        """Return the usual 16-bit dtype: bf16, or fp16 on a device without bf16."""
        return "bf16" if "bf16" in self.peak_flop_per_s else "fp16"

    def engine_ratio(self, dtype: str) -> float:
        """Return the peak rate of a dtype's engine, divided by that of 16 bits."""
        return self.peak(dtype) / self.peak(self.dtype_of_16_bits)


class Host(StrictModel):
    """The CPU of a node. One of its threads launches kernels from Python and dispatches DTensors.

    Waits, messages and optimizer steps took equal times on hosts with different `speed_ratio`.

    Attributes
    ----------
    name : str
        Name of the host, as `flopcast catalog hosts` lists it.
    speed_ratio : float
        Speed of launching kernels from Python, divided by that of an AMD EPYC 7763.
    """

    name: str
    speed_ratio: float = Field(default=1.0, gt=0)
    source: Sources = ()


class Node(StrictModel):
    """One server: several equal accelerators and one host.

    Ranks are numbered node by node.

    Attributes
    ----------
    device : Device
        The accelerator.
    devices : int
        Number of accelerators in the node.
    host : Host
        The CPU that launches kernels.
    memory : HostMemory or None
        The host memory of the node. It is needed for plans that offload states to the host.
    nvme : Storage or None
        The NVMe drives of the node. They are needed for offloading to NVMe and for checkpoints on these
        drives.
    peer : Storage or None
        Memory of other devices of the node that the job leaves free, such as idle devices, and the rate of
        copies to and from it over the links between devices.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=nameable("device", "host"))

    device: Device
    devices: int = Field(ge=1)
    host: Host
    memory: HostMemory | None = None
    nvme: Storage | None = None
    peer: Storage | None = None


class NodeGroup(StrictModel):
    """A group of equal nodes.

    Attributes
    ----------
    node : Node
        The kind of node.
    count : int
        Number of nodes.
    tiers : tuple of Tier
        Networks between the nodes of this group, from the fastest to the one that connects the whole group.
        By default, the networks of the cluster. The last network of the cluster always connects the groups.
    micro_batches : int or None
        Number of micro-batches of a step that each data-parallel replica on this group runs. Set it if
        slower groups run fewer micro-batches. By default (null), all replicas run the same number.
    """

    node: Node
    count: int = Field(ge=1)
    tiers: tuple[Tier, ...] = ()
    micro_batches: int | None = Field(default=None, ge=1)


# Median over fastest step of 192 functional tests of Megatron-LM, each on one node of 8 A100 or H100; half
# of them lie between 1.009 and 1.030.
ORDINARY_JITTER_RATIO, ORDINARY_JITTER_LOG_SIGMA = 1.017, 0.015


class Jitter(StrictModel):
    """How much longer the mean step of a run takes than its best step.

    The defaults come from functional tests of Megatron-LM.

    Attributes
    ----------
    ratio : float
        Mean step time divided by the best step time, at least 1.
    log_sigma_factor : float
        Variation of `ratio` between runs, as the standard deviation of its logarithm.
    """

    ratio: float = Field(default=ORDINARY_JITTER_RATIO, ge=1.0)
    log_sigma_factor: float = Field(default=ORDINARY_JITTER_LOG_SIGMA, ge=0)
    source: Sources = ()


class Cluster(StrictModel):
    """Groups of equal nodes, and the networks that connect them.

    Attributes
    ----------
    name : str
        Name of the cluster in reports.
    groups : tuple of NodeGroup
        Groups of equal nodes. Ranks fill the groups in this order. All ranks that hold the same pipeline
        stage of the same data-parallel replica must be in one group.
    tiers : tuple of Tier
        Networks of the cluster, from the fastest, such as NVLink, to the one that connects all devices. The
        last one must have `devices: 0`, which means all devices.
    jitter : Jitter
        Mean step time of a run divided by its best step time. Two clusters with the same software can have
        different jitter.
    price : Price or None
        Price of a device per hour. Without a price, reports state no cost.
    facility : Facility
        Power that hosts, cooling and power conversion draw in addition to the devices.
    reliability : Reliability
        How often a run is interrupted, and how long restarts and checkpoints take.
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
        """Return the node of the first group. Nodes of other groups have the same number of devices."""
        return self.groups[0].node

    @property
    def inner_tiers(self) -> int:
        """Return the number of tiers inside a node, such as the links between dies of a package."""
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
        """Return the number of devices in a scale-up domain: 8 in a DGX, 72 if NVLink connects 18 nodes of
        4. If no fast fabric connects several nodes, the domain is one node.
        """
        return max(self.node.devices, self.tiers[self.inner_tiers].devices)

    @property
    def num_devices(self) -> int:
        """Return the number of devices of all groups. A plan must use all of them."""
        return sum(group.count * group.node.devices for group in self.groups)
