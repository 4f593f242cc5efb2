"""Fits of curves to samples: one curve per kernel class and device, and one per collective and fabric.

Answers: which curve follows from these samples? A sample's log-efficiency is log(bound / (time - launch)).
The roofline bound contains the known properties of a device, so a small table can hold the rest, and
predictions outside the sampled range stay plausible.
Elsewhere: rows (samples.py), tables (efficiency_table.py), derived curves (broken_operators.py), files
(cli/calibrate_fit.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.between_nodes import log_bound_at_nodes
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.features import features_of
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.cost.kernels.unscaled import kernel_seconds
from flopcast.dtypes import Floats
from flopcast.lab.calibration.collective_files import SWITCHING, FabricFile
from flopcast.lab.calibration.efficiency_table import FittedTable, Rows, fit_table, monotone, with_switches
from flopcast.lab.calibration.operator_files import FILES, MeasuredFile, kept_rows
from flopcast.lab.calibration.samples import Samples, joined_by_name, operator_samples
from flopcast.lab.measure.row_expressions import Columns
from flopcast.records import replace
from flopcast.spec.cluster import Device
from flopcast.spec.tier import Tier

MOST_NODES: dict[int, tuple[int, ...]] = {1: (16,), 2: (12, 9), 3: (14, 9, 8)}
MESSAGE_NODES = (9, 4, 4)
PAIR_SIZES = 33
LATENCY_SHARE = 0.8  # of the shortest measured time
MOST_WAVES = 0.5  # of one wave term: a larger share leaves a tiled axis no room to rise (View.rises)
MOST_PADDED_ROWS = 0.15  # of one padding of m, for the same reason
STEPPED = ("wave", "padding_m")  # terms that rise inside a wave or a tile
MOST_STEPPED = 0.65  # of all of them together
SMALLEST_COEFFICIENT = 1e-3  # below it a term is left out of the curve
FP16_GRADIENTS = ("input_gradient.fp16", "weight_gradient.fp16")  # the dtype of data/operators
SOURCE = "data/operators/{system} (arXiv:2509.22832)"
FitTable = Callable[[Rows, tuple[int, ...]], FittedTable]


def fit_operators(system: str, device: Device, files: Mapping[str, Columns]) -> dict[str, Curve]:
    """Return the curves, by class, of every kernel class that the files of one system measure.

    `system` determines the known defects, the peaks of `device` limit the samples, and `files` holds
    columns by the name of the file. A class without usable rows has no curve.
    """
    by_class = samples_by_class(system, device, files)
    curves = {
        name: fit_curve(samples, device) for name, samples in by_class.items() if samples.measured_s.size
    }
    if "gemm" in curves:
        curves["gemm"] = _with_layouts(curves["gemm"], device, files)
    return curves


def samples_by_class(system: str, device: Device, files: Mapping[str, Columns]) -> dict[str, Samples]:
    """Return the samples of every kernel class in the files of one system, in the order of the files."""
    return joined_by_name(
        samples
        for name, columns in files.items()
        for samples in file_samples(system, name, columns, device)
    )


def file_samples(system: str, name: str, columns: Columns, device: Device) -> Iterable[Samples]:
    """Return the forward and backward samples of one file, or no samples if FILES does not list the file.

    A backward sample is used only if a single kernel was measured. It is left out if it is a copy of the
    forward sample, or if it is the sum of two gradients, which `_with_layouts` uses.
    """
    file = FILES.get(name)
    if file is None:
        return
    operator = file.forward(as_plans(columns))
    source = SOURCE.format(system=system)
    keep = kept_rows(system, name, "forward", columns)
    yield operator_samples(operator, columns[file.seconds] * 1e-6, keep, device, source)
    gradients = operator.gradients()
    if file.measures_backward and not file.backward_is_sum and len(gradients) == 1:
        keep = kept_rows(system, name, "backward", columns)
        yield operator_samples(gradients[0][1], columns["bwd_us"] * 1e-6, keep, device, source)


def as_plans(columns: Columns) -> dict[str, Floats]:
    """Return measured rows along the axis of plans: arrays of shape (rows, 1).

    Operators have one row for each plan, so the same code prices the rows of a file.
    """
    return {name: values[:, None] for name, values in columns.items()}


def fit_curve(samples: Samples, device: Device, fit: FitTable = fit_table) -> Curve:
    """Return the curve of one class; at most half of each time is attributed to the launch.

    If a time is shorter than two launches, subtracting the launch would leave almost nothing for the
    work, and noise would determine the result. `fit` is `table.fit_once` if the error of the curve is not
    needed, which saves the five fits for this error.
    """
    rows, names = rows_of(samples, device)
    return curve_of_table(samples, device, fit(rows, MOST_NODES[len(rows.log2)]), names)


def curve_of_table(samples: Samples, device: Device, table: FittedTable, names: tuple[str, ...]) -> Curve:
    """Return the curve of a fitted table, whose times never fall as the work grows.

    `names` are the names of the terms to which the table's coefficients belong.
    """
    terms = _bounded(dict(zip(names, table.coefficients.tolist(), strict=True)))
    view = features_of(samples.name)
    logs, axes = table.log_efficiency, table.axes
    if view.operator is None:
        logs = monotone(logs, axes, view.rises(len(axes), terms), table.support)
    else:
        bounds = log_bound_at_nodes(axes, device, samples.name)
        powers = tuple(None if axis in view.free else 0.0 for axis in range(len(axes)))
        logs = bounds + monotone(logs - bounds, axes, powers, table.support)
    return Curve(
        name=samples.name,
        owner=device.name,
        axes=axes,
        table=logs,
        launch_s=device.kernel_launch_s,
        evidence=_evidence(samples, table),
        terms=terms,
    )


def _evidence(samples: Samples, table: FittedTable) -> CurveEvidence:
    return CurveEvidence(
        source=samples.source,
        rows=len(samples.measured_s),
        rejected=samples.rejected,
        relative_error=table.relative_error,
        log_sigma_factor=table.log_sigma_factor,
    )


def predicted_s(curve: Curve, samples: Samples, device: Device | None) -> Floats:
    """Return the seconds that a curve of the device or of a fallback gives for samples, (rows,).

    `device` is None for collectives.
    """
    coordinates = tuple(samples.coordinates)
    return kernel_seconds(samples.bound_s, coordinates, curve, device, kernel=samples.name)


def _bounded(terms: Mapping[str, float]) -> dict[str, float]:
    """Return coefficients without the smallest ones; the coefficients of one kind add up to at most 1.

    All waves are one kind, and all tiles of one size are one kind. If their sum exceeded 1, a larger
    shape could take less time than a smaller one.
    """
    kept = {name: value for name, value in terms.items() if value > SMALLEST_COEFFICIENT}
    sums: dict[str, float] = defaultdict(float)
    for name, value in kept.items():
        sums[_kind(name)] += value
    return {name: value / max(1.0, sums[_kind(name)]) for name, value in kept.items()}


def _kind(name: str) -> str:
    """Return the kind of a term: all waves are one, all paddings of one dimension are one.

    >>> [_kind(name) for name in ("wave_128x256", "padding_n_64", "uneven_n_8")]
    ['wave', 'padding_n', 'uneven_n_8']
    """
    if name.startswith("uneven"):
        return name
    return "wave" if name.startswith("wave") else name.rpartition("_")[0]


def rows_of(samples: Samples, device: Device) -> tuple[Rows, tuple[str, ...]]:
    """Return the samples as rows of a fit, and the names of their terms.

    Parameters
    ----------
    samples : Samples
        Rows of one kernel class.
    device : Device
        The device, which gives the launch time that is subtracted (at most half of the measured time) and
        the number of multiprocessors, on which terms for waves of tiles depend.

    Returns
    -------
    tuple
        Log-efficiency against log2 of the coordinates of the class, with one column for each term.
    """
    view = features_of(samples.name)
    shape = tuple(samples.coordinates)
    terms = {name: term(shape, device.multiprocessors) for name, term in view.terms.items()}
    work_s = np.maximum(samples.measured_s - device.kernel_launch_s, 0.5 * samples.measured_s)
    columns = [np.broadcast_to(term, work_s.shape) for term in terms.values()]
    rows = Rows(
        log2=np.log2(np.stack(view.table(shape))),
        log_efficiency=np.log(samples.bound_s / work_s),
        terms=np.stack(columns, axis=1) if columns else np.zeros((len(work_s), 0)),
        most=np.array([_most(name) for name in terms]),
        together=np.array([name.startswith(STEPPED) for name in terms], dtype=bool),
        most_together_ratio=MOST_STEPPED,
    )
    return rows, tuple(terms)


def _most(name: str) -> float:
    if name.startswith("wave"):
        return MOST_WAVES
    return MOST_PADDED_ROWS if name.startswith("padding_m") else np.inf


def _with_layouts(curve: Curve, device: Device, files: Mapping[str, Columns]) -> Curve:
    """Return the curve with one ratio for gradient products, the median, as only their sum was measured."""
    ratios = [
        _gradient_ratio(curve, FILES[name], columns, device)
        for name, columns in files.items()
        if name in FILES and FILES[name].backward_is_sum
    ]
    if not ratios:  # no file holds the sum: qkv's has a bias in it
        return curve
    ratio = round(float(np.median(np.concatenate(ratios))), 4)
    return replace(curve, layout_ratio=dict.fromkeys(FP16_GRADIENTS, ratio))


def _gradient_ratio(curve: Curve, file: MeasuredFile, columns: Columns, device: Device) -> Floats:
    """Return measured / predicted seconds of both gradients, priced as forward products; (rows,)."""
    both_s: Floats = np.zeros(len(columns["bwd_us"]))
    for _, gradient in file.forward(as_plans(columns)).gradients():
        bound_s = bound_seconds(gradient.work(), device).ravel()
        shape = tuple(axis.ravel() for axis in gradient.coordinates())
        both_s = both_s + kernel_seconds(bound_s, shape, curve, device)
    return columns["bwd_us"] * 1e-6 / both_s


def fit_fabric(
    files: Iterable[tuple[FabricFile, Columns]], tier: Tier, own_latency: bool = False
) -> dict[str, Curve]:
    """Return curves of the collectives of one fabric, relative to the bandwidth and latency of its tier.

    Their axes are message bytes, ranks within a node, and nodes. `own_latency` states whether small
    messages were measured too. If so, the curves contain the latency (`Curve.launch_s` above 0), and the
    tier's hops are not counted.
    """
    by_collective = joined_by_name(
        fabric_samples(file, columns, tier, own_latency) for file, columns in files
    )
    return {
        name: fit_messages(samples, tier.fabric, own_latency) for name, samples in by_collective.items()
    }


def fabric_samples(file: FabricFile, columns: Columns, tier: Tier, own_latency: bool) -> Samples:
    """Return the rows of one file as samples; rows faster than their links are rejected and counted.

    The bound is that of cost/collectives/collective_time.py on one tier. The latency of the hops is
    subtracted, up to half of the time.
    """
    keep = file.keep(columns)
    rows = {name: values[keep] for name, values in columns.items()}
    size, inside, nodes = file.size_bytes(rows), file.inside(rows), file.nodes(rows)
    seconds = file.seconds(rows)
    ranks = inside * nodes
    formula = FORMULAS[file.collective]
    bound_s = formula.share(ranks) * size / (formula.lanes(inside, nodes) * tier.bytes_per_s)
    possible = (seconds > bound_s) & (size > 0)
    latency_s = 0.0 * seconds if own_latency else formula.hops(ranks) * tier.latency_s
    return Samples(
        name=file.collective,
        coordinates=np.stack([size, inside, nodes])[:, possible],
        bound_s=bound_s[possible],
        measured_s=np.maximum(seconds - latency_s, 0.5 * seconds)[possible],
        source=f"data/{file.path}",
        rejected=int((~possible).sum()),
    )


def fit_messages(samples: Samples, owner: str, own_latency: bool, fit: FitTable = fit_table) -> Curve:
    """Return the curve of one collective over sizes, ranks within a node, and nodes.

    Parameters
    ----------
    samples : Samples
    owner : str
        The fabric.
    own_latency : bool
        Whether the launch time of the curve is derived from small messages. Otherwise the latency of the
        link is part of the bound (`fabric_samples`).
    fit : function
        As for `fit_curve`.

    Returns
    -------
    Curve
        The time never falls as messages grow (`monotone`), unless larger messages have another kernel.
    """
    launch_s = _latency_of(samples) if own_latency else 0.0
    rows = _message_rows(samples, launch_s)
    table = fit(rows, _message_nodes(samples))
    if samples.name in SWITCHING:
        table = with_switches(table, rows, SWITCHING[samples.name])
        values = table.log_efficiency
    else:
        values = monotone(table.log_efficiency, table.axes, (1.0, None, None), table.support)
    return Curve(
        name=samples.name,
        owner=owner,
        axes=table.axes,
        table=values,
        launch_s=launch_s,
        evidence=_evidence(samples, table),
    )


def _message_nodes(samples: Samples) -> tuple[int, int, int]:
    """Return nodes of sizes, ranks within a node, and nodes; pairs have more, as protocols change often."""
    _, inside, nodes = samples.coordinates
    return (PAIR_SIZES, 1, 1) if (inside * nodes).max() <= 2 else MESSAGE_NODES


def _latency_of(samples: Samples) -> float:
    """Return the latency from measured small messages: most of the shortest time, rounded to four digits.

    It is subtracted from every row. The table contains the rest, and the time that more ranks add,
    because the efficiency of small messages falls with their size. Over 31 tables, the median error of
    left-out rows is 3.6 % with this share and 4.2 % with half of the time.
    """
    return float(f"{LATENCY_SHARE * float(samples.measured_s.min()):.4g}")


def _message_rows(samples: Samples, launch_s: float) -> Rows:
    return Rows(
        log2=np.log2(samples.coordinates),
        log_efficiency=np.log(samples.bound_s / (samples.measured_s - launch_s)),
        terms=np.zeros((len(samples.measured_s), 0)),
    )
