"""Attention in one kernel: the scores are never written (arXiv:2205.14135).

The one rewrite that changes FLOP: a causal kernel skips the half of the square that the mask would remove.
"""

from dataclasses import replace

from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.workload.rewrites.base import Items, kind_of


def flash_attention(items: Items) -> Items:
    """The run from `scores` to `context` → one kernel; dropout, if any, happens inside it.

    Its mask is not kept: the backward pass draws the same random numbers again. A layer is causal if its
    run has a mask.
    """
    result: list[Item] = []
    causal = any(kind_of(item) == "mask_fill" for item in items)
    inside = False
    for item in items:
        work = item.work
        if isinstance(work, BatchedMatmul) and work.role == "scores":
            inside = True
        if not inside:
            result.append(item)
        if isinstance(work, BatchedMatmul) and work.role == "context":
            inside = False
            result.append(_fused(item, work, causal))
    return tuple(result)


def _fused(item: Item, work: BatchedMatmul, causal: bool) -> Item:
    """The kernel in the place of `item`, the context product: same output, same recompute group."""
    fused = FlashAttention(
        batch=work.batch,
        kv_batch=work.kv_batch,
        queries=work.queries,
        head_size=work.head_size,
        causal=causal,
        dtype=work.dtype,
    )
    inputs = ("attention.q", "attention.k", "attention.v")
    return replace(item, name="attention.flash", work=fused, inputs=inputs)
