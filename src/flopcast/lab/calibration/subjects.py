"""Subjects of a score: the measured rows of a kernel class on a device, or of a collective on a fabric.

Answers: which rows test which curve, how is this curve fitted, and which rows were left out for which
reason?
Elsewhere: the meaning of a file's columns (operator_files.py, collective_files.py, peers.yaml), the
splits of rows (splits.py), the scores (score.py). The samples are those to which the shipped curves are
fitted. Each row also has a size: the model's width, or one side of a product.

Both gradients of a linear layer were measured as one sum. They form one more class, `gemm.gradients`: its
coordinates are those of the forward product, and its bound is the sum over both products.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np

from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.dtypes import ELEMENT_BYTES
from flopcast.lab.calibration import curve_fit, peer_fit
from flopcast.lab.calibration.collective_files import FabricFile
from flopcast.lab.calibration.efficiency_table import fit_once
from flopcast.lab.calibration.operator_files import BROKEN, FILES, kept_rows
from flopcast.lab.calibration.peer_tables import PEER_FILES, PeerFile, faults_of
from flopcast.lab.calibration.samples import Samples, join, joined_by_name
from flopcast.lab.measure.row_expressions import Columns
from flopcast.operators.base import AbstractOperator
from flopcast.operators.matmul import Matmul
from flopcast.records import Record, field, replace
from flopcast.spec.cluster import Device
from flopcast.spec.tier import Tier

Measured = Literal["operators", "peers", "collectives"]  # whose tables: a folder of the data
Fit = Callable[[Samples], Curve]
GRADIENTS = "gemm.gradients"
SIZES = ("hidden", "heads", "seq_len")  # the first that a file varies is left out for the unseen split
IMPOSSIBLE = "the rate exceeds the peaks of the device, or the time is zero"
TOO_SHORT = (
    "the launch on the host takes longer than the kernel, or the rate exceeds the peak rate of the device"
)


class RejectedRows(Record):
    """Rows of a class that are used neither to fit nor to score a curve."""

    kernel_class: str
    device: str
    rows: int
    because: str


class Subject(Record, eq=False):
    """One class on one owner: `parts` holds its samples, one entry for each file or source, with their
    names.

    A kernel class belongs to a `device`, whose peaks limit its rows and whose launch times are
    subtracted. A collective belongs to a fabric and has no device. `fit` fits the curve to some of the
    rows in the same way as for the catalogue. `aside` contains, by source, the samples of sources that
    disagree with `parts`.
    """

    owner: str
    name: str
    parts: tuple[Samples, ...]
    fit: Fit
    measured: Measured
    device: Device | None = None
    aside: Mapping[str, Samples] = field(default_factory=dict)

    @property
    def samples(self) -> Samples:
        """Return all rows, file after file."""
        return join(list(self.parts))

    @property
    def kind(self) -> str:
        """Return the kind of the class; classes of one kind have the same added sigmas."""
        return class_of(self.name).kind.name if self.device else "messages"

    @property
    def precision(self) -> str:
        """Return the precision at the end of the class name; curves without one apply to fp16 and bf16."""
        last = self.name.rpartition(".")[2]
        low = last.startswith(("fp", "nvfp", "mxfp", "int")) or last in ELEMENT_BYTES
        return last if low else "16-bit" if self.device else "any"


def operator_subjects(
    system: str, device: Device, files: Mapping[str, Columns]
) -> tuple[list[Subject], list[RejectedRows]]:
    """Return the classes that one system's files measure, and the rejected rows.

    `system` determines the known defects, the peaks of `device` limit the samples, and `files` holds
    columns by the name of the file, each with a column `tp`. If a class has no usable rows, only its
    rejected rows are returned.
    """
    parts: dict[str, list[Samples]] = defaultdict(list)
    rejected: list[RejectedRows] = []
    for name, columns in files.items():
        for samples in sized_samples(system, name, columns, device):
            parts[samples.name].append(samples)
            rejected += _rejected(samples, system, name, columns, device)
    subjects = [
        Subject(
            owner=device.name,
            name=name,
            parts=tuple(samples_of_class),
            fit=partial(curve_fit.fit_curve, device=device, fit=fit_once),
            measured="operators",
            device=device,
        )
        for name, samples_of_class in parts.items()
        if sum(len(part.measured_s) for part in samples_of_class)
    ]
    return subjects, rejected


def _rejected(
    samples: Samples, system: str, file: str, columns: Columns, device: Device
) -> Iterator[RejectedRows]:
    """Yield rows that are listed as broken, with the reason, and then other rejected rows."""
    which = "backward" if samples.name.endswith((".backward", GRADIENTS)) else "forward"
    listed = int((~kept_rows(system, file, which, columns)).sum())
    _, why = BROKEN.get((system, file, which), (None, ""))
    counts = {why: listed, IMPOSSIBLE: samples.rejected - listed}
    yield from _rows_by_reason(samples.name, device.name, counts)


def _rows_by_reason(name: str, owner: str, counts: Mapping[str, int]) -> Iterator[RejectedRows]:
    for because, rows in counts.items():
        if rows > 0:
            yield RejectedRows(kernel_class=name, device=owner, rows=rows, because=because)


def sized_samples(system: str, name: str, columns: Columns, device: Device) -> Iterator[Samples]:
    """Yield the samples of one file with the size of each row, and for a linear layer also its gradients.

    Rows of one size are read together, so rows are sorted by size.
    """
    if name not in FILES:
        return
    size = next((columns[key] for key in SIZES if key in columns and np.ptp(columns[key]) > 0), None)
    known = np.zeros_like(next(iter(columns.values()))) if size is None else size
    sized: list[Samples] = []
    for value in np.unique(known):
        rows = {key: column[known == value] for key, column in columns.items()}
        of_size = [
            *curve_fit.file_samples(system, name, rows, device),
            *_gradients(system, name, rows, device),
        ]
        for samples in of_size:
            sizes = None if size is None else np.full(samples.measured_s.shape, value)
            sized.append(replace(samples, size=sizes))
    yield from joined_by_name(sized).values()


def _gradients(system: str, name: str, rows: Columns, device: Device) -> Iterator[Samples]:
    """Yield the sum of both gradients of a linear layer, and nothing for other files."""
    file = FILES[name]
    if not file.backward_is_sum:
        return
    operator = file.forward(curve_fit.as_plans(rows))
    measured_s = rows["bwd_us"] * 1e-6
    bound_s = sum(bound_seconds(part.work(), device).ravel() for _, part in operator.gradients())
    used = kept_rows(system, name, "backward", rows) & np.isfinite(measured_s) & (measured_s >= bound_s)
    shape = [np.broadcast_to(axis, (len(used), 1)).ravel()[used] for axis in operator.coordinates()]
    yield Samples(
        name=GRADIENTS,
        coordinates=np.stack(shape),
        bound_s=np.asarray(bound_s)[used],
        measured_s=measured_s[used],
        source=curve_fit.SOURCE.format(system=system),
        rejected=int((~used).sum()),
    )


def gradients_of(samples: Samples) -> Sequence[AbstractOperator]:
    """Return the two products that samples of `gemm.gradients` measure, the input gradient first; (rows,
    1).
    """
    m, n, k = (axis[:, None] for axis in samples.coordinates)
    return [part for _, part in Matmul(m=m, n=n, k=k, dtype="fp16").gradients()]


def peer_subjects(
    device: Device,
    tables: Mapping[str, Columns],
    own: frozenset[str],
    files: Sequence[PeerFile] = PEER_FILES,
) -> tuple[list[Subject], list[RejectedRows]]:
    """Return the classes that only other projects measured on a device, from the entries `files`.

    A class with too few rows for a curve is skipped.
    """
    subjects: list[Subject] = []
    rejected: list[RejectedRows] = []
    for name, by_source in peer_fit.device_samples(device, tables, files).items():
        joined, _ = peer_fit.agreed(by_source)
        if name in own or name.endswith("_gradient") or len(joined.measured_s) < peer_fit.FEWEST_ROWS:
            continue
        aside = {
            source: samples for source, samples in by_source.items() if samples.source not in joined.source
        }
        subjects.append(
            Subject(
                owner=device.name,
                name=name,
                parts=(replace(joined, size=peer_fit.sizes_of(joined)),),
                fit=partial(peer_fit.fit_quickly, device=device),
                measured="peers",
                device=device,
                aside=aside,
            )
        )
        rejected += _rejected_peers(device, tables, name, by_source, files)
    return subjects, rejected


def _rejected_peers(
    device: Device,
    tables: Mapping[str, Columns],
    name: str,
    by_source: Mapping[str, Samples],
    files: Sequence[PeerFile],
) -> Iterator[RejectedRows]:
    """Yield the rows of one class that an entry rejects, by reason, and those with impossible times."""
    counts: dict[str, int] = defaultdict(int)
    for class_name, file, mark in peer_fit.entries_of(device.name, tables, files):
        if class_name == name:
            for because, rows in faults_of(file, tables[file.path], mark).items():
                counts[because] += rows
    counts[TOO_SHORT] = sum(samples.rejected for samples in by_source.values()) - sum(counts.values())
    yield from _rows_by_reason(name, device.name, counts)


def with_peers(subjects: Iterable[Subject], device: Device, tables: Mapping[str, Columns]) -> list[Subject]:
    """Return a device's own classes, with the samples of other projects as separate sources."""
    peers = peer_fit.device_samples(device, tables)
    return [replace(subject, aside=peers.get(subject.name, {})) for subject in subjects]


def fabric_subjects(
    files: Iterable[tuple[FabricFile, Columns]], tier: Tier, own_latency: bool = False
) -> tuple[list[Subject], list[RejectedRows]]:
    """Return the collectives of one fabric, and the rows that were rejected.

    Parameters
    ----------
    files : iterable of (file, columns)
    tier : Tier
        The link whose bandwidth no message can exceed; a faster row is rejected.
    own_latency : bool
        Whether the latency of the fabric is derived from the rows.
    """
    parts: dict[str, list[Samples]] = defaultdict(list)
    for file, columns in files:
        parts[file.collective].append(curve_fit.fabric_samples(file, columns, tier, own_latency))
    fabric = tier.fabric or tier.name
    subjects = [
        Subject(
            owner=fabric,
            name=name,
            parts=tuple(samples),
            fit=partial(curve_fit.fit_messages, owner=fabric, own_latency=own_latency, fit=fit_once),
            measured="collectives",
        )
        for name, samples in parts.items()
    ]
    rejected = [
        rows
        for subject in subjects
        for rows in _rows_by_reason(
            subject.name,
            fabric,
            {
                "the measured bandwidth exceeds the bandwidth of the link": sum(
                    part.rejected for part in subject.parts
                )
            },
        )
    ]
    return subjects, rejected
