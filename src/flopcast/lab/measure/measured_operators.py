"""The operator of a measured shape, for curves and factors from sample packs.

Answers: how many FLOP and bytes does a shape need, and which operator prices it?
Elsewhere: fitting (lab/calibration/), what a site sustains (site.py). Some measured classes have bytes and
FLOP, but no curve: transposes and launches, which no operator describes; sums into fp32; and grouped
products, whose equal groups do not show how the time grows with imbalance.

Columns are arrays of shape (rows, 1), one measured shape per row, as in lab/calibration/curve_fit.py.
"""

from dataclasses import fields
from functools import lru_cache

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, Counts, constant
from flopcast.files.package_table import read_table
from flopcast.lab.measure.row_expressions import LITERAL, OPERATORS, Columns, evaluated
from flopcast.lab.measure.row_expressions import operator_of as operator_with
from flopcast.lab.measure.shapes import Shape
from flopcast.operators.base import AbstractOperator
from flopcast.operators.formats import FORMATS
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import KINDS
from flopcast.records import Record

_OPERATORS = read_table(__package__, "spaces.yaml")["operators"]


class Need(Record):
    """The work of one execution of a shape, and the memory of its operands.

    `held_bytes` is an upper bound on the tensors that must exist to run it.
    """

    flop_flop: float
    moved_bytes: float
    held_bytes: float


def operator_of(shape: Shape, columns: Columns) -> AbstractOperator | None:
    """Return the operator of the class, layout, dtype and flags of `shape`, with the sizes in `columns`.

    The result is None for a class that no operator describes, for equal groups of products, which cover
    only one point of the imbalance axis, and for a product that adds to an fp32 buffer, because `Matmul`
    writes its own dtype.

    Examples
    --------
    >>> square = Shape(kernel="gemm", layout="forward", dtype="bf16", sizes=(("m", 8), ("n", 8), ("k", 8)))
    >>> operator_of(square, columns_of([square])).work().flop
    array([[1024.]])
    """
    name = shape.kernel.removesuffix(".backward")
    entry = _OPERATORS.get("streams" if name in KINDS else name)
    if entry is None or "fp32_accumulate" in shape.flags:
        return None
    facts = {
        "kind": f"{LITERAL}{name}",
        "dtype": f"{LITERAL}{shape.dtype}",
        "layout": f"{LITERAL}{shape.layout or 'forward'}",
        "causal": "causal" in shape.flags,
        "is_gradient": shape.kernel != name,
    }
    known = {each.name for each in fields(OPERATORS[entry["kind"]])}
    if "narrow" in known and shape.dtype in FORMATS:  # results have 16 bits, as in training (kernels.py)
        facts |= {"dtype": f"{LITERAL}bf16", "narrow": f"{LITERAL}{shape.dtype}"}
    sizes = entry["fields"] | {name: fact for name, fact in facts.items() if name in known}
    rows = next(iter(columns.values())).shape
    return operator_with(
        entry["kind"], sizes, lambda text: np.broadcast_to(evaluated(text, columns, {}), rows)
    )


def columns_of(shapes: list[Shape]) -> dict[str, Counts]:
    """Return sizes of shapes of one class as columns of shape (rows, 1)."""
    names = [name for name, _ in shapes[0].sizes]
    return {name: np.array([[float(s.size(name))] for s in shapes]) for name in names}


@lru_cache(maxsize=2**15)  # a plan asks for the time and for the memory of each of its thousands of shapes
def need_of(shape: Shape) -> Need:
    """Return the FLOP, bytes moved and bytes held of one shape; zero for launches of empty kernels.

    A causal kernel counts half of the products, as its operator does.
    """
    size_bytes = ELEMENT_BYTES[shape.dtype]
    sizes = dict(shape.sizes)
    if shape.kernel == "grouped_gemm":
        work = _grouped(shape).work()
        moved_bytes = work.moved_bytes.item()
        return Need(flop_flop=work.flop.item(), moved_bytes=moved_bytes, held_bytes=moved_bytes)
    if "fp32_accumulate" in shape.flags:
        m, n, k = (float(sizes[name]) for name in ("m", "n", "k"))
        moved_bytes = (m * k + k * n) * size_bytes + 2 * m * n * ELEMENT_BYTES["fp32"]
        return Need(flop_flop=2 * m * n * k, moved_bytes=moved_bytes, held_bytes=moved_bytes)
    if shape.kernel == "transpose":
        moved_bytes = 2.0 * sizes["tokens"] * sizes["width"] * size_bytes
        return Need(flop_flop=0.0, moved_bytes=moved_bytes, held_bytes=moved_bytes)
    operator = operator_of(shape, columns_of([shape]))
    if operator is None:
        return Need(flop_flop=0.0, moved_bytes=0.0, held_bytes=0.0)
    work = operator.work()
    flop, moved_bytes = (float(np.max(array)) for array in (work.flop, work.moved_bytes))
    # a chain of kernels, and a backward pass, keep what they saved besides
    return Need(flop_flop=flop, moved_bytes=moved_bytes, held_bytes=3 * moved_bytes)


def _grouped(shape: Shape) -> GroupedMatmul:
    groups, m, n, k = (constant(shape.size(name)) for name in ("groups", "m", "n", "k"))
    return GroupedMatmul(groups=groups, rows=groups * m, n=n, k=k, imbalance=ONE, dtype=shape.dtype)
