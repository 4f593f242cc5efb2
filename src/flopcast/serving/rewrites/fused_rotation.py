"""The write to the cache in the kernel that rotates queries and keys."""

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.serving.seen import Seen

ROTATION, WRITE = "attention.rope", "attention.write_cache"


def fused_rotation(items: tuple[Item, ...], seen: Seen) -> tuple[Item, ...]:
    """Move the write to the cache into the kernel of rotary position embeddings, as TensorRT-LLM does.

    The kernel then moves the elements of both kernels. Rotated keys count twice, but they are few beside
    the queries. Layers without rotary position embeddings are returned unchanged.
    """
    works = {item.name: item.work for item in items}
    rotation, write = works.get(ROTATION), works.get(WRITE)
    if not (seen.engine.fused_rotation and isinstance(rotation, MemoryBound)):
        return items
    if not isinstance(write, MemoryBound):
        return items
    both = replace(rotation, elements=rotation.elements + write.elements)
    return tuple(
        replace(item, work=both) if item.name == ROTATION else item for item in items if item.name != WRITE
    )
