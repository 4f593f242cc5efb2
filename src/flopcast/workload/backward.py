"""The backward pass, derived from the forward pass: gradients of its items, in reverse order.

Answers: which items does the backward pass of one layer run, which items does it recompute, and which
tensors are kept for it?
Elsewhere: the temporary memory while it runs (backward_memory.py). This module contains no architecture:
operators define their gradients, and messages define their duals.

An activation is *kept* from the forward until the backward pass. Each layer keeps one for each micro-batch
in flight.

References
----------
Which tensors a block keeps: arXiv:2205.05198, section 4.1. Recompute, full and selective: section 5.
"""

from collections.abc import Iterable

import numpy as np

from flopcast.dtypes import ZERO, Floats
from flopcast.layers.base import SOURCE
from flopcast.layers.modules import OPERATORS, run_of
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.messages import AllGather, RingPass
from flopcast.records import replace
from flopcast.workload.message_order import launched_before
from flopcast.workload.recompute_order import Until, recompute_order, run_again
from flopcast.workload.tensor_sizes import tensor_bytes

WHOLE_LAYER = "layer"  # the recompute group that holds everything
OF_ENCODER = (SOURCE, f"{SOURCE}.full")  # what the encoder's last block keeps for all decoder blocks


def derive_backward(
    forward: tuple[Item, ...], recomputed: frozenset[str], until: Until = "end"
) -> tuple[Item, ...]:
    """Return backward items of one layer; recomputed modules run again first.

    Tensors that were gathered and not kept are gathered again, overlapped with the input gradient. A module
    runs again directly before the first gradient that needs its tensors. This is one of its own gradients
    or, if its output is not kept, the gradient of an operator that reads the output. If it ran earlier, its
    tensors would take memory while other gradients are computed.

    Parameters
    ----------
    forward
        Items as the stack runs them, in order.
    recomputed
        Names of modules (layers/modules.py), or WHOLE_LAYER.
    until
        Where the recompute of a module stops (recompute_order.py).

    Returns
    -------
    tuple of Item
        In order, of phase "recompute" or "backward", without the items at the end of a micro-batch
        (gradient_reduction.py).

    Examples
    --------
    The input gradient comes first, because the layer below waits for it. No item waits for the weight
    gradient.

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> from flopcast.operators.matmul import Matmul
    >>> one = constant(1)
    >>> work = Matmul(m=one, n=one, k=one, dtype="bf16")
    >>> linear = kernel("up", work, ("x",), "y", component="mlp")
    >>> [item.name for item in derive_backward((linear,), frozenset())]
    ['up.dgrad', 'up.wgrad']
    >>> [item.phase for item in derive_backward((linear,), frozenset({WHOLE_LAYER}))]
    ['recompute', 'backward', 'backward']
    """
    items: list[Item] = []
    gathers = {item.output: item for item in forward if item.kept_bytes is not None}
    if WHOLE_LAYER in recomputed:
        items += run_again(forward, until)
    chosen, started = recompute_order(forward, recomputed), set[str]()
    for item in reversed(forward):
        for run in chosen.before(item):
            if run not in started:
                started.add(run)
                items += chosen.again(run, until)
        items += _gradient_items(item, gathers)
    return launched_before(tuple(items))


def _gradient_items(item: Item, gathers: dict[str, Item]) -> list[Item]:
    """Return what one forward item becomes: gradient operators, a dual message, or nothing.

    `gathers` maps a gathered tensor to the item that made it, if only its shard was kept. An operator with
    a single gradient that keeps such a tensor (attention, of gathered keys and values) waits for it. A
    message whose dual sends nothing (the gradient of a sum is a copy) leaves no item. Tensors that
    travelled round a ring were not kept: they travel once more, together with their gradients unless ranks
    sum these elsewhere.
    """
    work = item.work
    if isinstance(work, AbstractMessage):
        dual = work.dual()
        back = replace(item, name=f"{item.name}.backward", work=dual, phase="backward", kept_bytes=None)
        round_again = isinstance(work, RingPass) and item.kept_bytes is not None
        return [*([_again(item, "for_input")] if round_again else []), *([back] if dual.collective else [])]
    if not isinstance(work, AbstractOperator):
        return []
    found = [
        replace(item, name=f"{item.name}.{suffix}", work=gradient, phase="backward")
        for suffix, gradient in work.gradients()
    ]
    if len(found) == 1:
        needed = [gathers[tensor] for tensor, _ in item.saved() if tensor in gathers]
        return [*(_again(gather, "for_input") for gather in needed), *found]
    gather = gathers.get(item.inputs[0]) if item.inputs else None
    if gather is None or len(found) < 2:
        return found
    beside = replace(found[0], waits=("compute", "host"))  # the input gradient does not need it
    return [_again(gather, "again"), beside, *found[1:]]


def _again(gather: Item, word: str) -> Item:
    """Return an all-gather sent once more; `word` distinguishes those of input gradients."""
    return replace(gather, name=f"{gather.name}.{word}", phase="backward", kept_bytes=None)


def kept_tensors(forward: Iterable[Item], recomputed: frozenset[str]) -> dict[str, Floats]:
    """Return the bytes kept from the forward until the backward pass of one layer, by tensor.

    With WHOLE_LAYER, only the layer's input is kept, which is not counted here. The inputs of a recomputed
    module are kept. Its other tensors are not kept, except outputs that another operator needs, if the
    module does not discard them. A tensor that several operators need is stored once. Of a gathered tensor,
    only the shard is kept.

    Returns
    -------
    dict of arrays of shape (plans, 1)
        Bytes on one rank for one micro-batch; keys are tensors of the layer ("mlp.inner") or of one item
        ("attention.drop.mask").
    """
    if WHOLE_LAYER in recomputed:
        return {}
    items = tuple(forward)
    made = {item.output: run_of(item, recomputed) for item in items}
    chosen = recompute_order(items, recomputed)
    gathered = {item.output: item for item in items if item.kept_bytes is not None}
    kept: dict[str, Floats] = {}
    for item in items:
        own, run = f"{item.name}.", run_of(item, recomputed)
        for tensor, size_bytes in (*item.saved(), *_entering(item, run)):
            inside = run and (tensor.startswith(own) or made.get(tensor) == run)
            if inside or chosen.maker(tensor) or tensor in OF_ENCODER:
                continue
            source = gathered.get(tensor)
            if source is not None and source.kept_bytes is not None:
                kept[source.inputs[0]] = source.kept_bytes
            else:
                kept[tensor] = np.maximum(kept.get(tensor, ZERO), size_bytes)
    read = {name for item in chosen.read_again() for name in item.inputs}
    in_part = [item for item in items if chosen.shares.get(item.name, 1.0) < 1.0 and item.output in read]
    sizes = tensor_bytes(items) if in_part else {}
    return kept | {item.output: sizes[item.output] * (1.0 - chosen.shares[item.name]) for item in in_part}


def _entering(item: Item, run: str) -> tuple[tuple[str, Floats], ...]:
    """Return what a message at the start of a recomputed run reads; it is kept to send it again."""
    if run in ("", OPERATORS) or not isinstance(item.work, AbstractMessage):
        return ()
    size_bytes = item.work.message_bytes if item.kept_bytes is None else item.kept_bytes
    return ((item.inputs[0], size_bytes),)


def exchange_of(item: Item) -> AllGather | RingPass | None:
    """Return the message by which ranks of one sequence exchange keys and values; None for other items."""
    work = item.work
    return work if isinstance(work, AllGather | RingPass) and work.axis == "cp" else None


def exchanged_at_work(forward: Iterable[Item]) -> Floats:
    """Return the bytes of exchanged keys and values that exist only while a layer runs its backward pass.

    These are gathered keys and values, whose gradients count like those of other tensors
    (backward_memory.py). For a ring, they are two buffers, one of which is filled while the other is used,
    each for keys and values and, if gradients are also sent, for their gradients.
    """
    total = ZERO
    for item in forward:
        work = exchange_of(item)
        if work is not None:
            buffers = 1.0
            if isinstance(work, RingPass):
                buffers = 4.0 if work.returns_gradients else 2.0
            total = total + buffers * work.message_bytes * np.minimum(item.count, 1.0)
    return total


def total_bytes(tensors: dict[str, Floats]) -> Floats:
    """Return the sum over tensors, of shape (plans, 1), or zero of shape (1, 1) if there are no tensors."""
    total = ZERO
    for size_bytes in tensors.values():
        total = total + size_bytes
    return total
