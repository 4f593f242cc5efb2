"""The sizes of the tensors of a layer, which follow from the items that keep, write or read the tensors.

Answers: how many bytes do each tensor of a layer and the gradient of each weight have?
Elsewhere: how long each tensor is allocated (backward_memory.py).
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Floats
from flopcast.operators.convolution import Convolution
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllGather, AllReduce, ReduceScatter, Replicate
from flopcast.workload.casts import sizes_of


def tensor_bytes(items: tuple[Item, ...]) -> dict[str, Floats]:
    """Return the bytes of the tensors of a layer, derived from the items that keep, write or read them.

    Parameters
    ----------
    items : tuple of Item
        Forward items of one layer, in order.

    Returns
    -------
    dict of arrays of shape (plans, 1)
        Bytes by name of the tensor. If several items state a size, the size of a kept tensor has priority
        over that of a written tensor, which has priority over that of a read tensor. An output of unknown
        size is as large as the first input of its item.
    """
    sizes: dict[str, Floats] = {}
    for item in items:
        for name, size_bytes in item.saved():
            sizes[name] = np.maximum(sizes.get(name, ZERO), size_bytes)
    for item in items:
        if isinstance(item.work, (Matmul, GroupedMatmul)) and item.work.narrow:  # its gradient is wide
            elements, _, dtype = sizes_of(item.work)
            sizes[item.inputs[0]] = elements * ELEMENT_BYTES[dtype]
    for item in items:
        if item.kept_bytes is not None:
            sizes.setdefault(item.inputs[0], item.kept_bytes)
        work = item.work
        made_bytes = (
            work.output_bytes if isinstance(work, (Convolution, GraphKernel)) else _output_bytes(item)
        )
        if made_bytes is not None:
            sizes.setdefault(item.output, made_bytes)
    for item in items:
        read_bytes = _input_bytes(item)
        for name in item.inputs if read_bytes is not None else ():
            sizes.setdefault(name, read_bytes if read_bytes is not None else ZERO)
    for item in items:
        for name, size_bytes in _read_of_graph(item).items():
            sizes.setdefault(name, size_bytes)
    for item in items:  # an output of unknown size is as large as its input
        sizes.setdefault(item.output, sizes.get(item.inputs[0], ZERO) if item.inputs else ZERO)
    return sizes


def weight_bytes(work: object) -> Floats:
    """Return the bytes of the weight that a product or a lookup reads.

    This is the size of the whole weight on this rank, in the dtype of the product, which is also the size
    of its gradient. It is 0 if the weight is frozen, and for work without weights.
    """
    if not getattr(work, "trained", True):
        return ZERO
    if isinstance(work, Matmul):
        rows, columns, groups = work.n, work.k, ONE
    elif isinstance(work, GroupedMatmul):
        rows, columns, groups = work.n, work.k, work.groups
    elif isinstance(work, EmbeddingLookup):
        rows, columns, groups = work.vocabulary, work.hidden, ONE
    elif isinstance(work, Convolution):
        rows, columns, groups = work.columns, work.terms, ONE
    else:
        return ZERO
    size_bytes: Floats = rows * columns * groups * ELEMENT_BYTES[work.dtype]
    return size_bytes


def _read_of_graph(item: Item) -> dict[str, Floats]:
    """Return bytes of the tensors that an operator of an exported graph reads, each by its own size."""
    work = item.work
    if isinstance(work, Convolution):
        return {item.inputs[0]: work.input_bytes}
    if isinstance(work, GraphKernel):
        pairs = zip(item.inputs, work.read, strict=False)
        return {name: elements * ELEMENT_BYTES[work.dtype] for name, elements in pairs}
    return {}


def _output_bytes(item: Item) -> Floats | None:
    """Return bytes of what an item makes, if its work states them."""
    work = item.work
    if isinstance(work, Matmul):
        return work.m * work.n * ELEMENT_BYTES[work.dtype]
    if isinstance(work, GroupedMatmul):
        return work.rows * work.n * ELEMENT_BYTES[work.dtype]
    if isinstance(work, EmbeddingLookup):
        return work.tokens * work.hidden * ELEMENT_BYTES[work.dtype]
    if isinstance(work, MemoryBound) and not KINDS[work.kind].is_view:
        return work.elements * ELEMENT_BYTES[work.dtype]
    if isinstance(work, (AllGather, AllReduce, Replicate)):
        return work.message_bytes
    return None


def _input_bytes(item: Item) -> Floats | None:
    """Return bytes of what an item reads, if its work states them."""
    work = item.work
    if isinstance(work, MemoryBound) and not KINDS[work.kind].is_view:
        return work.elements * ELEMENT_BYTES[work.dtype]
    if isinstance(work, (ReduceScatter, AllReduce, Replicate)):
        return work.message_bytes
    return None
