"""Queries, keys and values, and both halves of a gated layer, as separate linears.

Models in PyTorch have a matrix for each (`wq`, `wk`, `wv`; `w1`, `w3`), although a layer of flopcast has
one GEMM. The gradient of their input is then a sum of one gradient per matrix, each as wide as the input.
All products are still predicted as one GEMM, as if the matrices were concatenated. flopcast assumes
sequence parallelism, as in TorchTitan.

References
----------
pytorch/torchtitan: torchtitan/models/llama/model.py (the matrices), torchtitan/parallelisms/
parallelize_llama.py (`PrepareModuleInput`: one gather for all matrices, so that gradients are added before
they are scattered).
"""

from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import AllGather
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside, kind_of

HALVES = ("swiglu", "geglu")
FORK = "_fork"  # ends the name of an item that stands for further products of the same input


def separate_projections(items: Items) -> Items:
    """Add the gradients of the matrices' input one by one, each in a kernel, as in eager mode."""
    return _forked(items, compiled=False)


def compiled_projections(items: Items) -> Items:
    """Add the gradients in one kernel before a reduce-scatter, or else in the gradient of the norm."""
    return _forked(items, compiled=True)


def _forked(items: Items, compiled: bool) -> Items:
    """Move what adds gradients before the gather, so that nothing is between it and its products.

    Products whose gradients are added already stay the same: a stack may list both rewrites.
    """
    names = {item.name for item in items}
    gathers = {item.output: item for item in items if _gathers(item)}
    forks: dict[Item, list[Item]] = {}
    for item in items:
        parts = parts_of(item, items)
        gather = gathers.get(item.inputs[0]) if item.inputs else None
        if parts > 1 and (gather is not None or not compiled):
            fork = _fork(item, parts, compiled)
            if fork.name not in names:
                forks.setdefault(gather or item, []).append(fork)
    return tuple(each for item in items for each in (*forks.get(item, ()), item))


def _gathers(item: Item) -> bool:
    """Return whether an item gathers tokens of all tensor-parallel ranks."""
    return isinstance(item.work, AllGather) and item.work.axis == "tp"


def parts_of(item: Item, items: Items) -> int:
    """Return the number of matrices of a GEMM in such a model, derived from the readers of its output."""
    if not isinstance(item.work, Matmul):
        return 1
    readers = [kind_of(other) for other in items if item.output in other.inputs]
    if "split_heads" in readers:
        return 3
    return 2 if any(kind.endswith(HALVES) for kind in readers) else 1


def _fork(product: Item, parts: int, compiled: bool) -> Item:
    """Return the backward kernel that adds the gradients of this many products to their common input."""
    work = product.work
    if not isinstance(work, Matmul):
        return product
    kind = "fork_of_three" if compiled and parts == 3 else "fork"
    adding = MemoryBound(kind=kind, elements=work.m * work.k, dtype=work.dtype)
    name = beside(product, f"{product.name.rpartition('.')[2]}{FORK}")
    times = 1.0 if compiled else parts - 1.0
    return replace(product, name=name, work=adding, inputs=(), output=name, count=product.count * times)
