"""A matrix of measured bandwidths between the nodes of a cluster: the row sends to the column.

Answers: how fast is the link between two nodes, which matrices are invalid, and in which order do ranks
fill the nodes?
Elsewhere: reading a matrix from a file (library/link_files.py), which links a message uses
(cost/crossed_links.py), the best order of nodes (search/node_order.py).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import Floats
from flopcast.records import Record
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number

Unit = Literal["MB/s", "GB/s", "Mb/s", "Gb/s"]
BYTES_PER_S: dict[str, float] = {"MB/s": 1e6, "GB/s": 1e9, "Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8}
MOST_ASYMMETRY_RATIO = 4.0  # between the directions of a pair: the largest of Pipette's clusters is 1.16
MOST_FAULTS = 20  # of one matrix: the rest mostly repeats them


class MatrixFault(Record, kw_only=False):
    """A fault of one cell of a matrix, or of a whole row (`column` is then -1)."""

    row: int
    column: int
    value: object
    allowed: str
    because: str
    fix: str


def matrix_faults(rows: Sequence[Sequence[float]]) -> Iterator[MatrixFault]:
    """Yield the faults that prevent rows of numbers from being a matrix of measured links.

    >>> [fault.allowed for fault in matrix_faults([[0.0, 1.0], [1.0]])]
    ['2 numbers in each row, as many as there are rows']
    """
    size = len(rows)
    if size < 2:
        because = "a bandwidth is measured between two nodes"
        yield MatrixFault(0, -1, f"{size} rows", "2 or more rows", because, "add a row for each node")
        return
    columns = {len(row) for row in rows}
    if len(columns) == 1 and columns != {size}:
        because = "the matrix has one row and one column for each node"
        again = next((row for row in range(1, size) if list(rows[row]) == list(rows[row - 1])), 0)
        fix = f"remove row {again + 1}, which repeats row {again}" if again else "complete the matrix"
        allowed = f"{len(rows[0])} rows, as many as there are numbers in each row"
        yield MatrixFault(again, -1, f"{size} rows", allowed, because, fix)
        return
    uneven = [number for number, row in enumerate(rows) if len(row) != size]
    for number in uneven:
        allowed = f"{size} numbers in each row, as many as there are rows"
        because = "the matrix has one row and one column for each node"
        fix = f"change row {number + 1} to {size} numbers"
        yield MatrixFault(number, -1, list(rows[number]), allowed, because, fix)
    if uneven:
        return
    for row, column in ((row, column) for row in range(size) for column in range(size) if row != column):
        value, back = rows[row][column], rows[column][row]
        pair = f"from node {row} to node {column}"
        if not isfinite(value) or value <= 0:
            because = f"the matrix has no bandwidth {pair}, but flopcast needs one for every pair of nodes"
            yield MatrixFault(row, column, value, "above 0", because, f"change it to the bandwidth {pair}")
        elif isfinite(back) and back > 0 and value > MOST_ASYMMETRY_RATIO * back:
            allowed = (
                f"at most {MOST_ASYMMETRY_RATIO:g} times the bandwidth in the opposite direction ({back:g})"
            )
            because = (
                "the bandwidths of the two directions of a link are similar, so one of these two is "
                "probably wrong"
            )
            fix = f"change one of the two bandwidths between nodes {row} and {column}"
            yield MatrixFault(row, column, value, allowed, because, fix)


class LinkMatrix(StrictModel):
    """Measured bandwidths between all pairs of nodes.

    Attributes
    ----------
    rows : tuple of tuple of float
        Matrix of the bandwidths that large messages reach, in `unit`. Row i, column j is the bandwidth from
        node i to node j; numbers on the diagonal are ignored. If a scale-up domain spans several nodes,
        each row stands for one domain.
    unit : str
        Unit of the bandwidths in `rows`.
    devices : int
        Number of devices that share the measured link: 8 if the 8 devices of a node share one network card
        (NIC), 1 if each device has its own.
    order : tuple of int
        Order of nodes in which ranks are placed, as row numbers of the matrix: the first ranks of the job
        run on the node of the first number. By default (an empty list), ranks are placed in the order of
        the rows.

    Examples
    --------
    >>> LinkMatrix(rows=((0, 10), (12, 0)), unit="GB/s").mean_bytes_per_s
    11000000000.0
    """

    rows: tuple[tuple[Number, ...], ...]
    unit: Unit = "MB/s"
    devices: int = Field(default=1, ge=1)
    order: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _is_a_measurement(self) -> "LinkMatrix":
        fault = next(matrix_faults(self.rows), None)
        if fault is not None:
            raise NotAllowedError(fault.allowed, fault.because, fault.fix)
        if self.order and sorted(self.order) != list(range(len(self.rows))):
            allowed = f"each number from 0 to {len(self.rows) - 1} once, in any order"
            raise NotAllowedError(allowed, "order lists the rows of the matrix", "remove order")
        return self

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.rows)

    @property
    def bytes_per_s(self) -> Floats:
        """Return the bandwidth of one device between all pairs of nodes, in the order in which ranks
        fill the nodes.
        """
        found_bytes_per_s, _ = _arrays(self)
        return found_bytes_per_s

    @property
    def mean_bytes_per_s(self) -> float:
        """Return the mean bandwidth of one device over all pairs of nodes."""
        _, mean_bytes_per_s = _arrays(self)
        return mean_bytes_per_s


@lru_cache(maxsize=64)
def _arrays(links: LinkMatrix) -> tuple[Floats, float]:
    """Return the bandwidths in the order of nodes, with infinity on the diagonal, and their mean."""
    measured = np.array(links.rows, dtype=np.float64) * BYTES_PER_S[links.unit] / links.devices
    pairs = ~np.eye(links.size, dtype=bool)
    mean_bytes_per_s = float(measured[pairs].mean())
    order = np.array(links.order or range(links.size), dtype=np.intp)
    ordered_bytes_per_s: Floats = np.where(pairs, measured, np.inf)[np.ix_(order, order)]
    ordered_bytes_per_s.flags.writeable = False
    return ordered_bytes_per_s, mean_bytes_per_s
