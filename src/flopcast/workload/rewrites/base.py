"""Functions with which rewrites find and replace items.

A rewrite is a pure function that converts the forward items of one layer to those that a stack runs. It may
fuse, split or replace items. FLOP must not change, and changes of bytes are recorded (passes.py).

A rewrite finds its pattern by kinds of kernels, and never by the name of the layer, so that it works for
every architecture. It returns all other items unchanged, as the same objects.
"""

from collections.abc import Callable

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace

Items = tuple[Item, ...]
Rewrite = Callable[[Items], Items]


def kind_of(item: Item) -> str:
    """Return the kind of a memory-bound item, the kernel of any other operator, or "" for a message.

    A memory-bound item has the same kind in both passes, but different kernels.
    """
    if isinstance(item.work, MemoryBound):
        return item.work.kind
    return str(getattr(item.work, "kernel", ""))


def fuse_runs(items: Items, kinds: tuple[str, ...], fused: str) -> Items:
    """Replace every run of memory-bound items of exactly `kinds` by one item of kind `fused`.

    The fused item reads all tensors that the run reads from outside, and writes the output of the last
    item. Its kind determines the tensors that it saves for the backward pass. Tensors between the items are
    never written, so they cannot be kept.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> bias, gelu = (MemoryBound(kind=k, elements=constant(8), dtype="bf16") for k in ("bias_add", "gelu"))
    >>> run = (kernel("mlp.bias", bias, ("up",), "up", component="mlp"),
    ...        kernel("mlp.activation", gelu, ("up",), "inner", component="mlp"))
    >>> [(item.name, kind_of(item)) for item in fuse_runs(run, ("bias_add", "gelu"), "bias_gelu")]
    [('mlp.bias+activation', 'bias_gelu')]
    """
    result: list[Item] = []
    each = tuple(kind_of(item) for item in items)
    index = 0
    while index < len(items):
        if each[index : index + len(kinds)] == kinds:
            result.append(_fused(items[index : index + len(kinds)], fused))
            index += len(kinds)
        else:
            result.append(items[index])
            index += 1
    return tuple(result)


def _fused(run: Items, kind: str) -> Item:
    """Return one item for a run over equally many elements; group and component are the last one's."""
    work = run[0].work
    if not isinstance(work, MemoryBound):  # kinds are those of memory-bound items
        return run[0]
    name = "+".join((run[0].name, *(item.name.rpartition(".")[2] for item in run[1:])))
    return replace(run[-1], name=name, work=replace(work, kind=kind), inputs=read_outside(run))


def read_outside(run: Items) -> tuple[str, ...]:
    """Return the tensors that a run reads but does not write before, in the order of its items."""
    made = {item.output for item in run[:-1]}
    others = [name for item in run for name in item.inputs if name not in made]
    return tuple(dict.fromkeys([*run[0].inputs, *others]))


def beside(item: Item, word: str) -> str:
    """Return the name of an item that a rewrite adds next to `item`, in the same part of the layer.

    >>> from flopcast.operators.item import host_work
    >>> beside(host_work("step", "step"), "drain")
    'host.drain'
    """
    return f"{item.name.rpartition('.')[0]}.{word}"


def change_kind(items: Items, old: str, new: str) -> Items:
    """Replace the kind of every memory-bound item of kind `old`; the tensors stay the same."""
    return tuple(
        replace(item, work=replace(item.work, kind=new))
        if isinstance(item.work, MemoryBound) and item.work.kind == old
        else item
        for item in items
    )
