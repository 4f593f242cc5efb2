"""Copies of q, k and v to the layout of a fused attention kernel, and copies of its result to the layout of
the model.

GPT-NeoX rearranges q, k and v for the kernel, and rearranges its output back: (sequence, token, head,
element) into (token, sequence, head, element).
"""

from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside


def layout_copies(items: Items) -> Items:
    """Add a copy of q, k and v before every fused attention kernel, and a copy of its output after it.

    The backward pass copies their gradients.

    The copies before the kernel replace the tensors that it would keep, so these are not kept twice. The
    output is kept in both layouts.
    """
    result: list[Item] = []
    for item in items:
        work = item.work
        result += _copied(item, work) if isinstance(work, FlashAttention) and not work.partial else (item,)
    return tuple(result)


def _copied(item: Item, work: FlashAttention) -> Items:
    """Return the kernel between both copies; recomputing the kernel does not repeat the second."""
    value_size = work.head_size if work.value_head_size is None else work.value_head_size
    wide = (work.batch + work.kv_batch) * work.head_size
    rows = (wide + work.kv_batch * value_size) * work.queries
    into = MemoryBound(kind="copy", elements=rows, dtype=work.dtype)
    out_of = replace(into, elements=work.batch * value_size * work.queries)
    name, back, source = beside(item, "layout"), beside(item, "layout_back"), item.inputs[0]
    own = beside(item, "context")
    return (
        replace(item, name=name, work=into, inputs=(source,), output=source),
        replace(item, output=own),
        replace(item, name=back, work=out_of, inputs=(own,), group=""),
    )
