"""What is judged: the measured rows of one kernel class on one device, or one collective on one fabric.

Answers: which rows of a data folder judge which curve, which were left out and why?
Elsewhere: what a file's columns mean (operator_files.py, collective_files.py), how rows are split
(splits.py), how a curve does (score.py). The samples are those that the shipped curves are fitted to, with
the model's width of each row beside them.

Both gradients of a linear layer were measured as one sum. They are one more class, `gemm.gradients`: its
coordinates are the forward's, its bound is that of both products.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.calibration.collective_files import FabricFile
from flopcast.calibration.fit import SOURCE, _fabric_samples, as_plans, file_samples
from flopcast.calibration.operator_files import BROKEN, FILES, Columns, kept_rows
from flopcast.calibration.samples import Samples, join
from flopcast.dtypes import ELEMENT_BYTES, Floats
from flopcast.operators.base import AbstractOperator
from flopcast.operators.matmul import Matmul
from flopcast.spec.cluster import Device, Tier

GRADIENTS = "gemm.gradients"
SIZES = ("hidden", "heads", "seq_len")  # the first that a file varies is left out for the unseen split
IMPOSSIBLE = "faster than the device's peaks, or no time at all"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """Rows of a class that neither fit nor judge a curve."""

    kernel_class: str
    device: str
    rows: int
    because: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Subject:
    """One class on one owner: `parts` are its samples, one for each file or source, with their names.

    A kernel class belongs to a `device`, whose peaks bound it and whose launches are taken off; a
    collective to a fabric, which is a `tier` of some cluster. With `own_latency` a collective's times hold
    its hops, and its curve a latency; otherwise the tier's hops are off them.
    """

    owner: str
    name: str
    parts: tuple[Samples, ...]
    device: Device | None = None
    tier: Tier | None = None
    own_latency: bool = False

    @property
    def samples(self) -> Samples:
        """All rows, file after file."""
        return join(list(self.parts))

    @property
    def precision(self) -> str:
        """The precision that the class' name ends in; curves without one serve fp16 and bf16."""
        last = self.name.rpartition(".")[2]
        low = last.startswith(("fp", "nvfp", "mxfp", "int")) or last in ELEMENT_BYTES
        return last if low else "16-bit" if self.device else "any"


def operator_subjects(
    system: str, device: Device, files: Mapping[str, Columns]
) -> tuple[list[Subject], list[Rejected]]:
    """The classes that one system's files measure, and what was left out of them.

    Parameters
    ----------
    system : names what is known to be broken
    device : whose peaks bound the samples
    files : columns by the name of the file, each with a column `tp`

    Returns
    -------
    subjects, rejected
        Classes without a usable row are in `rejected` only.
    """
    parts: dict[str, list[Samples]] = defaultdict(list)
    rejected: list[Rejected] = []
    for name, columns in files.items():
        for samples in sized_samples(system, name, columns, device):
            parts[samples.name].append(samples)
            rejected += _rejected(samples, system, name, columns, device)
    subjects = [
        Subject(owner=device.name, name=name, parts=tuple(found), device=device)
        for name, found in parts.items()
        if sum(len(part.measured_s) for part in found)
    ]
    return subjects, rejected


def _rejected(
    samples: Samples, system: str, file: str, columns: Columns, device: Device
) -> Iterator[Rejected]:
    """Listed as broken, with the reason; then those that no one has listed."""
    which = "backward" if samples.name.endswith((".backward", GRADIENTS)) else "forward"
    listed = int((~kept_rows(system, file, which, columns)).sum())
    _, why = BROKEN.get((system, file, which), (None, ""))
    for rows, because in ((listed, why), (samples.rejected - listed, IMPOSSIBLE)):
        if rows > 0:
            yield Rejected(kernel_class=samples.name, device=device.name, rows=rows, because=because)


def sized_samples(system: str, name: str, columns: Columns, device: Device) -> Iterator[Samples]:
    """The samples of one file, each row with its size; of a linear layer, its gradients too.

    Rows of one size are read together, so they come in the order of their sizes.
    """
    if name not in FILES:
        return
    size = next((columns[key] for key in SIZES if key in columns and np.ptp(columns[key]) > 0), None)
    known = np.zeros_like(next(iter(columns.values()))) if size is None else size
    found: dict[str, list[Samples]] = defaultdict(list)
    for value in np.unique(known):
        rows = {key: column[known == value] for key, column in columns.items()}
        of_size = [*file_samples(system, name, rows, device), *_gradients(system, name, rows, device)]
        for samples in of_size:
            sizes = None if size is None else np.full(samples.measured_s.shape, value)
            found[samples.name].append(replace(samples, size=sizes))
    yield from (join(parts) for parts in found.values())


def _gradients(system: str, name: str, rows: Columns, device: Device) -> Iterator[Samples]:
    """Both gradients of a linear layer, as their sum was measured; none of other files."""
    file = FILES[name]
    if not file.backward_is_sum:
        return
    operator = file.forward(as_plans(rows))
    measured_s = rows["bwd_us"] * 1e-6
    bound_s = sum(bound(part, device) for _, part in operator.gradients())
    used = kept_rows(system, name, "backward", rows) & np.isfinite(measured_s) & (measured_s >= bound_s)
    shape = [np.broadcast_to(axis, (len(used), 1)).ravel()[used] for axis in operator.coordinates()]
    yield Samples(
        name=GRADIENTS,
        coordinates=np.stack(shape),
        bound_s=np.asarray(bound_s)[used],
        measured_s=measured_s[used],
        source=SOURCE.format(system=system),
        rejected=int((~used).sum()),
    )


def gradients_of(samples: Samples) -> Sequence[AbstractOperator]:
    """The two products behind samples of `gemm.gradients`, input gradient first; arrays (rows, 1)."""
    m, n, k = (axis[:, None] for axis in samples.coordinates)
    return [part for _, part in Matmul(m=m, n=n, k=k, dtype="fp16").gradients()]


def bound(operator: AbstractOperator, device: Device) -> Floats:
    """Roofline seconds of an operator whose arrays have the shape (rows, 1); (rows,)."""
    need = operator.work()
    compute_s = need.flop / device.peak_flop_per_s[need.unit]
    bound_s: Floats = np.maximum(compute_s, need.moved_bytes / device.memory_bytes_per_s).ravel()
    return bound_s


def fabric_subjects(
    files: Iterable[tuple[FabricFile, Columns]], tier: Tier, own_latency: bool = False
) -> tuple[list[Subject], list[Rejected]]:
    """The collectives of one fabric; a row faster than its links is rejected."""
    parts: dict[str, list[Samples]] = defaultdict(list)
    for file, columns in files:
        parts[file.collective].append(_fabric_samples(file, columns, tier, own_latency))
    fabric = tier.fabric or tier.name
    subjects = [
        Subject(owner=fabric, name=name, parts=tuple(found), tier=tier, own_latency=own_latency)
        for name, found in parts.items()
    ]
    counts = {s.name: sum(part.rejected for part in s.parts) for s in subjects}
    rejected = [
        Rejected(kernel_class=name, device=fabric, rows=rows, because="faster than the link")
        for name, rows in counts.items()
        if rows
    ]
    return subjects, rejected
