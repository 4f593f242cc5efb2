"""Rotary embedding as a chain of framework kernels: negate, join, two products, a sum (GPT-NeoX)."""

from dataclasses import replace

from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.workload.rewrites.base import Items, change_kind, kind_of


def unfused_rope(items: Items) -> Items:
    """`rope` → `unfused_rope`: ten passes forward, twenty backward.

    Where only a part of each head is turned, it is cut out and joined with the rest again.
    """
    return tuple(
        part for item in change_kind(items, "rope", "unfused_rope") for part in _joined(item, items)
    )


def _joined(item: Item, items: Items) -> Items:
    """The item, and a join behind it where it turns less than whole heads of queries and keys.

    How many elements whole heads have is read off the layer's attention product or kernel.
    """
    turned = item.work
    if kind_of(item) != "unfused_rope" or not isinstance(turned, MemoryBound):
        return (item,)
    for other in items:
        work = other.work
        if isinstance(work, (BatchedMatmul, FlashAttention)):
            whole = (work.batch + work.kv_batch) * work.queries * work.head_size
            if (turned.elements < 0.999 * whole).any():
                join = MemoryBound(kind="rope_join", elements=whole, dtype=turned.dtype)
                return item, replace(item, name="attention.rope_join", work=join)
            break
    return (item,)
