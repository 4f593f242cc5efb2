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
    """The reduction of gradients between the last backward and the update.

    Attributes
    ----------
    dtype : str
        Dtype of the reduced buffers, both in messages and in memory.
    collective : str
        How gradients are reduced where ranks share the optimizer states (ZeRO-1, ZeRO-2): "all_reduce"
        leaves the sum on every rank, "reduce_scatter" leaves each rank the part that it updates. Without
        sharded states every rank needs the whole sum, so gradients are all-reduced; ZeRO-3 always
        reduce-scatters.
    overlap : bool or tuple of int
        Whether reductions overlap with the backward pass of the last micro-batch: always, never, or at the
        listed ZeRO stages.
    bucket_elements : int
        Gradients in one message: larger messages overlap less but reach more of the bandwidth.
    bucket_elements_per_rank : int
        The least elements of a bucket, divided by the data-parallel degree, so that the shard of each rank
        stays large enough for the network (Megatron-Core).
    single_bucket_after_backward : bool
        Whether gradients that are reduced after the backward pass are sent in one message. Megatron-Core
        divides its buffer into buckets only to overlap them.
    copies : tuple of str
        Passes that flatten, scale or unflatten all gradients, as names of kinds of memory-bound operators
        (`operators.memory_bound`).
    accumulate_passes : int
        Passes that add a gradient to those of earlier micro-batches; 0 if the GEMM accumulates.
    overlap_with_tensor : bool
        Whether `overlap` also applies with tensor parallelism. It does not if all collectives then use the
        compute stream (OneFlow's `nccl_use_compute_stream`): reductions follow the last backward pass.
    overlap_gather : bool
        Whether parameters that other ranks have updated (ZeRO-1, ZeRO-2) are gathered layer by layer during
        the first forward pass of the next step, or all before it.
    returns : str
        How ranks get the parameters that other ranks have updated (ZeRO-1, ZeRO-2): "gathers", one for each
        bucket; "broadcasts", one from each rank that updates any tensor, because whole tensors are assigned
        to ranks (InternEvo).
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
    collective: Literal["all_reduce", "reduce_scatter"] = Field(
        default="all_reduce", description="where ranks share the optimizer states (zero 1 or 2)"
    )
    overlap: bool | tuple[ZeroStage, ...] = Field(
        default=False, description="under the last micro-batch's backward: true, false or ZeRO stages"
    )
    overlap_with_tensor: bool = Field(default=True, description="overlap, where tp is above 1 as well")
    overlap_gather: bool = Field(default=False, description="parameters, under the next forward")
    returns: Literal["gathers", "broadcasts"] = Field(
        default="gathers", description="updated parameters, from the ranks that updated them"
    )
    bucket_elements: int = Field(default=40_000_000, gt=0)
    bucket_elements_per_rank: int = Field(default=0, ge=0, description="least, times data_parallel")
    single_bucket_after_backward: bool = Field(
        default=False, description="reductions that do not overlap are one message"
    )
    copies: tuple[str, ...] = Field(default=(), description="memory-bound passes before and after")
    accumulate_passes: int = Field(
        default=1, ge=0, description="0: accumulated inside the weight-gradient GEMM"
    )
    overflow_checks: int = Field(default=1, ge=0, description="extra passes and syncs before the norm")

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


class Sharding(StrictModel):
    """The sharding of gradients and parameters by ZeRO-2, ZeRO-3 and FSDP, and its communication.

    A *unit* is gathered at once: a block, or embedding and head as `ends` says.

    Attributes
    ----------
    zero_stages : tuple of int
        Which of `plan.zero` this software has.
    gathers : str
        How often parameters of ZeRO-3 are gathered: "every_pass" (freed after the forward pass and gathered
        again for the backward pass), "every_micro_batch" (kept from a forward pass to its backward pass) or
        "every_step" (kept for all micro-batches).
    reduces : str
        When gradients of ZeRO-2 and ZeRO-3 are reduced: in "every_micro_batch", so that only shards are
        kept, or in the "last_micro_batch", with whole gradients kept until then.
    holds_in_pipeline : bool
        Whether a pipeline stage keeps parameters for all micro-batches and reduces in the last one,
        regardless of the two fields before. PyTorch's stages do.
    prefetch_units : int
        Units gathered ahead of the one that computes; with 0, compute waits for each gather.
    ends : str
        "own_units": embedding and head are separate units; "root": they are gathered together before the
        forward pass and kept until the end of the backward pass, as FSDP1's root module does.
    keeps_last_unit : bool
        Whether the last unit of a forward pass is not freed, because the backward pass begins with it.
    keeps_low_precision : bool
        Whether a 16-bit copy of the shard is kept in addition to the fp32 one, which
        `optimizer.state_bytes` counts.
    gradient_dtype : str
        Dtype of the shard of gradients that is kept.
    unit_copies : tuple of str
        Passes over a gathered unit before it is used, as names of kinds of memory-bound operators.
    built_whole : bool
        Whether a rank's whole model is on its device, in 16 bits, before parameters are sharded. No step
        needs as much memory, but the run fails if the model does not fit. Meta devices avoid this.
    """

    zero_stages: tuple[ZeroStage, ...] = (0, 1, 2, 3)
    gathers: Literal["every_pass", "every_micro_batch", "every_step"] = "every_pass"
    reduces: Literal["every_micro_batch", "last_micro_batch"] = "every_micro_batch"
    holds_in_pipeline: bool = Field(default=True, description="with stages: gathered once a step")
    prefetch_units: Literal[0, 1] = 1
    ends: Literal["own_units", "root"] = "own_units"
    keeps_last_unit: bool = False
    keeps_low_precision: bool = False
    gradient_dtype: Literal["fp16", "bf16", "fp32"] = "fp32"
    unit_copies: tuple[str, ...] = Field(default=(), description="memory-bound passes over a unit")
    built_whole: bool = Field(default=False, description="on the device, before parameters are sharded")
