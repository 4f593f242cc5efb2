"""The bias of every linear added in the GEMM's epilogue (`torch.addmm`, cuBLASLt).

PyTorch's `nn.Linear` does this if its bias is a vector. Megatron-LM adds most biases in later kernels
(epilogue_bias.py). TorchInductor adds a bias in the epilogue, or in the elementwise kernel that reads the
product (torch/_inductor/fx_passes/post_grad.py, unfuse_bias_add_to_pointwise). Grouped products of experts
are not an `nn.Linear`; a separate kernel adds their biases.
"""

from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items


def linear_bias(items: Items) -> Items:
    """Replace `bias_add` by `epilogue_bias`, whose only kernel is the gradient's sum over tokens."""
    grouped = {item.output for item in items if isinstance(item.work, GroupedMatmul)}
    return tuple(item if grouped.intersection(item.inputs) else _in_epilogue(item) for item in items)


def _in_epilogue(item: Item) -> Item:
    """Return a bias as part of the product before it; any other item unchanged."""
    if isinstance(item.work, MemoryBound) and item.work.kind == "bias_add":
        return replace(item, work=replace(item.work, kind="epilogue_bias"))
    return item
