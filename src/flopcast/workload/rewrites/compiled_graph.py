"""Kernels of an exported graph that a compiler joins: elementwise operators, sums over rows and norms.

A compiler such as TorchInductor writes one kernel for a chain in which each operator reads what one before
it made (arXiv:2404.17835 describes the fusion of producers and consumers). Tensors inside a chain are never
written. The backward pass computes them again from the inputs of the chain. A product ends a chain.
"""

from collections.abc import Iterator

from flopcast.dtypes import ZERO, Counts
from flopcast.operators.convolution import Convolution
from flopcast.operators.graph_kernel import JOINED, GraphKernel
from flopcast.operators.item import Item
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items


def compiled_graph(items: Items) -> Items:
    """Replace each chain of kernels that a compiler joins by a single kernel.

    Examples
    --------
    A bias, a GELU and a scale move six tensors in three kernels, and two in one:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> work = GraphKernel(
    ...     family="elementwise", moved=constant(20), moved_backward=constant(20), read=(constant(10),),
    ...     written=constant(10), kept=(), dtype="bf16", is_fusible=True)
    >>> names = ("x", "a", "b", "y")
    >>> chain = tuple(kernel(end, work, (start,), end, component="passes")
    ...               for start, end in zip(names, names[1:]))
    >>> [(item.name, item.work.moved.item()) for item in compiled_graph(chain)]
    [('y', 20.0)]
    """
    last_readers = {name: place for place, item in enumerate(items) for name in item.inputs}
    found, place = list[Item](), 0
    for run in _runs(items):
        place += len(run)
        found.append(_alone(run[0]) if len(run) == 1 else _joined(run, place, last_readers))
    return tuple(found)


def _alone(item: Item) -> Item:
    """Return the compiled form of a kernel that no other joins.

    A compiler stores images with all channels of a pixel beside each other, so that a convolution
    transposes nothing and adds its bias itself (torch/_inductor/graph.py of PyTorch, decide_layout_opt).
    """
    work = item.work
    if isinstance(work, Convolution):
        return replace(item, work=replace(work, channels_last=True))
    if not isinstance(work, GraphKernel) or not work.moved.any():
        return item
    if work.family == "bias":
        return replace(item, work=replace(work, moved=ZERO))
    return replace(item, work=replace(work, family=JOINED, operator="")) if work.is_fusible else item


def _runs(items: Items) -> Iterator[Items]:
    """Yield chains in order, and every other item alone."""
    run: Items = ()
    for item in items:
        made = {each.output for each in run}
        joins = _is_fusible(item) and (not run or bool(made & set(item.inputs)))
        if run and not joins:
            yield run
            run = ()
        if _is_fusible(item):
            run = (*run, item)
        else:
            yield (item,)
    if run:
        yield run


def _is_fusible(item: Item) -> bool:
    return isinstance(item.work, GraphKernel) and item.work.is_fusible


def _joined(run: Items, end: int, last_readers: dict[str, int]) -> Item:
    """Return one kernel for a chain that ends before place `end` of the layer."""
    works = [item.work for item in run if isinstance(item.work, GraphKernel)]
    made = {item.output: work.written for item, work in zip(run, works, strict=True)}
    entering: dict[str, Counts] = {}
    for item, work in zip(run, works, strict=True):
        for name, size in zip(item.inputs, work.read, strict=False):
            if name not in made:
                entering.setdefault(name, size)
    leaving = {
        name: size
        for name, size in made.items()
        if last_readers.get(name, end) >= end or name == run[-1].output
    }
    kept = {name: size for work in works for name, size in work.kept if name in entering or name in leaving}
    recomputed = any(name in made and name not in leaving for work in works for name, _ in work.kept)
    kept = entering | kept if recomputed else kept
    outside = sum(entering.values(), ZERO)
    written = sum(leaving.values(), ZERO)
    backward = outside + written + sum(kept.values(), ZERO)
    work = replace(
        works[-1],
        family=JOINED,
        operator="",
        row=max(each.row for each in works),
        is_strided=any(each.is_strided for each in works),
        moved=outside + written,
        moved_backward=backward,
        written=written,
        read=tuple(entering.values()),
        kept=tuple(kept.items()),
        has_gradient=any(each.has_gradient for each in works),
    )
    return replace(run[-1], work=work, inputs=tuple(entering))
