"""Fitting a table of log-efficiency to scattered measurements.

Answers: which table, interpolated as cost/kernels/curve.py does, fits these rows best, and how well
does it predict rows that it has not seen?
Method: weighted least squares on log(time / bound) with a penalty on second differences, so that nodes
without data follow their neighbours; rows far off are given less weight, again and again (Huber), so
that broken rows do not pull. Relative errors count alike at all sizes.

References
----------
Penalised differences: Eilers and Marx, "Flexible smoothing with B-splines and penalties", Statistical
Science 11(2), 1996. Weights: Huber, "Robust estimation of a location parameter", Annals of Mathematical
Statistics 35(1), 1964.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts, Logs

HUBER_ERROR = 0.03  # relative error beyond which a row counts less
SMOOTHNESS = 0.3  # weight of a second difference of one node against one row
FLATNESS = 0.03  # the same for a first difference: holds nodes that no row touches
ROUNDS = 8
NODE_SPACING = 0.4  # in log2: at most this far apart, where the most allowed nodes permit it


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Table:
    """A fitted table and what is known of its error.

    `log_efficiency` has one dimension per axis; `relative_error` is the mean of |predicted / measured - 1|
    of the work's time, launches taken off.
    """

    axes: tuple[Counts, ...]  # log2 of the nodes
    log_efficiency: Logs
    relative_error: float  # mean, on rows kept aside


def nodes(column: Counts, most: int) -> Counts:
    """Log2 positions of at most `most` nodes, evenly spaced over the measured range.

    >>> nodes(np.array([2.0, 4.0, 8.0]), most=3).tolist()
    [1.0, 2.0, 3.0]
    """
    logs = np.log2(column)
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-9:
        return np.array([low])
    count = int(np.clip(np.ceil((high - low) / NODE_SPACING) + 1, 2, most))
    return np.linspace(low, high, count)


def fit_table(coordinates: Counts, log_efficiency: Logs, most_nodes: tuple[int, ...]) -> Table:
    """Fit a table; error from ten-fold cross-validation over interleaved rows.

    Efficiency is held at 1 at most: a prediction is never faster than its physical bound, although
    tensors that fit a cache can be.

    Parameters
    ----------
    coordinates : (axes, rows), positive
    log_efficiency : (rows,), log(bound / time)
    most_nodes : as many numbers as axes

    Returns
    -------
    Table
        Its error is 0.1, a guess, where fewer than 50 rows leave none to keep aside.
    """
    axes = tuple(nodes(column, most) for column, most in zip(coordinates, most_nodes, strict=True))
    logs = np.log2(coordinates)
    design = interpolation_matrix(axes, logs)
    penalty = _penalty(tuple(len(axis) for axis in axes))
    values = _robust_solve(design, log_efficiency, penalty)
    folds = np.arange(len(log_efficiency)) % 10
    errors = []
    for fold in range(10 if len(log_efficiency) >= 50 else 0):
        kept, aside = folds != fold, folds == fold
        part = _robust_solve(design[kept], log_efficiency[kept], penalty)
        errors.append(np.abs(np.expm1(log_efficiency[aside] - design[aside] @ part)))
    error = float(np.mean(np.concatenate(errors))) if errors else 0.1
    shape = tuple(len(axis) for axis in axes)
    return Table(axes=axes, log_efficiency=np.minimum(values, 0.0).reshape(shape), relative_error=error)


def interpolation_matrix(axes: tuple[Counts, ...], logs: Logs) -> Counts:
    """Weights of every node for every row, (rows, nodes).

    Row r of the matrix times the flattened table is what `log_efficiency` of cost/kernels/curve.py
    looks up at row r, so that fitting the table is linear least squares.
    """
    rows = logs.shape[1]
    shape = tuple(len(axis) for axis in axes)
    matrix = np.zeros((rows, int(np.prod(shape))))
    below, share = [], []
    for axis, column in zip(axes, logs, strict=True):
        position = np.clip(column, axis[0], axis[-1])
        index = np.clip(np.searchsorted(axis, position, side="right") - 1, 0, max(len(axis) - 2, 0))
        step = axis[index + 1] - axis[index] if len(axis) > 1 else np.ones(rows)
        below.append(index)
        share.append((position - axis[index]) / step if len(axis) > 1 else np.zeros(rows))
    for corner in range(2 ** len(axes)):
        weight, flat = np.ones(rows), np.zeros(rows, dtype=np.intp)
        for number, size in enumerate(shape):
            up = (corner >> number) & 1
            weight = weight * (share[number] if up else 1 - share[number])
            flat = flat * size + np.minimum(below[number] + up, size - 1)
        np.add.at(matrix, (np.arange(rows), flat), weight)
    return matrix


def _penalty(shape: tuple[int, ...]) -> Counts:
    """Quadratic form of first and second differences along every axis.

    Second differences let the table rise steadily and punish kinks; first differences, a hundred times
    weaker in the square, make the solution unique where no row reaches.
    """
    index = np.arange(int(np.prod(shape))).reshape(shape)
    total = np.zeros((index.size, index.size))
    for axis, size in enumerate(shape):
        lines = np.moveaxis(index, axis, 0).reshape(size, -1)
        for weight, stencil in ((SMOOTHNESS, (1.0, -2.0, 1.0)), (FLATNESS, (1.0, -1.0))):
            for start in range(size - len(stencil) + 1):
                row = np.zeros((lines.shape[1], index.size))
                for offset, factor in enumerate(stencil):
                    row[np.arange(lines.shape[1]), lines[start + offset]] = factor
                total += weight**2 * row.T @ row
    return total


def _robust_solve(design: Counts, target: Logs, penalty: Counts) -> Counts:
    """Values of the nodes, flat, by iteratively re-weighted least squares.

    Huber's weights: 1 within HUBER_ERROR, falling as 1 / distance beyond it. The start weighs all rows
    alike; a fixed number of rounds makes the result a function of the rows alone.
    """
    weight: Counts = np.ones(len(target))
    values: Counts = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        weighted = design * weight[:, None]
        normal = design.T @ weighted + penalty + 1e-9 * np.eye(design.shape[1])
        values = np.asarray(np.linalg.solve(normal, weighted.T @ target), dtype=np.float64)
        off = np.abs(target - design @ values) / HUBER_ERROR
        weight = np.asarray(1.0 / np.maximum(1.0, off))
    return values
