"""The time of kernels of graphs: a physical bound divided by a fitted efficiency.

Answers: how long does each graph take on a device, and how does that depend on each fitted number?
Elsewhere: the classes and their tables (kernel_classes.py), the rows (kernel_rows.py).

Each kernel has two times: its FLOP at the peak rate, and its bytes at the peak memory bandwidth. Each of
them is divided by an efficiency of at most 1. Products (GEMMs, convolutions) take about the longer of the
two times, because the two overlap. Vector kernels take the sum of the two.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from flopcast.cost.graph_kernels.kernel_classes import (
    GRAPH_KERNELS,
    IS_VECTOR,
    GraphKernelClass,
    coordinate_number,
)
from flopcast.cost.graph_kernels.kernel_rows import KernelRows
from flopcast.cost.graph_kernels.priors import TABLES, prior_efficiency
from flopcast.dtypes import Counts, Floats, Integers, Logs
from flopcast.records import Record

LIMIT_SHARPNESS = 8.0  # of the limit of efficiency at 1: a sum of 8th powers, under its 8th root
SHORTEST_S = 1e-12
COMPUTE, MEMORY = "compute", "memory"


class Rates(Record, eq=False):
    """The rates that bound the kernels of each graph.

    Attributes
    ----------
    flop_per_s, vector_flop_per_s : arrays of shape (graphs,)
        Dense peak rates of matrix engines and of vector units, at the clock that the board sustains.
    bytes_per_s : array of shape (graphs,)
        Peak bandwidth of the device's memory.
    launch_s : array of shape (graphs,)
        Seconds added for each call of a kernel.
    """

    flop_per_s: Floats
    vector_flop_per_s: Floats
    bytes_per_s: Floats
    launch_s: Floats


class Design(Record, eq=False):
    """A sparse matrix from fitted numbers to the log-efficiency of each row.

    Entry i adds `weight[i]` times number `number[i]` to the log-efficiency of kernel row `row[i]`. The fit
    solves for the numbers with the same matrix.
    """

    row: Integers
    number: Integers
    weight: Counts

    def sums(self, numbers: Logs, rows: int) -> Logs:
        """Return the log-efficiency of each row."""
        total: Logs = np.zeros(rows)
        total += np.bincount(self.row, self.weight * numbers[self.number], minlength=rows)
        return total


@lru_cache(maxsize=1)
def number_names() -> tuple[str, ...]:
    """Return the names of all fitted numbers of kernel classes.

    >>> number_names()[:2]
    ('convolution/compute', 'convolution/memory')
    """
    found: dict[str, None] = {}
    for each in GRAPH_KERNELS.values():
        for bound in (COMPUTE, MEMORY):
            found[f"{each.name}/{bound}"] = None
        for bound, tables in ((COMPUTE, each.compute), (MEMORY, each.memory)):
            for table in tables:
                for place in range(len(table.nodes)):
                    found[f"{each.owner}/{bound}/{table.coordinate}/{place}"] = None
    return tuple(found)


@lru_cache(maxsize=1)
def prior_numbers() -> Logs:
    """Return the logarithms of all numbers before the fit. Callers must not change them."""
    found = np.zeros(len(number_names()))
    for place, name in enumerate(number_names()):
        kernel, bound, *table = name.split("/")
        if not table:
            pair = prior_efficiency(kernel, GRAPH_KERNELS[kernel].vector)
            found[place] = np.log(pair[0] if bound == COMPUTE else pair[1])
        elif known := TABLES.get(name.rpartition("/")[0]):
            found[place] = known[int(table[-1])]
    return found


@lru_cache(maxsize=1)
def _positions() -> Mapping[str, int]:
    return {name: place for place, name in enumerate(number_names())}


def design(rows: KernelRows, bound: str) -> Design:
    """Return the matrix from fitted numbers to the log-efficiency of each row under one bound.

    Parameters
    ----------
    rows : KernelRows
        One row for each distinct kernel.
    bound : str
        "compute" or "memory": efficiencies of FLOP and of bytes have tables of their own.

    Returns
    -------
    Design
        Every row has the level of its class and, for each coordinate, the two nodes around its value, with
        weights that sum to 1.
    """
    parts: list[tuple[Integers, Integers, Counts]] = []
    for number, each in enumerate(GRAPH_KERNELS.values()):
        own = np.flatnonzero(rows.kernel == number)
        if len(own):
            parts += _of_class(each, bound, own, rows)
    if not parts:
        return Design(row=np.zeros(0, dtype=int), number=np.zeros(0, dtype=int), weight=np.zeros(0))
    row, place, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Design(row=row, number=place, weight=weight)


def _of_class(
    each: GraphKernelClass, bound: str, own: Integers, rows: KernelRows
) -> list[tuple[Integers, Integers, Counts]]:
    positions = _positions()
    level = np.full(len(own), positions[f"{each.name}/{bound}"])
    parts = [(own, level, np.ones(len(own)))]
    for table in each.compute if bound == COMPUTE else each.memory:
        nodes = np.array(table.nodes)
        values = np.clip(rows.coordinates[own, coordinate_number(table.coordinate)], nodes[0], nodes[-1])
        below = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 2)
        share = (values - nodes[below]) / (nodes[below + 1] - nodes[below])
        first = positions[f"{each.owner}/{bound}/{table.coordinate}/0"]
        parts += [(own, first + below, 1.0 - share), (own, first + below + 1, share)]
    return [(row[weight > 0], place[weight > 0], weight[weight > 0]) for row, place, weight in parts]


class PricedRows(Record, eq=False):
    """Seconds of each row, summed over all calls.

    They are the sum of the seconds at the compute bound and at the memory bound. A slope is the number of
    seconds by which the time of a row falls if the logarithm of its efficiency rises by 1.
    """

    whole_s: Floats
    compute_s: Floats
    memory_s: Floats
    compute_slope_s: Floats
    memory_slope_s: Floats


def priced(rows: KernelRows, rates: Rates, compute: Logs, memory: Logs) -> PricedRows:
    """Return the seconds of rows; `compute` and `memory` are the sums of fitted numbers of each row.

    A sum is the logarithm of an efficiency. The larger a sum, the closer the efficiency is to 1. The two
    times of a product overlap: it takes the 4th root of the sum of their 4th powers, which is 1.19 times
    either time if they are equal. In vector kernels, loads and stores wait for instructions, so that the
    two times add up.
    """
    slowdown, compute_slope = _limited(compute)
    is_vector = IS_VECTOR[rows.kernel]
    rate = np.where(is_vector, rates.vector_flop_per_s[rows.graph], rates.flop_per_s[rows.graph])
    flop_s = rows.flop * rows.time_ratio / rate * slowdown
    slowdown, memory_slope = _limited(memory)
    bytes_s = rows.moved_bytes / rates.bytes_per_s[rows.graph] * slowdown
    sum_s = np.maximum(flop_s + bytes_s, SHORTEST_S)
    compute, memory = flop_s / sum_s, bytes_s / sum_s
    compute = np.where(is_vector, compute, np.square(np.square(compute)))
    memory = np.where(is_vector, memory, np.square(np.square(memory)))
    powers = np.maximum(compute + memory, SHORTEST_S)
    whole_s = rows.calls * sum_s * np.where(is_vector, powers, np.sqrt(np.sqrt(powers)))
    compute_s, memory_s = whole_s * compute / powers, whole_s * memory / powers
    return PricedRows(
        whole_s=whole_s,
        compute_s=compute_s,
        memory_s=memory_s,
        compute_slope_s=compute_s * compute_slope,
        memory_slope_s=memory_s * memory_slope,
    )


def efficiency_of(log_efficiency: Logs) -> Counts:
    """Return the efficiency for a sum of fitted numbers, which is 1 at most.

    >>> efficiency_of(np.array([-0.5, 3.0])).round(2).tolist()
    [0.61, 1.0]
    """
    return 1.0 / _limited(log_efficiency)[0]


def _limited(log_efficiency: Logs) -> tuple[Counts, Counts]:
    """Return one over the efficiency, which is 1 at most, and the slope of its logarithm, without sign."""
    powers = np.exp(-LIMIT_SHARPNESS * log_efficiency)
    return np.sqrt(np.sqrt(np.sqrt(1.0 + powers))), powers / (1.0 + powers)
