"""The stack: the training software and its settings.

Answers: which fusions and which attention kernel does this software run, in which order does it
communicate, how does it divide layers, how much memory and host time does it need, and which defaults does
it have?
Elsewhere: the rewrites themselves (workload/rewrites), the hardware (spec/cluster.py).

To reproduce a run, describe its software by a stack, a release and the settings in its log, and never by a
factor for this run.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from flopcast.dtypes import ELEMENT_BYTES, is_wide
from flopcast.spec.data_parallel import Gradients, Sharding
from flopcast.spec.expert_software import ExpertSoftware
from flopcast.spec.memory_software import Memory
from flopcast.spec.offload_software import OffloadSoftware
from flopcast.spec.plan_fields import RankOrder
from flopcast.spec.precision import NarrowProducts, activation_dtype
from flopcast.spec.source import Sources
from flopcast.spec.switches import Switches
from flopcast.strict_model import StrictModel, words


class Pipeline(StrictModel):
    """How layers are divided over pipeline stages, and how stages send activations to each other.

    Attributes
    ----------
    partition : str
        How blocks are divided over stages. "even": every chunk has the same number of blocks (Megatron-LM).
        "deepspeed_uniform": every stage has the same number of modules. Embedding and head count as modules
        too (`entries_before`, `entries_after`), so the first and the last stage have fewer blocks.
    entries_before, entries_after : int
        Number of modules before the first and after the last block, for "deepspeed_uniform".
    transfers : str
        How stages send and receive activations. "sequential": one blocking message after the other; sender
        and receiver wait (DeepSpeed). "batched": all messages between two tasks of a stage start together,
        and the stage waits for all of them (Megatron-LM without p2p overlap). "overlapped":
        sending never blocks. "overlapped_chunks": "overlapped" with interleaved stages and "batched"
        otherwise (Megatron-LM's default).
    payload : str
        Part of the activations that a tensor-parallel rank sends to the next stage. "full": the whole
        activations. "scattered": 1/tp of them, which the receiving ranks all-gather.
    sends_mask : bool
        Whether stages also send the attention mask, a square 16-bit matrix, as GPT-NeoX does.
    host_s : float
        Time that the host needs for one blocking message.
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
    """How overlapped communication slows down compute (see `collective_slowdown_fraction` of the device).

    Attributes
    ----------
    kernel_share : float
        Fraction of the bytes of overlapped communication that kernels send: 1 for kernels of NCCL and RCCL
        (the default), 0 for copy engines.
    reserved_multiprocessors : int
        Number of multiprocessors that run only communication. GEMMs and attention run on the others.
    """

    kernel_share: float = Field(default=1.0, ge=0, le=1)
    reserved_multiprocessors: int = Field(default=0, ge=0)


class Optimizer(StrictModel):
    """Memory and memory traffic of the optimizer step for each parameter that a rank updates.

    `moved_bytes` and `state_bytes` describe AdamW with fp32 states. flopcast derives the values of other
    optimizers and dtypes from them (spec/optimizers.py).

    Attributes
    ----------
    moved_bytes : float
        Number of bytes that AdamW with fp32 states reads and writes per parameter; 0 to leave out the time
        of the update.
    state_bytes : float
        Number of bytes per parameter that AdamW with fp32 states stores: 4 for the main weight and 8 for
        two moments. With less than 8, the weights and both moments have 16 bits, and an update moves half
        of `moved_bytes`.
    exp_avg_dtype : str
        Dtype of the first moment (Adam) or of the momentum (SGD, Muon).
    exp_avg_sq_dtype : str
        Dtype of the second moment.
    main_parameter_bytes : float
        Number of bytes of the main weight that the optimizer stores: 4 for an fp32 copy, 2 if it stores
        only the lower 16 bits and takes the upper ones from the bf16 weight.
    matrices : str
        How Muon orthogonalises matrices if its states are sharded. "distributed": each rank orthogonalises
        its own matrices. "gathered": momenta are all-gathered first, and every rank orthogonalises all
        matrices.
    fp32_gradients : bool
        Whether the optimizer needs fp32 gradients. 16-bit gradients are then copied to fp32 before the
        optimizer step, and the copies stay in memory until the next step begins.
    step_host_s : float
        Time of the host in each step for schedulers, logging and loss scaling. It does not overlap with any
        work of the device.
    sharded_operators : int
        Number of operators that an optimizer written in Python dispatches for each trained tensor, one
        after another, while the device waits. Each takes `host.sharded_operator_s`. The optimizers of
        PyTorch need none: `foreach` and `fused` process all tensors in a few operators.
    """

    moved_bytes: float = Field(default=30.0, ge=0)
    state_bytes: float = Field(default=12.0, ge=0)
    exp_avg_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    exp_avg_sq_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    main_parameter_bytes: float = Field(default=4.0, ge=0, le=4)
    matrices: Literal["distributed", "gathered"] = "distributed"
    fp32_gradients: bool = False
    step_host_s: float = Field(default=5e-3, ge=0)
    sharded_operators: int = Field(default=0, ge=0)

    @property
    def states_dtype(self) -> str:
        """Return the dtype of AdamW's states: 16 bits if `state_bytes` is too small for fp32 moments.

        >>> Optimizer().states_dtype, Optimizer(state_bytes=4.0).states_dtype
        ('fp32', 'bf16')
        """
        return "fp32" if self.state_bytes >= 8.0 else "bf16"


class HostCost(StrictModel):
    """Time that the host takes to launch kernels, on the reference host (`speed_ratio` 1).

    If kernels are small, these times limit a step. Python launches forward kernels, which takes longer.

    Attributes
    ----------
    forward_item_s : float
        Host time of launching one forward kernel in eager mode.
    backward_item_s : float
        Host time of launching one backward kernel.
    synchronise_s : float
        Time in which the device is idle after the host synchronised with it.
    graphs : tuple of str
        Parts of a layer whose kernels CUDA graphs launch, or "iteration" for the whole step.
    sharded_operator_s : float
        Host time of an operator on a DTensor in eager mode, in addition to the launch of its kernels.
    """

    forward_item_s: float = Field(default=2e-5, ge=0)
    backward_item_s: float = Field(default=1e-5, ge=0)
    synchronise_s: float = Field(default=0.0, ge=0)
    sharded_operator_s: float = Field(default=0.0, ge=0)
    graphs: Annotated[tuple[Literal["iteration", "attention", "router"], ...], BeforeValidator(words)] = ()


class Derate(StrictModel):
    """Time of a GEMM in training divided by the time of this GEMM in a benchmark.

    Caches are cold in training, and other streams use the memory. All stacks of the catalogue have a ratio
    of 1 because the effect is fitted (catalog/constants/runs.json).

    Attributes
    ----------
    ratio : float
        Time of a GEMM in training divided by the time of this GEMM in a benchmark.
    own : bool
        Whether kernels were measured in training, so that the mean of other stacks' constants does not
        apply.
    log_sigma_factor : float
        Uncertainty of `ratio` before fitting, as the standard deviation of its logarithm. By default, the
        difference between two sources that timed GEMMs on one device (docs/accuracy/kernels.md).
    """

    ratio: float = Field(default=1.0, gt=0)
    own: bool = False
    log_sigma_factor: float = Field(default=0.1, ge=0)


class Stack(StrictModel):
    """One release of a training framework, with its properties that affect speed and memory.

    Attributes
    ----------
    name : str
        Name of the stack, as `flopcast catalog stacks` lists it.
    base : str
        Entry of another release of this framework, whose fields an entry of the catalogue has unless it
        states them; "" in entries without one.
    era : str
        Month of the release, such as "2022-05". Releases of one framework differ in speed by 5 to 30 %.
    attention_kernel : str
        How attention is computed. "flash": by one fused kernel, which does not write the attention scores
        to memory. "materialised": by separate kernels, which write the attention scores to memory.
    ring_scores : bool
        Whether context parallelism works with materialised attention scores (arXiv:2105.13120).
    attention_generation : str
        Which fused attention kernel runs: a version of FlashAttention, or its first implementation in
        Triton. "newest" means the newest kernel for which flopcast has measurements on the device.
        "flash-2-or-cudnn" is FlashAttention-2, but cuDNN's kernel on Blackwell.
    rewrites : tuple of str
        Fusions and other changes that the framework applies to the operators of a model, in order. The
        names are listed in `workload.rewrites.REWRITES`.
    synchronise_each_layer : bool
        Whether the host synchronises with the device around each recomputed layer (GPT-NeoX, DeepSpeed).
    rank_orders : tuple of str
        Rank orders, in addition to tp-cp-dp-pp, that an option of the launcher selects. A search tries
        these orders for plans without context parallelism and with ZeRO stage 0 or 1. A plan that the user
        gives may have any rank order.
    selective_groups : tuple of str
        Modules that `recompute: selective` recomputes if the plan names no modules.
    recompute_until : str
        When a recomputed forward pass stops. "end": at the end of the block (Megatron-LM, DeepSpeed).
        "kept": as soon as all tensors that the first forward pass kept exist again (PyTorch's non-reentrant
        checkpoint). "read": as soon as all tensors that the backward pass reads exist (compiled blocks).
    fused_loss : str
        When one fused kernel computes the cross entropy from 16-bit logits, instead of several kernels
        that read fp32 logits. "none": never. "uncut": if the head is not divided by tensor parallelism.
        "all": always.
    tensor_overlap : str
        How all-gathers and reduce-scatters of sequence parallelism overlap with the GEMM next to them.
        "none": they do not overlap. "chunks": both are divided into chunks (Megatron-LM's
        `--tp-comm-overlap`, with the user buffers of Transformer Engine). "tiles": one fused kernel
        receives, computes and sends tile by tile (Flux). "scatter_tiles": hardware overlaps only the
        reduce-scatters, tile by tile (T3).
    pipeline : Pipeline
        How layers are divided over pipeline stages, and how stages send activations.
    gradients : Gradients
        How a training framework reduces gradients over data-parallel ranks.
    sharding : Sharding
        How ZeRO and FSDP are implemented.
    contention : Contention
        How overlapped communication slows down compute.
    optimizer : Optimizer
        What the optimizer step costs.
    host : HostCost
        Time that the host takes to launch kernels.
    experts : ExpertSoftware
        How mixtures of experts run.
    memory : Memory
        Memory other than parameters, gradients, optimizer states and saved activations.
    derate : Derate
        Time of a GEMM in training divided by the time of this GEMM in a benchmark.
    fitted_on : tuple of str
        Devices on which the constants were fitted to at least one run with any release of this framework,
        or on which its kernels were measured in training (`derate.own`; cost/unknown_site.py).
    library_fitted_on : tuple of str
        Devices on which the constants were fitted to at least one run with any framework that is built on
        the same library, such as Megatron-Core (cost/unknown_site.py).
    stands_in : bool
        Whether nobody has described the model code of the job, so that this stack is only similar to it.
        The interval is then wider, because such code may be slower or faster (cost/unknown_site.py).
    narrow : NarrowProducts
        How training in 8 and 4 bits works.
    offload : OffloadSoftware
        How tensors are offloaded to host memory, drives and file systems.
    switches : Switches
        Names of flags and configuration keys of the framework. `flopcast diagnose` prints them in its
        suggestions.

    Examples
    --------
    >>> stack = Stack(name="mine")
    >>> stack.attention_kernel, stack.pipeline.partition, stack.derate.ratio
    ('flash', 'even', 1.0)
    """

    name: str
    base: str = ""
    era: str = ""
    attention_kernel: Literal["materialised", "flash"] = "flash"
    ring_scores: bool = False
    attention_generation: Literal["newest", "flash-2", "flash-2-or-cudnn", "flash-1", "triton"] = "newest"
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
    fitted_on: tuple[str, ...] = ()
    library_fitted_on: tuple[str, ...] = ()
    stands_in: bool = False
    narrow: NarrowProducts = NarrowProducts()
    offload: OffloadSoftware = OffloadSoftware()
    switches: Switches = Switches()
    source: Sources = ()

    def computing_in(self, precision: str) -> "Stack":
        """Return the stack, adapted to a precision. In fp32, there are no separate main weights.

        Gradients and moments are then in fp32, too, and an update writes no 16-bit weights.

        >>> Stack(name="mine").computing_in("fp32").optimizer.main_parameter_bytes
        0.0
        """
        if not is_wide(activation_dtype(precision)):
            return self
        kept, wide = self.optimizer, {"exp_avg_dtype": "fp32", "exp_avg_sq_dtype": "fp32"}
        # spec/optimizers.py leaves out what is read and written of a separate main weight
        more_bytes = 2 * ELEMENT_BYTES["fp32"] - ELEMENT_BYTES["bf16"] if kept.moved_bytes else 0.0
        states = {"state_bytes": 12.0, "main_parameter_bytes": 0.0}
        states["moved_bytes"] = kept.moved_bytes + more_bytes
        return self.model_copy(
            update={
                "optimizer": kept.model_copy(update=wide | states),
                "gradients": self.gradients.model_copy(update={"dtype": "fp32"}),
                "sharding": self.sharding.model_copy(update={"gradient_dtype": "fp32"}),
            }
        )

    @property
    def fuses_attention(self) -> bool:
        """Return whether attention never writes its scores to memory."""
        return self.attention_kernel == "flash"

    @property
    def label(self) -> str:
        """Return the name with its era, as in reports; only the name if there is no era.

        >>> Stack(name="mine", era="2024-07").label, Stack(name="mine").label
        ('mine@2024-07', 'mine')
        """
        return f"{self.name}@{self.era}" if self.era else self.name
