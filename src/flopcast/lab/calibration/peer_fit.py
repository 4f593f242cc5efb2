"""Curves from samples of other projects, and the difference between two sources of the same shapes.

Answers: which curve follows from several sources of one device, and do they agree? The curve of a class is
fitted to the first source that has rows. A further source is added only if the median difference on common
shapes is at most AGREEMENT. A message reports the result in either case. With fewer than FEWEST_ROWS rows,
no curve is fitted, because the curve of a fallback device is then more accurate.
Elsewhere: the content of the tables (peers.yaml), tables and terms (efficiency_table.py), curves
(curve_fit.py).

These sweeps are large and dense, so their tables are finer than those of curve_fit.py. The error comes
from one fifth of the rows, which is left out, instead of five folds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from flopcast.cost.kernels.between_nodes import log_efficiency_by_times
from flopcast.cost.kernels.classes import (
    DECODE,
    GROUPED_GEMM,
    SERVED_EXPERTS,
    SERVED_GEMM,
    KernelFamily,
    class_of,
)
from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.features import features_of
from flopcast.dtypes import Counts, Logs
from flopcast.lab.calibration.conformal import log_sigma
from flopcast.lab.calibration.curve_fit import SMALLEST_COEFFICIENT, curve_of_table, predicted_s, rows_of
from flopcast.lab.calibration.efficiency_table import FOLDS, FittedTable, Rows, fit_once
from flopcast.lab.calibration.peer_tables import PEER_FILES, PeerFile, samples_of
from flopcast.lab.calibration.samples import Samples, join
from flopcast.lab.calibration.source_agreement import disagreement
from flopcast.lab.measure.row_expressions import Columns
from flopcast.records import Record, replace
from flopcast.spec.cluster import Device

MOST_NODES = (16, 12, 10)  # of three axes, where rows are many
DECODE_NODES = (12, 11, 5, 5)
NODES_OF_KINDS: dict[KernelFamily, tuple[int, ...]] = {
    GROUPED_GEMM: (8, 6, 5),  # whole layers scatter more: a finer table follows their noise
    DECODE: DECODE_NODES,
    SERVED_GEMM: (11, 9, 9),  # with 14, 12 and 12 rows kept aside are 0.2 % better
    SERVED_EXPERTS: (10, 8, 7, 4),
}
FEW_NODES = (6, 4, 3)  # where they are few
FEW_NODES_OF_KINDS: dict[KernelFamily, tuple[int, ...]] = {
    SERVED_EXPERTS: (6, 5, 7, 2),
    DECODE: DECODE_NODES,  # most of them are the penalty's
}
MANY_ROWS = 1000
NEAR_OCTAVES = 2.0  # of work, between a node and rows that hold it
HOST_SHARE = 50  # of the rows, one in so many shows how long the host takes
HOST_RATIO = 1.5  # of that time: shorter rows show the host
COARSE_NODES, COARSEST_NODES = 7, 4  # of the table that finds which terms show; of one with four axes
FEWEST_ROWS = 20
FEWEST_ASIDE = 10  # rows that give an error
WORST_ERROR = 0.25  # of rows kept aside: beyond it a relative's curve is no worse
SKEW = 0.02  # coefficient where all measured groups are equal: the middle of those fitted, 0.008 to 0.048


class PeerFit(Record, eq=False):
    """Curves of one device by class, and messages about the sources that were compared."""

    curves: Mapping[str, Curve]
    messages: tuple[str, ...]


def fit_peers(
    device: Device,
    tables: Mapping[str, Columns],
    own: frozenset[str] = frozenset(),
    files: Sequence[PeerFile] = PEER_FILES,
) -> PeerFit:
    """Return curves of every class that the tables measure on a device.

    Parameters
    ----------
    tables : columns by path of the table, as in `PeerFile.path`; missing tables are skipped
    own : classes that need no curve, because the device has one
    files : the entries, for training or for serving
    """
    by_class = device_samples(device, tables, files)
    curves, messages = {}, []
    for name, by_source in by_class.items():
        if name.endswith("_gradient") or name in own:
            continue
        samples, lines = agreed(by_source)
        messages += [f"{device.name} {name}: {line}" for line in lines]
        if samples.measured_s.size < FEWEST_ROWS:
            messages.append(f"{device.name} {name}: {samples.measured_s.size} rows are too few for a curve")
            continue
        curve = with_layouts(fit_peer_curve(samples, device), by_class, device)
        if curve.evidence.relative_error > WORST_ERROR:
            error = f"{curve.evidence.relative_error:.0%}"
            messages.append(f"{device.name} {name}: no curve, because its error would be {error}")
        else:
            curves[name] = curve
    return PeerFit(curves=curves, messages=tuple(messages))


def entries_of(
    device: str, tables: Mapping[str, Columns], files: Sequence[PeerFile] = PEER_FILES
) -> Iterator[tuple[str, PeerFile, str]]:
    """Yield the class, entry and column of every entry with rows of a device, the most trusted first."""
    for file in files:
        for mark, owner in file.devices.items():
            if owner == device and mark in tables.get(file.path, {}):
                yield file.kernel_class, file, mark


def device_samples(
    device: Device, tables: Mapping[str, Columns], files: Sequence[PeerFile] = PEER_FILES
) -> dict[str, dict[str, Samples]]:
    """Return samples by class and source; those of gradient products have the class "gemm." + layout."""
    parts: dict[str, dict[str, list[Samples]]] = defaultdict(lambda: defaultdict(list))
    for name, file, mark in entries_of(device.name, tables, files):
        parts[name][file.source].append(samples_of(file, tables[file.path], mark, device))
    return {
        name: {source: beyond_the_host(join(rows)) for source, rows in by_source.items()}
        for name, by_source in parts.items()
    }


def beyond_the_host(samples: Samples) -> Samples:
    """Return a sweep without the rows whose time the host determines.

    Other tables do not change, and neither do serving classes, whose engines launch the same kernels.
    Below some amount of work, every row of a sweep takes the same time, because its kernels wait for
    their launches. The blocks of an fp8 product (scales, transposes, the product itself) take up to 0.4
    ms to launch but only 0.01 ms to run. This time is the median of the rows with the least work. Rows
    are left out up to the amount of work at which the last fiftieth of the rows takes about this time.
    """
    window = len(samples.bound_s) // HOST_SHARE
    if len(samples.measured_s) < MANY_ROWS or features_of(samples.name).operator is not None:
        return samples
    order = np.argsort(samples.bound_s, kind="stable")
    medians_s = [
        float(np.median(samples.measured_s[order[start : start + window]]))
        for start in range(0, len(order), window)
    ]
    longest_s = HOST_RATIO * medians_s[0]
    waiting = max(number for number, median_s in enumerate(medians_s) if median_s <= longest_s)
    of_device = samples.measured_s > longest_s
    of_device[order[: waiting * window]] = False
    return replace(samples.part(of_device), rejected=samples.rejected + int((~of_device).sum()))


def agreed(by_source: Mapping[str, Samples]) -> tuple[Samples, list[str]]:
    """Return the rows for a curve, and a line of text for every additional source."""
    (_, first), *others = by_source.items()
    joined, lines = [first], []
    for source, samples in others:
        apart = disagreement(first, samples)
        if apart.agrees:
            joined.append(samples)
        use = "joins the curve" if apart.agrees else "does not join the curve"
        lines.append(f"{source} {use}: {apart.text()}")
    named = " and ".join(dict.fromkeys(samples.source for samples in joined))
    return replace(join(joined), source=named), lines


def fit_peer_curve(samples: Samples, device: Device) -> Curve:
    """Return the curve of one class, and its error.

    The error is the mean error of every fifth row, which is left out of the fit. The sigma is the larger
    of two values: that of these rows, and that of every fifth size (`sizes_of`), whose rows are all left
    out. If too few rows remain, both are assumed.
    """
    sizes = np.unique(sizes_of(samples), return_inverse=True)[1]
    asides = [np.arange(len(sizes)) % FOLDS == 0, sizes.ravel() % FOLDS == FOLDS // 2]
    errors_aside = [_errors_aside(samples, device, aside) for aside in asides if _is_enough(aside)]
    curve = fit_quickly(samples, device)
    if not errors_aside:
        return curve
    error, sigma = (
        float(np.mean(np.abs(np.expm1(errors_aside[0])))),
        max(log_sigma(errors) for errors in errors_aside),
    )
    evidence = replace(curve.evidence, relative_error=round(error, 4), log_sigma_factor=round(sigma, 4))
    return replace(curve, evidence=evidence)


def sizes_of(samples: Samples) -> Counts:
    """Return the sizes that distinguish models, (rows,): k of a GEMM, the queries of attention."""
    is_product = class_of(samples.name).kind.is_product
    return np.asarray(samples.coordinates[2 if is_product else 0])


def _is_enough(aside: np.ndarray) -> bool:
    return bool(FEWEST_ASIDE <= aside.sum() <= len(aside) - FEWEST_ASIDE)


def _errors_aside(samples: Samples, device: Device, aside: np.ndarray) -> Logs:
    """Return log(predicted / measured) of rows, predicted by the curve of the other rows, (rows,)."""
    left = samples.part(aside)
    curve = fit_quickly(samples.part(~aside), device)
    return np.asarray(np.log(predicted_s(curve, left, device) / left.measured_s))


def fit_quickly(samples: Samples, device: Device) -> Curve:
    """Fit the curve of one class, without estimating its error.

    Terms that are 0 in a coarse table are left out, because they would be 0 in a finer table too. If all
    measured groups are equally full, the coefficient of the skew comes from other devices.
    """
    rows, names = shown_terms(*rows_of(samples, device))
    view = features_of(samples.name)
    kind = class_of(samples.name).kind
    few = FEW_NODES_OF_KINDS.get(kind, FEW_NODES)
    axes = axes_of(rows, NODES_OF_KINDS.get(kind, MOST_NODES), few, view.nodes)
    if view.operator is not None:
        rows = _between_nodes(rows, axes, samples, device)
    table = fit_once(rows, tuple(len(axis) for axis in axes), axes)
    curve = curve_of_table(samples, device, replace(table, log_efficiency=_not_above(rows, table)), names)
    if "skew" in view.terms and not (samples.coordinates[4] > 1.0).any():
        return replace(curve, terms={**curve.terms, "skew": SKEW})
    return curve


def _between_nodes(rows: Rows, axes: tuple[Counts, ...], samples: Samples, device: Device) -> Rows:
    """Return rows whose log-efficiencies refer to bounds that are interpolated between nodes."""
    flat = np.zeros([len(axis) for axis in axes])
    added = log_efficiency_by_times(axes, flat, tuple(samples.coordinates), device, samples.name)
    return replace(rows, log_efficiency=rows.log_efficiency - added)


def _not_above(rows: Rows, table: FittedTable) -> Logs:
    """Return the table with nodes limited to the efficiencies that rows with similar work reached.

    The value that a row reached is its efficiency without the losses by waves and paddings, which the
    terms describe. Below one wave this value exceeds 1, so only rows on the node's side of the first
    axis, or at most NEAR_OCTAVES before it, limit a node.
    """
    reached = rows.log_efficiency - rows.terms @ table.coefficients
    place = rows.log2[0]
    starts = np.minimum(table.axes[0], place.max()) - NEAR_OCTAVES
    most = [reached[place >= start].max() for start in starts]
    limited: Logs = np.minimum(table.log_efficiency, np.reshape(most, (-1, *[1] * (len(table.axes) - 1))))
    return limited


def shown_terms(rows: Rows, names: tuple[str, ...]) -> tuple[Rows, tuple[str, ...]]:
    """Return the rows with only those terms whose coefficient is positive in a fit with a coarse table."""
    if not names:
        return rows, names
    few = COARSE_NODES if len(rows.log2) <= 3 else COARSEST_NODES
    axes = tuple(np.linspace(logs.min(), logs.max() + 1e-9, few) for logs in rows.log2)
    positive = fit_once(rows, (few,) * len(axes), axes).coefficients > SMALLEST_COEFFICIENT
    kept = tuple(name for name, shown in zip(names, positive, strict=True) if shown)
    most = None if rows.most is None else rows.most[positive]
    together = None if rows.together is None else rows.together[positive]
    return replace(rows, terms=rows.terms[:, positive], most=most, together=together), kept


def axes_of(
    rows: Rows,
    most_nodes: tuple[int, ...] = MOST_NODES,
    few_nodes: tuple[int, ...] = FEW_NODES,
    known: Mapping[int, tuple[float, ...]] | None = None,
) -> tuple[Counts, ...]:
    """Return the nodes of every axis of a table.

    Parameters
    ----------
    rows : Rows
    most_nodes, few_nodes : tuple of int
        Whether each axis has many nodes, because there are many rows, or few.
    known : mapping of tuples, or None
        Given nodes of some axes, by the index of the axis.

    Returns
    -------
    tuple of arrays
        Log2 of the coordinates: the measured values if they are few, otherwise evenly spaced nodes
        between the smallest and the largest.
    """
    numbers = most_nodes if len(rows.log_efficiency) >= MANY_ROWS else few_nodes
    axes = []
    for place, (logs, count) in enumerate(zip(rows.log2, numbers, strict=False)):
        values = np.unique(np.round(logs, 4))
        if known and place in known:
            axes.append(np.unique(np.clip(known[place], values[0], values[-1])))
        else:
            axes.append(values if len(values) <= count else np.linspace(values[0], values[-1], count))
    return tuple(axes)


def with_layouts(curve: Curve, by_class: Mapping[str, Mapping[str, Samples]], device: Device) -> Curve:
    """Return the curve with the median ratios of gradient products to forward products of one source.

    Both are computed relative to the curve. The tables that time gradients separately use bf16.
    """
    ratios = {}
    for layout in ("input_gradient", "weight_gradient"):
        for source, samples in by_class.get(f"{curve.name}.{layout}", {}).items():
            if not samples.measured_s.size:
                continue
            forward = by_class[curve.name][source]
            ratio = _slowness(curve, samples, device) / _slowness(curve, forward, device)
            ratios[f"{layout}.bf16"] = round(ratio, 4)
    return replace(curve, layout_ratio=ratios)


def borrowed_layouts(curve: Curve, relatives: Iterable[Curve]) -> Curve:
    """Return the curve with missing layout ratios taken from the first related device that has them.

    Serving sweeps time forward products only, and each training table has one dtype. The ratio of a
    gradient product depends on the layouts of the kernels, which are equal on related devices.
    """
    ratios = dict(curve.layout_ratio)
    for other in relatives:
        ratios = {**other.layout_ratio, **ratios}
    return replace(curve, layout_ratio=dict(sorted(ratios.items())))


def _slowness(curve: Curve, samples: Samples, device: Device) -> float:
    return float(np.median(samples.measured_s / predicted_s(curve, samples, device)))


def compared_with_own(
    own: Mapping[str, Samples], device: Device, tables: Mapping[str, Columns]
) -> list[str]:
    """Return lines of text that compare the tables with a device's own measurements, class by class."""
    measured = [file for file in PEER_FILES if file.kernel_class in own]
    return [
        f"{device.name} {name}: the curve does not use {source}: {disagreement(own[name], samples).text()}"
        for name, by_source in device_samples(device, tables, measured).items()
        for source, samples in by_source.items()
    ]


def peer_devices(paths: Iterable[str], files: Sequence[PeerFile] = PEER_FILES) -> tuple[str, ...]:
    """Return the devices for which these tables have rows, sorted."""
    known = set(paths)
    return tuple(sorted({name for f in files if f.path in known for name in f.devices.values()}))
