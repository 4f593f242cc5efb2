"""The operator of a measured shape, for curves and factors from sample packs.

Answers: how many FLOP and bytes does a shape need, and which operator prices it?
Elsewhere: fitting (lab/calibration/), what a site sustains (site.py). Some measured classes have bytes and
FLOP, but no curve: transposes and launches, which no operator describes; sums into fp32; and grouped
products, whose equal groups do not show how the time grows with imbalance.

Columns are arrays of shape (rows, 1), one measured shape per row, as in lab/calibration/curve_fit.py.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, Counts, constant
from flopcast.lab.measure.shapes import Shape
from flopcast.operators.base import AbstractOperator
from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.formats import FORMATS
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.records import dataclass

ADAM_BYTES = 28.0  # fp32: gradient, weight and two moments read; the last three written
Columns = Mapping[str, Counts]


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
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
    if "fp32_accumulate" in shape.flags:
        return None
    name = shape.kernel.removesuffix(".backward")
    if name in KINDS:
        return _streaming(name, shape, columns)
    make = _OPERATORS.get(name)
    return make(shape, columns) if make is not None else None


def columns_of(shapes: list[Shape]) -> dict[str, Counts]:
    """Return sizes of shapes of one class as columns of shape (rows, 1)."""
    names = [name for name, _ in shapes[0].sizes]
    return {name: np.array([[float(s.size(name))] for s in shapes]) for name in names}


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


def _streaming(kind: str, shape: Shape, columns: Columns) -> MemoryBound:
    return MemoryBound(
        kind=kind,
        elements=columns["tokens"] * columns["width"],
        width=columns["width"],
        dtype=shape.dtype,
        is_gradient=shape.kernel.endswith(".backward"),
    )


def _matmul(shape: Shape, columns: Columns) -> Matmul:
    """Return a product. Operands of 8 bits have a result of 16 bits, as in training (kernels.py)."""
    is_narrow = shape.dtype in FORMATS
    return Matmul(
        m=columns["m"],
        n=columns["n"],
        k=columns["k"],
        dtype="bf16" if is_narrow else shape.dtype,
        layout=shape.layout or "forward",
        narrow=shape.dtype if is_narrow else "",
    )


def _grouped(shape: Shape) -> GroupedMatmul:
    groups, m, n, k = (constant(shape.size(name)) for name in ("groups", "m", "n", "k"))
    return GroupedMatmul(groups=groups, rows=groups * m, n=n, k=k, imbalance=ONE, dtype=shape.dtype)


def _batched(role: str) -> Callable[[Shape, Columns], AbstractOperator]:
    def make(shape: Shape, columns: Columns) -> BatchedMatmul:
        """Return self-attention, with as many keys as queries."""
        return BatchedMatmul(
            role=role,
            batch=columns["batch"],
            kv_batch=columns["batch"],
            queries=columns["queries"],
            keys=columns["queries"],
            head_size=columns["head_size"],
            dtype=shape.dtype,
        )

    return make


def _attention(shape: Shape, columns: Columns) -> FlashAttention:
    """Return attention; `group` query heads share one key/value head, unless it does not divide `heads`."""
    return FlashAttention(
        batch=columns["sequences"] * columns["heads"],
        kv_batch=columns["sequences"] * np.maximum(columns["heads"] // columns["group"], 1.0),
        queries=columns["queries"],
        head_size=columns["head_size"],
        causal="causal" in shape.flags,
        dtype=shape.dtype,
        is_gradient=shape.kernel.endswith(".backward"),
    )


def _embedding(shape: Shape, columns: Columns) -> EmbeddingLookup:
    return EmbeddingLookup(
        tokens=columns["tokens"],
        hidden=columns["hidden"],
        vocabulary=columns["vocabulary"],
        dtype=shape.dtype,
        is_gradient=shape.kernel.endswith(".backward"),
    )


def _adam(shape: Shape, columns: Columns) -> OptimizerUpdate:
    parameters = columns["parameters"]
    return OptimizerUpdate(
        parameters=parameters, bytes_per_parameter=np.full_like(parameters, ADAM_BYTES), dtype=shape.dtype
    )


_OPERATORS: dict[str, Callable[[Shape, Columns], AbstractOperator]] = {
    "gemm": _matmul,
    "batched_gemm.scores": _batched("scores"),
    "batched_gemm.context": _batched("context"),
    "flash_attention": _attention,
    "embedding": _embedding,
    "adam": _adam,
}
