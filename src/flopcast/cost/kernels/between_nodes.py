"""Kernels whose times, and not their efficiencies, are interpolated between the nodes of a curve.

Answers: which efficiency does a serving kernel have between two nodes?
Elsewhere: curves whose efficiencies are interpolated (curve.py), which classes belong to which kind
(features.py).

With few rows, the bytes of the weights bound a product, and with thousands of rows its FLOP, which grow
with the rows. Between two nodes, an interpolated efficiency could rise faster than the bound, so that more
rows would take less time. Serving prices every number of rows, so its classes interpolate the logarithm of
the time. If times do not fall from node to node, they do not fall anywhere. A node whose time would fall
has the time of the previous node instead.

Nodes nevertheless hold efficiencies, because another device can use these with its own bounds.
"""

import numpy as np

from flopcast.cost.kernels.curve import looked_up
from flopcast.cost.kernels.features import features_of
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.dtypes import Counts, Logs
from flopcast.errors import InternalError
from flopcast.spec.cluster import Device


def log_efficiency_by_times(
    axes: tuple[Counts, ...], table: Logs, coordinates: tuple[Counts, ...], device: Device, kernel: str
) -> Logs:
    """Return the log-efficiency of kernels whose times are interpolated, an array of shape (rows,).

    Outside the table, there is a node for each octave, with the efficiency of the nearest node of the
    table. Between nodes the result may be a little above 0.

    Parameters
    ----------
    axes, table : log2 of the nodes, and the log-efficiency at them
    coordinates : coordinates of the operator, arrays of shape (rows,)
    kernel : the class that is priced, which may use the curve of another class
    """
    shape = features_of(kernel).table(coordinates)
    logs = [np.log2(value) for value in shape]
    before = [_octaves(axis[0] - log) for axis, log in zip(axes, logs, strict=True)]
    after = [_octaves(log - axis[-1]) for axis, log in zip(axes, logs, strict=True)]
    wide_axes = tuple(
        np.concatenate([axis[0] - np.arange(few, 0, -1), axis, axis[-1] + np.arange(1, many + 1)])
        for axis, few, many in zip(axes, before, after, strict=True)
    )
    wide_table = np.pad(np.minimum(table, 0.0), tuple(zip(before, after, strict=True)), mode="edge")
    times = log_bound_at_nodes(wide_axes, device, kernel) - wide_table
    for number in range(times.ndim):
        if number not in features_of(kernel).free:
            times = np.maximum.accumulate(times, axis=number)
    return np.asarray(_log_bound(kernel, shape, device) - looked_up(wide_axes, times, logs))


def _octaves(outside: Logs) -> int:
    """Return the whole octaves that cover the largest of these differences in log2, or 0."""
    return max(0, int(np.ceil(outside.max())))


def log_bound_at_nodes(axes: tuple[Counts, ...], device: Device, kernel: str) -> Logs:
    """Return the logarithm of the bound at every node of a table, in the table's shape."""
    nodes = np.meshgrid(*(2.0**axis for axis in axes), indexing="ij")
    bounds = _log_bound(kernel, tuple(node.ravel() for node in nodes), device)
    return bounds.reshape(nodes[0].shape)


def _log_bound(kernel: str, table: tuple[Counts, ...], device: Device) -> Logs:
    make = features_of(kernel).operator
    if make is None:
        raise InternalError(f"{kernel} borrows a curve of times, but has no operator at its coordinates")
    columns = tuple(value[:, None] for value in table)
    return np.asarray(np.log(bound_seconds(make(kernel, columns).work(), device)).ravel())
