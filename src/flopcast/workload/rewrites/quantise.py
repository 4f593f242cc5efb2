"""Linear layers in 8 or 4 bits, with casts, low-precision operands and low-precision gathers.

Answers: how does a precision recipe change the forward items of one layer?
Elsewhere: the recipes (spec/precision.py), the bytes of a cast, and weights (workload/casts.py).

This rewrite is the last one, because it searches for the GEMMs and norms that the stack runs. FLOP do not
change. Each linear layer gets:

- a cast of its input. All linears that read a tensor share one cast, which precedes the gather of sequence
  parallelism. The linear keeps the low-precision copy for its weight gradient; the 16-bit tensor is kept
  only if another operator needs it;
- a cast of the gradient of its output. This item, which does nothing in the forward pass, follows the
  linear, or the reduce-scatter whose backward pass gathers the gradient;
- transposes of gathered tensors, if the engine reads only one layout: such tensors cannot be cast in
  advance;
- a transpose of its weight in the backward pass, if the engine reads only one layout, the weight is kept
  only in 8 bits, and the stack caches no transposed copy.

A cast reads a tensor `reads` times and writes it once for each layout. If a norm does a part of the cast,
both have fewer passes. A cast of rows that experts received also writes the copy for their weight gradient.
This copy is kept if tokens are sent in 8 or 4 bits. If a weight is frozen, the tensors of its product are
cast in only one layout, because no weight gradient reads the other layout.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, constant
from flopcast.operators.base import AbstractMessage
from flopcast.operators.exchanges import Dispatch
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.low_precision_messages import LowPrecisionMessage
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.messages import AllGather, AllReduce, ReduceScatter, Replicate
from flopcast.operators.quantise import Quantise
from flopcast.records import replace
from flopcast.spec.precision import NORMS, NarrowProducts, Recipe
from flopcast.workload.casts import Casts, Product, is_low_precision, sizes_of, weight_elements
from flopcast.workload.rewrites.base import Items, kind_of

ONE_NUMBER_BYTES = constant(4.0)  # a largest value in fp32
WRITES_NARROW = "epilogue_gate"  # casts what it makes, and the gradient of what it reads


def quantise(items: Items, recipe: Recipe, stack: NarrowProducts, ranks: Counts) -> Items:
    """Return the forward items of one layer under a recipe.

    Parameters
    ----------
    ranks : array of shape (plans, 1)
        The tensor-parallel degree: before a gather, a rank casts only its own part.

    Returns
    -------
    tuple of Item
        Products of linear layers have low precision. Items that the recipe does not change are the same
        objects.
    """
    together = any(kind_of(item) == WRITES_NARROW for item in items)
    cast = Casts(recipe, stack, ranks, together=together)
    products = [item for item in items if is_low_precision(item)]
    gathers = _gathers(items, products) if stack.narrow_gathers else {}
    scatters = _scatters(items, products) if stack.narrow_gathers else {}
    done: set[str] = set()
    result: list[Item] = []
    for item in items:
        if item in gathers:
            result += _gathered(item, items, products, cast)
        elif is_low_precision(item):
            tensor = item.inputs[0]
            turned_weight = _turned_weight(item, cast.of(item))
            if item in scatters:
                result += [*_turned(item, sizes_of(item.work)[1], cast.of(item)), *turned_weight]
            gathered = any(gather.output == tensor for gather in gathers.values())
            if tensor not in done and not gathered:
                done.add(tensor)
                result.append(_input_cast(item, items, products, cast.of(item)))
            cast_later = item in scatters or any(
                item.output in other.inputs and kind_of(other) == WRITES_NARROW for other in items
            )
            result += _narrow(item, cast_later, cast.of(item))
            result += [] if item in scatters else turned_weight
        elif any(item is scatter for scatter in scatters.values()):
            product = next(p for p in products if scatters.get(p) is item)
            result += _scattered(item, cast.of(product))
        elif isinstance(item.work, Dispatch) and stack.narrow_dispatch:
            result.append(_dispatched(item, item.work, products, cast))
        else:
            result.append(item)
    return tuple(result)


def _gathers(items: Items, products: list[Item]) -> dict[Item, Item]:
    """Return all-gathers of tensors that only low-precision products read."""
    narrow = set(products)
    return {
        item: item
        for item in items
        if isinstance(item.work, AllGather)
        and item.work.axis == "tp"
        and (readers := [other for other in items if item.output in other.inputs])
        and all(reader in narrow for reader in readers)
    }


def _scatters(items: Items, products: list[Item]) -> dict[Item, Item]:
    """Return, for each product, the reduce-scatter that reads its output first, if one does."""
    found: dict[Item, Item] = {}
    for product in products:
        place = next(at for at, item in enumerate(items) if item is product)
        reader = next((item for item in items[place + 1 :] if product.output in item.inputs), None)
        if reader is not None and isinstance(reader.work, ReduceScatter) and reader.work.axis == "tp":
            found[product] = reader
    return found


def _after_norm(tensor: str, items: Items, products: list[Item]) -> bool:
    """Return whether a norm makes `tensor`, and only low-precision products or their gather read it."""
    narrow = set(products)
    maker = next((item for item in reversed(items) if item.output == tensor), None)
    readers = [item for item in items if tensor in item.inputs]
    return (
        maker is not None
        and kind_of(maker) in NORMS
        and all(item in narrow or isinstance(item.work, AllGather | Replicate) for item in readers)
    )


def _input_cast(product: Item, items: Items, products: list[Item], cast: Casts) -> Item:
    """Return the cast of a product's input on all of its rows."""
    tensor = product.inputs[0]
    elements, _, dtype = sizes_of(product.work)
    alias = next(
        (i.inputs[0] for i in items if i.output == tensor and isinstance(i.work, Replicate)), tensor
    )
    after_norm = _after_norm(alias, items, products)
    each_bytes = cast.bytes_of(ELEMENT_BYTES[dtype], cast.layouts, after_norm)
    if any(item.output == tensor and kind_of(item) == WRITES_NARROW for item in items):
        each_bytes, elements = 0.0, ZERO
    groups = cast.groups_of(product)
    launches = cast.recipe.cast_kernels
    work = Quantise(
        elements=elements,
        each_bytes=each_bytes,
        dtype=dtype,
        groups=groups,
        launches=launches,
        cycles=elements * cast.cycles_of("inputs"),
    )
    return _item(f"{product.name}_cast", work, tensor, f"{tensor}.narrow", product.group)


def _gathered(gather: Item, items: Items, products: list[Item], cast: Casts) -> list[Item]:
    """Return the cast of a rank's share, with a common scale if needed, and its all-gather."""
    source = gather.inputs[0]
    reader = next(item for item in products if gather.output in item.inputs)
    cast = cast.of(reader)
    elements, _, dtype = sizes_of(reader.work)
    wide_bytes = ELEMENT_BYTES[dtype]
    after_norm = _after_norm(source, items, products)
    work = Quantise(
        elements=elements / cast.ranks,
        each_bytes=cast.bytes_of(wide_bytes, cast.gathered_layouts, after_norm),
        dtype=dtype,
        launches=cast.recipe.cast_kernels,
        cycles=elements / cast.ranks * cast.cycles_of("inputs"),
    )
    name = f"{source}.narrow"
    found = [
        *_turned(reader, elements, cast),
        _item(f"{reader.name}_cast", work, source, name, gather.group),
    ]
    if cast.recipe.agrees == "tensor":
        largest = AllReduce(axis="tp", message_bytes=ONE_NUMBER_BYTES)
        found.insert(0, blocking(f"{reader.name}_largest", largest, source, f"{source}.largest"))
    ratio = cast.size_bytes / wide_bytes
    kept = None if gather.kept_bytes is None else gather.kept_bytes * ratio
    moved = _message(gather)
    message = LowPrecisionMessage(
        kind="all_gather", axis="tp", message_bytes=moved * ratio, dual_bytes=moved
    )
    return [
        *found,
        replace(gather, work=message, inputs=(name,), output=f"{gather.output}.narrow", kept_bytes=kept),
    ]


def _scattered(scatter: Item, cast: Casts) -> list[Item]:
    """Return a reduce-scatter whose backward casts this rank's gradients and gathers the result."""
    moved = _message(scatter)
    wide_bytes = 2.0
    ratio = cast.gathered_layouts * cast.size_bytes / wide_bytes
    message = LowPrecisionMessage(
        kind="reduce_scatter", axis="tp", message_bytes=moved, dual_bytes=moved * ratio
    )
    work = Quantise(
        elements=moved / wide_bytes / cast.ranks,
        each_bytes=cast.bytes_of(wide_bytes, cast.gathered_layouts),
        dtype="bf16",
        of_gradient=True,
        launches=cast.recipe.cast_kernels,
        cycles=moved / wide_bytes / cast.ranks * cast.cycles_of("gradients"),
    )
    tensor = scatter.output
    found = [
        replace(scatter, work=message),
        _item(f"{scatter.name}_gradient_cast", work, tensor, tensor, scatter.group),
    ]
    if cast.recipe.agrees == "tensor":
        largest = Replicate(axis="tp", message_bytes=ONE_NUMBER_BYTES)  # its backward is an all-reduce
        found.append(blocking(f"{scatter.name}_gradient_largest", largest, tensor, f"{tensor}.largest"))
    return found


def _turned(product: Item, elements: Counts, cast: Casts) -> list[Item]:
    """Return transposes of what a product's backward gets from an all-gather, if engines read one layout.

    They stand ahead of the gather or the product, so that nothing stands between it and its message.
    """
    if cast.layouts == cast.gathered_layouts:
        return []
    each_bytes, dtype = 2 * cast.size_bytes, sizes_of(product.work)[2]
    work = Quantise(elements=elements, each_bytes=each_bytes, dtype=dtype)
    return [_of_gradient(product, "transpose", work)]


def _turned_weight(product: Item, cast: Casts) -> list[Item]:
    """Return the transpose of a weight in the backward pass, if no transposed copy is kept.

    It does not stand between a product and its message, as other transposes do not.
    """
    if not isinstance(product.work, Product) or not cast.transposes_each_pass(product):
        return []
    work = Quantise(
        elements=weight_elements(product.work),
        each_bytes=2 * cast.size_bytes,
        dtype=product.work.dtype,
        groups=cast.groups_of(product),
    )
    return [_of_gradient(product, "weight_transpose", work)]


def _narrow(product: Item, cast_later: bool, cast: Casts) -> list[Item]:
    """Return a product with low-precision operands, and its output's gradient cast, unless others do."""
    _, outputs, dtype = sizes_of(product.work)
    work = product.work
    if isinstance(work, Product):
        work = replace(work, narrow=cast.recipe.format)
        if isinstance(work, GroupedMatmul):
            work = replace(work, cast_kernels=cast.recipe.cast_kernels)
    found = [replace(product, work=work, inputs=(f"{product.inputs[0]}.narrow", *product.inputs[1:]))]
    if not cast_later:
        each_bytes = cast.bytes_of(ELEMENT_BYTES[dtype], cast.layouts)
        made = Quantise(
            elements=outputs,
            each_bytes=each_bytes,
            dtype=dtype,
            groups=cast.groups_of(product),
            launches=cast.recipe.cast_kernels,
            cycles=outputs * cast.cycles_of("gradients"),
        )
        found.append(_of_gradient(product, "gradient_cast", made))
    return found


def _of_gradient(product: Item, word: str, work: Quantise) -> Item:
    """Return a pass of the backward alone, right before the product's own gradients."""
    work = replace(work, of_gradient=True)
    return _item(f"{product.name}_{word}", work, product.output, product.output, product.group)


def _dispatched(item: Item, work: Dispatch, products: list[Item], cast: Casts) -> Item:
    """Return tokens cast before they are sent to experts; the cast of a row is part of the permutation."""
    wide_bytes = ELEMENT_BYTES[sizes_of(products[0].work)[2]]
    return replace(item, work=work.cast(cast.size_bytes / wide_bytes))


def _message(item: Item) -> Counts:
    """Return the bytes of a message."""
    return item.work.message_bytes if isinstance(item.work, AbstractMessage) else np.zeros((1, 1))


def _item(name: str, work: Quantise, source: str, output: str, group: str) -> Item:
    """Return a cast as an item with its own line in the breakdown."""
    return kernel(name, work, (source,), output, component="casts", group=group)
