"""The backward pass, derived: forward items reversed, each replaced by its gradients or its dual.

Answers: which items does the backward pass of one layer run, what is run again, what was kept for it,
what is alive besides while it runs?
Nothing here knows an architecture: operators name their gradients, messages their duals.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Floats
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.matmul import Matmul

WHOLE_LAYER = "layer"  # the recompute group that holds everything


def derive_backward(forward: tuple[Item, ...], recomputed: frozenset[str]) -> tuple[Item, ...]:
    """Backward items of one layer, recomputed groups first run again.

    `recomputed` names groups of items, or WHOLE_LAYER. Gradients of tensors that were gathered and
    not kept are preceded by a gather that overlaps the input gradient.
    """
    items: list[Item] = []
    gathers = {item.output: item for item in forward if item.kept_bytes is not None}
    if WHOLE_LAYER in recomputed:
        items += [item.again() for item in forward]
        gathers = {}
    started: set[str] = set()
    for item in reversed(forward):
        group = item.group
        if group and group in recomputed and group not in started:
            started.add(group)
            items += [other.again() for other in forward if other.group == group]
        items += _gradient_items(item, gathers)
    return tuple(items)


def _gradient_items(item: Item, gathers: dict[str, Item]) -> list[Item]:
    work = item.work
    if isinstance(work, AbstractMessage):
        dual = work.dual()
        if not dual.collective:
            return []
        return [replace(item, name=f"{item.name}.backward", work=dual, phase="backward", kept_bytes=None)]
    if not isinstance(work, AbstractOperator):
        return []
    found = [
        replace(item, name=f"{item.name}.{suffix}", work=gradient, phase="backward")
        for suffix, gradient in work.gradients()
    ]
    gather = gathers.get(item.inputs[0]) if item.inputs else None
    if gather is None or len(found) < 2:
        return found
    again = replace(gather, name=f"{gather.name}.again", phase="backward", kept_bytes=None)
    beside = replace(found[0], waits=("compute", "host"))  # the input gradient does not need it
    return [again, beside, *found[1:]]


def kept_tensors(forward: Iterable[Item], recomputed: frozenset[str]) -> dict[str, Floats]:
    """Bytes kept from the forward until the backward pass of one layer, by tensor.

    With WHOLE_LAYER nothing is kept but the layer's input, which is not counted here. Tensors made
    inside a recomputed group are not kept.
    """
    if WHOLE_LAYER in recomputed:
        return {}
    items = tuple(forward)
    inside = {item.output for item in items if item.group in recomputed and item.group}
    gathered = {item.output: item for item in items if item.kept_bytes is not None}
    kept: dict[str, Floats] = {}
    for item in items:
        own = f"{item.name}."
        for tensor, size_bytes in item.saved():
            if item.group and item.group in recomputed and (tensor in inside or tensor.startswith(own)):
                continue
            source = gathered.get(tensor)
            if source is not None and source.kept_bytes is not None:
                kept[source.inputs[0]] = source.kept_bytes
            else:
                kept[tensor] = np.maximum(kept.get(tensor, ZERO), size_bytes)
    return kept


def gradients_at_work(forward: Iterable[Item]) -> Floats:
    """Bytes of both gradients of the largest linear: alive together while its backward runs."""
    largest = ZERO
    for item in forward:
        work = item.work
        if isinstance(work, Matmul):
            elements = (work.m + work.n) * work.k  # of the input, of the weight
            largest = np.maximum(largest, elements * ELEMENT_BYTES[work.dtype])
    return largest


def total_bytes(tensors: dict[str, Floats]) -> Floats:
    """Sum over tensors."""
    total = ZERO
    for size_bytes in tensors.values():
        total = total + size_bytes
    return total
