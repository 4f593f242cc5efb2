"""The stack: the training software, as data.

Answers: what does this software run (fusions, attention kernel), in which order does it communicate,
how does it divide layers and keep memory, what does its host cost; what does a job mean that is silent?
Elsewhere: the rewrites themselves (workload/rewrites), the hardware (spec/cluster.py).

Real runs differ by their stack more than by anything else. A run is reproduced by naming stack and
era and by the switches that its log prints, never by a factor of its own.
"""

from typing import Literal

from pydantic import Field

from flopcast.spec.data_parallel import Gradients, Sharding
from flopcast.spec.expert_software import ExpertSoftware
from flopcast.spec.model import Source
from flopcast.spec.plan_fields import RankOrder
from flopcast.spec.precision import NarrowProducts
from flopcast.spec.switches import Switches
from flopcast.strict_model import StrictModel


class Pipeline(StrictModel):
    """The transfers of activations between stages, and the division of layers over stages.

    `transfers`: "sequential" posts one blocking message after the other and both sides wait
    (DeepSpeed); "batched" posts what one gap needs together, then waits for all (Megatron-LM before
    p2p overlap); "overlapped" never blocks the sender.
    `payload`: "full" activations from every rank; "scattered": each tensor-parallel rank sends its
    share, the receiver gathers.
    `partition`: "even" gives every chunk the same number of blocks (Megatron-LM);
    "deepspeed_uniform" deals all modules of the model, the uncounted `entries_before` and
    `entries_after` included, so that the ends of a pipeline hold fewer blocks.
    `sends_mask`: GPT-NeoX passes its square attention mask along with the activations.
    """

    partition: Literal["even", "deepspeed_uniform"] = "even"
    entries_before: int = Field(default=0, ge=0, description="uncounted modules before the blocks")
    entries_after: int = Field(default=0, ge=0, description="uncounted modules after the blocks")
    transfers: Literal["sequential", "batched", "overlapped"] = "overlapped"
    payload: Literal["full", "scattered"] = "full"
    sends_mask: bool = Field(default=False, description="a square 16-bit mask follows activations")
    host_s: float = Field(default=0.0, ge=0, description="host time of one blocking message")


class Contention(StrictModel):
    """The compute time that is lost to overlapping messages.

    A collective's kernels hold multiprocessors and memory bandwidth. How much one of them slows what
    runs beside it is the device's (`collective_slowdown_fraction`); `kernel_share` is how much of what
    this software sends beside compute is moved by such kernels: 1 for NCCL's own, 0 for copy engines.
    """

    kernel_share: float = Field(default=0.0, ge=0, le=1, description="of overlapped messages")


class Optimizer(StrictModel):
    """The update, per parameter of the rank's shard.

    Adam in mixed precision keeps an fp32 weight and two fp32 moments, 12 bytes, and reads and writes
    them all: `moved_bytes` is what passes through memory, whose bandwidth the update is bound by. Both
    numbers are those of AdamW in fp32; other optimizers and dtypes follow from them (spec/optimizers.py).
    `step_host_s` is the host's own work of a step (schedulers, logging, loss scaling), hidden by nothing.

    Attributes
    ----------
    exp_avg_dtype, exp_avg_sq_dtype : str
        Of the first moment (momentum too) and the second.
    main_parameter_bytes : float
        Of the weight that is updated: 4 in fp32, 2 where a 16-bit remainder completes the model's own.
    fp32_gradients : bool
        Whether the update reads fp32 gradients: 16-bit ones of the rank's shard are copied first, and the
        copies stay until the next step begins.
    """

    moved_bytes: float = Field(default=30.0, gt=0, description="per parameter, AdamW in fp32")
    state_bytes: float = Field(default=12.0, ge=0, description="master weight and moments, AdamW in fp32")
    exp_avg_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    exp_avg_sq_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    main_parameter_bytes: float = Field(default=4.0, ge=0, le=4, description="of 4, per parameter")
    fp32_gradients: bool = Field(
        default=False, description="16-bit gradients are copied to fp32 before the update"
    )
    step_host_s: float = Field(default=5e-3, ge=0, description="fixed host time of a step")


class HostCost(StrictModel):
    """The host time of launching work, on a host of speed 1.

    A program lasts at least as long as its launches: small kernels are bound by these numbers, not by
    the device. A forward kernel costs more, because Python runs the model's code; the backward pass runs
    from the recorded graph. `synchronise_s` is what restarts a queue that the host has emptied.
    `graphs` names the parts of a layer that are replayed as CUDA graphs, or the whole "iteration": the host
    launches none of their kernels.
    """

    forward_item_s: float = Field(default=2e-5, ge=0, description="per forward kernel, eager")
    backward_item_s: float = Field(default=1e-5, ge=0, description="per backward kernel")
    synchronise_s: float = Field(
        default=0.0, ge=0, description="device idle after the host has drained the queue"
    )
    graphs: tuple[Literal["iteration", "attention", "router"], ...] = Field(
        default=(), description="what is replayed as CUDA graphs"
    )


class Memory(StrictModel):
    """The memory of the software in addition to parameters, gradients, states and saved activations.

    Allocated bytes are given out by the framework; `fragmentation_fraction` is what its allocator holds
    back beyond them; context and communicators are seen by the driver alone. Whether a job fits is
    judged on the sum of all three.

    Attributes
    ----------
    logit_bytes : float
        Per logit, from the head until the loss is done: a 16-bit copy and an fp32 one are 6.
    stage_outputs, bucket_copies : int
        Copies that a pipeline engine keeps until a micro-batch's backward, and that a reduction makes.
    weight_gradients : str
        Where the GEMM adds a gradient to the sum itself, autograd still wants a tensor of the weight's
        shape: "written" allocates one for the time of each linear's backward, as where the gradient is
        written first and added then; "placeholder" keeps one of each shape for good (Transformer Engine,
        `get_dummy_wgrad`).
    keeps_gradients : bool
        Gradients lie in one buffer for good (Megatron-LM), or are freed between steps (PyTorch).
    """

    workspace_bytes: float = Field(default=64e6, ge=0, description="cuBLAS and the like, allocated")
    logit_bytes: float = Field(default=6.0, ge=0, description="kept per logit through the loss")
    stage_outputs: int = Field(
        default=0, ge=0, description="stage outputs kept per micro-batch in flight, until its backward"
    )
    weight_gradients: Literal["written", "placeholder"] = Field(
        default="written", description="what a linear allocates for its weight's gradient"
    )
    keeps_gradients: bool = Field(default=False, description="gradients stay allocated between steps")
    score_buffer: bool = Field(
        default=False, description="one square of attention scores stays allocated (materialised attention)"
    )
    received_activations: int = Field(
        default=0, ge=0, description="received tensors of a chunk that stay allocated, and one in transit"
    )
    update_bytes: float = Field(
        default=0.0, ge=0, description="per parameter of the shard, while the optimizer runs"
    )
    bucket_copies: int = Field(default=0, ge=0, description="gradient buckets copied while reducing")
    context_bytes: float = Field(default=0.6e9, ge=0, description="driver context, not allocated")
    communicator_bytes: float = Field(default=0.25e9, ge=0, description="buffers of one communicator")
    fragmentation_fraction: float = Field(default=0.08, ge=0, description="reserved over allocated - 1")

    @property
    def writes_weight_gradients(self) -> bool:
        """Return whether a linear's backward allocates a tensor of its weight's shape."""
        return self.weight_gradients == "written"


class Derate(StrictModel):
    """In-training GEMM time over isolated GEMM time, which kernel benchmarks do not show.

    In training, caches are cold and other streams share the memory. The ratio is 1 for every stack: the
    effect is a constant fitted on whole runs (catalog/constants/runs.json). Stacks share the mean of these
    constants, unless `own` says that their kernels were measured inside the software itself.
    `log_sigma_factor` is the prior: two sources that timed GEMMs on one device differ by 0.1
    (docs/accuracy/kernels.md).
    """

    ratio: float = Field(default=1.0, gt=0)
    own: bool = Field(default=False, description="does not share what constants of other stacks say")
    log_sigma_factor: float = Field(default=0.1, ge=0)


class Stack(StrictModel):
    """One training framework of one era.

    Attributes
    ----------
    era : str
        Month of the release, "2022-05": versions of one framework differ by 5 to 30 per cent.
    attention_kernel : str
        "materialised" writes the square of scores to memory; "flash" never does.
    attention_generation : str
        Which flash kernel: a version of FlashAttention, or the first one in Triton. "newest" is the kernel
        of the device's measured curves (cost/kernels/generations.py).
    rewrites : tuple of str
        Changes that turn the logical items into the items that the software runs, in order; names of
        `workload.rewrites.REWRITES`.
    synchronise_each_layer : bool
        Whether the host waits for the device around each recomputed layer (an option of GPT-NeoX).
    fused_loss : str
        When one kernel over 16-bit logits computes the cross entropy, instead of a cast to fp32 and a chain
        of kernels: never, if tensor parallelism leaves logits "uncut", or in "all" cases.
    tensor_overlap : str
        "chunks": gathers and scatters of tensor parallelism overlap with the GEMMs that they belong to,
        both in chunks (Transformer Engine's user buffers, Megatron-LM's `--tp-comm-overlap`).
    rank_orders : tuple of str
        Rank orders besides tp-cp-dp-pp that an option of the launcher gives, for plans without context
        parallelism in which replicas shard at most optimizer states. A search recommends only these; a plan
        may use any.
    selective_groups : tuple of str
        Modules that `recompute: selective` recomputes if the plan names none (layers/modules.py).
    recompute_until : str
        How far a recomputed forward pass goes: to its "end" (Megatron-LM, DeepSpeed); until all tensors
        that were "kept" the first time exist again (PyTorch's non-reentrant checkpoint); or only until the
        tensors that gradients "read" exist (compiled blocks). The last two differ with adapters and in
        blocks whose attention and MLP are parallel.

    Examples
    --------
    >>> stack = Stack(name="mine")
    >>> stack.attention_kernel, stack.pipeline.partition, stack.derate.ratio
    ('flash', 'even', 1.0)
    """

    name: str
    era: str = ""
    attention_kernel: Literal["materialised", "flash"] = "flash"
    attention_generation: Literal["newest", "flash-2", "flash-1", "triton"] = "newest"
    rewrites: tuple[str, ...] = Field(default=(), description="in order; see workload/rewrites")
    synchronise_each_layer: bool = Field(
        default=False, description="the device is drained around every recomputed layer"
    )
    rank_orders: tuple[RankOrder, ...] = Field(
        default=(), description="besides tp-cp-dp-pp; what a search may recommend"
    )
    selective_groups: tuple[str, ...] = ("core_attention",)
    recompute_until: Literal["end", "kept", "read"] = Field(
        default="end", description="kept, read: the last GEMM of a checkpoint does not run again"
    )
    fused_loss: Literal["none", "uncut", "all"] = Field(
        default="none", description="which logits have their cross entropy in one kernel"
    )
    tensor_overlap: Literal["none", "chunks"] = Field(
        default="none", description="chunks: tensor-parallel messages under blocks' products"
    )
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
    switches: Switches = Switches()
    source: tuple[Source, ...] = ()

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
