"""Attention whose keys and values are sent around a ring of ranks: one kernel for the keys of each rank.

Answers: which blocks of scores does a rank compute, which of them hide the hops, and which kernel merges
the blocks?
Elsewhere: the messages (layers/context.py), their overlap with the backward pass
(workload/message_order.py).

A rank's queries first attend to the rank's own keys, while the keys of its neighbour arrive. With c ranks,
this takes c blocks and c - 1 hops. With L tokens on a rank and a causal mask:

    zigzag a rank holds parts i and 2c - 1 - i of 2c: its own triangle of L²/2 pairs, then c - 1 blocks of
    L²/2 pairs: all queries and half of the keys, or half of the queries and all keys. All ranks have equal
    work. contiguous rank i computes i squares of L² pairs and its triangle: sizes are those of the last
    rank, which computes most, (c - 1/2) L² pairs, and for which all others wait.

Blocks are merged in fp32 by the logarithms of their sums of exponentials. Every block adds to the gradients
of queries, keys and values.

References
----------
arXiv:2310.01889; zigzag: arXiv:2311.09431 (striped and balanced orders) and Transformer Engine,
`AttnFuncWithCPAndKVP2P`.
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import RingPass
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside


def in_ring_steps(items: Items) -> Items:
    """Replace every attention kernel that follows transfers of a ring by its blocks.

    Examples
    --------
    Four ranks of 1024 tokens: each computes 4 · 1024² / 2 pairs, an eighth of 4096², while three hops run.

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> whole = FlashAttention(batch=constant(1), kv_batch=constant(1), queries=constant(1024),
    ...                        keys=constant(4096), head_size=constant(64), causal=True, dtype="bf16")
    >>> core = kernel("attention.flash", whole, ("q", "k", "v"), "context", component="attention")
    >>> hops = Item(name="attention.pass_on", work=RingPass(axis="cp", message_bytes=constant(1)),
    ...             component="cp_communication", stream="cp", count=constant(3))
    >>> blocks = [item for item in in_ring_steps((hops, core)) if isinstance(item.work, FlashAttention)]
    >>> [(item.name, item.count.item()) for item in blocks]
    [('attention.flash', 1.0), ('attention.block', 2.0), ('attention.last_block', 1.0)]
    >>> sum(item.count * item.work.work().flop for item in blocks) == whole.work().flop
    array([[ True]])
    """
    result: list[Item] = []
    ring: Item | None = None
    for item in items:
        work = item.work
        if isinstance(work, RingPass):
            ring = item
        elif isinstance(work, FlashAttention) and ring is not None:
            result.insert(result.index(ring), _merged_gradients(item, work, ring.count + 1.0))
            result += _blocks(item, work, ring.work, ring.count + 1.0)
            ring = None
            continue
        result.append(item)
    return tuple(result)


def _blocks(item: Item, whole: FlashAttention, ring: object, ranks: Counts) -> list[Item]:
    """Return the rank's own block, those that hide the next transfer, the last, and the merge."""
    waits = tuple(stream for stream in item.waits if stream != "cp")
    own = replace(whole, keys=whole.queries)
    zigzag = isinstance(ring, RingPass) and ring.order == "zigzag"
    seen = whole.queries / 2.0 if whole.causal and zigzag else whole.queries
    block = replace(own, keys=seen, causal=False, partial=True)
    output = whole.batch * whole.queries * whole.output_size
    merge = MemoryBound(kind="merge_blocks", elements=output, dtype=whole.dtype)
    several = np.where(ranks > 1, ranks, 0.0)
    return [
        replace(item, work=own, waits=waits, beside="cp"),
        replace(
            item,
            name=beside(item, "block"),
            work=block,
            count=np.maximum(ranks - 2.0, 0.0),
            waits=waits,
            beside="cp",
        ),
        replace(
            item,
            name=beside(item, "last_block"),
            work=block,
            count=np.minimum(ranks - 1.0, 1.0),
            beside="cp",
        ),
        replace(item, name=beside(item, "merge"), work=merge, inputs=(item.output,), count=several),
    ]


def _merged_gradients(item: Item, whole: FlashAttention, ranks: Counts) -> Item:
    """Return gradients of q, k and v that every block adds to: a kernel of the backward pass alone."""
    wide, narrow = whole.head_size, whole.output_size
    tokens = whole.queries * (whole.batch * wide + whole.kv_batch * (wide + narrow))
    work = MemoryBound(kind="merge_gradients", elements=tokens, dtype=whole.dtype)
    return replace(
        item,
        name=beside(item, "merge_gradients"),
        work=work,
        inputs=(item.inputs[0],),
        output=item.inputs[0],
        group="",
        count=np.where(ranks > 1, ranks, 0.0),
    )
