"""Tables that other projects published, as samples of flopcast's kernel classes.

Answers: which class, operator, device and precision do the rows of a table have, and which rows are left
out for which reason?
Elsewhere: the tables (peers.yaml), expressions over columns (row_expressions.py), values that need more
than arithmetic (peer_columns.py), fitting and differences between sources (peer_fit.py).

Columns follow lab/samples/columns.py: a column of words becomes one column "name=word" of 0 and 1 for
each word.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from flopcast.dtypes import Floats
from flopcast.files.package_table import read_table
from flopcast.lab.calibration.peer_columns import ADDED, CORRECTIONS
from flopcast.lab.calibration.samples import Samples, operator_samples
from flopcast.lab.measure.row_expressions import LITERAL, Columns, evaluated, operator_of
from flopcast.operators.base import AbstractOperator
from flopcast.operators.formats import SERVED_FORMATS
from flopcast.records import Record, field, replace
from flopcast.spec.cluster import Device
from flopcast.strict_model import FrozenMapping

OF_SERVING = "aiconfigurator"  # whose tables are in data/serving


class PeerFile(Record, eq=False):
    """One kernel class in one table: an entry of peers.yaml.

    `devices` maps the column that marks a device's rows to the device's name in the catalogue. `rows`
    selects the rows of this class, all if it is empty, and `faults` gives reasons to leave some of them
    out, each with the expression of these rows. `fields` are those of the operator: texts are expressions,
    unless they begin with "=". `seconds` may use the `flop` of the operator. `peak` is the dtype whose
    peak limits the rows if the operator cannot have this dtype. `layout` is the layout of a gradient GEMM,
    for which a ratio is fitted instead of a curve. `sustained_from_s`: kernels of at least this length show
    the speed at the power limit, which shorter kernels do not reach if each is measured alone
    (`under_load`). `correction` names a change of the seconds by properties of the device.
    """

    path: str  # under data/peers, in a folder of its project; a bare name is under data/serving
    name: str  # of the curve
    devices: Mapping[str, str]
    kind: str  # of the operator
    fields: Mapping[str, Any]
    seconds: str = "latency_ms * 1e-3"
    rows: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    peak: str = ""
    layout: str = "forward"
    sustained_from_s: float = np.inf
    table: str = ""  # where a source has several that differ, which it is
    correction: str = ""

    @property
    def folder(self) -> str:
        """Return the folder of the data: "serving" for tables of one project, "peers" for the others."""
        return "peers" if "/" in self.path else "serving"

    @property
    def kernel_class(self) -> str:
        """Return the class of the samples: that of the curve, with the layout of a gradient product."""
        return self.name if self.layout == "forward" else f"{self.name}.{self.layout}"

    @property
    def source(self) -> str:
        """Return the name of the project, and the name of the table if the project has several tables."""
        project = self.path.partition("/")[0] if "/" in self.path else OF_SERVING
        return f"{project} {self.table}".strip()

    def value(self, text: str, r: Columns) -> np.ndarray:
        """Return the value of an expression in each row; `weight_bytes` is the size of a served weight."""
        if "weights" in self.fields:
            served = SERVED_FORMATS[self.fields["weights"].removeprefix(LITERAL)]
            r = {**r, "weight_bytes": np.asarray(served.bytes_of_weight("bf16"))}
        return evaluated(text, r, ADDED)

    def belongs(self, r: Columns) -> np.ndarray:
        """Return which rows of the table are of this class."""
        return self.value(self.rows, r) if self.rows else np.ones(_size(r), dtype=bool)

    def operator(self, r: Columns) -> AbstractOperator:
        """Return the operator of the rows; its sizes have the shape (rows, 1)."""
        size = (_size(r),)
        return operator_of(
            self.kind, self.fields, lambda text: np.broadcast_to(self.value(text, r), size)[:, None]
        )

    def measured_s(self, r: Columns) -> Floats:
        """Return the measured seconds of the rows, before the correction for a device."""
        flop = {"flop": self.operator(r).work().flop.ravel()} if "flop" in self.seconds else {}
        return self.value(self.seconds, {**r, **flop})

    def on_device(self, r: Columns, measured_s: Floats, device: Device) -> Floats:
        """Return the seconds of the rows, corrected by properties of their device."""
        if not self.correction:
            return measured_s
        return CORRECTIONS[self.correction](r, self.operator(r), measured_s, device)


def _size(r: Columns) -> int:
    """Return the number of rows."""
    return len(next(iter(r.values())))


@cache
def peer_files(group: str) -> tuple[PeerFile, ...]:
    """Return the kernels of "training" or "serving" that peers.yaml describes, most trusted first.

    An entry with `each` means several entries: one for each combination of the rows of its lists. A row has
    keys that an entry needs, and words that replace their names in braces in the texts of the entry.

    >>> [file.name for file in peer_files("training")][:3]
    ['gemm', 'gemm.fp8', 'gemm.fp8_block']
    """
    table = read_table(__package__, "peers.yaml")
    return tuple(
        _file(entry, words, table) for entry in table[group] for words in _combined(entry.get("each", ()))
    )


def _combined(lists: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for rows in product(*lists):
        words: dict[str, Any] = {"fields": {}}
        for row in rows:
            words |= row | {"fields": words["fields"] | row.get("fields", {})}
        yield words


def _file(entry: Mapping[str, Any], words: Mapping[str, Any], table: Mapping[str, Any]) -> PeerFile:
    """Return the file of an entry with the words of one combination."""

    def filled(value: object) -> Any:  # noqa: ANN401
        return value.format(**words) if isinstance(value, str) else value

    known = PeerFile.__dataclass_fields__.keys()
    made = {key: filled(value) for key, value in {**entry, **words}.items() if key in known}
    made["fields"] = {name: filled(value) for name, value in (entry["fields"] | words["fields"]).items()}
    faults = [table["faults"][name] for name in made.get("faults", "").split()]
    made["faults"] = {fault["because"]: filled(fault["rows"]) for fault in faults}
    if isinstance(name := made["devices"], str):
        systems = table["sets"].get(name, name).split()
        of_systems = {f"system={each}": table["systems"].get(each) for each in systems}
        made["devices"] = table["machines"].get(name, of_systems)
    return PeerFile(**made)


OF_ONE_MACHINE = {"system=b200_bf16_ceperm": "b200-simumax-180gb"}  # simumax, of its machine alone
SUSTAINED_FROM_S = 0.7e-3  # its products: 0.35 to 0.65 of the peak before, 0.48 to 0.50 from there on
PEER_FILES: tuple[PeerFile, ...] = (
    *peer_files("training"),
    *(
        replace(
            file,
            devices=OF_ONE_MACHINE,
            sustained_from_s=SUSTAINED_FROM_S if file.name == "gemm" else np.inf,
        )
        for file in peer_files("training")
        if OF_ONE_MACHINE.keys() <= file.devices.keys()
    ),
)
SERVED_FILES = peer_files("serving")


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
    measured_s = file.on_device(rows, file.measured_s(rows), device)
    keep = np.ones(len(measured_s), dtype=bool)
    for fault in file.faults.values():
        keep &= ~file.value(fault, rows)
    remark = f" ({file.remark})" if file.remark else ""
    source = f"data/{file.folder}/{file.path}{remark}"
    samples = operator_samples(file.operator(rows), measured_s, keep, device, source)
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
        faulty = left & file.value(fault, rows)
        counts[reason] = int(faulty.sum())
        left &= ~faulty
    return {reason: count for reason, count in counts.items() if count}


def _rows_of(file: PeerFile, columns: Columns, mark: str) -> Columns:
    mine = (columns[mark] == 1) & file.belongs(columns)
    return {name: values[mine] for name, values in columns.items()}
