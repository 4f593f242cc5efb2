"""What other projects' tables of grouped products (experts) measure, as samples, and their curves.

Answers: which rows measure several products in one kernel, of which device, class and layout; which rows
are left out and why; which curves do they give, and how does imbalance enter?
Sources: data/peers; on GitHub simumax (MooreThreads/SimuMax, Apache-2.0: kernels of training, all three
layouts), infersim (alibaba/InferSim, Apache-2.0: fp8 kernels of serving), aiconfigurator
(ai-dynamo/aiconfigurator, Apache-2.0: whole expert layers). They stand in this order of trust.
Elsewhere: products with one weight (peer_operators.py), what happens where sources differ (peer_fit.py).

Imbalance: the power-law rows of aiconfigurator draw each expert's load from a power law, then scale the
loads to the tokens that there are, and measure the fullest rank. On one rank all rows are known and only
their spread differs from that of the balanced rows: the coefficient of the view's term "skew" is fitted to
both together. With expert parallelism the fullest rank's rows are not printed, so these are left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from flopcast.calibration.conformal import log_sigma
from flopcast.calibration.fit import curve_of_table, rows_of
from flopcast.calibration.peer_fit import FEW_NODES, FEWEST_ROWS, MANY_ROWS, agreed
from flopcast.calibration.peer_operators import INFERSIM, SIMUMAX, SYSTEMS, Columns, column
from flopcast.calibration.samples import Samples, join, operator_samples
from flopcast.calibration.table import FOLDS, Rows, fit_once
from flopcast.cost.kernels.curve import Curve
from flopcast.dtypes import Counts, Floats, Logs
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.spec.cluster import Device

SMALLEST_GROUP = 32.0  # rows of the mean group: fewer are serving's
NODES = (8, 6, 5)  # of rows a group, elements of a weight, groups, where rows are many
SMALLEST_FRACTION = 0.02  # of the peak: below it the three printed digits are 2.5 % or more apart
WORST_ERROR = 0.25  # of rows kept aside: beyond it a dense product's curve is no worse
SKEW = 0.02  # coefficient where all measured groups are equal: the middle of those fitted, 0.008 to 0.048
UNGATED = 2688.0  # a width of Nemotron's experts, which have two weights and not three
POWER_LAWS = {"distribution=power_law_1.01": 1.01, "distribution=power_law_1.2": 1.2}
LARGEST_DRAW = 0.8  # of the tokens: where the power law is cut
BALANCED = "distribution=balanced"
CLASSES = {  # dtype of aiconfigurator → class, dtype whose peak bounds it
    "bfloat16": ("grouped_gemm", "bf16"),
    "fp8": ("grouped_gemm.fp8", "fp8"),
    "fp8_block": ("grouped_gemm.fp8_block", "fp8"),
    "nvfp4": ("grouped_gemm.nvfp4", "fp4"),
}
LAYOUTS = {"forward": "fwd", "input_gradient": "bwd_grad_act", "weight_gradient": "bwd_grad_w"}
Key = tuple[str, str]  # device, class


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupedTable:
    """One class and layout in one table.

    `devices` maps the column that marks a device's rows to its name in the catalogue. The functions take
    the columns of the rows that belong, (rows,): `operator` gives arrays (rows, 1); `faults` are reasons
    to leave a row out, each with the mask of its rows. `peak` is the dtype whose peak bounds the rows.
    """

    source: str
    path: str  # under data/peers
    name: str  # of the curve
    devices: Mapping[str, str]
    belongs: Callable[[Columns], np.ndarray]
    operator: Callable[[Columns, Device], GroupedMatmul]
    measured_s: Callable[[Columns, GroupedMatmul], Floats]
    faults: Mapping[str, Callable[[Columns], np.ndarray]]
    remark: str
    peak: str = "bf16"
    layout: str = "forward"


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupedPart:
    """Samples of one entry and device, and how many rows were left out for which reason."""

    table: GroupedTable
    samples: Samples
    rejected: Mapping[str, int]


def grouped(
    groups: Counts, rows: Counts, shape: tuple[Counts, Counts], imbalance: Counts, layout: str = "forward"
) -> GroupedMatmul:
    """The operator of columns (rows,); `shape` is n and k. Narrow products count one byte an element."""
    n, k = shape
    return GroupedMatmul(
        groups=column(groups),
        rows=column(rows),
        n=column(n),
        k=column(k),
        imbalance=column(imbalance),
        dtype="bf16",
        layout=layout,
    )


def expected_imbalance(experts: Counts, top_k: Counts, tokens: Counts, exponent_of_law: Counts) -> Counts:
    """Rows of the fullest group over the mean, as the power law of the tables lets expect; all (rows,).

    Loads are drawn with a density x^-a on [1, LARGEST_DRAW · tokens]. The fullest of E draws is taken at
    its median, where the distribution function is 0.5^(1/E), and divided by the mean of the law. A token
    goes to an expert once, so the ratio is at most E / top_k. An estimate: the drawn loads are not
    printed.

    Examples
    --------
    >>> one = np.ones(1)
    >>> expected_imbalance(128 * one, 8 * one, 4096 * one, 1.2 * one).round(1).tolist()
    [14.6]
    """
    a, high = exponent_of_law, LARGEST_DRAW * tokens
    share = 0.5 ** (1.0 / experts)
    fullest = ((high ** (1 - a) - 1) * share + 1) ** (1 / (1 - a))
    mean = (1 - a) / (2 - a) * (high ** (2 - a) - 1) / (high ** (1 - a) - 1)
    return np.asarray(np.clip(fullest / mean, 1.0, np.maximum(experts / top_k, 1.0)))


def _sum_of(names: Mapping[str, float], r: Columns) -> Counts:
    """The number that a column of words stands for, row by row."""
    return np.asarray(sum((r[name] * value for name, value in names.items() if name in r), start=0.0))


def _is_law(r: Columns) -> np.ndarray:
    return np.asarray(_sum_of(POWER_LAWS, r) > 0)


def _rows_of_layer(r: Columns) -> Counts:
    """Rows of all experts of a rank, where every rank has as many."""
    return r["num_tokens"] * r["topk"] / r["moe_ep_size"]


def _experts(r: Columns) -> Counts:
    return r["num_experts"] / r["moe_ep_size"]


def _layer(r: Columns, _: Device) -> GroupedMatmul:
    """Gate, up and down products as one of three times the width: all FLOP, all weights, most rows.

    It moves hidden · rows elements fewer than the two kernels that run, which is less than half of
    what their rows move: the bound stays a bound.
    """
    width = r["inter_size"] / r["moe_tp_size"]
    exponent = _sum_of({**POWER_LAWS, BALANCED: 2.5}, r)  # any law for balanced rows, which use none
    drawn = expected_imbalance(r["num_experts"], r["topk"], r["num_tokens"], exponent)
    imbalance = np.where(_is_law(r), drawn, 1.0)
    return grouped(_experts(r), _rows_of_layer(r), (3 * width, r["hidden_size"]), imbalance)


WITHOUT_HOPPER = {mark: name for mark, name in SYSTEMS.items() if name[:2] not in ("h1", "h2")}
LAYER_FAULTS: dict[str, Callable[[Columns], np.ndarray]] = {
    "power law over several ranks: the fullest rank's rows are not printed": lambda r: (
        _is_law(r) & (r["moe_ep_size"] > 1)
    ),
    "experts without a gate: which products ran is not stated": lambda r: (
        (r["hidden_size"] == UNGATED) | (r["inter_size"] == UNGATED)
    ),
    "fewer than 32 rows a group": lambda r: _rows_of_layer(r) < SMALLEST_GROUP * _experts(r),
}


def _layers(dtype: str) -> GroupedTable:
    """Whole expert layers of vLLM in one precision: routing, activation and sum are in the time."""
    name, peak = CLASSES[dtype]
    return GroupedTable(
        source="aiconfigurator",
        path="aiconfigurator/moe_fused_experts.csv.gz",
        name=name,
        devices=WITHOUT_HOPPER if dtype == "fp8" else SYSTEMS,
        belongs=lambda r: r[f"dtype={dtype}"] == 1,
        operator=_layer,
        measured_s=lambda r, _: r["latency_ms"] * 1e-3,
        faults=LAYER_FAULTS,
        remark=f"{dtype}; whole expert layers, activation and permutation included",
        peak=peak,
    )


def _of_training(layout: str) -> GroupedTable:
    """simumax prints the shape of the forward product for all three layouts; groups are equally full."""

    def make(r: Columns, _: Device) -> GroupedMatmul:
        """M counts the rows of one group."""
        shape = (r["K"], r["N"]) if layout == "input_gradient" else (r["N"], r["K"])
        return grouped(r["ng"], r["ng"] * r["M"], shape, np.ones_like(r["M"]), layout)

    return GroupedTable(
        source="simumax",
        path="simumax/grouped_gemm_efficiency.csv",
        name="grouped_gemm",
        devices=SIMUMAX,
        belongs=lambda r: r[f"stage={LAYOUTS[layout]}"] == 1,
        operator=make,
        measured_s=lambda r, o: o.work().flop.ravel() / (r["efficiency"] * r["peak_tflops"] * 1e12),
        faults={},
        remark="bf16, of training, groups of equal size",
        layout=layout,
    )


def _of_serving(phase: str, product: str) -> GroupedTable:
    """infersim draws each group's rows; their sum follows from the printed fraction of the fp8 peak.

    The fractions agree with tokens_per_expert to a few percent at the fp8 peak of the device, and to half
    at the 16-bit one. How uneven the drawn groups are is not printed: they count as equal.
    """

    def make(r: Columns, device: Device) -> GroupedMatmul:
        """Gate and up are one product of twice the width."""
        inner, hidden = r["intermediate_size"], r["hidden_size"]
        n, k = (2 * inner, hidden) if product == "up" else (hidden, inner)
        peak = device.peak_flop_per_s["fp8"]
        rows = r[f"{product}_mfu"] * peak * r[f"{product}_proj_us"] * 1e-6 / (2 * n * k)
        return grouped(r["num_local_experts"], rows, (n, k), np.ones_like(rows))

    return GroupedTable(
        source=f"infersim {phase}",
        path=f"infersim/grouped_gemm_{phase}.csv",
        name="grouped_gemm.fp8",
        devices=INFERSIM,
        belongs=lambda r: np.ones(len(r["topk"]), dtype=bool),
        operator=make,
        measured_s=lambda r, _: r[f"{product}_proj_us"] * 1e-6,
        faults={
            "fewer than 32 rows a group": lambda r: r["tokens_per_expert"] < SMALLEST_GROUP,
            "a fraction of peak of too few digits": lambda r: r[f"{product}_mfu"] < SMALLEST_FRACTION,
        },
        remark="fp8",
        peak="fp8",
    )


LEFT_OUT = {
    "aiconfigurator, fp8 of H100 and H200": "at 0.1 of the fp8 peak, slower than the 16-bit rows: a"
    " fallback that no training runs; fp8_block has a kernel",
    "aiconfigurator, b60": "no device of the catalogue",
}
GROUPED_TABLES: tuple[GroupedTable, ...] = (
    *(_of_training(layout) for layout in LAYOUTS),
    *(_of_serving(phase, product) for phase in ("prefill", "decode") for product in ("up", "down")),
    *(_layers(dtype) for dtype in CLASSES),
)
IMPOSSIBLE = "faster than the peaks of the device"


def part_of(table: GroupedTable, columns: Columns, mark: str, device: Device) -> GroupedPart:
    """The rows of one entry and device; a row with several faults counts for the first.

    Parameters
    ----------
    columns : of the whole table, (rows,)
    mark : the column of the device, a key of `table.devices`
    """
    mine = (columns[mark] == 1) & table.belongs(columns)
    rows = {name: values[mine] for name, values in columns.items()}
    keep = np.ones(int(mine.sum()), dtype=bool)
    rejected: dict[str, int] = {}
    for reason, fault in table.faults.items():
        rejected[reason] = int((keep & fault(rows)).sum())
        keep &= ~fault(rows)
    operator = table.operator(rows, device)
    peaks = {**device.peak_flop_per_s, "bf16": device.peak_flop_per_s[table.peak]}
    width = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}[table.peak]
    narrow = device.model_copy(  # the bytes of a narrow element, by a memory that is so much faster
        update={"peak_flop_per_s": peaks, "memory_bytes_per_s": device.memory_bytes_per_s * 2.0 / width}
    )
    measured_s = table.measured_s(rows, operator)
    source = f"data/peers/{table.path} ({table.remark})"
    samples = operator_samples(operator, measured_s, keep, narrow, source)
    rejected[IMPOSSIBLE] = int(keep.sum()) - len(samples.measured_s)
    counts = {reason: count for reason, count in rejected.items() if count}
    return GroupedPart(table=table, samples=replace(samples, name=table.name), rejected=counts)


def grouped_parts(files: Mapping[str, Columns], devices: Mapping[str, Device]) -> Iterator[GroupedPart]:
    """A part for every entry, of the files at hand and the devices given, that has any row there."""
    for table in GROUPED_TABLES:
        for mark, name in table.devices.items():
            if name not in devices or mark not in files.get(table.path, {}):
                continue
            if table.peak in devices[name].peak_flop_per_s:
                part = part_of(table, files[table.path], mark, devices[name])
                if len(part.samples.measured_s) or part.samples.rejected:
                    yield part


def grouped_samples(
    files: Mapping[str, Columns], devices: Mapping[str, Device]
) -> dict[Key, list[Samples]]:
    """Forward samples by device and class, one entry for each source, the most trusted first.

    Parameters
    ----------
    files : columns by path of the table, as `GroupedTable.path`; a table that is missing is passed over
    devices : by name; those that are not given are passed over
    """
    return {key: list(found.values()) for key, found in _by_source(files, devices, "forward").items()}


def rejected_rows(files: Mapping[str, Columns], devices: Mapping[str, Device]) -> dict[Key, dict[str, int]]:
    """How many rows were left out of each device and class, by reason; all layouts."""
    counts: dict[Key, dict[str, int]] = defaultdict(dict)
    for device in devices.values():
        for part in grouped_parts(files, {device.name: device}):
            found = counts[device.name, part.table.name]
            for reason, count in part.rejected.items():
                found[reason] = found.get(reason, 0) + count
    return dict(counts)


def _by_source(
    files: Mapping[str, Columns], devices: Mapping[str, Device], layout: str
) -> dict[Key, dict[str, Samples]]:
    """Samples of one layout by device and class, then by source."""
    found: dict[Key, dict[str, list[Samples]]] = defaultdict(lambda: defaultdict(list))
    for device in devices.values():
        for part in grouped_parts(files, {device.name: device}):
            if part.table.layout == layout:
                found[device.name, part.table.name][part.table.source].append(part.samples)
    return {
        key: {source: join(parts) for source, parts in by_source.items()}
        for key, by_source in found.items()
    }


def fit_grouped(
    files: Mapping[str, Columns], devices: Mapping[str, Device]
) -> tuple[dict[str, dict[str, Curve]], list[str]]:
    """Curves by device and class, and a line for each source that was compared and each layout measured.

    The error of a curve is the mean of |predicted / measured - 1| on fifths kept aside in turn. Fewer
    than FEWEST_ROWS, or more than WORST_ERROR, make no curve: there the dense product stands in.
    """
    curves: dict[str, dict[str, Curve]] = defaultdict(dict)
    told: list[str] = []
    gradients = {layout: _by_source(files, devices, layout) for layout in LAYOUTS if layout != "forward"}
    for (device, name), by_source in _by_source(files, devices, "forward").items():
        samples, lines = agreed(by_source)
        told += [f"{device} {name}: {line}" for line in lines]
        if samples.measured_s.size < FEWEST_ROWS:
            told.append(f"{device} {name}: no curve of {samples.measured_s.size} rows")
            continue
        ratios = {
            layout: _layout_ratio(by_source, found[device, name])
            for layout, found in gradients.items()
            if (device, name) in found
        }
        curve = fit_grouped_curve(samples, devices[device])
        if curve.evidence.relative_error > WORST_ERROR:
            told.append(f"{device} {name}: no curve, error {curve.evidence.relative_error:.0%}")
            continue
        curves[device][name] = replace(curve, layout_ratio=ratios)
    return dict(curves), told


def _layout_ratio(forward: Mapping[str, Samples], gradient: Mapping[str, Samples]) -> float:
    """Median of a gradient's seconds over the forward's; a source lists both in one order of shapes."""
    ratios = [samples.measured_s / forward[source].measured_s for source, samples in gradient.items()]
    return round(float(np.median(np.concatenate(ratios))), 4)


def fit_grouped_curve(samples: Samples, device: Device) -> Curve:
    """The curve of one class; its skew's coefficient is fitted where some rows are uneven, else SKEW."""
    rows, names = rows_of(samples, device)
    axes = grouped_axes(rows)
    most = tuple(len(axis) for axis in axes)
    errors = kept_aside_errors(rows, axes)
    table = replace(
        fit_once(rows, most, axes),
        relative_error=float(np.mean(np.abs(np.expm1(errors)))),
        log_sigma_factor=log_sigma(errors),
    )
    curve = curve_of_table(samples, device, table, names)
    if (samples.coordinates[-1] > 1.0).any():
        return curve
    return replace(curve, terms={**curve.terms, "skew": SKEW})


def grouped_axes(rows: Rows) -> tuple[Counts, ...]:
    """Nodes at the measured values where they are few, else evenly spaced between the outermost."""
    axes = []
    for logs, count in zip(
        rows.log2, NODES if len(rows.log_efficiency) >= MANY_ROWS else FEW_NODES, strict=True
    ):
        values = np.unique(np.round(logs, 4))
        axes.append(values if len(values) <= count else np.linspace(values[0], values[-1], count))
    return tuple(axes)


def kept_aside_errors(rows: Rows, axes: tuple[Counts, ...]) -> Logs:
    """Log of predicted over measured time of the work, (rows,), each fifth predicted by the others."""
    fold = np.arange(len(rows.log_efficiency)) % FOLDS
    errors = np.zeros(len(fold))
    for number in range(FOLDS):
        part = fit_once(rows.part(fold != number), tuple(len(axis) for axis in axes), axes)
        aside = rows.part(fold == number)
        errors[fold == number] = aside.log_efficiency - part.predict(aside)
    return errors
