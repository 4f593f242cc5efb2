"""Reductions of gradients over data-parallel ranks: their times and their messages.

Answers: in which micro-batches are gradients reduced, how large is a bucket, and which collectives reduce
it?
Elsewhere: the items of a layer and of a step (gradient_reduction.py), gathers of parameters (sharded.py).
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, Counts
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.operators.messages import AllReduce, QuantisedReduceScatter, ReduceScatter
from flopcast.spec.plan import Plans
from flopcast.spec.shard_groups import axis_of
from flopcast.spec.shards import MESSAGE_BYTES, group_of, message_format
from flopcast.spec.stack import Stack

ALL_BEFORE = ("compute", "tp", "ep", "cp", "dp", "host")  # what an item at the end of a step waits for
Times = tuple[tuple[str, Counts], ...]  # `Item.when`, and 1 for plans that it holds for, (plans, 1)


def reduction_times(stack: Stack, plans: Plans) -> Times:
    """Return the micro-batches in which gradients are reduced: the last, or all if only shards are kept.

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> times = reduction_times(Stack(name="any"), one_plan(Plan(dp=8, zero=3)))
    >>> [(when, mask.item()) for when, mask in times]
    [('every', 1.0), ('last', 0.0)]
    """
    if plans.structure.zero < 2 or stack.sharding.reduces == "last_micro_batch":
        return (("last", ONE),)
    if not stack.sharding.holds_in_pipeline:
        return (("every", ONE),)
    alone = (plans.pipeline_parallel == 1).astype(np.float64)
    return (("every", alone), ("last", 1.0 - alone))


def bucket_elements(stack: Stack, plans: Plans, overlapped: bool = True) -> Counts:
    """Return the elements of one bucket of gradients or gathered parameters, (plans, 1).

    A message may have fewer elements. `overlapped` states whether the message overlaps with compute. Some
    stacks send all gradients that do not overlap in one message, so that their bucket is infinite.
    """
    gradients = stack.gradients
    if gradients.single_bucket_after_backward and not overlapped:
        return np.full_like(plans.data_parallel, np.inf)
    return np.maximum(gradients.bucket_elements, gradients.bucket_elements_per_rank * plans.data_parallel)


def reductions(stack: Stack, plans: Plans, bucket: Counts, axis: str) -> dict[str, AbstractMessage]:
    """Return the messages that sum a bucket of gradients over `axis`, "dp" or "expert_dp", by name suffix.

    The ZeRO stage and the stack choose the collective. A reduce-scatter runs over the ranks that share one
    set of shards; if there are several sets, an all-reduce then sums each shard over the ranks that hold it
    (HSDP). An all-reduce gives every rank the whole sum. Gradients with their own shard group are summed
    only in this group; once in each step, the owners of optimizer states add the sums of all groups
    (shard_levels.py).
    """
    size_bytes = bucket * ELEMENT_BYTES[stack.gradients.dtype]
    if group_of(plans.structure.shards, "gradients") is not None:
        own, narrow = axis_of(plans, "gradients"), message_format(plans.structure.shards, "gradients")
        if narrow:
            return {"": QuantisedReduceScatter(axis=own, message_bytes=bucket * MESSAGE_BYTES[narrow])}
        return {"": ReduceScatter(axis=own, message_bytes=size_bytes)}
    if not stack.gradients.scatters(plans.structure.zero):
        return {"": AllReduce(axis=axis, message_bytes=size_bytes)}
    shards = plans.expert_state_shards if axis == "expert_dp" else plans.state_shards
    return {
        "": ReduceScatter(axis=f"{axis}_shard", message_bytes=size_bytes),
        "_across_groups": AllReduce(axis=f"{axis}_replicate", message_bytes=size_bytes / shards),
    }


def hidden_reductions(stack: Stack, plans: Plans, axis: str) -> Counts:
    """Return 1 if reductions over an axis overlap with the backward pass, otherwise 0; (plans, 1).

    This function is for ZeRO stages below 2. A rank without replicas reduces nothing, so its copies do not
    overlap.

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> stack = Stack(name="any", gradients={"overlap": True, "overlap_with_tensor": False})
    >>> [hidden_reductions(stack, one_plan(Plan(dp=8, tp=tp)), "dp").item() for tp in (1, 8)]
    [1.0, 0.0]
    >>> hidden_reductions(Stack(name="any", gradients={"overlap": True}), one_plan(Plan()), "dp").item()
    0.0
    """
    gradients = stack.gradients
    ranks = plans.expert_replicas if axis == "expert_dp" else plans.replicas
    hides = (ranks > 1) & gradients.overlaps(plans.structure.zero)
    if not gradients.overlap_with_tensor:
        hides = hides & (plans.tensor_parallel == 1)
    return np.asarray(hides.astype(np.float64))


def bucket_of(stack: Stack, plans: Plans, held: Counts, on_stage: Counts) -> tuple[Counts, Counts]:
    """Return the elements of a bucket, and how many buckets the `held` elements of a layer fill.

    The number is below 1 if a bucket spans several layers. Parameters that are separate units (ZeRO-3) are
    one bucket.
    """
    bucket = np.minimum(bucket_elements(stack, plans), on_stage) if plans.structure.zero < 3 else held
    return bucket, held / np.maximum(bucket, 1.0)


def equal_buckets(stack: Stack, plans: Plans, held: Counts, overlaps: bool) -> tuple[Counts, Counts]:
    """Return the number of equal buckets that `held` elements fill, and the elements of each.

    `overlaps`: whether the stack overlaps reductions of this plan's ZeRO stage.
    """
    most = bucket_elements(stack, plans, overlaps)
    buckets = np.ceil(held / np.minimum(most, np.maximum(held, 1.0)))
    return buckets, held / np.maximum(buckets, 1.0)


def step_message(name: str, message: AbstractMessage) -> Item:
    """Return a message of the data-parallel axis at the end of a step.

    It waits for everything that was launched before it, as the norm of gradients and the gather of updated
    parameters do.
    """
    return Item(
        name=f"gradients.{name}",
        work=message,
        component="dp_communication",
        phase="step",
        stream="dp",
        waits=ALL_BEFORE,
    )
