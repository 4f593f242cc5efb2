"""Elementwise operators that a GEMM or a convolution applies to its output before it writes the output.

cuDNN and cuBLASLt apply an activation or a sum with another tensor as the epilogue of a convolution or a
GEMM (cuDNN, developer guide, "Supported graph patterns"). The result before the epilogue is then neither
written nor read.
"""

from flopcast.operators.convolution import Convolution
from flopcast.operators.graph_kernel import JOINED, GraphKernel
from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items

EPILOGUES = ("elementwise", JOINED)


def convolution_epilogues(items: Items) -> Items:
    """Remove the bytes of a convolution's output that only the next elementwise operator reads.

    Examples
    --------
    A ReLU after a convolution runs no kernel:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> product = Matmul(m=constant(4), n=constant(4), k=constant(4), dtype="bf16")
    >>> relu = GraphKernel(family="elementwise", moved=constant(32), moved_backward=constant(48),
    ...                    read=(constant(16),), written=constant(16), kept=(), dtype="bf16")
    >>> items = (kernel("up", product, ("x",), "h", component="linears"),
    ...          kernel("relu", relu, ("h",), "y", component="passes"))
    >>> [item.work.moved.item() for item in convolution_epilogues(items)[1:]]
    [0.0]
    """
    readers: dict[str, int] = {}
    for item in items:
        for name in item.inputs:
            readers[name] = readers.get(name, 0) + 1
    products = {item.output for item in items if isinstance(item.work, (Convolution, Matmul))}
    return tuple(_in_epilogue(item, products, readers) for item in items)


def _in_epilogue(item: Item, products: set[str], readers: dict[str, int]) -> Item:
    work = item.work
    if not isinstance(work, GraphKernel) or work.family not in EPILOGUES:
        return item
    for name, size in zip(item.inputs, work.read, strict=False):
        if name in products and readers[name] == 1 and work.moved.any():
            moved = (work.moved - size - work.written).clip(min=0.0)
            return replace(item, name=f"{item.name}.epilogue", work=replace(work, moved=moved))
    return item
