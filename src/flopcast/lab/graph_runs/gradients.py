"""Kernels of a training step of a graph that run in addition to the forward pass.

Answers: which kernels compute gradients, and what does the optimizer move?
Elsewhere: the forward pass (kernels.py).
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from flopcast.cost.graph_kernels.kernel_classes import GRAPH_KERNELS, NUMBERS
from flopcast.cost.graph_kernels.kernel_rows import KernelRows, kernel_rows
from flopcast.dtypes import Counts, Flags
from flopcast.files.package_table import read_table
from flopcast.records import replace

PASSES_OF_GRADIENTS: Mapping[str, float] = read_table(__package__, "names.yaml")["passes_of_gradients"]
PASSES_OF_TRAINING = {"batch_norm": 1.5, "planar_batch_norm": 1.5}  # statistics need a pass of their own
BOTH = 1.5  # inputs over outputs, in elements, above which two whole tensors enter an operator
OF_PRODUCTS = 2.0  # gradients of both factors
FLOP_OF_GRADIENTS = {"attention": 2.5, "masked_attention": 2.5}  # scores are computed again
STATE_BYTES = 20.0  # of a parameter: SGD with momentum reads three fp32 numbers and writes two


def with_gradients(forward: KernelRows, times: Counts | None = None) -> Iterator[KernelRows]:
    """Yield the kernels of the forward pass in training, and those of the backward pass.

    Parameters
    ----------
    times : array of shape (rows,), optional
        The tensors that each gradient moves, divided by those of the forward pass; by default the ratio
        of the class.
    """
    names = np.array(list(GRAPH_KERNELS))[forward.kernel]
    trained = [f"{name}.training" if name in PASSES_OF_TRAINING else name for name in names]
    more = np.array([PASSES_OF_TRAINING.get(name, 1.0) for name in names])
    kernel = np.array([NUMBERS[name] for name in trained], dtype=np.intp)
    yield replace(forward, kernel=kernel, moved_bytes=forward.moved_bytes * more)
    yield backward_rows(forward, times)


def backward_rows(forward: KernelRows, times: Counts | None = None) -> KernelRows:
    """Return the kernels of the backward pass."""
    names = np.array(list(GRAPH_KERNELS))[forward.kernel]
    kernel = np.array([NUMBERS[_gradients_of(name)] for name in names], dtype=np.intp)
    if times is None:
        times = times_of_classes(names)
    more = np.array([FLOP_OF_GRADIENTS.get(name, OF_PRODUCTS) for name in names])
    return replace(
        forward, kernel=kernel, flop=forward.flop * more, moved_bytes=forward.moved_bytes * times
    )


def times_of_classes(names: Iterable[str]) -> Counts:
    """Return the tensors that the gradient of each class moves, divided by those of the forward pass."""
    return np.array([PASSES_OF_GRADIENTS.get(name, OF_PRODUCTS) for name in names])


def times_of_sums(read: Counts, written: Counts, has_weight: Flags) -> Counts:
    """Return the bytes that the gradients of sums move, divided by those of the forward pass
    (derivatives.yaml).

    The gradients of a sum of two tensors equal the gradient of the output. However, the residual
    connection began with a tensor that two operators read, so its two gradients are added. The gradient
    of a weight is a sum over the batch. A constant has no gradient.
    """
    return np.where(read > BOTH * written, 1.0, np.where(has_weight, 0.5, 0.0))


def times_of_multiplications(read: Counts, written: Counts, has_weight: Flags) -> Counts:
    """Return the bytes of the gradients of a multiplication, divided by the bytes of its forward pass.

    The formulas are those of PyTorch (derivatives.yaml). The gradient of each factor reads the gradient of
    the output and the other factor. The gradient of a factor with fewer elements, such as a weight or the
    gate of a squeeze-and-excitation layer, is a whole tensor, which a second kernel sums. A gate is
    computed from the tensor that it scales, so that two gradients of this tensor are added.
    """
    of_factor, of_sum, of_fork = 3.0, 1.0, 3.0  # whole tensors
    small = 2.0 + of_factor + of_sum
    of_two = np.where(read > BOTH * written, 2.0 * of_factor / 3.0, (small + of_fork) / 2.0)
    return np.where(read > written, of_two, np.where(has_weight, small / 2.0, 1.0))


def _gradients_of(name: str) -> str:
    known = f"{name}.gradients"
    return known if known in GRAPH_KERNELS else "attention.gradients"


def optimizer_rows(parameters: Counts) -> KernelRows:
    """Return the update of all parameters of each graph."""
    graph = np.arange(len(parameters))
    return kernel_rows("optimizer", graph, np.ones(len(parameters)), 0.0, STATE_BYTES * parameters)
