"""Norms of queries and keys: over each head, or over the whole width.

Answers: which weights and items do these norms have?
Elsewhere: the mixer with these norms (layers/attention.py).
"""

from typing import Literal

from flopcast.dtypes import ELEMENT_BYTES, Counts, constant
from flopcast.layers.base import Split, Weight, memory_pass, replicated
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.messages import AllReduce, Replicate

QkNorm = Literal["none", "per_head", "unscaled", "whole"]


def norms_of_heads(
    kind: QkNorm, heads: Counts, groups: Counts, size: int, totals: tuple[int, int]
) -> tuple[Weight, ...]:
    """Return the scales of the norms of queries and keys.

    Parameters
    ----------
    heads, groups : heads of queries, and of keys, of one rank
    size : elements of a head
    totals : heads of queries, and of keys, of the whole layer
    """
    if kind in ("none", "unscaled"):
        return ()
    if kind == "per_head":
        return replicated("attention.q_norm", size), replicated("attention.k_norm", size)
    return (
        Weight(name="attention.q_norm", elements=heads * size, total=totals[0] * size),
        Weight(name="attention.k_norm", elements=groups * size, total=totals[1] * size),
    )


def norm_heads(kind: QkNorm, heads: Counts, groups: Counts, size: int, split: Split) -> list[Item]:
    """Return one kernel for queries and keys, whose rows are heads or the rank's part of the width.

    A norm over the whole width needs the sums of squares of all ranks: for each token, one fp32 number for
    queries and one for keys. Its backward pass needs the same amount. Ranks also sum the gradients of a
    scale that all heads share, but only with sequence parallelism. Without it, flopcast ignores this sum of
    a few hundred numbers.

    Parameters
    ----------
    heads, groups : heads of queries, and of keys, of one rank
    size : elements of a head
    """
    if kind == "none":
        return []
    width = heads * size if kind == "whole" else constant(size)
    elements = split.tokens * (heads + groups) * size
    norm = memory_pass("rmsnorm", elements, split, width)
    source = "attention.unnormed"
    normed = kernel("attention.qk_norm", norm, (source,), "attention.q", component="attention")
    if kind != "whole":
        return [normed]
    sums_bytes = 2 * split.tokens * ELEMENT_BYTES["fp32"]
    total = AllReduce(axis="tp", message_bytes=sums_bytes)
    used = Replicate(axis="tp", message_bytes=sums_bytes)
    return [
        blocking("attention.qk_norm.sum", total, source, source),
        blocking("attention.qk_norm.use", used, source, source),
        normed,
    ]
