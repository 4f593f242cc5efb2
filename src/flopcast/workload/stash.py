"""What products of experts keep, copied to pages and back.

Answers: how many bytes does Megatron-Core's paged stash copy for one layer?
Elsewhere: that a stack has one (spec/expert_software.py), how fast such copies are
(cost/kernels/relatives.py), what a layer keeps (workload/backward.py).

A graph of a whole iteration must hold experts of any load, so their tensors are as large as the largest
load. All layers share them: what a layer's backward needs of them is copied to pages, of as many rows as
there are, behind its forward, and back before its backward. Copies run beside other kernels and take
memory's bandwidth and multiprocessors from them: they are counted as if nothing hid them.

References
----------
megatron/core/transformer/moe/paged_stash.py: `stash_paged_tensors`, `reload_paged_tensors`;
https://github.com/NVIDIA/Megatron-LM/pull/4247.
"""

from flopcast.dtypes import ZERO
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item, kernel
from flopcast.operators.memory_bound import MemoryBound
from flopcast.workload.backward import kept_tensors


def with_stash(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Forward items of one layer with the copy behind its last grouped product; others stay the same.

    It copies what the kernels from the first grouped product to the last keep: rows, both halves of a gate
    before it, rows behind it, each in its own precision.
    """
    places = [place for place, item in enumerate(items) if isinstance(item.work, GroupedMatmul)]
    if not places:
        return items
    end = places[-1] + 1
    kept_bytes = sum(kept_tensors(items[places[0] : end], frozenset()).values(), ZERO)
    rows = items[places[-1]].output
    copied = MemoryBound(kind="stash", elements=kept_bytes, dtype="fp8")  # a byte each
    copy = kernel("experts.stash", copied, (rows,), rows, component="experts")
    return (*items[:end], copy, *items[end:])
