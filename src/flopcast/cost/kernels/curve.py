"""A curve: learned efficiency of one kernel class (or collective) on one device (or fabric).

Answers: what fraction of its physical bound does a kernel of these coordinates reach?
Elsewhere: how a curve is fitted (calibration/), what the bound is (roofline.py, collectives/).

A curve is a small table of log-efficiency over log2 of its coordinates, interpolated linearly and
held at its edges: outside the measured range the efficiency is that of the nearest measured shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flopcast.dtypes import Counts, Integers, Logs

Corner = tuple[Counts, tuple[Integers, ...]]  # of a cell: its weight, its index in the table


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Evidence:
    """What a curve rests on.

    `source` names the measurements, `rows` how many were used, `rejected` how many were left out: known
    to be broken, or faster than the hardware can be. `relative_error` is the mean of
    |predicted / measured - 1| on rows kept aside; it is what a report shows and what a factor's sigma
    starts from.
    """

    source: str
    rows: int
    rejected: int
    relative_error: float  # mean |predicted / measured - 1| on rows kept aside


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Curve:
    """`time = launch + bound / efficiency`, efficiency looked up in `table`.

    The coordinates are those of the operator class (`coordinates()` of operators/); for a collective,
    message bytes, ranks inside a node and nodes. A curve without axes has one efficiency everywhere: a
    data-sheet estimate. Efficiency is a fraction of the roofline bound, so it is at most 1, and a
    curve can be lent to another device whose peaks differ.

    `layout_ratio` scales the whole time of a gradient product; only the sum of both gradients was
    measured, so both have the same ratio.
    """

    name: str  # kernel class or collective
    owner: str  # device or fabric
    axes: tuple[Counts, ...]  # log2 of the nodes of each coordinate, rising
    table: Logs  # log-efficiency, one dimension per axis
    launch_s: float
    evidence: Evidence
    layout_ratio: Mapping[str, float] = field(default_factory=dict)  # time against "forward"


def log_efficiency(curve: Curve, coordinates: tuple[Counts, ...]) -> Logs:
    """Interpolated log-efficiency: linear in the logarithms, so time is a power of size between nodes.

    Parameters
    ----------
    curve : with at least one axis
    coordinates : arrays of shape (rows,), positive, in the order of the curve's axes
        A relative's curve may know fewer axes: the coordinates behind them are not used.

    Returns
    -------
    array of shape (rows,)
        Natural logarithms, 0 at most; outside of an axis, the value at its nearest end.
    """
    corners: list[Corner] = [(np.ones(coordinates[0].shape), ())]
    for axis, value in zip(curve.axes, coordinates, strict=False):
        below, share = _locate(axis, value)
        lower: list[Corner] = [(weight * (1.0 - share), (*index, below)) for weight, index in corners]
        upper: list[Corner] = [(weight * share, (*index, below + 1)) for weight, index in corners]
        corners = lower + upper if len(axis) > 1 else lower
    total: Logs = np.zeros(coordinates[0].shape)
    for weight, index in corners:
        total = total + weight * curve.table[index]
    return total


def outside(curve: Curve, coordinates: tuple[Counts, ...]) -> bool:
    """Whether any coordinate lies more than 5 % outside of the measured range.

    Less than that is the rounding of a curve file, or a measured shape with its padding.
    """
    slack = np.log2(1.05)
    return any(
        bool(np.any(np.log2(value) < axis[0] - slack) or np.any(np.log2(value) > axis[-1] + slack))
        for axis, value in zip(curve.axes, coordinates, strict=False)
    )


def _locate(axis: Counts, value: Counts) -> tuple[Integers, Counts]:
    """Index of the node below, and the share of the node above; at the last node, share 1."""
    if len(axis) == 1:
        zero = np.zeros(value.shape)
        return zero.astype(np.intp), zero
    position = np.clip(np.log2(value), axis[0], axis[-1])
    below = np.clip(np.searchsorted(axis, position, side="right") - 1, 0, len(axis) - 2)
    return below, (position - axis[below]) / (axis[below + 1] - axis[below])
