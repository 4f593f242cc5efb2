"""Host time of operators on sharded tensors, which PyTorch's DTensor dispatches in Python one by one.

Answers: how many operators of a block's pass, and of an optimizer's loop, go through this dispatch?
Elsewhere: the seconds of one (spec/stack.py), launches of kernels (cost/host.py).

torch.compile dispatches them while it traces, so a compiled block has no such time.
"""

from collections.abc import Iterable

import numpy as np

from flopcast.dtypes import Counts, Flags
from flopcast.operators.item import EVERY_STREAM, HostWork, Item
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.program import Layer
from flopcast.workload.rewrites.separate_projections import FORK

KIND = "sharded_operator"
# Of a linear layer PyTorch calls t, view, mm and _unsafe_view, and as many for each of its two gradients.
OF_GEMM = 4
# Of a root mean square norm it calls pow, mean, add, rsqrt and mul twice, and as many gradients.
OF_NORM = 6


def with_sharded_operators(layer: Layer, stack: Stack, plans: Plans) -> Layer:
    """Return a block whose host dispatches each operator on tensors that tensor parallelism shards."""
    shards = plans.tensor_parallel > 1
    if not stack.host.sharded_operator_s or layer.kind != "block" or not shards.any():
        return layer
    return replace(
        layer,
        forward=(_dispatch(layer.forward, "forward", shards), *layer.forward),
        backward=(_dispatch(layer.backward, "backward", shards), *layer.backward),
    )


def of_optimizer(stack: Stack, tensors: Counts) -> tuple[Item, ...]:
    """Return the item of an optimizer's loop in Python over the trained tensors of a rank, if there is one.

    The device waits for this loop, because the kernels of a tensor are shorter than their dispatch.
    """
    count = tensors * stack.optimizer.sharded_operators
    return (_dispatched("step", count, EVERY_STREAM),) if stack.optimizer.sharded_operators else ()


def _dispatch(items: Iterable[Item], phase: str, shards: Flags) -> Item:
    """Return the time in which the host dispatches the operators of a pass, as one item."""
    return _dispatched(phase, np.where(shards, sum(map(_operators, items)), 0.0), ())


def _dispatched(phase: str, count: Counts, waits: tuple[str, ...]) -> Item:
    return Item(
        name=f"host.{KIND}",
        work=HostWork(kind=KIND),
        component="host",
        phase=phase,
        stream="host",
        waits=waits,
        count=count,
    )


def _operators(item: Item) -> float:
    """Return how many operators on sharded tensors stand for a kernel: linear layers and norms have them.

    Attention, rotary embeddings and activations work on the local tensors of a rank. A fork stands for each
    further linear layer that reads the same input (rewrites/separate_projections.py).
    """
    work = item.work
    if isinstance(work, Matmul):
        return OF_GEMM
    if isinstance(work, MemoryBound) and FORK in item.name:
        return float(item.count.max()) * OF_GEMM * (2 if work.is_gradient else 1)
    return OF_NORM if item.component == "norm" and item.stream == "compute" else 0
