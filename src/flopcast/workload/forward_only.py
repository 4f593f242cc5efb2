"""A step that is only a forward pass: inference, or an evaluation between training steps.

Answers: which items of a layer run without a backward pass, and how much memory do its tensors need?
Elsewhere: the memory of a backward pass (backward_memory.py), serving with caches and queues (serving/).

Nothing is kept for a backward pass. A tensor is allocated from the item that writes it to the last item
that reads it. The input and the output of a layer are allocated as long as the layer runs.
"""

import numpy as np

from flopcast.dtypes import ZERO, Floats
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.item import Item
from flopcast.records import replace
from flopcast.workload.program import Layer, Programs
from flopcast.workload.tensor_sizes import tensor_bytes


def forward_only(layer: Layer) -> Layer:
    """Return a layer that runs only the forward pass and saves nothing."""
    forward = tuple(map(_of_inference, layer.forward))
    return replace(
        layer,
        forward=forward,
        backward=(),
        weight=(),
        kept_bytes=ZERO,
        working_bytes=forward_peak(forward),
        waiting_bytes=ZERO,
        outside_bytes=ZERO,
    )


def _of_inference(item: Item) -> Item:
    """Return an item as it runs in inference: batch norms use stored statistics."""
    work = item.work
    return replace(item, work=work.in_inference()) if isinstance(work, GraphKernel) else item


def without_update(programs: Programs) -> Programs:
    """Return programs without backward pass, reduction, optimizer and trained weights.

    All parameters count as frozen, so no gradients and no optimizer states are stored. Messages between
    stages go forward only.
    """
    backward = tuple(replace(segment, items=()) for segment in programs.backward)
    return replace(
        programs,
        backward=backward,
        weight=(),
        hop_across=replace(programs.hop_across, backward=()),
        hop_inside=replace(programs.hop_inside, backward=()),
        reduce=(),
        synchronise=(),
        update=(),
        frozen_parameters=programs.parameters,
        trained_experts=None,
    )


def forward_peak(items: tuple[Item, ...]) -> Floats:
    """Return the most bytes of one layer's tensors that are allocated at once in its forward pass, (plans,
    1).

    Examples
    --------
    In a chain of three equal tensors, two exist at the same time, in addition to the input of the layer:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.graph_kernel import GraphKernel
    >>> from flopcast.operators.item import kernel
    >>> work = GraphKernel(family="elementwise", moved=constant(20), moved_backward=constant(30),
    ...                    read=(constant(10),), written=constant(10), kept=(), dtype="bf16")
    >>> names = ("x", "a", "b", "y")
    >>> chain = tuple(kernel(end, work, (start,), end, component="passes")
    ...               for start, end in zip(names, names[1:]))
    >>> forward_peak(chain).item() / 20
    3.0
    """
    sizes = tensor_bytes(items)
    last = {name: place for place, item in enumerate(items) for name in item.inputs}
    made = {item.output for item in items if item.output not in item.inputs}
    alive = sum((sizes.get(name, ZERO) for name in last if name not in made), ZERO)
    peak, held = alive, set[str]()
    for place, item in enumerate(items):
        if item.output in made and item.output not in held:
            held.add(item.output)
            alive = alive + sizes.get(item.output, ZERO)
        peak = np.maximum(peak, alive)
        for name in set(item.inputs) & held:
            if last[name] == place and name != item.output:
                held.discard(name)
                alive = alive - sizes.get(name, ZERO)
    return peak
