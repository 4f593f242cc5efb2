"""The bias of the q, k, v projection, added by the GEMM's own epilogue (cuBLASLt, `torch.addmm`).

Megatron-LM and GPT-NeoX create the other linears of a block with `skip_bias_add`, so that a later kernel
adds their bias.
"""

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, kind_of


def epilogue_bias(items: Items) -> Items:
    """Replace `bias_add, split_heads` by `epilogue_bias, split_heads`: the bias needs no forward kernel.

    The gradient of the bias is still a sum over tokens. Only the bias of q, k and v precedes a split of
    heads.
    """
    kinds = [*map(kind_of, items), ""]
    return tuple(
        _in_epilogue(item) if kinds[place : place + 2] == ["bias_add", "split_heads"] else item
        for place, item in enumerate(items)
    )


def _in_epilogue(item: Item) -> Item:
    """Return the bias as part of the product before it."""
    if not isinstance(item.work, MemoryBound):  # kinds are those of memory-bound items
        return item
    return replace(item, work=replace(item.work, kind="epilogue_bias"))
