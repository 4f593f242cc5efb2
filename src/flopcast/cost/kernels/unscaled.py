"""Times of kernels before they are multiplied by factors.

Answers: how long does a kernel take according to its curve, including lower clocks and work that does not
overlap?
Elsewhere: the curve (curve.py), the bound (roofline.py), factors (kernel_factors.py, cost/price.py).

Explanations show these times part by part (report/explain/kernels.py).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.kernels.between_nodes import log_efficiency_by_times
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve, log_efficiency, outside
from flopcast.cost.kernels.features import features_of
from flopcast.cost.kernels.narrow_results import with_results
from flopcast.cost.kernels.roofline import cycle_seconds, moving_seconds, roofline
from flopcast.cost.kernels.sustained import busy_ratio
from flopcast.dtypes import ZERO, Counts, Flags, Floats, Logs, any_of
from flopcast.operators.base import AbstractOperator
from flopcast.records import Record
from flopcast.spec.cluster import Device


class UnscaledTimes(Record, eq=False):
    """Times of operators of one kernel class: flat arrays over all operators' rows, (rows,).

    Attributes
    ----------
    shapes
        The shape of each operator's part of the arrays; (1, 1) if nothing varies.
    least_s, far
        The least time, below which no factor reduces it, and whether a shape is outside the measured range.
    curve_s, busy_ratio
        The time from launch, bound, efficiency and the ratio of the layout, and the slowdown on a busy
        device.
    results_s, waits_s, after_s, loops_s
        Additional seconds: for 16-bit results that are written after low-precision products (which may be
        below 0, because the ratio of these products includes a part of them), for consecutive launches, for
        bytes and cycles after the products, and for instructions that take longer than all bytes.
    """

    shapes: list[tuple[int, ...]]
    least_s: Floats
    far: Flags
    curve_s: Floats
    busy_ratio: Floats
    results_s: Floats
    waits_s: Floats
    after_s: Floats
    loops_s: Floats

    @property
    def alone_s(self) -> Floats:
        """Return the seconds of each kernel if nothing else runs."""
        return self.curve_s * self.busy_ratio + self.results_s + self.waits_s + self.after_s + self.loops_s


def unscaled_times(works: Sequence[AbstractOperator], curve: Curve, device: Device) -> UnscaledTimes:
    """Return the times of operators of one kernel class before factors scale them.

    Parameters
    ----------
    works : sequence of AbstractOperator
        Operators of one class; their sizes are arrays of any shape.
    curve : Curve
        The curve that prices the class.
    device : Device

    Returns
    -------
    UnscaledTimes
        Flat arrays over all works. The parts of a kernel's time are the curve's seconds times the ratio of
        a busy device, seconds of results written after products, gaps between consecutive kernels, and
        passes over memory that follow a kernel.
    """
    priced = class_of(works[0].kernel)
    unit, shapes, columns, coordinates = _flatten(works, device)
    bound_s, compute_s, least_s, after_s, result_bytes, cycles, kernels, in_turn = columns
    layout_ratio = curve.ratio_of(priced.layout, unit)
    curve_s = kernel_seconds(bound_s, coordinates, curve, device, layout_ratio, priced.curve)
    ratio = busy_ratio(priced, curve_s / kernels, device)
    if priced.base.serves:
        ratio = ratio ** (compute_s / np.maximum(bound_s, np.finfo(float).tiny))
    moves, none_s = bound_s > 0, np.zeros(bound_s.shape)
    results_s = loops_s = none_s
    if device.writes_results_after:
        busy_s = curve_s * ratio
        results_s = with_results(priced, busy_s, moving_seconds(result_bytes, device)) - busy_s
    if any_of(cycles):
        loops_s = np.where(moves, np.maximum(cycle_seconds(cycles, device) - curve_s, 0.0), 0.0)
    return UnscaledTimes(
        shapes=shapes,
        least_s=least_s,
        far=outside(curve, coordinates) & moves,
        curve_s=curve_s,
        busy_ratio=ratio,
        results_s=results_s,
        waits_s=np.where(moves, (in_turn - 1.0) * curve.launch_s, 0.0),
        after_s=after_s,
        loops_s=loops_s,
    )


def kernel_seconds(
    bound_s: Floats,
    coordinates: tuple[Floats, ...],
    curve: Curve,
    device: Device | None,
    layout_ratio: float = 1.0,
    kernel: str = "",
) -> Floats:
    """Return the launch time plus bound / efficiency; 0 for an operator that moves no bytes.

    `device` is None for a collective. `kernel` is the class that is priced; "" means the class of the
    curve.

    The time of a gradient product is multiplied by the ratio of its layout (`Curve.ratio_of`), but is never
    below the bound. All arrays have the shape (rows,).
    """
    shape = no_narrower(coordinates, curve)
    efficiency = np.exp(kernel_log_efficiency(curve, shape, device, kernel))
    seconds = (curve.launch_s + bound_s / efficiency) * layout_ratio
    bounded_s: Floats = np.where(bound_s > 0, np.maximum(seconds, bound_s), 0.0)
    return bounded_s


def no_narrower(coordinates: tuple[Floats, ...], curve: Curve) -> tuple[Floats, ...]:
    """Return the coordinates at which shapes have their efficiency in a curve, each of shape (rows,).

    GEMMs that are narrower than all fitted GEMMs have the efficiency of the narrowest fitted GEMM.
    """
    least = features_of(curve.name).narrowest
    limited = (np.maximum(value, low) for value, low in zip(coordinates, least, strict=False))
    return (*limited, *coordinates[len(least) :])


def kernel_log_efficiency(
    curve: Curve, coordinates: tuple[Floats, ...], device: Device | None, kernel: str = ""
) -> Logs:
    """Return the log-efficiency that a curve gives a kernel on a device, (rows,), or of a flat curve ().

    For classes that interpolate times, it may be above 0 between nodes; `kernel_seconds` then uses the
    bound.
    """
    if not curve.axes:
        return curve.table
    view = features_of(curve.name)
    if device is None or view.operator is None:
        return log_efficiency(curve, coordinates, 1 if device is None else device.multiprocessors)
    logs = log_efficiency_by_times(curve.axes, curve.table, coordinates, device, kernel or curve.name)
    for name, coefficient in curve.terms.items():
        logs = logs + coefficient * view.terms[name](coordinates, device.multiprocessors)
    if curve.widened is not None:
        beyond = np.log2(view.table(coordinates)[0]) > curve.axes[0][-1]
        most = kernel_log_efficiency(curve.widened, coordinates, device)
        logs = np.where(beyond, np.minimum(logs, most), logs)
    return logs


def _flatten(
    works: Sequence[AbstractOperator], device: Device
) -> tuple[str, list[tuple[int, ...]], tuple[Floats, ...], tuple[Floats, ...]]:
    """Return the unit of the first work, the shapes of works, and as flat arrays what their times need, and
    their coordinates.

    Times need the bound, that of FLOP alone, the least seconds, the seconds after the bound's work, the
    bytes of a narrow product's result, the cycles of a multiprocessor, the kernels, and how many of these
    run in turn. Operators of one class have different shapes, (1, 1) if nothing varies.
    Coordinates are at least 1, because padded stage classes hold no work and 0 has no logarithm.
    """
    shapes: list[tuple[int, ...]] = []
    rows: list[list[Floats]] = []
    needs = [work.work() for work in works]
    for work, need in zip(works, needs, strict=True):
        after_s = cycle_seconds(need.after_cycles, device)
        if need.after_bytes is not ZERO:
            after_s = after_s + moving_seconds(need.after_bytes, device)
        cycles = need.cycles
        if need.chain_cycles is not ZERO:
            cycles = np.maximum(cycles, need.chain_cycles * device.multiprocessors)
        moved = (after_s, need.result_bytes, cycles)
        arrays = (*roofline(need, device), *moved, work.kernels(), work.in_turn(), *work.coordinates())
        shape, flat = broadcast_flat(arrays)
        shapes.append(shape)
        rows.append(flat)
    columns = rows[0] if len(rows) == 1 else [np.concatenate(column) for column in zip(*rows, strict=True)]
    coordinates = tuple(np.maximum(column, 1.0) for column in columns[8:])
    return needs[0].unit, shapes, tuple(columns[:8]), coordinates


def broadcast_flat(arrays: tuple[Floats, ...]) -> tuple[tuple[int, ...], list[Floats]]:
    """Return the broadcast shape of the arrays, and each array flattened in that shape."""
    shape = arrays[0].shape
    if all(array.shape == shape for array in arrays):
        return shape, [array.ravel() for array in arrays]
    shape = np.broadcast(*arrays).shape
    return shape, [array.ravel() if array.shape == shape else _filled(array, shape) for array in arrays]


def _filled(values: Counts, shape: tuple[int, ...]) -> Floats:
    """Return an array flattened in a larger shape; an assignment is faster than `np.broadcast_to`."""
    filled = np.empty(shape, dtype=values.dtype)
    filled[...] = values
    return filled.ravel()
