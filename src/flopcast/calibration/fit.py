"""Samples → curves: one per kernel class and device, one per collective and fabric.

Answers: which curve do these samples give, what replaces an operator whose samples are broken?

A sample's log-efficiency is log(bound / (time - launch)): the roofline bound carries what is known of a
device, so that a small table can hold the rest, and shapes outside of the sampled range stay sensible.
Elsewhere: rows (samples.py), tables (table.py), derived curves (broken.py), files (cli/fitting.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from flopcast.calibration.collective_files import FabricFile
from flopcast.calibration.operator_files import BROKEN, FILES, Columns, MeasuredFile, kept_rows
from flopcast.calibration.samples import Samples, join, operator_samples
from flopcast.calibration.table import Rows, Table, fit_table, monotone
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.curve import Curve, Evidence, log_efficiency
from flopcast.cost.kernels.views import view_of
from flopcast.dtypes import Floats
from flopcast.spec.cluster import Device, Tier

MOST_NODES = {1: (16,), 2: (12, 9), 3: (14, 9, 8)}
MOST_WAVES = 0.5  # of one wave term: a larger share leaves a tiled axis no room to rise (View.rises)
SMALLEST_COEFFICIENT = 1e-3  # below it a term is left out of the curve
SOURCE = "data/operators/{system} (arXiv:2509.22832)"


def fit_operators(system: str, device: Device, files: Mapping[str, Columns]) -> dict[str, Curve]:
    """Curves of every kernel class that the files of one system measure.

    Parameters
    ----------
    system : names what is known to be broken
    device : whose peaks bound the samples
    files : columns by the name of the file; at least one file of products

    Returns
    -------
    dict
        Curves by kernel class; a class without a usable row has none.
    """
    parts: dict[str, list[Samples]] = defaultdict(list)
    for name, columns in files.items():
        for samples in file_samples(system, name, columns, device):
            parts[samples.name].append(samples)
    joined = {name: join(found) for name, found in parts.items()}
    curves = {
        name.removesuffix(".forward"): fit_curve(samples, device)
        for name, samples in joined.items()
        if samples.measured_s.size
    }
    if "gemm" in curves:
        curves["gemm"] = _with_layouts(curves["gemm"], device, files)
    return curves


def file_samples(system: str, name: str, columns: Columns, device: Device) -> Iterable[Samples]:
    """Forward and backward samples of one file; none of a file that FILES does not know.

    A backward is taken where one kernel was measured: not where it is a copy of the forward, and not
    where it is the sum of two gradients, which `_with_layouts` uses.
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
    """Each measured row in the place of a plan: arrays of shape (rows, 1).

    Operators are written for plans; a file's rows are priced by the very same code.
    """
    return {name: values[:, None] for name, values in columns.items()}


def fit_curve(samples: Samples, device: Device) -> Curve:
    """The curve of one class; the launch is taken off small times, but never more than half.

    A time below two launches would leave next to nothing for the work, and noise would decide.
    """
    rows, names = rows_of(samples, device)
    return curve_of_table(samples, device, fit_table(rows, MOST_NODES[len(rows.log2)]), names)


def curve_of_table(samples: Samples, device: Device, table: Table, names: tuple[str, ...]) -> Curve:
    """The curve that a fitted table makes: coefficients bounded, so that its time never falls with work.

    `names` are those of the terms that the table's coefficients belong to.
    """
    terms = _bounded(dict(zip(names, table.coefficients.tolist(), strict=True)))
    view = view_of(samples.name)
    return Curve(
        name=samples.name,
        owner=device.name,
        axes=table.axes,
        table=monotone(table.log_efficiency, table.axes, view.rises(len(table.axes), terms)),
        launch_s=device.kernel_launch_s,
        evidence=Evidence(
            source=samples.source,
            rows=len(samples.measured_s),
            rejected=samples.rejected,
            relative_error=table.relative_error,
            log_sigma_factor=table.log_sigma_factor,
        ),
        terms=terms,
    )


def _bounded(terms: Mapping[str, float]) -> dict[str, float]:
    """Coefficients without the smallest, those of one kind adding up to 1 at most.

    All waves are one kind, and all tiles of one size: were their sum above 1, a larger shape could take
    less time than a smaller one.
    """
    kept = {name: value for name, value in terms.items() if value > SMALLEST_COEFFICIENT}
    sums: dict[str, float] = defaultdict(float)
    for name, value in kept.items():
        sums[_kind(name)] += value
    return {name: value / max(1.0, sums[_kind(name)]) for name, value in kept.items()}


def _kind(name: str) -> str:
    """What a term shares its whole with: all waves; the paddings of one size; an uneven size, nothing.

    >>> [_kind(name) for name in ("wave_128x256", "padding_n_64", "uneven_n_8")]
    ['wave', 'padding_n', 'uneven_n_8']
    """
    if name.startswith("uneven"):
        return name
    return "wave" if name.startswith("wave") else name.rpartition("_")[0]


def rows_of(samples: Samples, device: Device) -> tuple[Rows, tuple[str, ...]]:
    """Samples as the rows of a fit, and the names of their terms."""
    view = view_of(samples.name)
    shape = tuple(samples.coordinates)
    terms = {name: term(shape, device.multiprocessors) for name, term in view.terms.items()}
    work_s = np.maximum(samples.measured_s - device.kernel_launch_s, 0.5 * samples.measured_s)
    columns = [np.broadcast_to(term, work_s.shape) for term in terms.values()]
    rows = Rows(
        log2=np.log2(np.stack(view.table(shape))),
        log_efficiency=np.log(samples.bound_s / work_s),
        terms=np.stack(columns, axis=1) if columns else np.zeros((len(work_s), 0)),
        most=np.array([MOST_WAVES if name.startswith("wave") else np.inf for name in terms]),
    )
    return rows, tuple(terms)


def _with_layouts(curve: Curve, device: Device, files: Mapping[str, Columns]) -> Curve:
    """One ratio of gradient products to forward ones, the median: only their sum was measured."""
    ratios = []
    for name, columns in files.items():
        file = FILES.get(name)
        if file is not None and file.backward_is_sum:
            ratios.append(_gradient_ratio(curve, file, columns, device))
    ratio = float(np.median(np.concatenate(ratios)))
    layouts = {"input_gradient": round(ratio, 4), "weight_gradient": round(ratio, 4)}
    return replace(curve, layout_ratio=layouts)


def _gradient_ratio(curve: Curve, file: MeasuredFile, columns: Columns, device: Device) -> Floats:
    """Measured over predicted seconds of both gradients together, shape (rows,)."""
    predicted = np.zeros((len(columns["bwd_us"]), 1))
    for _, gradient in file.forward(as_plans(columns)).gradients():
        need = gradient.work()
        bound_s = np.maximum(
            need.flop / device.peak_flop_per_s[need.unit], need.moved_bytes / device.memory_bytes_per_s
        )
        efficiency = np.exp(log_efficiency(curve, gradient.coordinates(), device.multiprocessors))
        predicted += curve.launch_s + bound_s / efficiency
    ratio: Floats = columns["bwd_us"] * 1e-6 / predicted.ravel()
    return ratio


def broken_list(system: str) -> dict[str, str]:
    """What is wrong with which file of a system, for reports."""
    return {f"{file} ({which})": why for (at, file, which), (_, why) in BROKEN.items() if at == system}


def fit_fabric(
    files: Iterable[tuple[FabricFile, Columns]], tier: Tier, own_latency: bool = False
) -> dict[str, Curve]:
    """Curves of the collectives of one fabric, against the bandwidth and latency of its tier.

    Parameters
    ----------
    files : files of one fabric, each with its columns
    tier : the tier that the efficiencies are a fraction of
    own_latency : whether small messages were measured too
        Then the curves hold the latency themselves (`Curve.launch_s` above 0) and the tier's hops are not
        counted.

    Returns
    -------
    dict
        Curves by collective, over message bytes, ranks inside a node, and nodes.
    """
    parts: dict[str, list[Samples]] = defaultdict(list)
    for file, columns in files:
        parts[file.collective].append(_fabric_samples(file, columns, tier, own_latency))
    return {name: _fit_collective(join(found), tier, own_latency) for name, found in parts.items()}


def _fabric_samples(file: FabricFile, columns: Columns, tier: Tier, own_latency: bool) -> Samples:
    """The rows of one file as samples; those faster than their links are rejected and counted.

    Between nodes the bound lets every rank of a node drive its own network card, as
    cost/collectives/network.py does; the latency of the hops is taken off, but never more than half.
    """
    keep = file.keep(columns)
    rows = {name: values[keep] for name, values in columns.items()}
    size, inside, nodes = file.size_bytes(rows), file.inside(rows), file.nodes(rows)
    seconds = file.seconds(rows)
    ranks = inside * nodes
    formula = FORMULAS[file.collective]
    lanes = np.where(nodes > 1, inside, 1.0) if file.collective != "send_receive" else 1.0
    bound_s = formula.share(ranks) * size / (lanes * tier.bytes_per_s)
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


def _fit_collective(samples: Samples, tier: Tier, own_latency: bool) -> Curve:
    """Up to 9 sizes, 4 numbers of ranks inside, 4 of nodes; the latency is the tier's, or the curve's own.

    Of its own latency, half of the shortest measured time is taken off every row; the other half, and what
    more ranks add, stands in the table, where the efficiency of small messages falls with their size.
    """
    launch_s = 0.5 * float(samples.measured_s.min()) if own_latency else 0.0
    rows = Rows(
        log2=np.log2(samples.coordinates),
        log_efficiency=np.log(samples.bound_s / (samples.measured_s - launch_s)),
        terms=np.zeros((len(samples.measured_s), 0)),
    )
    table = fit_table(rows, (9, 4, 4))
    return Curve(
        name=samples.name,
        owner=tier.fabric,
        axes=table.axes,
        table=monotone(table.log_efficiency, table.axes, (1.0, None, None)),
        launch_s=float(f"{launch_s:.4g}"),
        evidence=Evidence(
            source=samples.source,
            rows=len(samples.measured_s),
            rejected=samples.rejected,
            relative_error=table.relative_error,
            log_sigma_factor=table.log_sigma_factor,
        ),
    )
