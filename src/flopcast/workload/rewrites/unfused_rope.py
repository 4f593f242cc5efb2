"""Rotary embedding as a chain of framework kernels: negate, join, two products, a sum (GPT-NeoX)."""

from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.operators.matmul import BatchedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside, change_kind, kind_of


def unfused_rope(items: Items) -> Items:
    """Replace `rope` by `unfused_rope`: ten passes forward, fifteen backward.

    If only a part of each head is rotated, it is sliced out and concatenated with the rest again.
    """
    result: list[Item] = []
    for item in items:
        result += _unfused(item, items) if kind_of(item) in ("rope", "scaled_rope") else (item,)
    return tuple(result)


def unfused_scaled_rope(items: Items) -> Items:
    """Replace `scaled_rope` by `unfused_rope`, because Transformer Engine's fused kernel does not scale.

    References
    ----------
    megatron/core/models/common/embeddings/rope_utils.py: if `mscale` is not 1, `apply_rotary_pos_emb`
    prints a warning and runs an unfused chain.
    """
    return change_kind(items, "scaled_rope", "unfused_rope")


def _unfused(rope: Item, items: Items) -> Items:
    """Return the chain as one item, followed by a join if it rotates only parts of q and k.

    The number of elements of whole heads follows from the layer's attention product or kernel.
    """
    (item,) = change_kind((rope,), kind_of(rope), "unfused_rope")
    turned = item.work
    if not isinstance(turned, MemoryBound):
        return (item,)
    for other in items:
        work = other.work
        if isinstance(work, (BatchedMatmul, FlashAttention)):
            whole = (work.batch + work.kv_batch) * work.queries * work.head_size
            if (turned.elements < 0.999 * whole).any():
                join = MemoryBound(kind="rope_join", elements=whole, dtype=turned.dtype)
                return item, replace(item, name=beside(item, "rope_join"), work=join)
            break
    return (item,)
