"""The backward pass in two parts: B, for which the previous stage waits, and W, the weight gradients.

Answers: which items of a layer's backward pass may run later, and which tensors must stay in memory until
then?
Elsewhere: the whole backward pass (backward.py), the order of W (schedules/zero_bubble.py).

W holds every kernel that computes only the gradient of a parameter: the weight gradients of linears and
tables, the sums over tokens for biases, the gather of an input whose shard was kept, and the end of a
micro-batch (accumulation, reduction). Kernels that compute both gradients at once, such as norms, are in B.
Items move but keep their sizes, so the sums of FLOP, bytes and counts do not change. In an undivided
backward pass, the gather of an input overlaps with the input gradient. In W, it waits for no kernel, and
overlaps with the previous weight gradient, so only the first gather of W is exposed. This is an estimate.

References
----------
arXiv:2401.10241: section 2 (F, B, W), Table 1 (the memory between B and W).
"""

from collections.abc import Iterable

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Floats
from flopcast.operators.base import AbstractOperator
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.records import replace
from flopcast.workload.backward import kept_tensors, total_bytes


def split_backward(backward: tuple[Item, ...]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return the items of B and those of W, each in the order of the whole backward pass.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> from flopcast.workload.backward import derive_backward
    >>> one = constant(1)
    >>> linear = kernel("up", Matmul(m=one, n=one, k=one, dtype="bf16"), ("x",), "y", component="mlp")
    >>> parts = split_backward(derive_backward((linear,), frozenset()))
    >>> [[item.name for item in part] for part in parts]
    [['up.dgrad'], ['up.wgrad']]
    """
    later = [_only_for_weights(item) for item in backward]
    return (
        tuple(item for item, moved in zip(backward, later, strict=True) if not moved),
        tuple(_ahead(item) for item, moved in zip(backward, later, strict=True) if moved),
    )


def _ahead(item: Item) -> Item:
    """Return an item of W; an all-gather is launched and runs while a kernel before it computes."""
    return replace(item, waits=("host",)) if item.name.endswith(".again") else item


def _only_for_weights(item: Item) -> bool:
    """Return whether nothing before the end of the step reads what an item makes.

    A memory-bound gradient of one pass reads the output's gradient and writes a sum over tokens: the
    input's gradient is the output's, unchanged.
    """
    if item.phase != "backward":
        return False
    if isinstance(item.work, MemoryBound) and item.work.is_gradient:
        return KINDS[item.work.kind].backward == 1
    return item.when != "every" or item.name.endswith((".wgrad", ".again"))


def waiting_bytes(forward: Iterable[Item]) -> Floats:
    """Return the bytes that a layer keeps between B and W for one micro-batch, (plans, 1).

    These are the inputs of its linear layers and tables, each tensor once, and the gradients of their
    outputs. For a GPT block in 16 bits, these are 14 + 18 times s b h bytes (arXiv:2401.10241, Table 1: 32
    s b h). Norms, activation functions and attention keep nothing beyond B. The sums for biases read the
    same gradients.
    """
    weighted = [item for item in forward if _has_weight(item)]
    gathers = [item for item in forward if item.kept_bytes is not None]
    inputs = kept_tensors([*gathers, *weighted], frozenset())
    outputs = sum((_output_bytes(item.work) for item in weighted), ZERO)
    return total_bytes(inputs) + outputs


def _has_weight(item: Item) -> bool:
    """Return whether an operator has a weight gradient of its own."""
    work = item.work
    return isinstance(work, AbstractOperator) and any(name == "wgrad" for name, _ in work.gradients())


def _output_bytes(work: object) -> Floats:
    """Return bytes of the gradient of a linear's output, or of a table's rows.

    It has the shape of the output. Under a recipe of 8 or 4 bits, it is cast in B.
    """
    size_bytes = ZERO
    if isinstance(work, Matmul):
        size_bytes = work.m * work.n * work.operand_bytes
    elif isinstance(work, GroupedMatmul):
        size_bytes = work.rows * work.n * work.operand_bytes
    elif isinstance(work, EmbeddingLookup):
        size_bytes = work.tokens * work.hidden * ELEMENT_BYTES[work.dtype]
    return size_bytes
