"""Tables that other projects published, as samples of flopcast's kernel classes.

Answers: which class, operator, device and precision do the rows of a table have, and which rows are left
out for which reason?
Elsewhere: the entries (peer_operators.py, peer_grouped.py), fitting and differences between sources
(peer_fit.py).

Columns follow lab/samples/columns.py: a column of words becomes one column "name=word" of 0 and 1 for
each word.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.lab.calibration.samples import Samples, operator_samples
from flopcast.operators.base import AbstractOperator
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.matmul import Matmul
from flopcast.records import dataclass, field, replace
from flopcast.spec.cluster import Device
from flopcast.strict_model import FrozenMapping

Columns = Mapping[str, Floats]
Mask = Callable[[Columns], np.ndarray]
OF_SERVING = "aiconfigurator"  # whose tables are in data/serving
SMALLEST = 512.0  # rows, columns, sum of a product; queries: with less one serves and does not train


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class PeerFile:
    """One kernel class in one table.

    `devices` maps the column that marks a device's rows to the device's name in the catalogue. The
    functions take columns, arrays (rows,): `belongs` selects the rows of this class, `faults` gives reasons
    to leave some of them out, each with its mask, and `operator` returns arrays (rows, 1). `peak` is the
    dtype whose peak limits the rows if the operator cannot have this dtype. `layout` is the layout of a
    gradient GEMM, for which a ratio is fitted instead of a curve. `sustained_from_s`: kernels of at least
    this length show the speed at the power limit, which shorter kernels do not reach if each is measured
    alone (`under_load`). `on_device` corrects the seconds of rows with properties of their device.
    """

    path: str  # under data/peers, in a folder of its project; a bare name is under data/serving
    name: str  # of the curve
    devices: Mapping[str, str]
    operator: Callable[[Columns], AbstractOperator]
    measured_s: Callable[[Columns], Floats] = lambda r: r["latency_ms"] * 1e-3
    belongs: Mask
    faults: Mapping[str, Mask] = field(default_factory=dict)
    remark: str = ""
    peak: str = ""
    layout: str = "forward"
    sustained_from_s: float = np.inf
    table: str = ""  # where a source has several that differ, which it is
    on_device: Callable[[Columns, Floats, Device], Floats] | None = None

    @property
    def folder(self) -> str:
        """Return the folder of the data: "serving" for tables of one project, "peers" for the others."""
        return "peers" if "/" in self.path else "serving"

    @property
    def source(self) -> str:
        """Return the name of the project, and the name of the table if the project has several tables."""
        project = self.path.partition("/")[0] if "/" in self.path else OF_SERVING
        return f"{project} {self.table}".strip()


def samples_of(file: PeerFile, columns: Columns, mark: str, device: Device) -> Samples:
    """Return the rows of one class and device in a table; broken or impossible rows count as rejected.

    Parameters
    ----------
    columns : the columns of the whole table
    mark : the column of the device, a key of `file.devices`
    """
    rows = _rows_of(file, columns, mark)
    if file.peak:
        peaks = FrozenMapping({**device.peak_flop_per_s, "fp8": device.peak_flop_per_s[file.peak]})
        device = device.model_copy(update={"peak_flop_per_s": peaks})
    measured_s = file.measured_s(rows)
    if file.on_device is not None:
        measured_s = file.on_device(rows, measured_s, device)
    keep = np.ones(len(measured_s), dtype=bool)
    for fault in file.faults.values():
        keep &= ~fault(rows)
    remark = f" ({file.remark})" if file.remark else ""
    samples = operator_samples(
        file.operator(rows), measured_s, keep, device, f"data/{file.folder}/{file.path}{remark}"
    )
    return under_load(replace(samples, name=file.name), file.sustained_from_s)


def under_load(samples: Samples, sustained_from_s: float) -> Samples:
    """Return samples with efficiencies limited to the median efficiency of long samples. They do not
    change if there are no long samples.

    A device at its power limit holds its initial clock for less than a millisecond. A training step keeps
    the device busy for seconds, so its GEMMs run at the clock of the long samples.

    Examples
    --------
    >>> cold = Samples(name="x", coordinates=np.ones((1, 2)), bound_s=np.array([1e-4, 5e-4]),
    ...                measured_s=np.array([1.5e-4, 1e-3]), source="a")
    >>> under_load(cold, sustained_from_s=7e-4).measured_s.tolist()
    [0.0002, 0.001]
    """
    long = samples.measured_s >= sustained_from_s
    if not long.any():
        return samples
    sustained = float(np.median(samples.bound_s[long] / samples.measured_s[long]))
    return replace(samples, measured_s=np.maximum(samples.measured_s, samples.bound_s / sustained))


def faults_of(file: PeerFile, columns: Columns, mark: str) -> dict[str, int]:
    """Return how many rows of a device are left out, by reason; a row counts for its first reason."""
    rows = _rows_of(file, columns, mark)
    left: np.ndarray = np.ones(len(rows[mark]), dtype=bool)
    counts: dict[str, int] = {}
    for reason, fault in file.faults.items():
        faulty = left & fault(rows)
        counts[reason] = int(faulty.sum())
        left &= ~faulty
    return {reason: count for reason, count in counts.items() if count}


def _rows_of(file: PeerFile, columns: Columns, mark: str) -> Columns:
    mine = (columns[mark] == 1) & file.belongs(columns)
    return {name: values[mine] for name, values in columns.items()}


def column(values: Counts) -> Counts:
    """Return rows along the axis of plans: (rows,) → (rows, 1)."""
    return values[:, None]


def matmul(dtype: str, layout: str = "forward") -> Callable[[Columns], AbstractOperator]:
    """Return products of columns m, n, k."""
    return lambda r: Matmul(
        m=column(r["m"]), n=column(r["n"]), k=column(r["k"]), dtype=dtype, layout=layout
    )


def attention(
    sequences: str, queries: str, heads: str, kv_heads: str, head_size: str, is_gradient: bool = False
) -> Callable[[Columns], AbstractOperator]:
    """Return a function that creates causal self-attention in bf16 from columns of a table.

    Parameters
    ----------
    sequences, queries, heads, kv_heads, head_size : str
        Names of the columns.
    is_gradient : bool
        Whether the rows time the backward kernel.
    """
    return lambda r: FlashAttention(
        batch=column(r[sequences] * r[heads]),
        kv_batch=column(r[sequences] * r[kv_heads]),
        queries=column(r[queries]),
        head_size=column(r[head_size]),
        causal=True,
        dtype="bf16",
        is_gradient=is_gradient,
    )


def all_of(*masks: Mask) -> Mask:
    """Return a function that selects the rows that every mask keeps."""
    return lambda r: np.asarray(np.all([mask(r) for mask in masks], axis=0))


def is_word(name: str) -> Mask:
    """Return the rows with one word, or none if the table does not contain the word."""
    return lambda r: r[name] == 1 if name in r else np.zeros(len(next(iter(r.values()))), dtype=bool)


def not_small(*names: str) -> Mask:
    """Return the rows with at least SMALLEST in every named column."""
    return lambda r: np.asarray(np.all([r[name] >= SMALLEST for name in names], axis=0))


def seconds_in(name: str) -> Callable[[Columns], Floats]:
    """Return a function that returns a column in seconds; its name ends in _ns, _us or _ms."""
    unit_s = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[name.rpartition("_")[2]]
    return lambda r: r[name] * unit_s


def of_efficiency(r: Columns, operator: AbstractOperator, counted_ratio: float = 1.0) -> Floats:
    """Return seconds from a fraction of a peak; `counted_ratio` is the table's FLOP over the operator's."""
    flop: Counts = operator.work().flop.ravel()
    return flop * counted_ratio / (r["efficiency"] * r["peak_tflops"] * 1e12)
