"""Copies before and after collectives along the sequence, if the sequence is not the outermost dimension.

PyTorch's collectives join and divide tensors along their first dimension. TorchTitan's activations are
(sequence, token, hidden), and tensor parallelism divides the tokens: gathered tensors are copied into this
order, and tensors to be scattered are copied into the order that the scatter needs.

References
----------
torch/distributed/_functional_collectives.py (https://github.com/pytorch/pytorch): `all_gather_tensor` and
`reduce_scatter_tensor` call `torch.cat(torch.chunk(...))` if the dimension is not 0.
"""

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import AllGather, ReduceScatter
from flopcast.workload.rewrites.base import Items

ELEMENT_BYTES = 2  # of the activations that tensor-parallel ranks exchange


def gathered_copies(items: Items) -> Items:
    """Add a copy after each all-gather of tensor-parallel ranks, and one before each reduce-scatter."""
    return tuple(each for item in items for each in _copied(item))


def _copied(item: Item) -> Items:
    work = item.work
    if not isinstance(work, AllGather | ReduceScatter) or work.axis != "tp":
        return (item,)
    copy = Item(
        name=f"{item.name}.chunks",
        work=MemoryBound(kind="copy", elements=work.message_bytes / ELEMENT_BYTES, dtype="bf16"),
        component=item.component,
        inputs=(item.output if isinstance(work, AllGather) else item.inputs[0],),
        output=item.output if isinstance(work, AllGather) else item.inputs[0],
        group=item.group,
        count=item.count,
    )
    return (item, copy) if isinstance(work, AllGather) else (copy, item)
