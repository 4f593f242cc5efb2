"""Kernels of a training step of a graph: what runs besides the forward pass.

Answers: which kernels compute gradients, and what does the optimizer move?
Elsewhere: the forward pass (kernels.py).
"""

from collections.abc import Iterator

import numpy as np

from flopcast.cost.graph_kernels.kernel_classes import GRAPH_KERNELS, NUMBERS
from flopcast.cost.graph_kernels.kernel_rows import KernelRows, kernel_rows
from flopcast.dtypes import Counts
from flopcast.records import replace

PASSES_OF_GRADIENTS = {  # tensors that gradients move, over those of the forward pass
    "batch_norm": 2.5,  # x and dy twice, dx
    "layer_norm": 1.5,
    "group_norm": 5.0 / 3.0,  # the same, over three tensors of the forward pass
    "softmax": 1.5,
    "elementwise": 1.5,  # an activation and its gradient, both read; two gradients of a fork, added
    "cast": 1.0,
    "weight_cast": 1.0,
    "copy": 1.0,
    "concatenate": 1.0,
    "pool": 2.5,  # positions of eight bytes
    "reduce": 1.0,
    "gather": 1.5,
    "pad": 1.0,
    "interpolate": 1.5,
    "bias": 0.5,
}
PASSES_OF_TRAINING = {"batch_norm": 1.5}  # statistics need a pass of their own
OF_PRODUCTS = 2.0  # gradients of both factors
FLOP_OF_GRADIENTS = {"attention": 2.5, "masked_attention": 2.5}  # scores are computed again
STATE_BYTES = 20.0  # of a parameter: SGD with momentum reads three fp32 numbers and writes two


def with_gradients(forward: KernelRows) -> Iterator[KernelRows]:
    """Yield the kernels of the forward pass in training, and those of the backward pass."""
    names = np.array(list(GRAPH_KERNELS))[forward.kernel]
    trained = [f"{name}.training" if name in PASSES_OF_TRAINING else name for name in names]
    more = np.array([PASSES_OF_TRAINING.get(name, 1.0) for name in names])
    kernel = np.array([NUMBERS[name] for name in trained], dtype=np.intp)
    yield replace(forward, kernel=kernel, moved_bytes=forward.moved_bytes * more)
    yield backward_rows(forward)


def backward_rows(forward: KernelRows) -> KernelRows:
    """Return the kernels of the backward pass."""
    names = np.array(list(GRAPH_KERNELS))[forward.kernel]
    kernel = np.array([NUMBERS[_gradients_of(name)] for name in names], dtype=np.intp)
    times = np.array([PASSES_OF_GRADIENTS.get(name, OF_PRODUCTS) for name in names])
    more = np.array([FLOP_OF_GRADIENTS.get(name, OF_PRODUCTS) for name in names])
    return replace(
        forward, kernel=kernel, flop=forward.flop * more, moved_bytes=forward.moved_bytes * times
    )


def _gradients_of(name: str) -> str:
    known = f"{name}.gradients"
    return known if known in GRAPH_KERNELS else "attention.gradients"


def optimizer_rows(parameters: Counts) -> KernelRows:
    """Return the update of all parameters of each graph."""
    graph = np.arange(len(parameters))
    return kernel_rows("optimizer", graph, np.ones(len(parameters)), 0.0, STATE_BYTES * parameters)
