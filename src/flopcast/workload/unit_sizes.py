"""Sizes of a unit of sharded parameters, which one message gathers.

Answers: how many elements does a unit have, how many of them are trained, and how many bytes does it have?
Elsewhere: the layers of a unit and the times of its gathers (sharded.py), resident memory
(memory/sharded.py).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import ONE, Counts
from flopcast.layers.base import Weight
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.parameters import elements, is_frozen, is_tied, spared_elements

UnitSize = Callable[[tuple[Weight, ...], Stack, Plans], Counts]  # one of the functions below


def unit_elements(weights: tuple[Weight, ...], stack: Stack, plans: Plans) -> Counts:
    """Return the elements that a unit gathers, (plans, 1).

    A tied table is gathered together with its owner if both exist at the same time: in the root unit, and
    if ranks hold whole parameters. Otherwise it is gathered again.
    """
    again = plans.structure.zero == 3 and stack.sharding.ends == "own_units"
    elsewhere = ONE if again else (plans.pipeline_parallel > 1).astype(np.float64)
    return elements(weights) + elements(weights, is_tied) * elsewhere


def trained_elements(weights: tuple[Weight, ...], stack: Stack, plans: Plans) -> Counts:
    """Return the elements of a unit that have gradients, (plans, 1)."""
    return unit_elements(weights, stack, plans) - elements(weights, is_frozen)


def whole_elements(weights: tuple[Weight, ...], stack: Stack, plans: Plans) -> Counts:
    """Return the bytes of a gathered unit as a number of elements of the activations' dtype, (plans, 1).

    A weight in fewer bits counts as less than one element.
    """
    return unit_elements(weights, stack, plans) - spared_elements(weights, plans)
