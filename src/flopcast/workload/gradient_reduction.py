"""The end of a step: gradients are accumulated, reduced, checked and applied, and parameters are gathered.

Answers: which items end a micro-batch's backward and a step, for each ZeRO stage?
Elsewhere: parameters that are gathered during the passes (ZeRO-3, FSDP, or updated parameters during the
next forward pass), and the axes over which gradients are summed (sharded.py).

A step ends in three parts. `reduce`: each stage sums its gradients over its replicas and checks them.
`synchronise`: all stages exchange overflow flags and compute the global norm. `update`: each stage applies
its gradients; only its own next forward pass waits for this.

Numbers of parameters are those of a rank, (plans, stage classes), or of a layer, (plans, 1).

References
----------
ZeRO: arXiv:1910.02054. Loss scaling, and why a step may be skipped: arXiv:1710.03740, section 3.2.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts, any_of, constant
from flopcast.errors import InternalError
from flopcast.layers.base import Weight
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item, host_work
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllGather, AllReduce, Broadcast
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.records import replace
from flopcast.spec.optimizers import moved_bytes
from flopcast.spec.plan import Plans
from flopcast.spec.shard_groups import ranks_of
from flopcast.spec.stack import Stack
from flopcast.workload.host_updates import gradients_leave, update_outside, updated_outside, updates_before
from flopcast.workload.parameters import elements, is_expert, is_tied, update_bytes
from flopcast.workload.reductions import (
    ALL_BEFORE,
    bucket_of,
    equal_buckets,
    hidden_reductions,
    reduction_times,
    reductions,
    step_message,
)
from flopcast.workload.shard_levels import gradient_casts, refreshed_parameters, summed_by_owners
from flopcast.workload.sharded import wait_for
from flopcast.workload.single_tensors import num_tensors, waits

ONE_NUMBER_BYTES = constant(8.0)


def micro_batch_items(
    stack: Stack, plans: Plans, weights: tuple[Weight, ...], on_stage: Counts
) -> tuple[Item, ...]:
    """Return the items after one layer's backward pass: accumulation and, if it overlaps, the reduction.

    The gradient of the first micro-batch is not added to anything. Only the gradient of the last
    micro-batch is complete. Its reduction may overlap with the backward pass of the layers below, on a
    separate stream. Before it, a stack may copy each bucket by a kernel on the compute stream. A tied
    tensor's gradient is copied and reduced here if its owner is on another stage.

    With sharded gradients (ZeRO-2, ZeRO-3), the gradients of each layer are reduced directly after its
    backward pass. If only shards are kept, this happens in every micro-batch, and only the shards are
    accumulated.

    Parameters
    ----------
    weights
        Tensors of one layer; elements on one rank, of shape (plans, 1).
    on_stage
        Elements on the fullest stage, (plans, 1). No bucket of gradients is larger.

    Returns
    -------
    tuple of Item
        Items of phase "backward"; `Item.when` states in which micro-batches they run.
    """
    gradients = stack.gradients
    items: list[Item] = []
    weights = tuple(weight for weight in weights if weight.trained)
    owned, tied = elements(weights), elements(weights, is_tied)
    times = reduction_times(stack, plans)
    if gradients.accumulate_passes:
        kind = "accumulate_main_gradient" if gradients.is_wide else "accumulate_gradient"
        often = sum((mask for when, mask in times if when == "every"), ZERO)
        kept = (owned + tied) / np.where(often > 0, ranks_of(plans, "gradients"), 1.0)
        work = MemoryBound(kind=kind, elements=kept, dtype=plans.structure.activations)
        item = _step_kernel("accumulate", work, "gradients", "backward", "not_first")
        items.append(replace(item, count=constant(gradients.accumulate_passes)))
    if gradients.overlaps(plans.structure.zero) or plans.structure.zero >= 2:
        held = owned + np.where(plans.pipeline_parallel > 1, tied, 0.0)
        experts = elements(weights, is_expert)
        by_axis = [("", "dp", held - experts)]
        if any(weight.expert for weight in weights):
            by_axis.append(("_experts", "expert_dp", experts))
        copies, tensors = _copies(stack, behind=False), num_tensors(weights, stack, plans)
        for name, axis, count in by_axis:
            hidden = hidden_reductions(stack, plans, axis) if plans.structure.zero < 2 else ONE
            for when, mask in times:
                here = count * mask * hidden
                whole, share = bucket_of(stack, plans, here, on_stage)
                passes = [_over_gradients(stack, n, whole, phase="backward", when=when) for n in copies]
                passes += gradient_casts(plans, whole, when)
                items += [replace(one, count=share) for one in passes]
                items += _beside(stack, plans, (name, axis), here, (when, on_stage), tensors)
        items += gradients_leave(stack, plans, _shard_of(plans, weights))
    return tuple(items)


def _shard_of(plans: Plans, weights: tuple[Weight, ...]) -> Counts:
    """Return the elements of a layer's trained weights whose optimizer states a rank holds, (plans, 1)."""
    weights = tuple(weight for weight in weights if weight.trained)
    tied = np.where(plans.pipeline_parallel > 1, elements(weights, is_tied), 0.0)
    experts = elements(weights, is_expert) if any(weight.expert for weight in weights) else None
    return updated_parameters(plans, elements(weights) + tied, experts)


def forward_items(stack: Stack, plans: Plans, weights: tuple[Weight, ...]) -> tuple[Item, ...]:
    """Return the items of a layer's update on the host for which its first forward pass waits, if any."""
    return updates_before(stack, plans, _shard_of(plans, weights))


def _beside(
    stack: Stack, plans: Plans, of: tuple[str, str], held: Counts, at: tuple[str, Counts], tensors: Counts
) -> list[Item]:
    """Return the reduction of one layer's `held` gradients, which overlaps with the backward pass.

    `of` holds the suffix of the name and the axis, `at` the micro-batches and the elements of the stage. A
    bucket is one message, or as many as there are `tensors`. A stack without overlap waits for it.
    """
    bucket, share = bucket_of(stack, plans, held, at[1])
    bucket, share = bucket / tensors, share * tensors
    hidden = stack.gradients.overlaps(plans.structure.zero)
    items = [*waits(stack, plans, (ranks_of(plans, "gradients"), share, ZERO), "backward", at[0])]
    items += [
        Item(
            name=f"gradients.reduce{of[0]}{ending}",
            work=message,
            component="dp_communication",
            phase="backward",
            when=at[0],
            stream="dp",
            count=share,
            overlapped=hidden,
        )
        for ending, message in reductions(stack, plans, bucket, of[1]).items()
    ]
    return items if hidden else [*items, wait_for("dp")]


def reduce_items(
    stack: Stack,
    plans: Plans,
    parameters: Counts,
    tied: Counts,
    replicated: Counts,
    experts: Counts | None = None,
) -> tuple[Item, ...]:
    """Return the items from the last backward pass to the common synchronisation; (plans, stage classes).

    Parameters
    ----------
    parameters : array of shape (plans, stage classes)
        Elements whose gradients a rank holds and reduces.
    tied : array of shape (plans, stage classes)
        Elements summed between the first and the last stage, which hold a copy each; 0 elsewhere.
    replicated : array of shape (plans, stage classes)
        Elements that all tensor-parallel ranks hold. With sequence parallelism, each rank has computed
        gradients of only its own tokens, so these gradients are summed (arXiv:2205.05198, section 4.2.2).
    experts : array of shape (plans, stage classes), or None
        Elements of experts, which `parameters` includes. They are summed only over the ranks with the same
        experts.

    Returns
    -------
    tuple of Item
        In this order: the reduction of the tied table; all gradients with the copies of the stack (if they
        were reduced during the backward pass, only the copies after a reduction); the overflow checks and
        the norm of the gradients that the rank applies; the fixed work of the host. With one replica,
        collectives cost nothing, but the copies remain.
    """
    gradients = stack.gradients
    items = []
    if plans.structure.sequence_parallel:
        replicas = AllReduce(axis="tp", message_bytes=_sized(stack, replicated))
        items.append(replace(step_message("replicated", replicas), component="tp_communication"))
    tables = AllReduce(axis="embedding", message_bytes=_sized(stack, tied))
    items.append(step_message("tied_embeddings", tables))
    if plans.structure.zero < 2:
        items += _reduced_behind(stack, plans, _by_axis(parameters, experts))
    items += summed_by_owners(stack, plans, parameters)
    items += [_over_gradients(stack, name, parameters) for name in _copies(stack, behind=True)]
    shard = updated_parameters(plans, parameters, experts)
    items += [
        _over_gradients(stack, "gradient_norm", shard, f"overflow_check_{check}")
        for check in range(gradients.overflow_checks)
    ]
    items += [_over_gradients(stack, "gradient_norm", shard, "norm"), host_work("step", "step")]
    return tuple(items)


def _reduced_behind(stack: Stack, plans: Plans, held: list[tuple[str, str, Counts]]) -> list[Item]:
    """Return the copies and the reductions that do not overlap with the backward pass, below ZeRO-2."""
    behind = [(end, axis, own * (1.0 - hidden_reductions(stack, plans, axis))) for end, axis, own in held]
    copied = sum((own for _, _, own in behind), ZERO)
    if not any_of(copied):
        return []
    items = [_over_gradients(stack, name, copied) for name in _copies(stack, behind=False)]
    overlaps = stack.gradients.overlaps(plans.structure.zero)
    for end, axis, own in behind:
        buckets, bucket = equal_buckets(stack, plans, own, overlaps)
        items += [
            replace(step_message(f"reduce{end}{ending}", message), count=buckets)
            for ending, message in reductions(stack, plans, bucket, axis).items()
        ]
    return items


def _copies(stack: Stack, behind: bool) -> list[str]:
    """Return the stack's passes over gradients that run after a reduction, or before one."""
    copies = stack.gradients.copies
    if unknown := [name for name in copies if name not in KINDS]:
        raise InternalError(f"no memory-bound kernel {unknown[0]!r}; there are {', '.join(KINDS)}")
    return [name for name in copies if KINDS[name].follows_reduction == behind]


def updated_parameters(plans: Plans, parameters: Counts, experts: Counts | None) -> Counts:
    """Return the number of parameters whose optimizer states a rank holds, (plans, stage classes)."""
    if experts is None:
        return parameters / plans.state_shards
    return (parameters - experts) / plans.state_shards + experts / plans.expert_state_shards


def copies_gradients(stack: Stack) -> bool:
    """Return whether 16-bit gradients are copied to fp32 for the update."""
    return stack.optimizer.fp32_gradients and not stack.gradients.is_wide


def _by_axis(parameters: Counts, experts: Counts | None) -> list[tuple[str, str, Counts]]:
    """Return suffix, axis and elements of each group of ranks that hold the same parameters."""
    if experts is None:
        return [("", "dp", parameters)]
    return [("", "dp", parameters - experts), ("_experts", "expert_dp", experts)]


def synchronise_items(stack: Stack) -> tuple[Item, ...]:
    """Return the all-reduces of overflow flags and norms over all stages and tensor-parallel ranks.

    Each is one all-reduce over the axis "model" (tp and pp together). Its cost is latency and the wait for
    the slowest stage.
    """
    number = AllReduce(axis="model", message_bytes=ONE_NUMBER_BYTES)
    names = [f"overflow_{check}" for check in range(stack.gradients.overflow_checks)]
    return tuple(step_message(name, number) for name in (*names, "norm"))


def update_items(
    stack: Stack,
    plans: Plans,
    parameters: Counts,
    experts: Counts | None = None,
    tensors: Counts | None = None,
    narrow: tuple[Counts, Counts] = (ZERO, ZERO),
) -> tuple[Item, ...]:
    """Return items from the synchronisation to the next step; (plans, stage classes).

    With ZeRO-1 and 2, ranks update their shards and gather the parameters, here or during the next forward
    pass. With ZeRO-3, they gather it only if parameters are sharded over fewer ranks than states.

    Parameters
    ----------
    parameters : array of shape (plans, stage classes)
        All elements that a rank holds, including those whose states other ranks hold.
    experts : array of shape (plans, stage classes), or None
        The elements that belong to experts.
    tensors : array of shape (plans, stage classes), or None
        Number of tensors. It is needed if ranks broadcast the tensors that they have updated.
    narrow : pair of arrays of shape (plans, stage classes)
        Number of elements that are gathered in 8 bits: those outside experts, and those of experts.

    References
    ----------
    arXiv:1910.02054, section 5.1 (P_os).

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> items = update_items(Stack(name="any"), one_plan(Plan(dp=4, zero=1)), constant(1e6))
    >>> [item.name for item in items], items[1].work.parameters.item()
    (['optimizer.unscale', 'optimizer.update', 'gradients.gather_parameters'], 250000.0)
    """
    shard = updated_parameters(plans, parameters, experts)
    here = shard * (1.0 - updated_outside(stack, plans.structure))
    kept = stack.optimizer
    size_bytes = constant(moved_bytes(plans.structure.optimizer, kept))
    update = OptimizerUpdate(parameters=here, bytes_per_parameter=size_bytes, dtype=kept.states_dtype)
    copy = MemoryBound(kind="cast_to_fp32", elements=here, dtype=stack.gradients.dtype)
    items = [_step_kernel("main_gradients", copy, "optimizer")] if copies_gradients(stack) else []
    items += [
        _over_gradients(stack, "scale_gradient", here, "unscale", "optimizer"),
        _step_kernel("update", update, "optimizer"),
        *update_outside(stack, plans, shard),
    ]
    overlaps = stack.gradients.overlaps(plans.structure.zero)
    if plans.structure.zero in (1, 2) and not stack.gradients.overlap_gather:
        for (name, axis, held), of_them in zip(_by_axis(parameters, experts), narrow, strict=False):
            size = update_bytes(held, of_them, plans)
            if stack.gradients.returns == "broadcasts":
                owners = _owners(plans, axis, held if tensors is None else tensors)
                back: AbstractMessage = Broadcast(axis=f"{axis}_shard", message_bytes=held / owners * size)
            else:
                owners, bucket = equal_buckets(stack, plans, held, overlaps)
                back = AllGather(axis=f"{axis}_shard", message_bytes=bucket * size)
            items.append(replace(step_message(f"gather_parameters{name}", back), count=owners))
    return (*items, *refreshed_parameters(stack, plans, parameters))


def _owners(plans: Plans, axis: str, tensors: Counts) -> Counts:
    """Return the ranks that update whole tensors: no more than there are tensors."""
    shards = plans.state_shards if axis == "dp" else plans.expert_state_shards
    return np.maximum(np.minimum(shards, tensors), 1.0)


def _sized(stack: Stack, count: Counts) -> Counts:
    return count * ELEMENT_BYTES[stack.gradients.dtype]


def _over_gradients(
    stack: Stack,
    kind: str,
    count: Counts,
    name: str = "",
    component: str = "gradients",
    phase: str = "step",
    when: str = "every",
) -> Item:
    """Return one pass over `count` gradients: a kind of memory-bound kernel (operators/memory_bound.py)."""
    dtype = "bf16" if KINDS[kind].in_16_bit_passes else stack.gradients.dtype
    work = MemoryBound(kind=kind, elements=count, dtype=dtype)
    return _step_kernel(name or kind, work, component, phase, when)


def _step_kernel(
    name: str, work: AbstractOperator, component: str, phase: str = "step", when: str = "every"
) -> Item:
    """Return a kernel on the compute stream; at the end of a step it also waits for reductions.

    Inside a backward pass it does not wait for "dp": that reduction is meant to run beside it.
    """
    item = Item(name=f"{component}.{name}", work=work, component=component, phase=phase, when=when)
    return replace(item, waits=ALL_BEFORE) if phase == "step" else item
