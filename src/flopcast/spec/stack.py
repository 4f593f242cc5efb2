"""The stack: the training software, as data.

Answers: what does this software run (fusions, attention kernel), in which order does it communicate,
how does it divide layers and keep memory, what does its host cost; what does a job mean that is silent?
Elsewhere: the rewrites themselves (workload/rewrites), the hardware (spec/cluster.py).

Real runs differ by their stack more than by anything else. A run is reproduced by naming stack and
era and by the switches that its log prints, never by its own factor.
"""

from typing import Literal

from pydantic import Field

from flopcast.spec.data_parallel import Gradients, Sharding
from flopcast.spec.expert_software import ExpertSoftware
from flopcast.spec.offload_software import OffloadSoftware
from flopcast.spec.plan_fields import RankOrder
from flopcast.spec.precision import NarrowProducts
from flopcast.spec.source import Sources
from flopcast.spec.switches import Switches
from flopcast.strict_model import StrictModel


class Pipeline(StrictModel):
    """The transfers of activations between stages, and the division of layers over stages.

    Attributes
    ----------
    partition : str
        How blocks are divided over stages. "even": every chunk has the same number of blocks (Megatron-LM).
        "deepspeed_uniform": all modules are divided evenly, `entries_before` and `entries_after` included,
        so that the first and the last stage have fewer blocks.
    entries_before : int
        Number of modules before the blocks that "deepspeed_uniform" counts.
    entries_after : int
        Number of modules after the blocks that "deepspeed_uniform" counts.
    transfers : str
        How stages send and receive. "sequential": one blocking message after the other, for which both
        sides wait (DeepSpeed). "batched": all messages between two tasks start together, and the stage
        waits for all of them (Megatron-LM without p2p overlap). "overlapped": the sender never blocks.
        "overlapped_chunks": overlapped where stages have several chunks, and batched elsewhere (Megatron-LM
        by default, overlap_p2p_comm).
    payload : str
        What each rank sends. "full": the whole activations. "scattered": each tensor-parallel rank sends
        its share, and the receiver gathers them.
    sends_mask : bool
        Whether a square 16-bit attention mask is sent with the activations, as GPT-NeoX does.
    host_s : float
        Host time of one blocking message.
    """

    partition: Literal["even", "deepspeed_uniform"] = "even"
    entries_before: int = Field(default=0, ge=0)
    entries_after: int = Field(default=0, ge=0)
    transfers: Literal["sequential", "batched", "overlapped", "overlapped_chunks"] = "overlapped"
    payload: Literal["full", "scattered"] = "full"
    sends_mask: bool = False
    host_s: float = Field(default=0.0, ge=0)

    def style(self, *, interleaved: bool) -> str:
        """Return how stages exchange messages: "sequential", "batched" or "overlapped"."""
        if self.transfers != "overlapped_chunks":
            return self.transfers
        return "overlapped" if interleaved else "batched"


class Contention(StrictModel):
    """The compute time that is lost to overlapping messages.

    A collective's kernels occupy multiprocessors and memory bandwidth. How much one of them slows down
    compute is a property of the device (`collective_slowdown_fraction`).

    Attributes
    ----------
    kernel_share : float
        Fraction of the overlapped bytes that kernels move: 1 for NCCL's kernels, 0 for copy engines.
    """

    kernel_share: float = Field(default=0.0, ge=0, le=1)


class Optimizer(StrictModel):
    """The cost of the optimizer step, per parameter of a rank's shard.

    Adam in mixed precision keeps an fp32 weight and two fp32 moments, 12 bytes, and reads and writes all of
    them. `moved_bytes` and `state_bytes` are those of AdamW in fp32; flopcast derives those of other
    optimizers and dtypes from them (spec/optimizers.py).

    Attributes
    ----------
    moved_bytes : float
        Bytes read and written per parameter, for AdamW in fp32.
    state_bytes : float
        Bytes of the main weight and the moments per parameter, for AdamW in fp32.
    exp_avg_dtype : str
        Dtype of the first moment, or of the momentum.
    exp_avg_sq_dtype : str
        Dtype of the second moment.
    main_parameter_bytes : float
        Bytes of the weight that is updated: 4 in fp32, 2 if a 16-bit remainder completes the 16-bit weight.
    matrices : str
        How ranks that share the states of Muon orthogonalise matrices: each its own ("distributed"), or
        all of them after a gather of the momenta ("gathered").
    fp32_gradients : bool
        Whether the optimizer reads fp32 gradients. The 16-bit gradients of the rank's shard are then copied
        first, and the copies stay until the next step begins.
    step_host_s : float
        Fixed host time of a step (schedulers, logging, loss scaling), which nothing overlaps.
    """

    moved_bytes: float = Field(default=30.0, gt=0)
    state_bytes: float = Field(default=12.0, ge=0)
    exp_avg_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    exp_avg_sq_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    main_parameter_bytes: float = Field(default=4.0, ge=0, le=4)
    matrices: Literal["distributed", "gathered"] = "distributed"
    fp32_gradients: bool = False
    step_host_s: float = Field(default=5e-3, ge=0)


class HostCost(StrictModel):
    """The time that the host takes to launch work, on the reference host.

    A program takes at least as long as its launches: small kernels are bound by these times and not by the
    device. A forward kernel costs more, because Python runs the model's code; the backward pass runs from
    the recorded graph.

    Attributes
    ----------
    forward_item_s : float
        Host time of launching one forward kernel in eager mode.
    backward_item_s : float
        Host time of launching one backward kernel.
    synchronise_s : float
        Time that the device is idle after the host has waited for it.
    graphs : tuple of str
        Parts of a layer, or the whole "iteration", that run as CUDA graphs. The host launches none of their
        kernels.
    """

    forward_item_s: float = Field(default=2e-5, ge=0)
    backward_item_s: float = Field(default=1e-5, ge=0)
    synchronise_s: float = Field(default=0.0, ge=0)
    graphs: tuple[Literal["iteration", "attention", "router"], ...] = ()


class Memory(StrictModel):
    """The memory of the software in addition to parameters, gradients, states and saved activations.

    Attributes
    ----------
    workspace_bytes : float
        Workspaces of cuBLAS and similar libraries, allocated through the framework.
    logit_bytes : float
        Bytes per logit from the head to the end of the loss: a 16-bit copy and an fp32 copy are 6.
    stage_outputs : int
        Number of copies of the output that a pipeline stage keeps for each micro-batch in flight, until the
        backward pass of the micro-batch.
    weight_gradients : str
        What the backward of a linear allocates for the weight's gradient. "written": a tensor of the
        weight's shape, until the gradient is added to the buffer. "placeholder": the GEMM adds to the
        buffer itself, and one tensor of each shape stays allocated for autograd (`get_dummy_wgrad` of
        Transformer Engine).
    keeps_gradients : bool
        Whether gradients stay allocated in one buffer (Megatron-LM), instead of being freed between steps
        (PyTorch).
    score_buffer : bool
        Whether the buffer of one matrix of attention scores stays allocated (attention that is not fused).
    received_activations : int
        Number of received activations that stay allocated for each chunk, including the one in transit.
    update_bytes : float
        Bytes per parameter of the shard that are allocated while the optimizer runs.
    bucket_copies : int
        Gradient buckets that are copied while they are reduced.
    context_bytes : float
        Memory of the driver's context, outside the framework's allocator.
    communicator_bytes : float
        Buffers of one communicator, outside the framework's allocator.
    fragmentation_fraction : float
        Memory that the allocator caches, relative to allocated memory: reserved / allocated - 1.
    """

    workspace_bytes: float = Field(default=64e6, ge=0)
    logit_bytes: float = Field(default=6.0, ge=0)
    stage_outputs: int = Field(default=0, ge=0)
    weight_gradients: Literal["written", "placeholder"] = "written"
    keeps_gradients: bool = False
    score_buffer: bool = False
    received_activations: int = Field(default=0, ge=0)
    update_bytes: float = Field(default=0.0, ge=0)
    bucket_copies: int = Field(default=0, ge=0)
    context_bytes: float = Field(default=0.6e9, ge=0)
    communicator_bytes: float = Field(default=0.25e9, ge=0)
    fragmentation_fraction: float = Field(default=0.08, ge=0)

    @property
    def writes_weight_gradients(self) -> bool:
        """Return whether a linear's backward allocates a tensor of its weight's shape."""
        return self.weight_gradients == "written"


class Derate(StrictModel):
    """GEMM time in training over the time of the same GEMM in a benchmark.

    In training, caches are cold and other streams share the memory. The ratio is 1 for every stack, because
    the effect is a constant fitted on whole runs (catalog/constants/runs.json).

    Attributes
    ----------
    ratio : float
        Time in training over time in a benchmark.
    own : bool
        True if the kernels were measured inside this software itself. The mean of the constants that were
        fitted for other stacks then does not apply.
    log_sigma_factor : float
        Standard deviation of the logarithm of `ratio` before fitting. Two sources that timed GEMMs on one
        device differ by 0.1 (docs/accuracy/kernels.md).
    """

    ratio: float = Field(default=1.0, gt=0)
    own: bool = False
    log_sigma_factor: float = Field(default=0.1, ge=0)


class Stack(StrictModel):
    """One training framework in one release.

    Attributes
    ----------
    name : str
        Name of the stack, as `flopcast catalog stacks` lists it.
    era : str
        Month of the release, "2022-05": releases of one framework differ in speed by 5 to 30 %.
    attention_kernel : str
        "flash" never writes the scores of attention to memory; "materialised" does.
    ring_scores : bool
        Whether ranks that share a sequence can store scores of attention, for which keys and values travel
        round a ring one after the other (ring self-attention, arXiv:2105.13120).
    attention_generation : str
        Which flash kernel runs: a version of FlashAttention, or the first one in Triton. "newest" is the
        kernel of the device's measured curves (cost/kernels/generations.py).
    rewrites : tuple of str
        Changes that turn the logical operators into those that the software runs, in order; names of
        `workload.rewrites.REWRITES`.
    synchronise_each_layer : bool
        Whether the host waits for the device around each recomputed layer (an option of GPT-NeoX).
    rank_orders : tuple of str
        Rank orders other than tp-cp-dp-pp that an option of the launcher gives, for plans without context
        parallelism in which data-parallel ranks shard at most optimizer states. A search recommends only
        these; a plan may use any.
    selective_groups : tuple of str
        Modules that `recompute: selective` recomputes if the plan names none (layers/modules.py).
    recompute_until : str
        Where a recomputed forward pass ends: at its "end" (Megatron-LM, DeepSpeed); as soon as all tensors
        that were "kept" in the first pass exist again (PyTorch's non-reentrant checkpoint); or as soon as
        the tensors that gradients "read" exist (compiled blocks). The last two differ with adapters and in
        blocks whose attention and MLP are parallel.
    fused_loss : str
        When one kernel over 16-bit logits computes the cross entropy, instead of a cast to fp32 and a chain
        of kernels: in no case ("none"), if tensor parallelism does not divide the logits ("uncut"), or
        always ("all").
    tensor_overlap : str
        "chunks": tensor-parallel gathers and scatters overlap with the GEMMs that they belong to, both in
        chunks (Transformer Engine's user buffers, Megatron-LM's `--tp-comm-overlap`). "tiles": kernels that
        fuse a GEMM with its gather or scatter compute each tile when its input is there, and send it when
        it is done (Flux). "scatter_tiles": hardware does so with scatters alone (T3).
    pipeline : Pipeline
        Transfers between stages, and the division of layers over stages.
    gradients : Gradients
        The reduction of gradients between the last backward pass and the optimizer.
    sharding : Sharding
        The sharding of gradients and parameters (ZeRO-2, ZeRO-3, FSDP).
    contention : Contention
        The compute time that is lost to overlapping messages.
    optimizer : Optimizer
        The cost of the optimizer step.
    host : HostCost
        The time that the host takes to launch work.
    experts : ExpertSoftware
        Settings for mixtures of experts.
    memory : Memory
        Memory in addition to parameters, gradients, states and saved activations.
    derate : Derate
        GEMM time in training over the time of the same GEMM in a benchmark.
    narrow : NarrowProducts
        Settings for training in 8 and 4 bits.
    offload : OffloadSoftware
        Settings for states that are placed outside the devices.
    switches : Switches
        Flags and keys of the software, which `flopcast diagnose` names.

    Examples
    --------
    >>> stack = Stack(name="mine")
    >>> stack.attention_kernel, stack.pipeline.partition, stack.derate.ratio
    ('flash', 'even', 1.0)
    """

    name: str
    era: str = ""
    attention_kernel: Literal["materialised", "flash"] = "flash"
    ring_scores: bool = False
    attention_generation: Literal["newest", "flash-2", "flash-1", "triton"] = "newest"
    rewrites: tuple[str, ...] = ()
    synchronise_each_layer: bool = False
    rank_orders: tuple[RankOrder, ...] = ()
    selective_groups: tuple[str, ...] = ("core_attention",)
    recompute_until: Literal["end", "kept", "read"] = "end"
    fused_loss: Literal["none", "uncut", "all"] = "none"
    tensor_overlap: Literal["none", "chunks", "tiles", "scatter_tiles"] = "none"
    pipeline: Pipeline = Pipeline()
    gradients: Gradients = Gradients()
    sharding: Sharding = Sharding()
    contention: Contention = Contention()
    optimizer: Optimizer = Optimizer()
    host: HostCost = HostCost()
    experts: ExpertSoftware = ExpertSoftware()
    memory: Memory = Memory()
    derate: Derate = Derate()
    narrow: NarrowProducts = NarrowProducts()
    offload: OffloadSoftware = OffloadSoftware()
    switches: Switches = Switches()
    source: Sources = ()

    @property
    def fuses_attention(self) -> bool:
        """Return whether attention never writes the square of its scores."""
        return self.attention_kernel == "flash"

    @property
    def label(self) -> str:
        """Return name and era, as reports and factors write them; only the name if there is no era.

        >>> Stack(name="mine", era="2024-07").label, Stack(name="mine").label
        ('mine@2024-07', 'mine')
        """
        return f"{self.name}@{self.era}" if self.era else self.name
