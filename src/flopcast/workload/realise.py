"""Logical items × stack → the programs that really run.

Answers: which rewrites apply, what the backward pass is, what is kept, how layers stand on stages,
which messages travel between stages, and what ends a step?
Elsewhere: the rewrites themselves (rewrites/), how gradients are derived (backward.py), what hardware needs
for it (cost/).

The order matters: rewrites first, for the backward is derived from the forward items that really run, and a
fused kernel keeps other tensors than its parts.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats
from flopcast.errors import InternalError
from flopcast.layers.base import activation_bytes
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item, blocking, host_work
from flopcast.operators.messages import AllGather, SendReceive
from flopcast.spec.stack import Stack
from flopcast.workload.backward import (
    WHOLE_LAYER,
    derive_backward,
    exchanged_at_work,
    kept_tensors,
    total_bytes,
)
from flopcast.workload.backward_memory import backward_peak
from flopcast.workload.checkpoints import INNER
from flopcast.workload.exchange_overlap import beside_other_micro_batch
from flopcast.workload.expert_items import with_expert_software
from flopcast.workload.gradient_reduction import (
    micro_batch_items,
    reduce_items,
    synchronise_items,
    update_items,
)
from flopcast.workload.low_precision import (
    agreement,
    low_precision_layer,
    with_low_precision_updates,
    with_wide_ends,
)
from flopcast.workload.program import (
    Accounting,
    Layer,
    LogicalLayer,
    Programs,
    Segment,
    StageTransfer,
    Workload,
    expert_parameters,
    frozen_parameters,
    held_parameters,
    held_tensors,
    low_precision_parameters,
    low_precision_updated,
    only,
    replicated_parameters,
)
from flopcast.workload.recompute import (
    blocks_at_work,
    checkpoint_bytes,
    checkpointed,
    kinds_of_layers,
    recomputed_modules,
)
from flopcast.workload.rewrites import REWRITES
from flopcast.workload.rewrites.fused_loss import fused_loss
from flopcast.workload.separate_groups import with_sums
from flopcast.workload.sharded import gathered_segments
from flopcast.workload.split import split_backward, waiting_bytes
from flopcast.workload.stages import Stages, divide_all
from flopcast.workload.tensor_overlap import under_products


def realise(workload: Workload, stack: Stack, divided: Callable[..., Stages] = divide_all) -> Programs:
    """Apply the stack to a workload; shapes as in workload/program.py.

    `divided` deals layers out to stages, with the parameters of `divide_all`.

    Raises
    ------
    InternalError
        A rewrite changed the FLOP of a layer, or the blocks do not divide over the stages (spec/checks.py
        refuses such plans before).
    """
    runs = with_wide_ends(workload, stack)
    workload = runs.workload
    accounting: list[Accounting] = []
    checkpoints, kinds = kinds_of_layers(workload, runs.entries)
    stages = divided(
        runs.counts, workload.plans, stack.pipeline, runs.parts, workload.layers_at_end, checkpoints
    )
    workload = replace(workload, layers=with_low_precision_updates(kinds, workload.plans, stack))
    parameters = held_parameters(workload.layers, stages.stage_counts)
    on_stage = parameters.max(axis=1, keepdims=True)
    layers = tuple(_layer(layer, workload, stack, accounting, on_stage) for layer in workload.layers)
    experts = expert_parameters(workload.layers, stages.stage_counts)
    plans = workload.plans
    learning = only(workload.layers, lambda weight: weight.trained)
    trained = held_parameters(learning, stages.stage_counts)
    trained_experts = expert_parameters(learning, stages.stage_counts)
    return Programs(
        workload=workload,
        stack=stack,
        layers=layers,
        stages=stages,
        forward=_segments(layers, workload, stack, stages),
        backward=_segments(layers, workload, stack, stages, backward=True),
        hop_across=_stage_transfer(workload, stack, "pp"),
        hop_inside=_stage_transfer(workload, stack, "pp_inside"),
        reduce=reduce_items(
            stack,
            plans,
            trained,
            _tied(learning, stages),
            replicated_parameters(learning, stages.stage_counts),
            trained_experts,
        ),
        synchronise=synchronise_items(stack),
        update=update_items(
            stack,
            plans,
            trained,
            trained_experts,
            held_tensors(learning, stages.stage_counts),
            low_precision_updated(learning, stages.stage_counts),
        ),
        parameters=parameters,
        expert_parameters=experts,
        accounting=tuple(accounting),
        weight=_weight_segments(layers, stages),
        frozen_parameters=frozen_parameters(workload.layers, stages.stage_counts),
        narrow_parameters=low_precision_parameters(workload.layers, stages.stage_counts),
    )


def rewrite_names(stack: Stack) -> tuple[str, ...]:
    """Return the stack's rewrites in order, its attention kernel first.

    First, because it replaces the run from scores to context whole: no part of it may be fused before.

    Examples
    --------
    >>> rewrite_names(Stack(name="any", attention_kernel="flash", rewrites=("bias_gelu",)))
    ('flash_attention', 'bias_gelu')
    """
    attention = ("flash_attention",) if stack.attention_kernel == "flash" else ()
    return (*attention, *stack.rewrites)


def _layer(
    logical: LogicalLayer, workload: Workload, stack: Stack, accounting: list[Accounting], on_stage: Counts
) -> Layer:
    """Return one rewritten layer with its backward and what it keeps; adds to `accounting`.

    While its backward runs, a layer has all of its tensors (all of its group's, where blocks are recomputed
    in groups), those that it keeps anyway counted once. A checkpoint that was cut over ranks is gathered
    into a tensor of its own.
    """
    forward = with_expert_software(logical.forward, stack.experts)
    for name in rewrite_names(stack):
        if name not in REWRITES:
            raise InternalError(f"no rewrite {name!r}; there are {', '.join(REWRITES)}")
        before, forward = forward, REWRITES[name](forward)
        if forward != before:
            accounting.append(_account(name, logical.kind, before, forward))
    if stack.fused_loss != "none" and logical.kind == "head":
        chained = (workload.plans.tensor_parallel > 1) & (stack.fused_loss == "uncut")
        before, forward = forward, fused_loss(forward, chained.astype(np.float64))
        accounting.append(_account("fused_loss", logical.kind, before, forward))
    forward = with_sums(forward, stack.gradients)
    before, narrowed = forward, low_precision_layer(logical, forward, workload, stack)
    forward, casts = narrowed.forward, narrowed.weight_casts
    if casts:
        accounting.append(_account("quantise", logical.kind, before, (*casts, *forward)))
    recomputed = recomputed_modules(logical, workload, stack)
    peak = backward_peak(forward, recomputed - {WHOLE_LAYER}, stack.memory.writes_weight_gradients)
    others = blocks_at_work(logical, workload) - 1.0  # of a group that runs again together
    peak = peak + total_bytes(kept_tensors(forward, frozenset())) * others
    whole = WHOLE_LAYER in recomputed
    cut = whole and workload.plans.structure.partition_activations
    kept = total_bytes(kept_tensors(forward, recomputed))
    ends_a_run = logical.checkpoint != INNER  # one of a group's blocks does
    backward = derive_backward(forward, recomputed, stack.recompute_until if ends_a_run else "end")
    if whole:
        kept = checkpoint_bytes(logical, workload)
        peak = peak + activation_bytes(workload.model.hidden, workload.split)  # autograd holds the output
    if whole and ends_a_run:
        forward, backward = checkpointed(forward, backward, workload, stack)
    backward += micro_batch_items(stack, workload.plans, logical.weights, on_stage)
    splits = workload.plans.structure.order_rule.splits_backward
    backward, weight = split_backward(backward) if splits else (backward, ())
    hides = stack.tensor_overlap == "chunks" and logical.kind == "block"
    run = partial(under_products, ranks=workload.plans.tensor_parallel) if hides else tuple
    if stack.experts.exchange_overlap == "other_micro_batch":
        forward = beside_other_micro_batch(forward, alone="first")
        backward = beside_other_micro_batch(backward, alone="last")
    return Layer(
        kind=logical.kind,
        forward=(*casts, *run(forward)),
        backward=run(backward),
        weights=logical.weights,
        kept_bytes=kept,
        working_bytes=peak - (kept if not cut else ZERO) + exchanged_at_work(forward),
        weight=weight,
        waiting_bytes=waiting_bytes(forward) if splits else ZERO,
        low_precision_weight_bytes=narrowed.weight_bytes,
        spared_weight_bytes=narrowed.spared_bytes,
    )


def _segments(
    layers: tuple[Layer, ...], workload: Workload, stack: Stack, stages: Stages, backward: bool = False
) -> tuple[Segment, ...]:
    """Return layers in the order of their pass, with the all-gathers of sharded parameters.

    Activations that a neighbour sends in shares are gathered first, except under sequence parallelism,
    where layers work on the shares.
    """
    counts = stages.chunk_counts[:, :, ::-1] if backward else stages.chunk_counts
    ordered = layers[::-1] if backward else layers
    parts = [
        Segment(items=layer.backward if backward else layer.forward, repeat=counts[:, :, part])
        for part, layer in enumerate(ordered)
    ]
    kinds, weights = [layer.kind for layer in ordered], [layer.weights for layer in ordered]
    segments = list(gathered_segments(parts, kinds, weights, stack, workload.plans, backward))
    runs = [part.items for part in parts]
    segments += agreement(runs, workload, counts, "backward" if backward else "forward")
    if stack.pipeline.payload == "scattered" and not workload.plans.structure.sequence_parallel:
        end = counts[:, :, 0]  # the chunk that starts the pass receives nothing
        gather = AllGather(axis="tp", message_bytes=activation_bytes(workload.model.hidden, workload.split))
        item = replace(
            blocking("receive.gather", gather, "x.share", "x"), phase="backward" if backward else "forward"
        )
        holds_any = np.minimum(counts.sum(axis=2), 1.0)  # a class that pads the batch holds nothing
        segments.insert(0, Segment(items=(item,), repeat=holds_any - np.minimum(end, 1.0)))
    return tuple(segments)


def _weight_segments(layers: tuple[Layer, ...], stages: Stages) -> tuple[Segment, ...]:
    """Return the weight gradients of layers in the order of the backward pass; omits layers without any."""
    return tuple(
        Segment(items=layer.weight, repeat=stages.chunk_counts[:, :, part])
        for part, layer in reversed(tuple(enumerate(layers)))
        if layer.weight
    )


def _stage_transfer(workload: Workload, stack: Stack, axis: str) -> StageTransfer:
    """Return messages of one transfer between adjacent stages.

    `axis` is "pp" or, where both stages are on one node, "pp_inside". A mask is square, one for all
    sequences of a micro-batch, and has no gradient.
    """
    x_bytes = activation_bytes(workload.model.hidden, workload.split)
    if stack.pipeline.payload == "scattered" and not workload.plans.structure.sequence_parallel:
        x_bytes = x_bytes / workload.plans.tensor_parallel
    forward = [_transfer_item("activation", x_bytes, "forward", axis)]
    if stack.pipeline.sends_mask:
        mask_bytes = workload.split.length**2 * ELEMENT_BYTES["fp16"]
        forward.append(_transfer_item("mask", mask_bytes, "forward", axis))
    backward = [_transfer_item("gradient", x_bytes, "backward", axis)]
    if stack.pipeline.host_s:  # what the host spends on posting a blocking message
        forward += [host_work("transfer", "forward")] * len(forward)
        backward += [host_work("transfer", "backward")] * len(backward)
    return StageTransfer(forward=tuple(forward), backward=tuple(backward))


def _transfer_item(name: str, message_bytes: Floats, phase: str, axis: str) -> Item:
    """Return one point-to-point message; the stack decides whether it blocks (timeline/pipeline.py)."""
    return Item(
        name=f"hop.{name}",
        work=SendReceive(axis=axis, message_bytes=message_bytes),
        component="pp_communication",
        phase=phase,
        stream="pp",
    )


def _tied(layers: tuple[LogicalLayer, ...], stages: Stages) -> Counts:
    """Return elements summed between first and last stage, per stage class; 0 if one stage has both."""
    counts = stages.stage_counts
    tied = sum((w.elements for layer in layers for w in layer.weights if w.tied), ZERO)
    at_one_end = (counts[:, :, 0] > 0) != (counts[:, :, -1] > 0)
    return np.where(at_one_end, tied, 0.0)


def _account(name: str, kind: str, before: tuple[Item, ...], after: tuple[Item, ...]) -> Accounting:
    """Return FLOP and bytes of the items that a rewrite removed, and of those that it added.

    Items are compared by identity: a rewrite that returns an item untouched has not changed it.
    """
    kept = {id(item) for item in before} & {id(item) for item in after}
    before_flop, moved_before = _totals(item for item in before if id(item) not in kept)
    after_flop, moved_after = _totals(item for item in after if id(item) not in kept)
    if name != "flash_attention" and not np.allclose(before_flop, after_flop, rtol=1e-12):
        raise InternalError(f"rewrite {name!r} changed the FLOP of a {kind}")
    return Accounting(
        rewrite=name,
        layer=kind,
        before_flop=before_flop,
        after_flop=after_flop,
        before_bytes=moved_before,
        after_bytes=moved_after,
    )


def _totals(items: Iterable[Item]) -> tuple[Floats, Floats]:
    """Return FLOP and moved bytes of the operators among `items`, (plans, 1)."""
    flop, moved_bytes = ZERO, ZERO
    for item in items:
        if isinstance(item.work, AbstractOperator):
            work = item.work.work()
            flop, moved_bytes = flop + work.flop, moved_bytes + work.moved_bytes
    return flop, moved_bytes
