"""Settings of training software for gradients and parameters of data-parallel ranks.

Answers: which collective reduces gradients at which ZeRO stage, in which dtype and buckets, and does it
overlap with compute; which states are sharded, and when are parameters gathered?
Elsewhere: the rest of a stack (spec/stack.py), the messages themselves (workload/gradient_reduction.py,
workload/sharded.py), the degrees (spec/plan.py).
"""

from typing import Literal

from pydantic import Field

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.strict_model import StrictModel

ZeroStage = Literal[0, 1, 2, 3]


class Gradients(StrictModel):
    """The reduction of gradients between the last backward pass and the optimizer.

    Attributes
    ----------
    dtype : str
        Dtype of the buffers that are reduced, both in messages and in memory.
    collective : str
        How gradients are reduced if ranks share the optimizer states (ZeRO-1, ZeRO-2). "all_reduce" leaves
        the sum on every rank; "reduce_scatter" leaves each rank the part that it updates. Without sharded
        states, gradients are all-reduced; with ZeRO-3, they are always reduce-scattered.
    overlap : bool or tuple of int
        Whether reductions overlap with the backward pass of the last micro-batch: always, never, or at the
        listed ZeRO stages.
    overlap_with_tensor : bool
        Whether `overlap` also applies with tensor parallelism. It does not if all collectives then use the
        compute stream (OneFlow's `nccl_use_compute_stream`): reductions follow the last backward pass.
    overlap_gather : bool
        Whether parameters that other ranks have updated (ZeRO-1, ZeRO-2) are gathered layer by layer during
        the first forward pass of the next step, instead of before it.
    returns : str
        How ranks get the parameters that other ranks have updated (ZeRO-1, ZeRO-2). "gathers": one for each
        bucket. "broadcasts": one from each rank that updates any tensor, because whole tensors are assigned
        to ranks (InternEvo).
    bucket_elements : int
        Gradients in one message. Larger messages overlap less but reach more of the bandwidth.
    bucket_elements_per_rank : int
        Smallest size of a bucket divided by the data-parallel degree, so that the shard of each rank stays
        large enough for the network (Megatron-Core).
    single_bucket_after_backward : bool
        Whether gradients that are reduced after the backward pass are sent in one message. Megatron-Core
        divides its buffer into buckets only to overlap them.
    copies : tuple of str
        Passes that flatten, scale or unflatten all gradients, as names of kinds of memory-bound operators
        (`operators.memory_bound`).
    accumulate_passes : int
        Passes that add a gradient to those of earlier micro-batches; 0 if the GEMM accumulates.
    overflow_checks : int
        How often fp16 gradients are checked for infinities; each check also waits for all ranks.

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
        """Return whether the reduced buffers hold more bits than gradients are computed in."""
        return ELEMENT_BYTES[self.dtype] > ELEMENT_BYTES["bf16"]

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
    """The costs of ZeRO-3 that sends each tensor in its own message, as in 2021; the device waits for all.

    Attributes
    ----------
    piece_s : float
        Host time of each piece of a message, which is a list with one piece for each rank.
    message_s : float
        Time in which the device is idle at each message, because the host waits for it before and after.
    elements_per_s : float
        Rate at which the software processes the elements of a unit that it gathers, in addition to the
        messages.
    reuse_elements : int
        A tensor is released after its recompute, and gathered again for its backward pass, if at least this
        number of elements is used in between. With 0, all tensors are kept.
    """

    piece_s: float = Field(default=1e-5, ge=0)
    message_s: float = Field(default=0.0, ge=0)
    elements_per_s: float = Field(default=2e10, gt=0)
    reuse_elements: int = Field(default=0, ge=0)


class Sharding(StrictModel):
    """The sharding of gradients and parameters by ZeRO-2, ZeRO-3 and FSDP, and its communication.

    A *unit* is the part of a model whose parameters are gathered in one message: a block, or embedding and
    head as `ends` says.

    Attributes
    ----------
    zero_stages : tuple of int
        ZeRO stages that the software has.
    gathers : str
        How often parameters of ZeRO-3 are gathered. "every_pass": they are freed after the forward pass and
        gathered again for the backward pass. "every_micro_batch": they are kept from a forward pass to its
        backward pass. "every_step": they are kept for all micro-batches.
    reduces : str
        When gradients of ZeRO-2 and ZeRO-3 are reduced: in "every_micro_batch", so that only shards are
        kept, or in the "last_micro_batch", with whole gradients kept until then.
    holds_in_pipeline : bool
        Whether a pipeline stage keeps parameters for all micro-batches and reduces in the last one,
        regardless of `gathers` and `reduces`. PyTorch's stages do.
    prefetch_units : int
        Number of units that are gathered ahead of the one that computes; with 0, compute waits for each
        gather.
    ends : str
        Units of the embedding and the head. "own_units": each is a separate unit. "root": they are gathered
        together before the forward pass and kept until the end of the backward pass, as FSDP1's root module
        is.
    keeps_last_unit : bool
        Whether the last unit of a forward pass is not freed, because the backward pass begins with it.
    keeps_low_precision : bool
        Whether a 16-bit copy of the shard is kept in addition to the fp32 copy. (`optimizer.state_bytes`
        counts the fp32 copy.)
    gradient_dtype : str
        Dtype of the shard of gradients that is kept.
    unit_copies : tuple of str
        Passes over a gathered unit before it is used, as names of kinds of memory-bound operators.
    levels : tuple of str
        Kinds of state that the software can shard over their own groups, as words of `plan.shards`:
        "secondary"; with a format of messages, "parameters:int8".
    single_tensors : SingleTensors or None
        Extra cost if ZeRO-3 gathers each large tensor in its own message; None if a whole unit, such as a
        block, is gathered in one message.
    built_whole : bool
        Whether each rank builds the whole model in 16 bits on its device before parameters are sharded. No
        step needs as much memory, but the run fails if the model does not fit. Meta devices avoid this.
    """

    zero_stages: tuple[ZeroStage, ...] = (0, 1, 2, 3)
    gathers: Literal["every_pass", "every_micro_batch", "every_step"] = "every_pass"
    reduces: Literal["every_micro_batch", "last_micro_batch"] = "every_micro_batch"
    holds_in_pipeline: bool = True
    prefetch_units: Literal[0, 1] = 1
    ends: Literal["own_units", "root"] = "own_units"
    keeps_last_unit: bool = False
    keeps_low_precision: bool = False
    gradient_dtype: Literal["fp16", "bf16", "fp32"] = "fp32"
    unit_copies: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    single_tensors: SingleTensors | None = None
    built_whole: bool = False
