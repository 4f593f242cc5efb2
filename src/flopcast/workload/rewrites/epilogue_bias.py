"""The bias of the q, k, v projection, added by the GEMM's own epilogue (cuBLASLt, `torch.addmm`).

Megatron-LM and GPT-NeoX build the other linears of a block with `skip_bias_add`: a later kernel adds it.
"""

from dataclasses import replace

from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.workload.rewrites.base import Items, kind_of


def epilogue_bias(items: Items) -> Items:
    """Drop the forward kernel of "attention.qkv_bias"; its gradient sum over tokens stays."""
    result: list[Item] = []
    for item in items:
        follows_matmul = bool(result) and isinstance(result[-1].work, Matmul)
        if kind_of(item) == "bias_add" and follows_matmul and isinstance(item.work, MemoryBound):
            result.append(replace(item, work=replace(item.work, kind="epilogue_bias")))
        else:
            result.append(item)
    return tuple(result)
