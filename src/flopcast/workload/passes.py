"""The passes between a lowered layer and the layer that a stack runs, in order.

Elsewhere: the passes themselves (rewrites/, and one file for each other pass), the step (realise.py).

Every pass has the signature `(layer, software) -> layer`. Passes over whole chunks are in chunk_passes.py.
`run_passes` compares items by identity to account for those that a pass removed and added, and checks FLOP.

Rewrites come first, because the backward pass is derived from the forward items that the stack runs. The
first rewrite is that of the attention kernel, which replaces all items from scores to context.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from flopcast.dtypes import ZERO, Counts, Integers
from flopcast.errors import InternalError
from flopcast.kept_results import NOTHING_KEPT, KeptResults, content
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.spec.rows import distinct_splits, rows_of, taken
from flopcast.spec.stack import Stack
from flopcast.workload.backward import WHOLE_LAYER, derive_backward, kept_tensors, total_bytes
from flopcast.workload.backward_memory import backward_peak
from flopcast.workload.checkpoints import INNER
from flopcast.workload.companions import run_forward
from flopcast.workload.exchange_overlap import beside_other_micro_batch
from flopcast.workload.expert_items import with_expert_software
from flopcast.workload.forward_only import forward_only
from flopcast.workload.gradient_reduction import forward_items, micro_batch_items
from flopcast.workload.low_precision import low_precision_layer
from flopcast.workload.offload import with_activations_outside, with_bookkeeping
from flopcast.workload.one_hot_masks import with_one_hot_masks
from flopcast.workload.program import Accounting, Layer, Workload, account_of
from flopcast.workload.recompute import blocks_at_work, checkpoint_bytes, checkpointed, recomputed_modules
from flopcast.workload.recomputed_operators import marked
from flopcast.workload.rewrites import REWRITES, SKIPS_WORK
from flopcast.workload.rewrites.fused_loss import fused_loss
from flopcast.workload.rewrites.ring_scores import ring_scores
from flopcast.workload.separate_groups import with_sums
from flopcast.workload.sharded import next_gather
from flopcast.workload.sharded_operators import with_sharded_operators
from flopcast.workload.smaller_activations import kept_bytes, with_recast
from flopcast.workload.split import split_backward, waiting_bytes
from flopcast.workload.tensor_overlap import under_products


class Software(Record, eq=False):
    """The inputs of a pass besides the layer: the stack, the plans, and the size of the fullest stage.

    `on_stage` counts parameters, (plans, 1).
    """

    stack: Stack
    workload: Workload
    on_stage: Counts

    @property
    def scatters_transfers(self) -> bool:
        """Return whether stages send activations in shards, although layers process whole activations."""
        scattered = self.stack.pipeline.payload == "scattered"
        return scattered and not self.workload.plans.structure.sequence_parallel


class Pass(Record, eq=False):
    """One pass, and whether it keeps the FLOP of the items that it replaces."""

    run: Callable[[Layer, Software], Layer]
    keeps_flop: bool = True


def _expert_software(layer: Layer, software: Software) -> Layer:
    """Send tokens to experts by the stack's library."""
    return replace(layer, forward=with_expert_software(layer.forward, software.stack.experts))


def _ring_scores(layer: Layer, software: Software) -> Layer:
    """Send keys and values round a ring one after the other, where scores are stored."""
    return layer if software.stack.fuses_attention else replace(layer, forward=ring_scores(layer.forward))


def _fused_loss(layer: Layer, software: Software) -> Layer:
    """Compute the head's loss in one kernel, where the stack does."""
    when = software.stack.fused_loss
    if when == "none" or layer.kind != "head":
        return layer
    chained = (software.workload.plans.tensor_parallel > 1) & (when == "uncut")
    return replace(layer, forward=fused_loss(layer.forward, chained.astype(np.float64)))


def _sums(layer: Layer, software: Software) -> Layer:
    """Add weight gradients of experts to their sums."""
    return replace(layer, forward=with_sums(layer.forward, software.stack.gradients))


def _quantise(layer: Layer, software: Software) -> Layer:
    """Multiply in 8 or 4 bits under the plan's recipe."""
    found = low_precision_layer(layer.logical, layer.forward, software.workload, software.stack)
    return replace(
        layer,
        forward=found.forward,
        weight_casts=found.weight_casts,
        low_precision_weight_bytes=found.weight_bytes,
        spared_weight_bytes=found.spared_bytes,
    )


def _backward(layer: Layer, software: Software) -> Layer:
    """Derive the backward, with what runs again, what is kept for it and what is alive while it runs.

    During its backward, all tensors of a layer, or of a group that runs again together, are in memory. A
    tensor that it keeps anyway counts once. A checkpoint that was cut over ranks is gathered into another.
    """
    logical, workload, stack = layer.logical, software.workload, software.stack
    if logical.frozen:
        return forward_only(layer)
    recomputed = with_recast(recomputed_modules(logical, workload, stack), stack)
    forward = marked(layer.forward, recomputed)
    peak = backward_peak(forward, recomputed - {WHOLE_LAYER}, stack.memory.writes_weight_gradients)
    every_bytes = total_bytes(kept_tensors(forward, frozenset()))
    peak = peak + every_bytes * (blocks_at_work(logical, workload) - 1.0)
    whole = WHOLE_LAYER in recomputed
    kept = kept_bytes(forward, recomputed, workload.plans.structure, stack)
    if whole:
        kept = checkpoint_bytes(logical, workload)
        peak = peak + logical.input_bytes  # autograd holds the output
    cut = whole and workload.plans.structure.partition_activations
    until = stack.recompute_until if logical.checkpoint != INNER else "end"  # a group's first block ends it
    return replace(
        layer,
        backward=derive_backward(forward, recomputed, until),
        kept_bytes=kept,
        working_bytes=peak - (kept if not cut else ZERO),
    )


def _checkpoint(layer: Layer, software: Software) -> Layer:
    """Gather and drain around a layer that runs again as a whole."""
    workload, stack = software.workload, software.stack
    modules = recomputed_modules(layer.logical, workload, stack)
    if WHOLE_LAYER not in modules or layer.logical.checkpoint == INNER:
        return layer
    forward, backward = checkpointed(layer, workload, stack)
    return replace(layer, forward=forward, backward=backward)


def _companions(layer: Layer, software: Software) -> Layer:
    """Run the layers of frozen models ahead of a layer: forward alone, and in 16 bits."""
    found: list[Item] = []
    for number, logical in enumerate(layer.logical.companions):
        alone = Layer(logical=logical, forward=logical.forward)
        alone, _ = _after(_forward_passes(software.stack), alone, software)
        found += run_forward(alone.forward, logical.count, number)
    return replace(layer, forward=(*found, *layer.forward)) if found else layer


def _activations_outside(layer: Layer, software: Software) -> Layer:
    """Copy what a block keeps to its place outside the device, and back."""
    return with_activations_outside(layer, software.workload.plans)


def _on_host(layer: Layer, software: Software) -> Layer:
    """Add the host's work on blocks with states outside the devices, and on sharded tensors."""
    stack, plans = software.stack, software.workload.plans
    return with_sharded_operators(with_bookkeeping(layer, stack, plans.structure), stack, plans)


def _reductions(layer: Layer, software: Software) -> Layer:
    """Add up and reduce gradients behind a layer's backward, or behind its weight gradients."""
    stack, plans = software.stack, software.workload.plans
    frozen, on_stage = layer.logical.frozen, software.on_stage
    found = () if frozen else micro_batch_items(stack, plans, layer.weights, on_stage)
    if before := () if frozen else forward_items(stack, plans, layer.weights):
        layer = replace(layer, forward=(*before, *layer.forward))
    if not plans.structure.order_rule.splits_backward:
        return replace(layer, backward=(*layer.backward, *found))
    return replace(layer, weight=(*layer.weight, *found, *next_gather(stack, plans)))


def _split(layer: Layer, software: Software) -> Layer:
    """Move weight gradients to tasks of their own, where the schedule does."""
    if not software.workload.plans.structure.order_rule.splits_backward:
        return layer
    backward, weight = split_backward(layer.backward)
    return replace(layer, backward=backward, weight=weight, waiting_bytes=waiting_bytes(layer.forward))


def _exchange_overlap(layer: Layer, software: Software) -> Layer:
    """Run exchanges of experts beside another micro-batch, where the stack does."""
    if not software.stack.experts.overlaps_exchanges(software.workload.plans.structure.recompute):
        return layer
    return replace(
        layer,
        forward=beside_other_micro_batch(layer.forward, phase="forward"),
        backward=beside_other_micro_batch(layer.backward, phase="backward"),
    )


def _tensor_overlap(layer: Layer, software: Software) -> Layer:
    """Run tensor-parallel messages of blocks under their products, where the stack does."""
    how, ranks = software.stack.tensor_overlap, software.workload.plans.tensor_parallel
    if how == "none" or layer.kind != "block":
        return layer
    run = partial(under_products, ranks=ranks, how=how)
    return replace(layer, forward=run(layer.forward), backward=run(layer.backward))


BEFORE_REWRITES: dict[str, Pass] = {
    "expert_software": Pass(run=_expert_software),
    "one_hot_masks": Pass(run=lambda layer, each: with_one_hot_masks(layer, each.stack), keeps_flop=False),
    "ring_scores": Pass(run=_ring_scores),
}
BEHIND_REWRITES: dict[str, Pass] = {
    "fused_loss": Pass(run=_fused_loss),
    "sums": Pass(run=_sums),
    "quantise": Pass(run=_quantise),
    "backward": Pass(run=_backward, keeps_flop=False),
    "checkpoint": Pass(run=_checkpoint),
}
BEHIND_CHECKPOINT: dict[str, Pass] = {  # the first that see placements outside the devices
    "activations_outside": Pass(run=_activations_outside),
    "on_host": Pass(run=_on_host),
    "companions": Pass(run=_companions, keeps_flop=False),
}
BEHIND_BACKWARD: dict[str, Pass] = {
    "split": Pass(run=_split),
    "reductions": Pass(run=_reductions),
    "exchange_overlap": Pass(run=_exchange_overlap),
    "tensor_overlap": Pass(run=_tensor_overlap),
}


def rewrite_names(stack: Stack) -> tuple[str, ...]:
    """Return the rewrites of the stack in order, beginning with its attention kernel.

    >>> rewrite_names(Stack(name="any", attention_kernel="flash", rewrites=("bias_gelu",)))
    ('flash_attention', 'bias_gelu')
    """
    attention = ("flash_attention",) if stack.fuses_attention else ()
    return (*attention, *stack.rewrites)


def passes_of(stack: Stack) -> dict[str, Pass]:
    """Return the passes up to a layer's checkpoint, in order, with the stack's rewrites among them.

    Raises
    ------
    InternalError
        The stack names a rewrite that does not exist.
    """
    names = rewrite_names(stack)
    if unknown := [name for name in names if name not in REWRITES]:
        raise InternalError(f"no rewrite {unknown[0]!r}; there are {', '.join(REWRITES)}")
    return BEFORE_REWRITES | {name: _rewrite(name) for name in names} | BEHIND_REWRITES


def _forward_passes(stack: Stack) -> dict[str, Pass]:
    """Return the passes over a layer that only runs forward, in 16 bits."""
    left_out = BEHIND_REWRITES.keys() - {"fused_loss"}
    return {name: each for name, each in passes_of(stack).items() if name not in left_out}


def _rewrite(name: str) -> Pass:
    """Return a rewrite as a pass over a layer's forward."""
    rewrite = REWRITES[name]
    return Pass(
        run=lambda layer, _: replace(layer, forward=rewrite(layer.forward)),
        keeps_flop=rewrite not in SKIPS_WORK,
    )


def run_passes(
    drafts: Iterable[Layer],
    software: Software,
    accounting: list[Accounting],
    kept: KeptResults = NOTHING_KEPT,
) -> tuple[Layer, ...]:
    """Return the layers after all passes, and record the passes that changed them.

    Passes before the split of the backward pass do not depend on schedule or stages. Passes before the
    checkpoint do not depend on placements either. Both run once for all plans of a split, unless `kept`
    contains the layer.

    Raises
    ------
    InternalError
        A pass changed the FLOP of the layer.
    """
    placed = _with_structure(software, schedule="auto", stage_layers=())
    if placed.workload.plans.structure.recompute_method != "uniform":  # layers state whether they run again
        placed = _with_structure(placed, recompute_method="uniform", recompute_layers=1)
    seen: tuple[Software, ...] = (_with_structure(placed, offload=()), placed)
    places = [(each.workload.model.hidden, each.workload.plans.structure, each.stack) for each in seen]
    alike = tuple(kept.of(("software", *place), object) if kept else None for place in places)
    drafts, rows = tuple(drafts), None if kept else distinct_splits(software.workload.plans)
    seen = tuple(_with_structure(each, rows.first) for each in seen) if rows else seen
    early = taken(drafts, rows.first) if rows else drafts
    found = tuple(_before_stages(draft, seen, alike, kept) for draft in early)
    layers: list[Layer] = []
    for draft, (whole, accounts) in zip(drafts, taken(found, rows.group) if rows else found, strict=True):
        done, later = _after(BEHIND_BACKWARD, replace(whole, logical=draft.logical), software)
        accounting += [*accounts, *later]
        layers.append(replace(done, weight_casts=(), forward=(*done.weight_casts, *done.forward)))
    return tuple(layers)


def _before_stages(
    layer: Layer, seen: tuple[Software, ...], alike: tuple[object, ...], kept: KeptResults
) -> tuple[Layer, tuple[Accounting, ...]]:
    """Return a layer after the passes that see neither schedule nor stages, and what these changed."""
    logical = layer.logical  # `alike` has one object for each of `seen`, which is quick to hash

    def made() -> tuple[Layer, list[Accounting]]:
        return _after(passes_of(seen[0].stack), layer, seen[0])

    def behind() -> tuple[Layer, list[Accounting]]:
        return _after(BEHIND_CHECKPOINT, replace(same, logical=logical), seen[1])

    if kept:
        parts = (logical.kind, logical.checkpoint, logical.wide, logical.weights, logical.split)
        same, changed = kept.of(("layer", logical.forward, content(parts), alike[0]), made)
        beside = tuple((each.forward, each.count) for each in logical.companions)
        whole, added = kept.of(("placed", same, beside, alike[1]), behind)
    else:
        same, changed = made()
        whole, added = behind()
    return whole, (*changed, *added)


def _with_structure(software: Software, rows: Integers | None = None, **fields: object) -> Software:
    """Return the software with a plan whose structure has other values of some fields, for some rows."""
    plans = software.workload.plans if rows is None else rows_of(software.workload.plans, rows)
    plans = replace(plans, structure=plans.structure.model_copy(update=fields))
    return replace(software, workload=replace(software.workload, plans=plans))


def _after(passes: dict[str, Pass], layer: Layer, software: Software) -> tuple[Layer, list[Accounting]]:
    accounting = []
    for name, each in passes.items():
        before, layer = layer, each.run(layer, software)
        if layer is before:
            continue
        account = account_of(name, layer.kind, before.items(), layer.items())
        if account and each.keeps_flop and not account.keeps_flop:
            raise InternalError(f"rewrite {name!r} changed the FLOP of a {layer.kind}")
        accounting += [account] if account else []
    return layer, accounting
