"""The bias of the q, k, v projection, added by the GEMM's own epilogue (cuBLASLt, `torch.addmm`).

Megatron-LM and GPT-NeoX build the other linears of a block with `skip_bias_add`: a later kernel adds it.
"""

from dataclasses import replace

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.workload.rewrites.base import Items


def epilogue_bias(items: Items) -> Items:
    """Drop the forward kernel of "attention.qkv_bias"; its gradient sum over tokens stays."""
    return tuple(_in_epilogue(item) for item in items)


def _in_epilogue(item: Item) -> Item:
    """The item, as part of the product before it where it is the bias of q, k, v."""
    if item.name != "attention.qkv_bias" or not isinstance(item.work, MemoryBound):
        return item
    return replace(item, work=replace(item.work, kind="epilogue_bias"))
