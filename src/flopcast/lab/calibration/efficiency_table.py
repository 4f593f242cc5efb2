"""Fits of a table of log-efficiency, and of coefficients of terms, to scattered measurements.

Answers: which table, interpolated as in cost/kernels/curve.py, and which terms fit these rows best, and
how well do they predict rows that were left out? The method is weighted least squares on log(time /
bound) with a penalty on second differences, so that nodes without data follow their neighbours. Rows with
large errors repeatedly receive smaller weights (Huber), so that broken rows have little influence.
Relative errors count equally at all sizes.

An axis with few measured values has a node at each of them and is smoothed little, because kernels change
with such sizes (heads, widths of rows). On other axes, nodes are evenly spaced.

References
----------
Penalised differences: Eilers and Marx, "Flexible smoothing with B-splines and penalties", Statistical
Science 11(2), 1996. Weights: Huber, "Robust estimation of a location parameter", Annals of Mathematical
Statistics 35(1), 1964.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np

from flopcast.dtypes import Counts, Flags, Integers, Logs
from flopcast.lab.calibration.conformal import log_sigma
from flopcast.lab.calibration.normal_equations import Equations, equations
from flopcast.records import Record, replace

HUBER_ERROR = 0.03  # relative error beyond which a row counts less
SMOOTHNESS = 0.3  # weight of a second difference of one node against one row
SMOOTHNESS_OF_VALUES = 0.05  # the same on an axis of measured values
FLATNESS = 0.03  # of a first difference: holds nodes that no row touches
ROUNDS = 6
ROUNDS_AGAIN = 2  # after a term was left out: rows are trusted as before
NODE_SPACING = 0.4  # in log2: at most this far apart, where the most allowed nodes permit it
MOST_VALUES = 24  # an axis of at most so many measured values has a node at each
FOLDS = 5
MONOTONE_ROUNDS = 3
BELOW_SWITCH = 0.01  # in log2: where the last node of the kernel of smaller messages is
LEAST_SUPPORT = 1e-3  # of a node that no row touches, in rows


class Rows(Record, eq=False):
    """The rows to fit: `log2` coordinates (axes, rows), `log_efficiency` (rows,), `terms` (rows, terms).

    `most` holds upper bounds of the coefficients of the terms, (terms,); None means no bounds.
    `together`, (terms,), marks coefficients whose sum is at most `most_together_ratio`.
    """

    log2: Logs
    log_efficiency: Logs
    terms: Logs
    most: Logs | None = None
    together: np.ndarray | None = None
    most_together_ratio: float = np.inf

    def part(self, where: np.ndarray) -> "Rows":
        """Return the rows that a mask or an array of indices selects."""
        logs, terms = self.log_efficiency[where], self.terms[where]
        return replace(self, log2=self.log2[:, where], log_efficiency=logs, terms=terms)


class FittedTable(Record, eq=False):
    """A fitted table, the coefficients of its terms, and its error.

    `log_efficiency` has one dimension per axis; `coefficients` belong to the columns of `Rows.terms` and
    are 0 or more. `relative_error` is the mean of |predicted / measured - 1| for times without launches.
    """

    axes: tuple[Counts, ...]  # log2 of the nodes
    log_efficiency: Logs
    support: Counts  # rows that touch each node, by their shares
    coefficients: Logs
    relative_error: float  # mean, on rows kept aside
    log_sigma_factor: float = 0.1  # from the same rows: conformal.py

    def predict(self, rows: Rows) -> Logs:
        """Return the log-efficiency of rows, (rows,), at most 0."""
        index, weight, _ = corners(self.axes, rows.log2)
        values = self.log_efficiency.ravel()
        looked_up = sum(w * values[i] for i, w in zip(index, weight, strict=True))
        total: Logs = np.minimum(looked_up + rows.terms @ self.coefficients, 0.0)
        return total


def nodes(logs: Logs, most: int) -> Counts:
    """Return the log2 positions of the nodes of an axis in ascending order, with at most `most` nodes.

    `logs`, (rows,), are log2 of the measured coordinates.

    >>> nodes(np.log2([2.0, 4.0, 8.0]), most=2).tolist()
    [1.0, 2.0, 3.0]
    >>> nodes(np.linspace(1.0, 3.0, 100), most=3).tolist()
    [1.0, 2.0, 3.0]
    """
    values = np.unique(np.round(logs, 4))
    if len(values) <= MOST_VALUES:
        return np.asarray(values)
    low, high = float(values[0]), float(values[-1])
    count = int(np.clip(np.ceil((high - low) / NODE_SPACING) + 1, 2, most))
    return np.linspace(low, high, count)


def fit_table(rows: Rows, most_nodes: tuple[int, ...]) -> FittedTable:
    """Fit a table and its terms to one or more rows. The error comes from cross-validation over
    interleaved rows.

    The efficiency is at most 1: a prediction is never faster than its physical bound, although kernels
    whose tensors fit into a cache can be faster. With fewer than 50 rows, no rows are left out, and the
    error is assumed to be 0.1.
    """
    table = fit_once(rows, most_nodes)
    folds = np.arange(len(rows.log_efficiency)) % FOLDS
    errors = []
    for fold in range(FOLDS if len(folds) >= 50 else 0):
        aside = rows.part(folds == fold)
        part = fit_once(rows.part(folds != fold), most_nodes, table.axes)
        errors.append(aside.log_efficiency - part.predict(aside))
    if not errors:
        return table
    log_errors = np.concatenate(errors)
    error = float(np.mean(np.abs(np.expm1(log_errors))))
    return replace(table, relative_error=error, log_sigma_factor=log_sigma(log_errors))


def fit_once(rows: Rows, most_nodes: tuple[int, ...], axes: tuple[Counts, ...] = ()) -> FittedTable:
    """Fit a table on the given axes or on axes derived from the rows, without estimating its error.

    Terms with a negative coefficient, which would reward uneven sizes, are left out, and the other terms
    are fitted again. Coefficients above their bound are set to the bound, and coefficients whose sum is
    too large are reduced in proportion.
    """
    axes = axes or tuple(nodes(logs, most) for logs, most in zip(rows.log2, most_nodes, strict=True))
    longest = max(range(len(axes)), key=lambda number: len(axes[number]))
    order = [longest, *(number for number in range(len(axes)) if number != longest)]
    turned = tuple(axes[number] for number in order)  # so there are few nodes at a place of the first axis
    index, weight, size = corners(turned, rows.log2[order])
    used: Flags = np.ones(rows.terms.shape[1], dtype=bool)
    most = np.full(len(used), np.inf) if rows.most is None else rows.most
    held: Logs = np.zeros(len(used))
    trust: Counts = np.ones(len(rows.log_efficiency))
    system = equations(
        index, weight, (size, size // len(turned[0])), rows.terms, rows.log_efficiency, _penalty(turned)
    )
    for attempt in range(2 * len(used) + 2):
        rounds = ROUNDS_AGAIN if attempt else ROUNDS
        values, coefficients, trust = _robust_solve(
            system, rows, (index, weight), trust, used, held, rounds
        )
        if (coefficients < 0).any():
            used &= coefficients > 0
            continue
        over = used & (coefficients > most)
        if over.any():
            held[over], used = most[over], used & ~over
            continue
        shared = np.zeros(len(used), dtype=bool) if rows.together is None else rows.together
        sum_together = coefficients[shared].sum()
        if sum_together <= rows.most_together_ratio + 1e-9:
            break
        held[shared] = coefficients[shared] * rows.most_together_ratio / sum_together
        used = used & ~shared
    shape, back = tuple(len(axis) for axis in turned), np.argsort(order)
    support = np.bincount(index.ravel(), weight.ravel(), size).astype(np.float64)
    return FittedTable(
        axes=axes,
        log_efficiency=np.ascontiguousarray(values.reshape(shape).transpose(back)),
        support=np.ascontiguousarray(support.reshape(shape).transpose(back)),
        coefficients=coefficients,
        relative_error=0.1,
    )


def monotone(
    table: Logs, axes: tuple[Counts, ...], powers: tuple[float | None, ...], support: Counts | None = None
) -> Logs:
    """Return the nearest table whose time does not fall along the axes that have a power.

    On an axis of power p, the efficiency may rise by a factor of at most 2^p in each octave; None means no
    limit. The method is isotonic regression of log(time) along each axis in turn, in a few rounds, because
    each axis changes the others. The weight of a node is the number of rows that depend on it (`support`;
    None means equal weights). A node without data, whose value comes from the penalty, therefore adapts to
    its neighbours and does not change them. Values may be above 0 where terms always reduce the result.
    """
    weights: Counts = np.ones(table.shape) if support is None else support + LEAST_SUPPORT
    for _ in range(MONOTONE_ROUNDS):
        for number, (axis, power) in enumerate(zip(axes, powers, strict=True)):
            if power is not None:
                rise = power * np.log(2.0) * axis
                lines = (rise - np.moveaxis(table, number, -1)).reshape(-1, len(axis))
                counts = np.moveaxis(weights, number, -1).reshape(lines.shape)
                slower = lines.copy()
                for each in np.flatnonzero((np.diff(lines, axis=1) < 0).any(axis=1)):
                    slower[each] = _rising(lines[each], counts[each])
                shape = np.moveaxis(table, number, -1).shape
                table = np.moveaxis(rise - slower.reshape(shape), -1, number)
    return table


def with_switches(table: FittedTable, rows: Rows, switches: Mapping[int, tuple[int, ...]]) -> FittedTable:
    """Return a table of messages whose times are as measured at its nodes, and jump where kernels change.

    Parameters
    ----------
    table, rows : the axes are message bytes, ranks within a node, and nodes
    switches : by ranks, the bytes from which another kernel runs. Just below, the table has a node to which
        the time of the two nodes before is extended as a linear function of the bytes.
    """
    axes, values = list(table.axes), table.log_efficiency.copy()
    index, weight, _ = corners(table.axes, rows.log2)
    node, at_node = weight.argmax(axis=0), weight.max(axis=0) == 1.0
    measured = np.minimum(rows.log_efficiency, 0.0)
    values.ravel()[index[node, np.arange(len(node))][at_node]] = measured[at_node]
    support = table.support
    for size in sorted({each for sizes in switches.values() for each in sizes}, reverse=True):
        place = int(np.searchsorted(axes[0], np.log2(size)))
        if place < 2 or np.log2(size) not in axes[0]:
            continue
        below = (1.0 - BELOW_SWITCH) * values[place] + BELOW_SWITCH * values[place - 1]
        for column, ranks in enumerate(2.0 ** axes[1]):
            if size in switches.get(round(ranks), ()):
                two = [place - 2, place - 1]
                earlier, before = np.exp2(axes[0][two])[:, None] * np.exp(-values[two, column])
                extended = before + 2.0 * np.maximum(before - earlier, 0.0)
                below[column] = np.minimum(np.log(size / extended), 0.0)
        axes[0] = np.insert(axes[0], place, np.log2(size) - BELOW_SWITCH)
        values, support = np.insert(values, place, below, 0), np.insert(support, place, 0.0, 0)
    return replace(table, axes=tuple(axes), log_efficiency=values, support=support)


def _rising(values: Logs, weights: Counts) -> Logs:
    """Return the nearest values that never fall, by weighted isotonic regression (pool adjacent violators).

    >>> _rising(np.array([1.0, 3.0, 2.0, 4.0]), np.array([1.0, 3.0, 1.0, 1.0])).tolist()
    [1.0, 2.75, 2.75, 4.0]
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            other, theirs, size = blocks.pop()
            mean = (mean * total + other * theirs) / (total + theirs)
            total, count = total + theirs, count + size
        blocks.append((mean, total, count))
    return np.repeat([mean for mean, _, _ in blocks], [count for _, _, count in blocks])


def corners(axes: tuple[Counts, ...], logs: Logs) -> tuple[Integers, Counts, int]:
    """Return, for every row, the flat indices of the corners of its cell, and the corners' weights.

    The weights times the flattened table give the values that `log_efficiency` of cost/kernels/curve.py
    looks up, so fitting a table is a linear least-squares problem.

    Returns
    -------
    (corners, rows), (corners, rows), and the number of nodes
    """
    rows = logs.shape[1]
    index = [np.zeros(rows, dtype=np.intp)]
    weight = [np.ones(rows)]
    for axis, column in zip(axes, logs, strict=True):
        count = len(axis)
        if count == 1:  # nothing to interpolate
            continue
        position = np.clip(column, axis[0], axis[-1])
        below = np.clip(np.searchsorted(axis, position, side="right") - 1, 0, count - 2)
        share = (position - axis[below]) / (axis[below + 1] - axis[below])
        index = [i * count + below + up for up in (0, 1) for i in index]
        weight = [w * (share if up else 1.0 - share) for up in (0, 1) for w in weight]
    size = int(np.prod([len(axis) for axis in axes]))
    return np.array(index), np.array(weight), size


def _penalty(axes: tuple[Counts, ...]) -> Counts:
    """Return the quadratic form of first and second differences along every axis.

    Second differences allow the table to rise steadily and penalise kinks; they are divided differences,
    scaled to the nodes' own spacing. First differences, with a much smaller weight, make the solution
    unique where no row depends on a node.
    """
    return _penalty_of(tuple(tuple(axis.tolist()) for axis in axes))


@lru_cache(2)  # fits that leave out some rows often have the same coarse and fine nodes as the whole fit
def _penalty_of(nodes_of_axes: tuple[tuple[float, ...], ...]) -> Counts:
    axes = [np.array(each) for each in nodes_of_axes]
    shape = tuple(len(axis) for axis in axes)
    size = math.prod(shape)
    total = np.zeros((size, size))
    for number, axis in enumerate(axes):
        sides = math.prod(shape[:number]), len(axis), math.prod(shape[number + 1 :])
        lines = np.einsum("ijkilk->jlik", total.reshape(sides + sides))  # a view
        lines += _penalty_of_line(axis)[:, :, None, None]
    return total


def _penalty_of_line(axis: Counts) -> Counts:
    """Return the quadratic form of the differences along one line of nodes, (nodes, nodes)."""
    found, step = np.zeros((len(axis), len(axis))), np.diff(axis)
    smoothness = SMOOTHNESS if _is_even(axis) else SMOOTHNESS_OF_VALUES
    for start, (before, after) in enumerate(pairwise(step.tolist())):
        mean = 2.0 / (before + after)
        stencil = smoothness * np.array([after * mean, -2.0, before * mean])
        found[start : start + 3, start : start + 3] += np.outer(stencil, stencil)
    stencil = FLATNESS * np.array([1.0, -1.0])
    for start in range(len(step)):
        found[start : start + 2, start : start + 2] += np.outer(stencil, stencil)
    return found


def _is_even(axis: Counts) -> bool:
    return len(axis) < 3 or float(np.ptp(np.diff(axis))) < 1e-9


def _robust_solve(
    system: Equations,
    rows: Rows,
    looked_up: tuple[Integers, Counts],
    trust: Counts,
    used: Flags,
    held: Logs,
    rounds: int,
) -> tuple[Logs, Logs, Counts]:
    """Return the values of the nodes, flattened, the coefficients of the terms, and the weight of each
    row, (rows,).

    The method is iteratively reweighted least squares, which starts from the weights `trust`. Huber's
    weights are 1 within HUBER_ERROR and fall as 1 / distance beyond it. The number of rounds is fixed, so
    that the result depends only on the rows. `looked_up` holds the corners of every row and their
    weights; terms that are not `used` keep the coefficients `held`.
    """
    values, coefficients, size = held, held.copy(), system.far.size
    for _ in range(rounds):
        solution = system.solution(trust, used, held)
        values, coefficients[used] = solution[:size], solution[size:]
        predicted = (looked_up[1] * values[looked_up[0]]).sum(axis=0) + rows.terms @ coefficients
        off = np.abs(rows.log_efficiency - predicted) / HUBER_ERROR
        trust = np.asarray(1.0 / np.maximum(1.0, off))
    return values, coefficients, trust
