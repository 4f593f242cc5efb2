"""The rows of `data/operators` as operators, and which of these rows are broken.

Answers: which operators ran in the forward and backward pass of each file, and which of its rows are
wrong? Source: data/operators of arXiv:2509.22832 (GitHub DebarghaG/estimate-train-time, MIT), fp16, one
GPU; a backward time covers all gradients together.
Elsewhere: the shapes (operator_files.yaml), expressions over columns (row_expressions.py).

A function of columns takes arrays of any shape and returns that shape.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from flopcast.dtypes import Floats
from flopcast.files.package_table import read_table
from flopcast.lab.measure.row_expressions import Columns, evaluated, operator_of
from flopcast.operators.base import AbstractOperator
from flopcast.records import Record

DTYPE = "fp16"
_TABLE = read_table(__package__, "operator_files.yaml")


def _value(text: str, columns: Columns) -> Floats:
    """Return the value of an expression, which may use the names of the table.

    >>> _value("vocabulary_rows", {"tp": np.array([1.0, 4.0])}).tolist()
    [50304.0, 12672.0]
    """
    return evaluated(text, columns, NAMES)


NAMES = {name: partial(_value, text) for name, text in _TABLE["names"].items()}


class MeasuredFile(Record, eq=False):
    """The conversion of one file's rows to operators: an entry of operator_files.yaml."""

    kind: str
    fields: Mapping[str, Any]
    seconds: str = "fwd_us"
    measures_backward: bool = True
    backward_is_sum: bool = False  # of several gradient operators: fitted by layout

    def forward(self, columns: Columns) -> AbstractOperator:
        """Return the operator that ran, from the file's columns."""
        shape = next(iter(columns.values())).shape
        return operator_of(
            self.kind, self.fields, lambda text: np.broadcast_to(_value(text, columns), shape), dtype=DTYPE
        )


FILES = {name: MeasuredFile(**entry) for name, entry in _TABLE["files"].items()}
BROKEN: dict[tuple[str, str, str], tuple[str, str]] = {  # the rows to keep, "" for none, and the defect
    (system, file, which): (defect.get("rows", ""), defect["because"])
    for system, files in _TABLE["broken"].items()
    for file, passes in files.items()
    for which, defect in passes.items()
}


def kept_rows(system: str, file: str, which: str, row: Columns) -> np.ndarray:
    """Return the rows that are not known to be broken, (rows,); `which` is forward or backward.

    samples.py finds further impossible rows, which are faster than the peaks.
    """
    rows, _ = BROKEN.get((system, file, which), ("", ""))
    if rows:
        return _value(rows, row)
    return np.full(len(next(iter(row.values()))), (system, file, which) not in BROKEN)
