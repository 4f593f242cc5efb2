"""Measured times as samples: an operator or a collective, and its seconds.

Answers: which operators do the rows of one file measure, and which rows are broken for which reason?
Elsewhere: reading the files (lab/samples/columns.py), fitting (curve_fit.py). A row that implies more work
than the device's peak allows is rejected and counted.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.dtypes import Counts, Floats
from flopcast.operators.base import AbstractOperator
from flopcast.records import Record, replace
from flopcast.spec.cluster import Device


class Samples(Record, eq=False):
    """Rows of one kernel class or collective; arrays (rows,).

    `bound_s` is the physical bound of each row, and `measured_s` its time; a curve is fitted to their
    ratio, the efficiency. `coordinates` are in the order of the curve's axes. `rejected` is the number of
    rows that were left out, which the evidence states. `size` is the width of the model to which a row
    belongs, if a sweep has several. Scores leave whole sizes out (score.py). It is NaN, or None for all
    rows, if it is unknown.
    """

    name: str
    coordinates: Counts  # (axes, rows)
    bound_s: Floats
    measured_s: Floats
    source: str
    rejected: int = 0
    size: Counts | None = None  # (rows,)

    def part(self, where: np.ndarray) -> "Samples":
        """Return the rows that a mask selects, with a count of 0 rejected rows."""
        return replace(
            self,
            coordinates=self.coordinates[:, where],
            bound_s=self.bound_s[where],
            measured_s=self.measured_s[where],
            size=None if self.size is None else self.size[where],
            rejected=0,
        )


def operator_samples(
    operator: AbstractOperator, measured_s: Floats, keep: np.ndarray, device: Device, source: str
) -> Samples:
    """Return samples of an operator whose arrays, of shape (rows, 1), hold one measured shape per row.

    `measured_s` and `keep` have shape (rows,). `keep` marks rows that are not known to be broken; rows
    that are faster than the device's peaks are also rejected (memory-bound kernels may use a cache: up to
    1.5 times the bandwidth). Kept and rejected rows together make up all rows.
    """
    need = operator.work()
    rows = len(measured_s)
    compute_s = _column(need.flop, rows) / device.peak(need.unit)
    memory_s = _column(need.moved_bytes, rows) / device.memory_bytes_per_s
    possible = (measured_s > 0) & (compute_s <= measured_s) & (memory_s <= 1.5 * measured_s)
    used = keep & possible & np.isfinite(measured_s)
    return Samples(
        name=operator.kernel.removesuffix(".forward"),
        coordinates=np.stack([_column(c, rows)[used] for c in operator.coordinates()]),
        bound_s=_column(bound_seconds(need, device), rows)[used],
        measured_s=measured_s[used],
        source=source,
        rejected=int((~used).sum()),
    )


def _column(values: Counts, rows: int) -> Counts:
    """Return one value per row, (rows,), from an array that may hold one value for all rows."""
    return np.broadcast_to(values, (rows, 1)).ravel()


def join(parts: list[Samples]) -> Samples:
    """Return samples of one name from several files; the source is that of the first file.

    Sizes are kept if any file has them; the size of rows of other files is unknown.
    """
    sized = any(part.size is not None for part in parts)
    return Samples(
        name=parts[0].name,
        coordinates=np.concatenate([part.coordinates for part in parts], axis=1),
        bound_s=np.concatenate([part.bound_s for part in parts]),
        measured_s=np.concatenate([part.measured_s for part in parts]),
        source=parts[0].source,
        rejected=sum(part.rejected for part in parts),
        size=np.concatenate([_sizes(part) for part in parts]) if sized else None,
    )


def joined_by_name(parts: Iterable[Samples]) -> dict[str, Samples]:
    """Return the samples of several files by name. Samples of one name have the order of the files."""
    by_name: dict[str, list[Samples]] = defaultdict(list)
    for part in parts:
        by_name[part.name].append(part)
    return {name: join(same) for name, same in by_name.items()}


def _sizes(part: Samples) -> Counts:
    return np.full(part.measured_s.shape, np.nan) if part.size is None else part.size
