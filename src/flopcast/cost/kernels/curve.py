"""A curve: the fitted efficiency of one kernel class (or collective) on one device (or fabric).

Answers: what fraction of its physical bound does a kernel of these coordinates reach?
Elsewhere: how a curve is fitted (lab/calibration/), what the bound is (roofline.py, collectives/).

A curve is a small table of log-efficiency over log2 of its coordinates, interpolated linearly. Outside the
measured range the efficiency is that of the nearest measured shape. Beyond the largest measured work, time
grows as over the last measured octave, unless the efficiency of the kernel is known to be saturated
(features.py). Discontinuous effects (tiles, waves) are separate terms (features.py); with less work than in
any measured shape, the terms are those of a whole tile.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flopcast.cost.kernels.features import features_of
from flopcast.dtypes import Counts, Integers, Logs, any_of
from flopcast.records import Record, field

MOST_RISE = 3.0  # of efficiency, far beyond the end of an axis
Corner = tuple[Counts, Integers]  # of a cell: its weight, its place in the flattened table


class CurveEvidence(Record, eq=False):
    """The measurements behind a curve, and its error.

    `source` names the measurements. `rows` is the number of used rows, and `rejected` the number of rows
    that were left out because they are broken or faster than the hardware. `relative_error` is the mean of
    |predicted / measured - 1| on rows left out of the fit, which a report shows. `log_sigma_factor` is the
    sigma of the factor of the class: its 90 % interval contains 90 % of the errors of these rows
    (lab/calibration/conformal.py).
    """

    source: str
    rows: int
    rejected: int
    relative_error: float  # mean |predicted / measured - 1| on rows kept aside
    log_sigma_factor: float = 0.1  # the guess of a curve whose rows are too few to keep some aside


class Curve(Record, eq=False):
    """A curve gives `time = launch + bound / efficiency`, where the efficiency comes from `table`.

    The coordinates are those of the features of the kernel class. For a collective, they are message bytes,
    ranks inside a node, and nodes. A curve without axes has one efficiency everywhere: a data-sheet
    estimate. Efficiency is a fraction of the roofline bound. It is therefore at most 1, and the curve also
    applies to a device with other peaks.

    `terms` are the coefficients of terms that are not zero. `layout_ratio` scales the whole time of a
    gradient product; its keys are a layout, or a layout and the measured dtype: "input_gradient.bf16".
    `widened` is the curve of the class in whose format a kernel multiplies, if the kernel first converts
    its weights to a wider format (`WIDENED` in fallback_classes.py).
    """

    name: str  # kernel class or collective
    owner: str  # device or fabric
    axes: tuple[Counts, ...]  # log2 of the nodes of each coordinate, rising
    table: Logs  # log-efficiency, one dimension per axis
    launch_s: float
    evidence: CurveEvidence
    layout_ratio: Mapping[str, float] = field(default_factory=dict)  # time against "forward"
    terms: Mapping[str, float] = field(default_factory=dict)
    widened: "Curve | None" = None

    def ratio_of(self, layout: str, dtype: str) -> float:
        """Return the time of a GEMM, divided by that of a forward GEMM.

        If this dtype was not measured, the ratio of a measured dtype is used.

        >>> ratios = {"input_gradient.fp16": 0.9, "input_gradient.bf16": 1.0}
        >>> curve = Curve(name="gemm", owner="x", axes=(), table=np.zeros(()), launch_s=0.0,
        ...               evidence=CurveEvidence(source="x", rows=1, rejected=0, relative_error=0.1),
        ...               layout_ratio=ratios)
        >>> [curve.ratio_of(*case) for case in (("input_gradient", "fp16"), ("input_gradient", "fp8"))]
        [0.9, 1.0]
        >>> curve.ratio_of("forward", "fp16")
        1.0
        """
        names = (f"{layout}.{dtype}", layout, f"{layout}.bf16", f"{layout}.fp16")
        return next((self.layout_ratio[name] for name in names if name in self.layout_ratio), 1.0)


def log_efficiency(curve: Curve, coordinates: tuple[Counts, ...], multiprocessors: int = 1) -> Logs:
    """Return the log-efficiency; it is linear in logarithms between nodes, so that time is a power of size.

    Parameters
    ----------
    curve : with at least one axis
    coordinates : arrays of shape (rows,), positive, as the operator gives them
        The curve of a related class may have fewer axes; further coordinates are not used.
    multiprocessors : of the device that runs the kernel; only terms need this number

    Returns
    -------
    array of shape (rows,)
        Natural logarithms, 0 at most.
    """
    view = features_of(curve.name)
    values = view.table(coordinates)[: len(curve.axes)]
    logs = _overflowed(curve, [np.log2(value) for value in values])
    total = looked_up(curve.axes, curve.table, logs)
    for number, (axis, power) in enumerate(zip(curve.axes, view.powers, strict=False)):
        if power is None or view.saturates or len(axis) == 1:
            continue
        beyond = logs[number] > axis[-1]
        if any_of(beyond):
            edge = [log[beyond] for log in logs]
            total[beyond] += _gain_beyond(curve, edge, number, 2.0**-power)
    shape = coordinates
    if view.at_least and curve.terms and any_of(little := logs[0] < curve.axes[0][0]):
        shape = tuple(
            np.where(little, np.maximum(value, least), value)
            for value, least in zip(coordinates, view.at_least, strict=False)
        )
    for name, coefficient in curve.terms.items():
        total = total + coefficient * view.terms[name](shape, multiprocessors)
    return np.minimum(total, 0.0)


def _overflowed(curve: Curve, logs: list[Logs]) -> list[Logs]:
    """Return log2 of coordinates; where the view says so, the excess over one axis is added to another."""
    pair = features_of(curve.name).overflow
    if pair is None or max(pair) >= len(curve.axes):
        return logs
    full, other = pair
    excess = np.maximum(logs[full] - curve.axes[full][-1], 0.0)
    return [log + excess if place == other else log for place, log in enumerate(logs)]


def looked_up(axes: tuple[Counts, ...], table: Logs, logs: Sequence[Logs]) -> Logs:
    """Return a table at log2 of coordinates, each clipped to its axis.

    Parameters
    ----------
    axes : tuple of arrays
        Nodes of each coordinate, ascending. An axis with a single node has no influence.
    table : array with one dimension for each axis
    logs : sequence of arrays of shape (rows,)
        Log2 of each coordinate.

    Returns
    -------
    array of shape (rows,)
        Multilinear interpolation: the weighted sum over the corners of the cell around each point.
    """
    corners: list[Corner] = []
    for axis, log in zip(axes, logs, strict=False):
        if len(axis) == 1:
            continue
        below, share = _locate(axis, log)
        other = 1.0 - share
        if not corners:
            corners = [(other, below), (share, below + 1)]
            continue
        lower = [(weight * other, place * len(axis) + below) for weight, place in corners]
        upper = [
            (weight * share, place + 1) for (weight, _), (_, place) in zip(corners, lower, strict=True)
        ]
        corners = lower + upper
    values = table.ravel()
    total: Logs = np.zeros(logs[0].shape) if corners else np.full(logs[0].shape, values[0])
    for weight, place in corners:
        total += weight * values.take(place)
    return total


def _gain_beyond(curve: Curve, logs: Sequence[Logs], number: int, half_fraction: float) -> Logs:
    """Return the gain of log-efficiency beyond the end of an axis along which work grows; (rows,), >= 0.

    There, time grows as over the last measured octave: additional work takes as long as the work that this
    octave added, because latency and fill are paid once. Efficiency that falls at the end is held. An
    octave less along the axis is `half_fraction` of the work.
    """
    end = float(curve.axes[number][-1])
    at_end = looked_up(curve.axes, curve.table, logs)
    before = [np.full_like(log, end - 1.0) if place == number else log for place, log in enumerate(logs)]
    rise = np.exp(at_end - looked_up(curve.axes, curve.table, before))
    # time over that at the end
    added = np.clip((1.0 - half_fraction * rise) / (1.0 - half_fraction), 1.0 / MOST_RISE, 1.0)
    kept = half_fraction ** (logs[number] - end)  # share of the work inside the axis
    return np.asarray(-np.log(kept + (1.0 - kept) * added))


def outside(curve: Curve, coordinates: tuple[Counts, ...]) -> np.ndarray:
    """Return a mask of shapes with a coordinate more than 5 % outside the measured range, (rows,).

    Smaller differences come from rounding in a curve file, or from the padding of a measured shape. For a
    curve without axes, no shape is outside.
    """
    slack = np.log2(1.05)
    found = np.zeros(coordinates[0].shape, dtype=bool)
    for axis, value in zip(curve.axes, features_of(curve.name).table(coordinates), strict=False):
        log = np.log2(value)
        found |= (log < axis[0] - slack) | (log > axis[-1] + slack)
    return found


def _locate(axis: Counts, log: Logs) -> tuple[Integers, Counts]:
    """Return the index of the node below, and the weight of the node above; at the last node, weight 1."""
    position = np.minimum(np.maximum(log, axis[0]), axis[-1])
    below = np.minimum(axis.searchsorted(position, side="right") - 1, len(axis) - 2)
    return below, (position - axis[below]) / (axis[below + 1] - axis[below])
