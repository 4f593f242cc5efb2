"""Samples of other projects → curves; and how far two sources of the same shapes are apart.

Answers: which curve do several sources of one device give, and do they agree?
The first source of a class with rows makes the curve; another joins it only where both agree to AGREEMENT
(median) on the shapes that they share, and is told either way. Fewer than FEWEST_ROWS make no curve: a
relative knows more.
Elsewhere: what the tables hold (peer_operators.py), tables and terms (table.py), curves (fit.py).

These sweeps are large and dense, so their tables are finer than those of fit.py, and one fifth of the rows
is kept aside for the error instead of five folds.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from flopcast.calibration.conformal import log_sigma
from flopcast.calibration.fit import curve_of_table, rows_of
from flopcast.calibration.peer_operators import PEER_FILES, Columns, PeerFile, samples_of
from flopcast.calibration.samples import Samples, join
from flopcast.calibration.table import FOLDS, Rows, Table, fit_once
from flopcast.cost.kernels.curve import Curve, log_efficiency
from flopcast.dtypes import Counts, Logs
from flopcast.spec.cluster import Device

MOST_NODES = (14, 10, 8)  # of three axes, where rows are many
FEW_NODES = (6, 4, 3)  # where they are few: a node for ten rows or more
MANY_ROWS = 1000
COARSE_NODES = 7  # of the table that finds which terms show at all
SMALLEST_COEFFICIENT = 1e-3
FEWEST_ROWS = 20
NEAR = 0.1  # in log2 of every coordinate: shapes that two sources share
AGREEMENT = 0.05  # median relative difference below which sources are one


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """How much longer the second source takes than the first, at the shapes that both measured.

    Ratios of time over bound, so that near-equal shapes compare; `bias_ratio` is the median, 1 where they
    agree, `median_error` the median distance from 1. Both are NaN where no shape is shared.
    """

    shared: int
    bias_ratio: float
    median_error: float

    @property
    def agrees(self) -> bool:
        """Whether the two may be fitted together."""
        return self.shared > 0 and self.median_error <= AGREEMENT

    def told(self) -> str:
        """One line of a report."""
        if not self.shared:
            return "no shape shared"
        return (
            f"{self.shared} shapes shared, {self.bias_ratio:.2f} of the first's time,"
            f" {self.median_error:.1%} apart"
        )


def disagreement(first: Samples, second: Samples) -> Disagreement:
    """Compare each row of the second source with the nearest of the first, if it lies NEAR.

    Examples
    --------
    >>> one = Samples(name="x", coordinates=np.array([[4.0, 8.0]]), bound_s=np.ones(2),
    ...               measured_s=np.array([2.0, 2.0]), source="a")
    >>> two = replace(one, measured_s=np.array([2.2, 2.2]))
    >>> round(disagreement(one, two).bias_ratio, 2)
    1.1
    """
    ours, theirs = np.log2(first.coordinates), np.log2(second.coordinates)
    ratios = []
    for number in range(theirs.shape[1]):
        distance = np.abs(ours - theirs[:, number : number + 1]).max(axis=0, initial=0.0)
        nearest = int(distance.argmin()) if distance.size else 0
        if distance.size and distance[nearest] <= NEAR:
            slowness = second.measured_s[number] / second.bound_s[number]
            ratios.append(slowness * first.bound_s[nearest] / first.measured_s[nearest])
    if not ratios:
        return Disagreement(shared=0, bias_ratio=np.nan, median_error=np.nan)
    return Disagreement(
        shared=len(ratios),
        bias_ratio=float(np.median(ratios)),
        median_error=float(np.median(np.abs(np.array(ratios) - 1))),
    )


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class PeerFit:
    """Curves of one device by class, and what is to be told of sources that were compared."""

    curves: Mapping[str, Curve]
    told: tuple[str, ...]


def tables_of(device: str) -> tuple[PeerFile, ...]:
    """The entries that hold rows of a device, the most trusted first."""
    return tuple(file for file in PEER_FILES if device in file.devices.values())


def fit_peers(device: Device, tables: Mapping[str, Columns]) -> PeerFit:
    """Curves of every class that the tables measure on a device.

    Parameters
    ----------
    tables : columns by path of the table, as `PeerFile.path`; a table that is missing is passed over
    """
    found = device_samples(device, tables)
    curves, told = {}, []
    for name, by_source in found.items():
        if name.endswith("_gradient"):
            continue
        samples, lines = agreed(by_source)
        told += [f"{device.name} {name}: {line}" for line in lines]
        if samples.measured_s.size < FEWEST_ROWS:
            told.append(f"{device.name} {name}: no curve of {samples.measured_s.size} rows")
        else:
            curves[name] = fit_peer_curve(samples, device)
    if "gemm" in curves:
        curves["gemm"] = with_layouts(curves["gemm"], found, device)
    return PeerFit(curves=curves, told=tuple(told))


def device_samples(device: Device, tables: Mapping[str, Columns]) -> dict[str, dict[str, Samples]]:
    """Samples by class and source; those of gradient products under "gemm." and their layout."""
    parts: dict[str, dict[str, list[Samples]]] = defaultdict(lambda: defaultdict(list))
    for file in tables_of(device.name):
        marks = [mark for mark, name in file.devices.items() if name == device.name]
        for mark in marks:
            if file.path in tables and mark in tables[file.path]:
                name = file.name if file.layout == "forward" else f"{file.name}.{file.layout}"
                samples = samples_of(file, tables[file.path], mark, device)
                parts[name][file.source].append(samples)
    return {
        name: {source: join(rows) for source, rows in by_source.items()}
        for name, by_source in parts.items()
    }


def agreed(by_source: Mapping[str, Samples]) -> tuple[Samples, list[str]]:
    """The rows that make a curve, and a line for every source beside the first."""
    (_, first), *others = by_source.items()
    joined, lines = [first], []
    for source, samples in others:
        apart = disagreement(first, samples)
        if apart.agrees:
            joined.append(samples)
        lines.append(f"{source} {'joined' if apart.agrees else 'kept aside'}: {apart.told()}")
    return join(joined), lines


def fit_peer_curve(samples: Samples, device: Device) -> Curve:
    """The curve of one class, its error from a fifth of the rows, kept aside.

    Terms that a coarse table does not show are left out at once, as no finer one would show them.
    """
    rows, names = rows_of(samples, device)
    rows, names = shown_terms(rows, names)
    axes = axes_of(rows)
    most = tuple(len(axis) for axis in axes)
    aside = np.arange(len(rows.log_efficiency)) % FOLDS == 0
    error, sigma = 0.1, 0.1  # guesses, where a fifth is too few
    if aside.sum() >= 10:
        part = fit_once(rows.part(~aside), most, axes)
        left = rows.part(aside)
        log_errors = left.log_efficiency - part.predict(left)
        error, sigma = float(np.mean(np.abs(np.expm1(log_errors)))), log_sigma(log_errors)
    table = fit_once(rows, most, axes)
    level = _not_above(rows, table)
    table = replace(table, log_efficiency=level, relative_error=error, log_sigma_factor=sigma)
    return curve_of_table(samples, device, table, names)


def _not_above(rows: Rows, table: Table) -> Logs:
    """The table, no node above what some row reached: far from all rows it would go on rising."""
    reached = rows.log_efficiency + rows.terms @ table.coefficients
    limited: Logs = np.minimum(table.log_efficiency, reached.max())
    return limited


def shown_terms(rows: Rows, names: tuple[str, ...]) -> tuple[Rows, tuple[str, ...]]:
    """Rows with those terms alone whose coefficient is positive beside a coarse table."""
    if not names:
        return rows, names
    axes = tuple(np.linspace(logs.min(), logs.max() + 1e-9, COARSE_NODES) for logs in rows.log2)
    found = fit_once(rows, (COARSE_NODES,) * len(axes), axes).coefficients > SMALLEST_COEFFICIENT
    kept = tuple(name for name, shown in zip(names, found, strict=True) if shown)
    most = None if rows.most is None else rows.most[found]
    return replace(rows, terms=rows.terms[:, found], most=most), kept


def axes_of(rows: Rows) -> tuple[Counts, ...]:
    """Nodes at the measured values where they are few, else evenly spaced between the outermost."""
    most = MOST_NODES if len(rows.log_efficiency) >= MANY_ROWS else FEW_NODES
    axes = []
    for logs, count in zip(rows.log2, most, strict=False):
        values = np.unique(np.round(logs, 4))
        axes.append(values if len(values) <= count else np.linspace(values[0], values[-1], count))
    return tuple(axes)


def with_layouts(curve: Curve, found: Mapping[str, Mapping[str, Samples]], device: Device) -> Curve:
    """Ratios of gradient products to forward ones of the same source, both against the curve (medians)."""
    ratios = {}
    for layout in ("input_gradient", "weight_gradient"):
        for source, samples in found.get(f"gemm.{layout}", {}).items():
            forward = found["gemm"][source]
            ratio = _slowness(curve, samples, device) / _slowness(curve, forward, device)
            ratios[layout] = round(ratio, 4)
    return replace(curve, layout_ratio=ratios)


def borrowed_layouts(curve: Curve, relatives: Iterable[Curve]) -> Curve:
    """The curve with the layout ratios of the first relative that has any, where it has none of its own.

    Serving sweeps hold forward products only; a gradient's ratio is a matter of the kernels' layouts, which
    relatives share.
    """
    ratios = (other.layout_ratio for other in (curve, *relatives) if other.layout_ratio)
    return replace(curve, layout_ratio=next(ratios, {}))


def _slowness(curve: Curve, samples: Samples, device: Device) -> float:
    """Median of measured over predicted seconds."""
    return float(np.median(samples.measured_s / predicted_s(curve, samples, device)))


def predicted_s(curve: Curve, samples: Samples, device: Device) -> Logs:
    """Seconds that a curve, the device's own or a relative's, gives for samples of a device, (rows,)."""
    efficiency = np.exp(log_efficiency(curve, tuple(samples.coordinates), device.multiprocessors))
    seconds: Logs = curve.launch_s + samples.bound_s / efficiency
    return seconds


def compared_with_own(
    own: Mapping[str, Samples], device: Device, tables: Mapping[str, Columns]
) -> list[str]:
    """Lines that lay the tables beside a device's own measurements, class by class; nothing is fitted."""
    return [
        f"{device.name} {name}: {source} kept aside: {disagreement(own[name], samples).told()}"
        for name, by_source in device_samples(device, tables).items()
        if name in own
        for source, samples in by_source.items()
    ]


def peer_devices(paths: Iterable[str]) -> tuple[str, ...]:
    """Devices that these tables have rows of, sorted."""
    known = set(paths)
    return tuple(sorted({name for f in PEER_FILES if f.path in known for name in f.devices.values()}))
