"""The effect of a precision recipe on a whole model: the layers that the recipe changes, and the items that
it adds.

Answers: which blocks stay in bf16, which items and copies does a recipe add to a layer, which maxima do
ranks exchange once in each pass, and which updated weights do they gather in 8 bits?
Elsewhere: the changes of one layer's items (rewrites/quantise.py), the recipes (spec/precision.py).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.dtypes import ZERO, Counts, Floats, is_wide
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.messages import AllReduce
from flopcast.operators.quantise import Quantise
from flopcast.records import Record, field, replace
from flopcast.spec.plan import Plans
from flopcast.spec.precision import RECIPES, NarrowProducts, Recipe
from flopcast.spec.stack import Stack
from flopcast.workload.casts import (
    is_low_precision,
    low_precision_weight_bytes,
    spared_weight_bytes,
    weight_casts,
)
from flopcast.workload.program import LogicalLayer, Segment, Workload
from flopcast.workload.separate_groups import with_full_groups

ATTENTION_CAST_BYTES = 4.0  # reads 16 bits, and writes 8 bits in two layouts


class LowPrecisionLayer(Record, eq=False):
    """The forward items of one layer under a recipe, the casts of its weights, and the bytes of the copies.

    `spared_bytes` are the bytes of 16-bit weights that are not kept.
    """

    forward: tuple[Item, ...]
    weight_casts: tuple[Item, ...] = ()
    weight_bytes: Floats
    spared_bytes: Floats = field(default_factory=lambda: ZERO)


def low_precision_layer(
    logical: LogicalLayer, forward: tuple[Item, ...], workload: Workload, stack: Stack
) -> LowPrecisionLayer:
    """Return a layer's items under the plan's low-precision recipe; unchanged if there is none.

    Parameters
    ----------
    logical : LogicalLayer
        The layer before any pass; layers marked as wide keep 16-bit products.
    forward : tuple of Item
        Its forward items after the rewrites of the stack.
    workload : Workload
    stack : Stack
        States how rows of experts are padded, which casts are fused, and which weights are kept in fewer
        bits.

    Returns
    -------
    LowPrecisionLayer
        The items, the casts of weights, the bytes of the cast weights, and the bytes of 16-bit weights that
        they replace.
    """
    recipe = RECIPES.get(workload.plans.structure.precision)
    if recipe is None or logical.wide:
        return LowPrecisionLayer(forward=forward, weight_bytes=ZERO)
    full = _on_request(with_full_groups(forward, stack.experts), recipe, stack.narrow)
    from flopcast.workload.rewrites.quantise import quantise

    narrow = quantise(full, recipe, stack.narrow, workload.plans.tensor_parallel)
    return LowPrecisionLayer(
        forward=_of_recipe(narrow, recipe),
        weight_casts=_of_recipe(weight_casts(forward, recipe, stack.narrow), recipe),
        weight_bytes=low_precision_weight_bytes(forward, recipe, stack.narrow),
        spared_bytes=spared_weight_bytes(forward, recipe, stack.narrow),
    )


def _on_request(items: tuple[Item, ...], recipe: Recipe, stack: NarrowProducts) -> tuple[Item, ...]:
    """Return items in which the recipe also applies to attention and to the output layer, if a stack says
    so.
    """
    if stack.output_layer and recipe.for_output_layer:
        items = tuple(replace(item, wide=False) if item.component == "head" else item for item in items)
    if stack.attention:
        items = tuple(each for item in items for each in _narrow_attention(item, recipe))
    return items


def _narrow_attention(item: Item, recipe: Recipe) -> tuple[Item, ...]:
    """Return fused attention in 8 bits with the casts of its inputs and of its output's gradient; other
    items unchanged.
    """
    work = item.work
    if not isinstance(work, FlashAttention) or is_wide(work.dtype):
        return (item,)
    query_rows = work.batch * work.queries
    key_rows = work.kv_batch * (work.queries if work.keys is None else work.keys)
    read = query_rows * work.head_size + key_rows * (work.head_size + work.output_size)
    cast = Quantise(elements=read, each_bytes=ATTENTION_CAST_BYTES, dtype=work.dtype)
    gradient = replace(cast, elements=query_rows * work.output_size, of_gradient=True)
    narrow = replace(work, narrow="mxfp8" if recipe.both_layouts else "fp8")
    where = {"component": "casts", "group": item.group}
    return (
        kernel(f"{item.name}_cast", cast, item.inputs, f"{item.output}.narrow", **where),
        replace(item, work=narrow),
        kernel(f"{item.name}_gradient_cast", gradient, (item.output,), item.output, **where),
    )


def with_low_precision_updates(
    layers: tuple[LogicalLayer, ...], plans: Plans, stack: Stack
) -> tuple[LogicalLayer, ...]:
    """Return layers in which weights that ranks gather in 8 bits are marked.

    A weight has the name of the product that reads it.
    """
    recipe = RECIPES.get(plans.structure.precision)
    if recipe is None or not stack.narrow.narrow_parameters:
        return layers
    zero = plans.structure.zero
    gathers = recipe.low_precision_updates if zero in (1, 2) else stack.sharding.low_precision_gathers
    if not gathers or zero == 0:
        return layers
    return tuple(layer if layer.wide else _marked(layer) for layer in layers)


def _marked(layer: LogicalLayer) -> LogicalLayer:
    """Return a layer whose low-precision products' weights are sent in 8 bits."""
    products = {item.name for item in layer.forward if is_low_precision(item)}
    weights = (
        replace(weight, update="fp8") if weight.name in products else weight for weight in layer.weights
    )
    return replace(layer, weights=tuple(weights))


def _of_recipe(items: tuple[Item, ...], recipe: Recipe) -> tuple[Item, ...]:
    """Return the casts with the kernel of the recipe: per block if its scales are per block."""
    return tuple(
        replace(item, work=replace(item.work, in_blocks=recipe.both_layouts))
        if isinstance(item.work, Quantise)
        else item
        for item in items
    )


class Runs(Record, eq=False):
    """A workload, and its runs of equal layers in the order of the stages: kind and number of each run.

    `entries` are the positions of the workload's layers in the model's sequence.
    """

    workload: Workload
    entries: tuple[int, ...]
    parts: tuple[int, ...]
    counts: tuple[int, ...]


def with_wide_ends(workload: Workload, stack: Stack) -> Runs:
    """Return the workload with 16 bits in the first and last blocks and in multi-token prediction.

    Examples
    --------
    >>> from flopcast.spec.batch import Batch
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> from flopcast.spec.precision import NarrowProducts
    >>> from flopcast.workload.lower import lower
    >>> from flopcast.library import catalog
    >>> plan = one_plan(Plan(precision="mxfp8"))
    >>> workload = lower(catalog.model("llama-2-7b"), plan, Batch(sequence_length=4096))
    >>> ends = Stack(name="any", narrow=NarrowProducts(wide_first_blocks=1, wide_last_blocks=2))
    >>> found = with_wide_ends(workload, ends)
    >>> [(found.workload.layers[part].wide, count) for part, count in zip(found.parts, found.counts)]
    [(False, 1), (True, 1), (False, 29), (True, 2), (False, 1), (False, 1)]
    """
    runs = tuple(workload.model.runs())
    first, last = stack.narrow.wide_first_blocks, stack.narrow.wide_last_blocks
    wide_mtp = stack.narrow.wide_mtp and workload.model.mtp > 0
    if workload.plans.structure.precision not in RECIPES or not (first + last or wide_mtp):
        return Runs(
            workload=workload,
            entries=tuple(range(len(workload.layers))),
            parts=tuple(p for p, _ in runs),
            counts=tuple(c for _, c in runs),
        )
    is_block = [layer.kind == "block" and not layer.tower for layer in workload.layers]
    blocks = sum(count for part, count in runs if is_block[part])
    pieces: list[tuple[int, bool, int]] = []
    before = 0
    for part, count in runs:
        if is_block[part]:
            pieces += [(part, *piece) for piece in _cut(count, first - before, blocks - last - before)]
            before += count
        else:
            pieces.append((part, wide_mtp and workload.layers[part].kind == "mtp", count))
    kinds = sorted({(part, wide) for part, wide, _ in pieces})
    layers = tuple(
        replace(
            workload.layers[part], wide=wide, count=sum(c for p, w, c in pieces if (p, w) == (part, wide))
        )
        for part, wide in kinds
    )
    return Runs(
        workload=replace(workload, layers=layers),
        entries=tuple(part for part, _ in kinds),
        parts=tuple(kinds.index((part, wide)) for part, wide, _ in pieces),
        counts=tuple(count for _, _, count in pieces),
    )


def _cut(count: int, first: int, last: int) -> list[tuple[bool, int]]:
    """Return the pieces of a run of blocks cut at two places: whether each is wide, and its length."""
    start = min(max(first, 0), count)
    end = max(min(max(last, 0), count), start)
    pieces = ((True, start), (False, end - start), (True, count - end))
    return [piece for piece in pieces if piece[1]]


def agreement(
    layers: Sequence[tuple[Item, ...]], workload: Workload, counts: Counts, phase: str
) -> list[Segment]:
    """Return the message that reduces the maxima of a chunk's tensors over the ranks of its stage.

    This message is sent at the end of a pass, and only with delayed scaling. It holds one number for each
    cast of the fullest chunk. Compute waits for it.

    Parameters
    ----------
    layers
        Items of each layer in this pass.
    counts : array of shape (plans, chunk classes, layers)
        How many of each layer a chunk holds, in the order of `layers`.
    """
    recipe = RECIPES.get(workload.plans.structure.precision)
    if recipe is None or recipe.agrees != "stage":
        return []
    casts = [sum(isinstance(item.work, Quantise) for item in items) for items in layers]
    held: Counts = counts @ np.array(casts, dtype=np.float64)
    fullest: Counts = held.max(axis=1, keepdims=True)
    from flopcast.workload.rewrites.quantise import ONE_NUMBER_BYTES

    message = AllReduce(axis="stage", message_bytes=ONE_NUMBER_BYTES * np.maximum(fullest, 1.0))
    item = replace(blocking("scales.agree", message, "scales", "scales"), stream="tp", phase=phase)
    return [Segment(items=(replace(item, component="casts"),), repeat=np.minimum(held, 1.0))]
