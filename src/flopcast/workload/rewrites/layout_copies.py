"""Copies of q, k and v into the layout that a fused attention kernel wants (GPT-NeoX's rearrange)."""

from dataclasses import replace

from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.memory_bound import MemoryBound
from flopcast.workload.rewrites.base import Items, beside


def layout_copies(items: Items) -> Items:
    """One copy of q, k and v before every fused attention kernel; backward, of their gradients.

    The copies take the place of what the kernel would have kept, so no tensor is kept twice.
    """
    result: list[Items] = []
    for item in items:
        work = item.work
        if isinstance(work, FlashAttention):
            value_size = work.head_size if work.value_head_size is None else work.value_head_size
            wide = (work.batch + work.kv_batch) * work.head_size
            rows = (wide + work.kv_batch * value_size) * work.queries
            copy = MemoryBound(kind="copy", elements=rows, dtype=work.dtype)
            name, source = beside(item, "layout"), item.inputs[0]
            result.append((replace(item, name=name, work=copy, inputs=(source,), output=source),))
        result.append((item,))
    return tuple(item for run in result for item in run)
