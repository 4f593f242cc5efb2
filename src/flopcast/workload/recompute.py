"""Recompute of one layer: items that run again, tensors that are kept instead, temporary memory.

Answers: which modules of a block does a plan recompute, and how does full recompute store, shard and gather
the inputs of blocks?
Elsewhere: the blocks of a chunk that are recomputed (checkpoints.py), the derivation of a backward pass
(backward.py).
"""

from flopcast.dtypes import ONE, ZERO, Counts, Floats, constant
from flopcast.operators.item import Item, blocking, host_work
from flopcast.operators.messages import AllGather
from flopcast.records import replace
from flopcast.spec.stack import Stack
from flopcast.workload.backward import WHOLE_LAYER
from flopcast.workload.checkpoints import FIRST, INNER, KINDS, PLAIN, Checkpoints, checkpoints_of
from flopcast.workload.program import Layer, LogicalLayer, Workload


def kinds_of_layers(
    workload: Workload, entries: tuple[int, ...] = ()
) -> tuple[Checkpoints | None, tuple[LogicalLayer, ...]]:
    """Return the division of runs of blocks into kinds, and the layers with an entry for each kind.

    Entries are in the order of `Checkpoints.cut`. Their `count` is the sum over all kinds, because each
    stage states how many blocks of each kind it has. Multi-token prediction is treated like the last entry
    of the model's blocks. Blocks of a vision tower are not divided: all of them are recomputed, unless the
    plan names entries of the model's blocks. `entries` are the positions of the layers in the model's
    sequence, if they are only a part of it (low_precision.py).
    """
    plan, last = workload.plans.structure, len(workload.model.blocks) - 1
    named = set(plan.recompute_blocks) or set(range(-workload.layers_at_start, last + 1))
    layers = tuple(
        layer if min(part - workload.layers_at_start, last) in named else replace(layer, checkpoint=PLAIN)
        for part, layer in zip(entries or range(len(workload.layers)), workload.layers, strict=True)
    )
    is_block = tuple(
        layer.kind == "block" and layer.checkpoint != PLAIN and not layer.tower for layer in layers
    )
    checkpoints = checkpoints_of(plan, is_block)
    if checkpoints is None:
        return None, layers
    kinds = KINDS[checkpoints.method]
    return checkpoints, tuple(
        replace(layer, checkpoint=kind)
        for layer, is_cut in zip(layers, is_block, strict=True)
        for kind in (kinds if is_cut else (layer.checkpoint if layer.tower else PLAIN,))
    )


def recomputed_modules(logical: LogicalLayer, workload: Workload, stack: Stack) -> frozenset[str]:
    """Return the modules that a layer recomputes; embedding, final norm and head recompute nothing.

    Modules of multi-token prediction are recomputed like blocks, unless the method treats blocks
    differently. Megatron-Core then prints a warning and keeps their tensors.
    """
    plan = workload.plans.structure
    held = logical.kind in ("block", "mtp") and not logical.frozen and logical.checkpoint != PLAIN
    if not held or plan.recompute == "none":
        return frozenset()
    return frozenset(
        (WHOLE_LAYER,) if plan.recompute == "full" else plan.recompute_modules or stack.selective_groups
    )


def checkpoint_bytes(logical: LogicalLayer, workload: Workload) -> Floats:
    """Return the bytes of the kept input of a recomputed block, (plans, 1); 0 for inner blocks of a group.

    If it is partitioned (ZeRO-R's P_a, arXiv:1910.02054, section 6.1), each tensor-parallel rank keeps a
    share of the input.
    """
    if logical.checkpoint == INNER:
        return ZERO
    x_bytes = logical.input_bytes
    cut = workload.plans.tensor_parallel if workload.plans.structure.partition_activations else ONE
    return x_bytes / cut


def blocks_at_work(logical: LogicalLayer, workload: Workload) -> Counts:
    """Return the number of blocks, (1, 1), whose tensors exist during the backward pass of one: a group.

    The rules refuse groups that are larger than every chunk (spec/rules_recompute.py).
    """
    in_groups = logical.checkpoint in (FIRST, INNER)
    return constant(workload.plans.structure.recompute_layers) if in_groups else ONE


def checkpointed(
    layer: Layer, workload: Workload, stack: Stack
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return a layer that keeps only its input, which the stack may shard over ranks or offload.

    A partitioned input is gathered before the layer runs again. `synchronise_each_layer` drains the device
    before every forward pass and, in the backward pass, before the recompute and before the gradients.
    """
    forward, backward = layer.forward, layer.backward
    if workload.plans.structure.partition_activations:
        gather = AllGather(axis="tp", message_bytes=layer.logical.input_bytes)
        item = blocking("checkpoint.gather", gather, "x", "x.full")
        backward = (replace(item, phase="recompute"), *backward)
    if stack.synchronise_each_layer:
        first = next(i for i, item in enumerate(backward) if item.phase == "backward")
        drained = host_work("synchronise", "recompute"), host_work("synchronise", "backward")
        backward = (drained[0], *backward[:first], drained[1], *backward[first:])
        forward = (host_work("synchronise", "forward"), *forward)
    return forward, backward
