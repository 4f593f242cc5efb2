"""Settings of training software for gradients and parameters of data-parallel ranks.

Answers: which collective reduces gradients at which ZeRO stage, in which dtype and buckets, and does it
overlap with compute; which states are sharded, and when are parameters gathered?
Elsewhere: the rest of a stack (spec/stack.py), the messages themselves (workload/gradient_reduction.py,
workload/sharded.py), the degrees (spec/plan.py).
"""

from typing import Literal

from pydantic import Field

from flopcast.dtypes import is_wide
from flopcast.strict_model import StrictModel

ZeroStage = Literal[0, 1, 2, 3]


class Gradients(StrictModel):
    """How a training framework reduces gradients over data-parallel ranks.

    Attributes
    ----------
    dtype : str
        Dtype of gradients in memory and in the messages that reduce them.
    collective : str
        Collective that reduces gradients under ZeRO-1 and ZeRO-2. "all_reduce": every rank gets the whole
        sum. "reduce_scatter": each rank gets only the part of the gradients that it updates. Without ZeRO,
        gradients are always all-reduced, and under ZeRO-3 always reduce-scattered.
    overlap : bool or tuple of int
        Whether the reduction of gradients overlaps with the backward pass of the last micro-batch: true,
        false, or a list of the ZeRO stages with overlap.
    overlap_with_tensor : bool
        Whether `overlap` also applies to plans with tensor parallelism. Set it to false if these plans run
        all collectives on the compute stream (OneFlow's `nccl_use_compute_stream`). Gradients are then
        reduced after the last backward pass.
    overlap_gather : bool
        Whether the all-gather of updated parameters (ZeRO-1, ZeRO-2) overlaps with the first forward pass
        of the next step, layer by layer. Otherwise, it is complete before the forward pass begins.
    returns : str
        How updated parameters are distributed under ZeRO-1 and ZeRO-2. "gathers": by an all-gather of each
        bucket. "broadcasts": by a broadcast from each rank, because a rank updates whole tensors
        (InternEvo).
    bucket_elements : int
        Number of gradients in one message (the bucket size). Larger buckets reach a higher bandwidth but
        overlap less.
    bucket_elements_per_rank : int
        Smallest number of gradients in a bucket, divided by the data-parallel degree. With many ranks, it
        makes buckets larger than `bucket_elements`, so that the shard of each rank stays large enough for
        the network (Megatron-Core).
    single_bucket_after_backward : bool
        Whether gradients are sent in a single message if their reduction does not overlap with the backward
        pass, as in Megatron-Core.
    copies : tuple of str
        Memory-bound kernels that flatten, cast, scale or unflatten all gradients, as names of kinds of
        operators in `operators.memory_bound`.
    accumulate_passes : int
        Number of memory-bound kernels that add each gradient to the sum of earlier micro-batches; 0 if the
        GEMM accumulates gradients.
    overflow_checks : int
        How many times a step checks fp16 gradients for infinities. Every check synchronises all ranks.

    Examples
    --------
    >>> deepspeed = Gradients(overlap=(3,), collective="all_reduce")
    >>> [deepspeed.overlaps(zero) for zero in (0, 2, 3)]
    [False, False, True]
    >>> [deepspeed.scatters(zero) for zero in (0, 2, 3)]
    [False, False, True]
    """

    dtype: Literal["fp16", "bf16", "fp32"] = "fp32"
    collective: Literal["all_reduce", "reduce_scatter"] = "all_reduce"
    overlap: bool | tuple[ZeroStage, ...] = False
    overlap_with_tensor: bool = True
    overlap_gather: bool = False
    returns: Literal["gathers", "broadcasts"] = "gathers"
    bucket_elements: int = Field(default=40_000_000, gt=0)
    bucket_elements_per_rank: int = Field(default=0, ge=0)
    single_bucket_after_backward: bool = False
    copies: tuple[str, ...] = ()
    accumulate_passes: int = Field(default=1, ge=0)
    overflow_checks: int = Field(default=1, ge=0)

    @property
    def is_wide(self) -> bool:
        """Return whether the reduced buffers have more bits than the computed gradients."""
        return is_wide(self.dtype)

    def overlaps(self, zero: int) -> bool:
        """Return whether reductions overlap with the backward pass at this ZeRO stage."""
        return self.overlap if isinstance(self.overlap, bool) else zero in self.overlap

    def scatters(self, zero: int) -> bool:
        """Return whether gradients are reduce-scattered, rather than all-reduced, at this ZeRO stage."""
        return zero == 3 or (zero > 0 and self.collective == "reduce_scatter")

    def smallest_bucket(self, data_parallel: int) -> int:
        """Return the elements of a full bucket for this data-parallel degree."""
        return max(self.bucket_elements, self.bucket_elements_per_rank * data_parallel)


class SingleTensors(StrictModel):
    """Costs of ZeRO-3 with a separate, blocking message for each tensor, as in DeepSpeed in 2021.

    Attributes
    ----------
    piece_s : float
        Time that the host needs for each piece of a message. A message has one piece for each rank.
    message_s : float
        Time in which the device is idle at each message, because the host synchronises with the device
        before and after it.
    elements_per_s : float
        Rate, in elements per second, at which the framework processes gathered parameters in addition to
        the messages.
    reuse_elements : int
        Reuse distance in elements: a recomputed tensor is released if at least so many elements are used
        before its backward pass, and is then gathered again. With 0, all tensors are kept.
    """

    piece_s: float = Field(default=1e-5, ge=0)
    message_s: float = Field(default=0.0, ge=0)
    elements_per_s: float = Field(default=2e10, gt=0)
    reuse_elements: int = Field(default=0, ge=0)


class Sharding(StrictModel):
    """How a training framework implements ZeRO and FSDP.

    A *unit* is a part of the model whose parameters are gathered in one message, such as a block.

    Attributes
    ----------
    zero_stages : tuple of int
        ZeRO stages that the framework supports.
    usual_zero : int or None
        ZeRO stage of plans that state none. By default (null), the lowest supported stage above 0.
    pipeline_zero_stages : tuple of int
        Those of them that the framework supports together with several pipeline stages.
    gathers : str
        How often parameters are gathered under ZeRO-3. "every_pass": for each forward and each backward
        pass. "every_micro_batch": for each forward pass; they are kept until its backward pass.
        "every_step": once per step.
    reduces : str
        When gradients are reduced under ZeRO-2 and ZeRO-3. "every_micro_batch": after each backward pass,
        so that ranks keep only shards of gradients. "last_micro_batch": only after the last backward pass;
        ranks keep whole gradients until then.
    holds_in_pipeline : bool
        Whether plans with pipeline stages gather parameters and reduce gradients only once per step,
        regardless of `gathers` and `reduces`, as PyTorch's pipeline stages do.
    prefetch_units : int
        Number of units whose parameters are gathered in advance. With 0, compute waits for each all-gather.
    ends : str
        How embedding and head are gathered. "own_units": each of them is a unit. "root": both are gathered
        together before the forward pass and kept until the end of the backward pass, like the root module
        of FSDP1.
    whole : str
        What is whole on each rank at the same time, and limits memory. "unit": all parameters of a unit,
        and then all its gradients. "weight": one weight, because a compiler places the all-gather and the
        reduction of each weight next to its GEMM. The times of both are predicted for messages of a unit.
    keeps_last_unit : bool
        Whether the parameters of the last unit are kept after the forward pass, because the backward pass
        begins with them.
    keeps_low_precision : bool
        Whether each rank keeps a 16-bit copy of its shard of parameters in addition to the fp32 copy, which
        is part of the optimizer states.
    gradient_dtype : str
        Dtype in which ranks keep their shards of gradients.
    unit_copies : tuple of str
        Memory-bound kernels that copy the parameters of a unit after they are gathered, as names of kinds
        of operators in `operators.memory_bound`.
    levels : tuple of str
        What the framework supports in `plan.shards`: kinds of state that can have a separate group of
        ranks, such as "secondary", and number formats of messages, such as "parameters:int8".
    single_tensors : SingleTensors or None
        Additional costs of software that gathers each large tensor in a separate message under ZeRO-3. By
        default (null), a whole unit is gathered in one message.
    built_whole : bool
        Whether each rank first builds the whole model in 16 bits on its device, and then shards the
        parameters. The run then fails if the whole model does not fit in the memory of a device.
        Initialisation on the meta device avoids this.
    low_precision_gathers : bool
        Whether ZeRO-3 gathers weights in 8 bits if they are stored only so (`narrow.narrow_parameters`).
        Transformer Engine's MXFP8Tensor gives PyTorch's fully_shard its rows in the forward pass, and its
        columns in the backward pass (`fsdp_pre_all_gather`). If false, they are gathered in 16 bits.
    """

    zero_stages: tuple[ZeroStage, ...] = (0, 1, 2, 3)
    usual_zero: ZeroStage | None = None
    pipeline_zero_stages: tuple[ZeroStage, ...] = (0, 1, 2, 3)
    gathers: Literal["every_pass", "every_micro_batch", "every_step"] = "every_pass"
    reduces: Literal["every_micro_batch", "last_micro_batch"] = "every_micro_batch"
    holds_in_pipeline: bool = True
    prefetch_units: Literal[0, 1] = 1
    ends: Literal["own_units", "root"] = "own_units"
    whole: Literal["unit", "weight"] = "unit"
    keeps_last_unit: bool = False
    keeps_low_precision: bool = False
    gradient_dtype: Literal["fp16", "bf16", "fp32"] = "fp32"
    unit_copies: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    single_tensors: SingleTensors | None = None
    built_whole: bool = False
    low_precision_gathers: bool = False
