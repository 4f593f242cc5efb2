"""Sharded parameters that software sends tensor by tensor, as DeepSpeed did in 2021.

Answers: into how many messages is a unit divided, how often does a backward pass gather it, and how long
does the device wait for the software meanwhile?
Elsewhere: when units are gathered (sharded.py), when gradients are reduced (gradient_reduction.py), the
settings (spec/data_parallel.py, SingleTensors).

References
----------
DeepSpeed 0.3.15: deepspeed/runtime/zero/partition_parameters.py (`_allgather_param` gathers into a list of
views, one for each rank), stage3.py (`PartitionedParameterCoordinator` releases parameters that are not
used again within `max_reuse_distance`). What it cost: issue 1174 and pull request 1188 of DeepSpeed.
PyTorch 1.8: torch/lib/c10d/ProcessGroupNCCL.cpp copies each piece of such a list.
"""

from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import ONE, ZERO, Counts
from flopcast.layers.base import Weight
from flopcast.operators.item import Item, host_work
from flopcast.records import replace
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.parameters import elements

LEAST_ELEMENTS = 100_000  # of a tensor that is sharded at all: stage3_param_persistence_threshold


def num_tensors(weights: tuple[Weight, ...], stack: Stack, plans: Plans) -> Counts:
    """Return the messages of a unit of ZeRO-3: 1, or one for each tensor that is not small; (plans, 1)."""
    if stack.sharding.single_tensors is None or plans.structure.zero < 3:
        return ONE
    large = [(weight.elements >= LEAST_ELEMENTS).astype(np.float64) for weight in weights]
    return np.asarray(np.maximum(sum(large, ZERO), 1.0))


def gathers_of_a_pass(weights: tuple[Weight, ...], stack: Stack, plans: Plans, backward: bool) -> Counts:
    """Return how often a pass gathers the elements of a unit: above 1 if some are released in between.

    Between its recompute and its backward pass, both passes of the following tensors run.
    """
    fetch = stack.sharding.single_tensors
    if not backward or fetch is None or not fetch.reuse_elements or plans.structure.recompute == "none":
        return ONE
    again = ZERO
    for place, weight in enumerate(weights):
        between = 2.0 * elements(weights[place + 1 :])
        again = again + weight.elements * (between >= fetch.reuse_elements)
    return np.asarray(1.0 + again / np.maximum(elements(weights), 1.0))


def waits(
    stack: Stack, plans: Plans, counts: tuple[Counts, Counts, Counts], phase: str, when: str
) -> Iterator[Item]:
    """Yield the time in which the device waits for messages of single tensors, and for passes over them.

    Parameters
    ----------
    counts : ranks that share a tensor, messages, and elements that are gathered

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> stack = Stack(name="any", sharding={"single_tensors": {}})
    >>> found = waits(stack, one_plan(Plan(dp=8, zero=3)), (8 * ONE, 4 * ONE, ZERO), "forward", "every")
    >>> [(item.name, item.count.item()) for item in found]
    [('host.piece', 32.0), ('host.message', 4.0), ('host.element', 0.0)]
    """
    if stack.sharding.single_tensors is None or plans.structure.zero < 3:
        return
    ranks, messages, gathered = counts
    several = ranks > 1
    for kind, count in (("piece", ranks * messages), ("message", messages), ("element", gathered)):
        item = replace(host_work(kind, phase), component="dp_communication", when=when)
        yield replace(item, count=count * several)
