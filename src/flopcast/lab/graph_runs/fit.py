"""The efficiencies of graph kernels, fitted to measured step times.

Answers: which efficiencies of kernel classes, and which levels of devices, explain the measured times best?
Elsewhere: the seconds of kernels (cost/graph_kernels/efficiency.py), the tables (lab/measured_tables.py),
scores with families and devices left out (score.py).

Reweighted Gauss-Newton steps bring the logarithm of predicted over measured time close to 0. Priors pull
each number towards a usual efficiency, towards equal numbers at neighbouring nodes, and towards devices
that are as fast as rates.py expects.
"""

from itertools import pairwise

import numpy as np

from flopcast.cost.graph_kernels.efficiency import (
    COMPUTE,
    MEMORY,
    Design,
    PricedRows,
    Rates,
    design,
    number_names,
    priced,
    prior_numbers,
)
from flopcast.cost.graph_kernels.kernel_rows import KernelRows
from flopcast.dtypes import Counts, Flags, Floats, Integers, Logs
from flopcast.records import Record

ROUNDS, ROUNDS_FROM_START = 8, 4
LEAST_ERROR = 0.05  # smaller errors of a row weigh no more
LEVEL_PRIOR_SIGMA = 0.25  # of an efficiency's logarithm around its prior
TABLE_PRIOR_SIGMA = 0.5
NEIGHBOUR_SIGMA = 0.25  # of the difference of two neighbours
DEVICE_PRIOR_SIGMA = 0.1
ROW_SIGMA = 0.1
MOST_ROWS = 350  # that all rows of a fit count as: they share models, devices and software
LARGEST_STEP, SMALLEST_STEP = 1.0, 0.01


class Observed(Record, eq=False):
    """Kernels of measured graphs, and the seconds of the graphs.

    `device` is the index of each graph's device.

    `fixed_s` is added to each graph, which takes at least `host_s` for each kernel.
    """

    rows: KernelRows
    rates: Rates
    device: Integers
    measured_s: Floats
    fixed_s: Floats
    host_s: Floats

    @property
    def graphs(self) -> int:
        """Return the number of graphs."""
        return len(self.measured_s)


class Fitted(Record, eq=False):
    """The logarithm of each fitted number (efficiency.number_names), and the two levels of each device."""

    numbers: Logs
    levels: Logs  # (devices, 2): compute, memory

    @classmethod
    def prior(cls, devices: int, numbers: Logs | None = None) -> "Fitted":
        """Return the priors of all numbers (or `numbers`, if given) for devices as fast as expected."""
        return cls(numbers=prior_numbers() if numbers is None else numbers, levels=np.zeros((devices, 2)))


class Prepared(Record, eq=False):
    """The data of a fit, which stay the same while the efficiencies change."""

    observed: Observed
    compute: Design
    memory: Design

    def priced(self, fitted: Fitted) -> PricedRows:
        """Return the seconds of all rows with these efficiencies and levels of devices.

        Vector units have the level of matrix products, because the same clock drives both.
        """
        rows = self.observed.rows
        count = len(rows.graph)
        rates = self.observed.rates
        scaled = Rates(
            flop_per_s=rates.flop_per_s * np.exp(fitted.levels[self.observed.device, 0]),
            vector_flop_per_s=rates.vector_flop_per_s * np.exp(fitted.levels[self.observed.device, 0]),
            bytes_per_s=rates.bytes_per_s * np.exp(fitted.levels[self.observed.device, 1]),
            launch_s=rates.launch_s,
        )
        return priced(
            rows, scaled, self.compute.sums(fitted.numbers, count), self.memory.sums(fitted.numbers, count)
        )

    def seconds(self, fitted: Fitted) -> Floats:
        """Return the seconds of each graph."""
        return self.graph_s(self.priced(fitted))

    def graph_s(self, found: PricedRows) -> Floats:
        """Return the seconds of each graph, computed from those of its rows, including launches."""
        observed = self.observed
        part_s = found.whole_s + observed.rows.calls * observed.rates.launch_s[observed.rows.graph]
        total_s: Floats = np.zeros(observed.graphs)
        total_s += np.bincount(observed.rows.graph, part_s, minlength=observed.graphs)
        calls = np.bincount(observed.rows.graph, observed.rows.calls, minlength=observed.graphs)
        return np.maximum(total_s, calls * observed.host_s) + observed.fixed_s


def prepared(observed: Observed) -> Prepared:
    """Return the data for a fit to measured graphs."""
    return Prepared(
        observed=observed, compute=design(observed.rows, COMPUTE), memory=design(observed.rows, MEMORY)
    )


def fit(
    known: Prepared, chosen: Flags | None = None, prior: Logs | None = None, start: Fitted | None = None
) -> Fitted:
    """Return the numbers that fit the chosen graphs best; all graphs count if none are chosen.

    Parameters
    ----------
    prior : the numbers of the prior; by default those of the classes (priors.py)
    start : the first values of the iteration; by default the prior
    """
    observed = known.observed
    devices = int(observed.device.max()) + 1
    drawn = Fitted.prior(devices, prior)
    found = start or drawn
    kept = np.ones(observed.graphs, dtype=bool) if chosen is None else chosen
    row_variance = ROW_SIGMA**2 * max(1.0, np.count_nonzero(kept) / MOST_ROWS)
    penalty, neighbours = _penalties(devices)
    used = _used(known, devices)
    penalty, neighbours = penalty[used], neighbours[np.ix_(used, used)]
    for _ in range(ROUNDS_FROM_START if start else ROUNDS):
        now = known.priced(found)
        whole_s = known.graph_s(now)
        slopes = _slopes(known, now, whole_s, devices)[np.ix_(kept, used)]
        errors = np.log(observed.measured_s / whole_s)[kept]
        weights = 1.0 / (np.maximum(np.abs(errors), LEAST_ERROR) / LEAST_ERROR) / row_variance
        left = slopes * weights[:, None]
        values = np.concatenate([found.numbers, found.levels.ravel()])
        away = (values - np.concatenate([drawn.numbers, drawn.levels.ravel()]))[used]
        matrix = slopes.T @ left + np.diag(penalty) + neighbours
        wanted = left.T @ errors - penalty * away - neighbours @ away
        step = np.linalg.solve(matrix, wanted)
        step *= min(1.0, LARGEST_STEP / np.abs(step).max())
        values[used] += step
        size = len(found.numbers)
        found = Fitted(numbers=values[:size], levels=values[size:].reshape(devices, 2))
        if np.abs(step).max() < SMALLEST_STEP:
            break
    return found


def _used(known: Prepared, devices: int) -> Flags:
    """Return the numbers and levels on which any row depends."""
    used = np.zeros(len(number_names()) + 2 * devices, dtype=bool)
    used[known.compute.number] = used[known.memory.number] = True
    used[len(number_names()) :] = True
    return used


def _slopes(known: Prepared, now: PricedRows, whole_s: Floats, devices: int) -> Counts:
    """Return the derivatives of the logarithm of each graph's seconds by each number and level."""
    observed = known.observed
    rows = observed.rows
    size = len(number_names())
    whole = size + 2 * devices
    total = np.zeros(observed.graphs * whole)
    slopes = ((known.compute, now.compute_slope_s), (known.memory, now.memory_slope_s))
    for each, slope_s in slopes:
        part = -slope_s[each.row] * each.weight
        total += np.bincount(rows.graph[each.row] * whole + each.number, part, minlength=len(total))
    for place, part_s in enumerate((now.compute_s, now.memory_s)):
        column = rows.graph * whole + size + 2 * observed.device[rows.graph] + place
        total += np.bincount(column, -part_s, minlength=len(total))
    return total.reshape(observed.graphs, whole) / whole_s[:, None]


def _penalties(devices: int) -> tuple[Counts, Counts]:
    """Return the weights of the priors, and the matrix of differences between neighbours."""
    names = number_names()
    sigmas = [LEVEL_PRIOR_SIGMA if name.count("/") == 1 else TABLE_PRIOR_SIGMA for name in names]
    sigmas += [DEVICE_PRIOR_SIGMA] * (2 * devices)
    matrix = np.zeros((len(sigmas), len(sigmas)))
    for place, (name, following) in enumerate(pairwise(names)):
        if name.count("/") == 3 and name.rsplit("/", 1)[0] == following.rsplit("/", 1)[0]:
            matrix[place : place + 2, place : place + 2] += (
                np.array([[1.0, -1.0], [-1.0, 1.0]]) / NEIGHBOUR_SIGMA**2
            )
    return 1.0 / np.array(sigmas) ** 2, matrix
