"""Attention in one kernel, which never writes the scores (arXiv:2205.14135).

This is the only rewrite that changes FLOP: the kernel skips the pairs that a mask or window removes. If
keys are sent around a ring of ranks, the kernel runs once for the keys of each rank (ring_attention.py).
"""

import numpy as np

from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.operators.matmul import BatchedMatmul
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside, kind_of, read_outside
from flopcast.workload.rewrites.ring_attention import in_ring_steps


def flash_attention(items: Items) -> Items:
    """Replace the run from `scores` to `context` by one kernel, which includes the dropout.

    The mask of dropout is not kept, because the backward pass draws the same random numbers again. A layer
    is causal if the replaced items include a mask. The kernel writes the heads of a token next to each
    other, as (sequence, token, head, element), so the copy that joins heads after batched products is left
    out.
    """
    result: list[Item] = []
    run: list[Item] = []
    for item in items:
        work = item.work
        if not run and result and _joins_heads(item, result[-1]):
            result[-1] = replace(result[-1], output=item.output)
        elif run or (isinstance(work, BatchedMatmul) and work.role == "scores"):
            run.append(item)
        else:
            result.append(item)
        if run and isinstance(work, BatchedMatmul) and work.role == "context":
            result.append(_fused(tuple(run), work))
            run = []
    return in_ring_steps((*result, *run))


def _joins_heads(item: Item, before: Item) -> bool:
    """Return whether an item copies what the kernel before it has just written."""
    return (
        isinstance(before.work, FlashAttention)
        and kind_of(item) == "copy"
        and item.inputs == (before.output,)
        and item.output != before.output  # as a copy before an exchange does (layers/context.py)
    )


def _fused(run: Items, work: BatchedMatmul) -> Item:
    """Return the kernel instead of the context product `work`, the run's last: same output, same
    group.

    It reads what the run read: queries and keys as the scores did, values as the context did. Where these
    have another size than queries and keys, it is the kernel of latent attention.
    """
    scores = run[0].work
    size = scores.head_size if isinstance(scores, BatchedMatmul) else work.head_size
    fused = FlashAttention(
        batch=work.batch,
        kv_batch=work.kv_batch,
        queries=work.queries,
        keys=work.keys,
        head_size=size,
        value_head_size=None if np.array_equal(size, work.head_size) else work.head_size,
        causal=any(kind_of(item) == "mask_fill" for item in run),
        dtype=work.dtype,
        mean_keys=work.mean_keys,
    )
    return replace(run[-1], name=beside(run[-1], "flash"), work=fused, inputs=read_outside(run))
