"""Messages of a backward pass that overlap with kernels, as in the forward pass.

Answers: in which order does a derived backward pass launch a message and the kernels that hide it?
Elsewhere: the kernels that may overlap with a message (`Item.beside`), the derivation of gradients
(backward.py).

In a reversed forward pass, a message would follow the kernels with which it overlapped, and would wait for
all of them. Stacks launch the message first: the hops of a ring, or the exchange of tokens, start as soon
as the input of the first of these kernels exists.
"""

from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.records import replace


def launched_before(backward: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return items with each message moved before the run of items that may overlap with it.

    These items do not wait for the stream of the message, but the items after the run do. The steps of a
    ring then do not wait for the kernels, so a ring that is limited neither by its steps nor by its kernels
    is predicted slightly too short. The prediction is exact if a step takes less than half of the time of a
    block's gradients, or more than all of it.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import blocking, kernel
    >>> from flopcast.operators.memory_bound import MemoryBound
    >>> from flopcast.operators.messages import SendReceive
    >>> pass_over = MemoryBound(kind="copy", elements=constant(1), dtype="bf16")
    >>> block = replace(kernel("block", pass_over, component="mlp"), phase="backward", beside="cp")
    >>> hop = blocking("hop", SendReceive(axis="cp", message_bytes=constant(1)), "k", "k")
    >>> after = replace(kernel("after", pass_over, component="mlp"), phase="backward")
    >>> [item.name for item in launched_before((block, replace(hop, phase="backward"), after))]
    ['hop', 'block', 'after']
    """
    result: list[Item] = []
    for item in backward:
        start = len(result)
        if isinstance(item.work, AbstractMessage) and item.phase == "backward":
            while start and _runs_beside(result[start - 1], item.stream):
                start -= 1
                result[start] = without_waiting(result[start], item.stream)
        result.insert(start, item)
    return tuple(result)


def _runs_beside(item: Item, stream: str) -> bool:
    """Return whether an item of the backward pass may run while that stream is busy."""
    return item.phase == "backward" and item.beside == stream


def without_waiting(item: Item, stream: str) -> Item:
    """Return the same item, without waiting for a stream."""
    return replace(item, waits=tuple(name for name in item.waits if name != stream))
