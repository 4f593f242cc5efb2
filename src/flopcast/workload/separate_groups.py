"""Passes that software runs in addition to separate products of experts.

Answers: to which sums are weight gradients added, and which rows are copied to fill up a group?
Elsewhere: the products (rewrites/separate_experts.py), their time (operators/matmul.py, cost/).

References
----------
Transformer Engine requires groups of a multiple of 16 or 32 rows in 8 and 4 bits. Megatron-Core copies rows
into such groups before the first product and back after the last (`fp8_padding` and `fp8_unpadding` of
megatron/core/transformer/moe/experts.py), unless HybridEP pads groups while it permutes:
docs/discussions/deepseek-v3-gb200-optimization of NVIDIA/Megatron-LM, section 2.5.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.spec.data_parallel import Gradients
from flopcast.spec.expert_software import ExpertSoftware
from flopcast.workload.rewrites.base import beside

Items = tuple[Item, ...]


def with_sums(items: Items, gradients: Gradients) -> Items:
    """Return forward items whose separate products add weight gradients to sums in `gradients.dtype`.

    Items do not change if separate passes add the weight gradients.
    """
    if gradients.accumulate_passes:
        return items
    sum_bytes = ELEMENT_BYTES[gradients.dtype]
    return tuple(
        replace(item, work=replace(item.work, sum_bytes=sum_bytes))
        if isinstance(item.work, GroupedMatmul) and item.work.separate
        else item
        for item in items
    )


def with_full_groups(items: Items, software: ExpertSoftware) -> Items:
    """Return forward items in 8 or 4 bits with the copies that pad groups of rows.

    There are no copies if all groups have equally many rows.
    """
    products = [item for item in items if _separate(item)]
    if not software.sends_every_row or not products:
        return items
    first, last = products[0], products[-1]
    ends = max(place for place, item in enumerate(items) if item.output == last.output)
    result: list[Item] = []
    for place, item in enumerate(items):
        if item is first:
            result.append(_copy(first, "pad", first.inputs[0]))
        result.append(item)
        if place == ends:
            result.append(_copy(last, "unpad", last.output))
    return tuple(result)


def _separate(item: Item) -> bool:
    """Return whether an item is the products of several experts, one by one."""
    return isinstance(item.work, GroupedMatmul) and item.work.separate


def _copy(product: Item, word: str, tensor: str) -> Item:
    """Return a copy of a product's rows, in their place, where groups are uneven."""
    work = product.work
    elements: Counts = np.zeros((1, 1))
    if isinstance(work, GroupedMatmul):
        columns = work.k if tensor in product.inputs else work.n
        elements = work.rows * columns * (work.imbalance > 1.0)
    copied = MemoryBound(kind="copy", elements=elements, dtype="bf16")
    return kernel(
        beside(product, word), copied, (tensor,), tensor, component="experts", group=product.group
    )
