"""Conversion of logical items to the programs that a stack runs.

Answers: how are layers divided over stages, which messages are sent between stages, and what runs at the
end of a step?
Elsewhere: the passes over a layer and over chunks (passes.py), seconds (cost/).
"""

from collections.abc import Callable

from flopcast.dtypes import ELEMENT_BYTES, Floats
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.operators.item import Item, host_work
from flopcast.operators.messages import SendReceive
from flopcast.records import replace
from flopcast.spec.stack import Stack
from flopcast.workload.chunk_passes import Half, run_over_chunks
from flopcast.workload.companions import frozen_passes
from flopcast.workload.cuts import with_cuts
from flopcast.workload.forward_only import forward_only, without_update
from flopcast.workload.gradient_reduction import reduce_items, synchronise_items, update_items
from flopcast.workload.low_precision import with_low_precision_updates, with_wide_ends
from flopcast.workload.muon import orthogonal_items
from flopcast.workload.parameters import Parameters
from flopcast.workload.passes import Software, run_passes
from flopcast.workload.program import Accounting, Layer, Programs, Segment, StageTransfer, Workload
from flopcast.workload.recompute import kinds_of_layers
from flopcast.workload.sharded_operators import of_optimizer
from flopcast.workload.stages import Stages, divide_all


def realise(
    workload: Workload,
    stack: Stack,
    divided: Callable[..., Stages] = divide_all,
    kept: KeptResults = NOTHING_KEPT,
) -> Programs:
    """Apply the stack to a workload. Shapes are those of workload/program.py.

    `divided` divides layers over stages and has the parameters of `divide_all`. `kept` holds layers of
    earlier programs, which are used again.

    Raises
    ------
    InternalError
        A rewrite changed the FLOP of a layer, or the blocks do not divide over the stages (spec/checks.py
        refuses such plans before).
    """
    stack = stack.computing_in(workload.plans.structure.precision)
    runs = with_wide_ends(workload, stack)
    workload = runs.workload
    accounting: list[Accounting] = []
    checkpoints, kinds = kinds_of_layers(workload, runs.entries)
    ends = (runs.parts, workload.layers_at_end, checkpoints, workload.layers_at_start)
    stages = divided(runs.counts, workload.plans, stack.pipeline, *ends)
    workload = replace(workload, layers=with_low_precision_updates(kinds, workload.plans, stack))
    workload = with_cuts(workload, stages, kept)
    held = Parameters(layers=workload.layers, stage_counts=stages.stage_counts)
    parameters, plans = held.all, workload.plans
    on_stage = parameters.max(axis=1, keepdims=True)
    software = Software(stack=stack, workload=workload, on_stage=on_stage)
    drafts = (Layer(logical=logical, forward=logical.forward) for logical in workload.layers)
    layers = run_passes(drafts, software, accounting, kept)
    if workload.forward_only:
        layers = tuple(map(forward_only, layers))
    trained, experts = held.trained, held.trained_experts
    programs = Programs(
        workload=workload,
        stack=stack,
        layers=layers,
        stages=stages,
        forward=run_over_chunks(_half(layers, stages, "forward"), software, accounting),
        backward=run_over_chunks(_half(layers, stages, "backward"), software, accounting),
        hop_across=_stage_transfer(software, "pp"),
        hop_inside=_stage_transfer(software, "pp_inside"),
        reduce=reduce_items(stack, plans, trained, held.tied, held.replicated, experts),
        synchronise=synchronise_items(stack),
        update=(
            *of_optimizer(stack, held.tensors),
            *orthogonal_items(stack, plans, held),
            *update_items(stack, plans, trained, experts, held.tensors, held.sent_low),
        ),
        parameters=parameters,
        expert_parameters=held.experts,
        accounting=tuple(accounting),
        weight=_weight_segments(layers, stages),
        frozen_parameters=held.frozen,
        narrow_parameters=held.by_other_dtype,
        trained_experts=experts,
    )
    return without_update(programs) if workload.forward_only else programs


def _half(layers: tuple[Layer, ...], stages: Stages, phase: str) -> Half:
    """Return the layers of every chunk in the order of one pass over them."""
    back = phase == "backward"
    counts = stages.chunk_counts[:, :, ::-1] if back else stages.chunk_counts
    ordered = layers[::-1] if back else layers
    segments = tuple(
        Segment(items=layer.backward if back else layer.forward, repeat=counts[:, :, part])
        for part, layer in enumerate(ordered)
    )
    return Half(phase=phase, layers=ordered, counts=counts, segments=segments)


def _weight_segments(layers: tuple[Layer, ...], stages: Stages) -> tuple[Segment, ...]:
    """Return the weight gradients of layers in the order of the backward pass; omits layers without any."""
    return tuple(
        Segment(items=layer.weight, repeat=stages.chunk_counts[:, :, part])
        for part, layer in reversed(tuple(enumerate(layers)))
        if layer.weight
    )


def _stage_transfer(software: Software, axis: str) -> StageTransfer:
    """Return messages of one transfer between adjacent stages.

    `axis` is "pp" or, where both stages are on one node, "pp_inside". A mask is square, one for all
    sequences of a micro-batch, and has no gradient.
    """
    workload, stack = software.workload, software.stack
    x_bytes = workload.boundary_bytes
    if software.scatters_transfers:
        x_bytes = x_bytes / workload.plans.tensor_parallel
    sent_bytes = x_bytes * (1.0 + frozen_passes(workload.model))
    forward = [_transfer_item("activation", sent_bytes, "forward", axis)]
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
