"""Number types: the arrays that the core computes with, and the bytes of one element.

Answers: what is a quantity inside the core, and how large is an element of a dtype?
Conventions: one value per plan, shape `(plans, 1)`, or per plan and stage class, `(plans, classes)`.
A quantity that is the same for all plans has shape `(1, 1)` and broadcasts. Counts are float64 too,
because products of sizes (6 · parameters · tokens) overflow int64.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, TypeVar

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # a quantity with a unit: seconds, bytes, FLOP, rates
Counts = NDArray[np.float64]  # a shape, a degree, a number of things: dimensionless
Logs = NDArray[np.float64]  # a logarithm
Integers = NDArray[np.intp]  # positions in other arrays
Flags = NDArray[np.bool_]  # what holds where
Probability = Annotated[float, Ge(0), Lt(1)]

Arrays = TypeVar("Arrays")

ELEMENT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int64": 8.0, "bool": 1.0}


def is_wide(dtype: str) -> bool:
    """Return whether an element has more than 16 bits."""
    return ELEMENT_BYTES[dtype] > ELEMENT_BYTES["bf16"]


def constant(value: float | int) -> Counts:
    """Return the array of shape (1, 1) that holds `value` for every plan.

    >>> constant(4096)
    array([[4096.]])
    """
    return np.array([[float(value)]])


def any_of(values: np.ndarray) -> bool:
    """Return whether a value of an array is not 0, in a fifth of the time of `values.any()` for few values.

    >>> any_of(np.array([0.0, 0.5])), any_of(np.array([]))
    (True, False)
    """
    return bool(np.count_nonzero(values))


def all_of(values: np.ndarray) -> bool:
    """Return whether no value of an array is 0, in a fifth of the time of `values.all()` for few values.

    >>> all_of(np.array([True, False])), all_of(np.array([]))
    (False, True)
    """
    return bool(np.count_nonzero(values) == values.size)


def concatenated(parts: Sequence[Arrays]) -> Arrays:
    """Return the entries of all parts, in order; each field of their dataclass is an array."""
    first: Any = parts[0]
    names = [each.name for each in fields(first)]
    return type(parts[0])(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def distinct(values: Integers) -> list[int]:
    """Return the distinct values of an array of whole numbers from 0 on, in order.

    >>> distinct(np.array([[3, 1], [1, 3]]))
    [1, 3]
    """
    values_in_order: list[int] = np.bincount(values.ravel()).nonzero()[0].tolist()
    return values_in_order


def levels(each_s: Floats) -> Floats:
    """Return the distinct numbers of an array in order, such as the seconds of tasks.

    `np.unique` does the same, but imports masked arrays at its first call, which takes 4 ms.

    >>> levels(np.array([3.0, 1.0, 3.0])).tolist()
    [1.0, 3.0]
    """
    ordered_s = np.sort(each_s, axis=None)
    return ordered_s[np.append(True, ordered_s[1:] != ordered_s[:-1])] if len(ordered_s) else ordered_s


ZERO = constant(0.0)
ONE = constant(1.0)
