"""How a rewrite finds and replaces items.

A rewrite is one pure function from the forward items of one layer to those that a stack really runs.
It may fuse, split or replace items; FLOP stay what they were, bytes are accounted for (realise.py).
"""

from collections.abc import Callable
from dataclasses import replace

from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound

Items = tuple[Item, ...]
Rewrite = Callable[[Items], Items]


def kind_of(item: Item) -> str:
    """The kind of a memory-bound item, the kernel of another operator, "" for a message."""
    if isinstance(item.work, MemoryBound):
        return item.work.kind
    return str(getattr(item.work, "kernel", ""))


def fuse_runs(items: Items, kinds: tuple[str, ...], fused: str) -> Items:
    """Replace every run of memory-bound items of exactly `kinds` by one item of kind `fused`.

    The fused item reads what the first read and writes what the last wrote.
    """
    result: list[Item] = []
    index = 0
    while index < len(items):
        run = items[index : index + len(kinds)]
        if tuple(kind_of(item) for item in run) == kinds:
            result.append(_fused(run, fused))
            index += len(kinds)
        else:
            result.append(items[index])
            index += 1
    return tuple(result)


def _fused(run: Items, kind: str) -> Item:
    work = run[0].work
    if not isinstance(work, MemoryBound):  # kinds are those of memory-bound items
        return run[0]
    outside = [name for item in run for name in item.inputs if name not in {i.output for i in run[:-1]}]
    name = "+".join((run[0].name, *(item.name.rpartition(".")[2] for item in run[1:])))
    return replace(
        run[-1],
        name=name,
        work=replace(work, kind=kind),
        inputs=tuple(dict.fromkeys([*run[0].inputs, *outside])),
    )


def change_kind(items: Items, old: str, new: str) -> Items:
    """Replace the kind of every memory-bound item of kind `old`."""
    return tuple(
        replace(item, work=replace(item.work, kind=new))
        if isinstance(item.work, MemoryBound) and item.work.kind == old
        else item
        for item in items
    )
