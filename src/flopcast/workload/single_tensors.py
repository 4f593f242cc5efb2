"""Sharded parameters that software sends tensor by tensor, as DeepSpeed did in 2021.

Answers: into how many messages is a unit divided, how often does a backward pass gather it, and how long
does the host divide messages into the pieces of ranks?
Elsewhere: when units are gathered (sharded.py), when gradients are reduced (gradient_reduction.py), the
settings (spec/data_parallel.py, Sharding).

References
----------
DeepSpeed 0.3.15: deepspeed/runtime/zero/partition_parameters.py (`_allgather_param` gathers into a list of
views, one for each rank, as `_reduce_scatter_gradient` scatters from one), stage3.py
(`PartitionedParameterCoordinator`: fetches wait for the device; parameters beyond `max_live_parameters` are
released after each use). PyTorch 1.8: torch/lib/c10d/ProcessGroupNCCL.cpp copies each piece of such a list.
"""

from dataclasses import replace

import numpy as np

from flopcast.dtypes import ONE, ZERO, Counts
from flopcast.layers.base import Weight
from flopcast.operators.item import Item, host_work
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.parameters import elements

LEAST_ELEMENTS = 100_000  # of a tensor that is sharded at all: stage3_param_persistence_threshold


def num_tensors(weights: tuple[Weight, ...], stack: Stack, plans: Plans) -> Counts:
    """Return the messages of a unit of ZeRO-3: 1, or one for each tensor that is not small; (plans, 1)."""
    if not stack.sharding.single_tensors or plans.structure.zero < 3:
        return ONE
    large = [(weight.elements >= LEAST_ELEMENTS).astype(np.float64) for weight in weights]
    return np.asarray(np.maximum(sum(large, ZERO), 1.0))


def gathers_of_a_pass(weights: tuple[Weight, ...], stack: Stack, plans: Plans, backward: bool) -> Counts:
    """Return how often a pass gathers a unit: twice if it is released between recompute and backward."""
    most = stack.sharding.live_elements
    if not backward or not most or plans.structure.recompute == "none":
        return ONE
    return np.asarray(1.0 + (elements(weights) > most))


def pieces(stack: Stack, ranks: Counts, messages: Counts, phase: str, when: str) -> tuple[Item, ...]:
    """Return the time in which the host divides messages into a piece for each rank; the device waits.

    Examples
    --------
    >>> stack = Stack(name="any", sharding={"piece_s": 1e-5})
    >>> [item.count.item() for item in pieces(stack, 384 * ONE, 4 * ONE, "forward", "every")]
    [1536.0]
    """
    if not stack.sharding.piece_s:
        return ()
    each = replace(host_work("piece", phase), component="dp_communication", when=when)
    return (replace(each, count=ranks * messages * (ranks > 1)),)
