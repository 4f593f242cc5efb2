"""Kernels of a trace as samples: the computed or sent sizes, and their times.

Answers: which sizes does a traced operator have, and what is its typical time?
Elsewhere: reading traces (lab/traces/kineto.py, lab/traces/nsys.py), fitting curves to samples
(curve_fit.py).

Sizes are those of flopcast's operators: a product is out[m, n] = x[m, k] @ w[k, n]; a row of a norm has
`width` elements. They are read from the shapes of the operator that launched the kernels. An operator of
the backward pass therefore has the sizes of its own product. A call that launched several kernels
(split-k products, backward passes of attention and norms) counts once, with the sum of their times.
Unknown sizes are 0.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Floats
from flopcast.lab.calibration.kernel_names import COMMUNICATION, DTYPES, kind_of
from flopcast.lab.calibration.trace import Trace
from flopcast.records import Record, field
from flopcast.units import Number

Shape = Sequence[int]
Shapes = Sequence[Shape]
Sizes = Mapping[str, int]
SIZES = (
    "m", "n", "k", "batch", "heads", "kv_heads", "queries", "keys", "head_size", "elements", "width",
)  # fmt: skip


class TraceSample(Record):
    """Calls of one operator on one shape, or messages of one size.

    `median_s` and `least_s` are taken over the calls. A collective waits inside its kernel for the
    slowest rank, so the least time of a message describes the link best. `sizes` has keys of SIZES.
    `message_bytes` follows operators/messages.py and is 0 for kernels that send nothing.
    """

    kernel_class: str
    phase: str
    dtype: str
    sizes: Sizes = field(default_factory=dict)
    message_bytes: float = 0.0
    ranks: int = 0
    num_calls: int
    median_s: float
    least_s: float


def samples(trace: Trace) -> tuple[TraceSample, ...]:
    """Return every shape and message size of known size in the trace's steps, sorted by class and time.

    Returns
    -------
    tuple of TraceSample
        Kernels of unknown class or unknown sizes give no samples: `trace.class_totals` counts them.
    """
    calls: dict[tuple[int, int, int], float] = defaultdict(float)
    first: dict[tuple[int, int, int], int] = {}
    for at in np.flatnonzero(trace.used).tolist():
        call = int(trace.call[at]) if trace.call[at] >= 0 else -2 - at
        key = (call, int(trace.kernel_class[at]), int(trace.phase[at]))
        calls[key] += float(trace.end_s[at] - trace.start_s[at])
        first.setdefault(key, at)
    repeated: dict[_Call, list[float]] = defaultdict(list)
    for key, seconds in calls.items():
        repeated[_call(trace, first[key])].append(seconds)
    made = (_sample(call, np.array(times_s)) for call, times_s in repeated.items())
    known = [sample for sample in made if sample is not None]
    return tuple(sorted(known, key=lambda s: (s.kernel_class, s.phase, -s.median_s, str(s.sizes))))


class _Call(Record, kw_only=False):
    """The properties that repetitions of a call share."""

    kernel_class: str
    phase: str
    operator: str
    shapes: str
    dtype: str
    message_bytes: float  # 0 where nothing is sent, or its size is not known
    ranks: int


def _call(trace: Trace, at: int) -> _Call:
    words = trace.words
    sends = kind_of(words[trace.kernel_class[at]]) == COMMUNICATION and not math.isnan(
        trace.message_bytes[at]
    )
    return _Call(
        kernel_class=words[trace.kernel_class[at]],
        phase=words[trace.phase[at]],
        operator=words[trace.operator[at]],
        shapes=words[trace.shapes[at]],
        dtype=words[trace.dtypes[at]],
        message_bytes=float(trace.message_bytes[at]) if sends else 0.0,
        ranks=0 if math.isnan(trace.ranks[at]) else int(trace.ranks[at]),
    )


def _sample(call: _Call, times_s: Floats) -> TraceSample | None:
    """Return the sample of repeated calls; None if neither its sizes nor its message are known."""
    sizes = sizes_of(call.operator, call.kernel_class, shapes_from(call.shapes))
    if not sizes and not call.message_bytes:
        return None
    return TraceSample(
        kernel_class=call.kernel_class,
        phase=call.phase,
        dtype=dtype_of(call.dtype),
        sizes=sizes,
        message_bytes=call.message_bytes,
        ranks=call.ranks,
        num_calls=len(times_s),
        median_s=float(np.median(times_s)),
        least_s=float(times_s.min()),
    )


def shapes_from(text: str) -> Shapes:
    """Return shapes from the text that a profiler prints; empty if they are not lists of whole numbers.

    >>> shapes_from("[[4, 8], [], [8]]"), shapes_from("[[4, 8")
    ([[4, 8], [], [8]], [])
    """
    try:
        shapes = json.loads(text) if text else []
    except (json.JSONDecodeError, RecursionError):
        return []
    if not isinstance(shapes, list):
        return []
    return [
        shape if isinstance(shape, list) and all(type(size) is int for size in shape) else []
        for shape in shapes
    ]


def sizes_of(operator: str, kernel_class: str, shapes: Shapes) -> Sizes:
    """Return the sizes of an operator's work from the shapes of its inputs; empty if the shapes do not
    determine them.

    Examples
    --------
    >>> sizes_of("aten::addmm", "gemm", [[8], [4, 2], [2, 8], [], []])
    {'m': 4, 'n': 8, 'k': 2}
    >>> sizes_of("aten::_flash_attention_forward", "flash_attention", 3 * [[2, 512, 16, 64]])["queries"]
    512
    """
    for known, read in READERS:
        if kernel_class.removesuffix(".backward") in known:
            return read(operator.rpartition("::")[2], shapes)
    return {}


def _product(operator: str, shapes: Shapes) -> Sizes:
    """Return the sizes of mm(x, w), addmm(bias, x, w), linear(x, w transposed), and their batched forms."""
    given = [shape for shape in (shapes[1:] if operator in ("addmm", "baddbmm") else shapes) if shape]
    if len(given) < 2 or len(given[1]) < 2:
        return {}
    left, right = given[0], given[1]
    batched = operator in ("bmm", "baddbmm")
    if batched and not len(left) == len(right) == 3:
        return {}
    depth, columns = (right[-1], right[-2]) if operator == "linear" else (right[-2], right[-1])
    if left[-1] != depth:
        return {}
    if batched:
        return {"m": left[-2], "n": columns, "k": depth, "batch": left[0]}
    return {"m": math.prod(left[:-1]), "n": columns, "k": depth}


def _attention(operator: str, shapes: Shapes) -> Sizes:
    """Return the sizes of attention from (queries, keys, values), preceded by a gradient in the backward
    pass.

    The order of axes is (batch, length, heads, head size) in PyTorch's `_flash_attention_*` and
    `_efficient_attention_*` and in the package flash-attn; it is (batch, heads, length, head size) in
    `_scaled_dot_product_*`.
    """
    whole = [shape for shape in shapes if len(shape) == 4]
    skipped = 1 if "backward" in operator.lower() else 0
    if len(whole) < 2 + skipped:
        return {}
    query, key = whole[skipped], whole[skipped + 1]
    length, heads = (2, 1) if "scaled_dot_product" in operator else (1, 2)
    return {
        "batch": query[0],
        "heads": query[heads],
        "kv_heads": key[heads],
        "queries": query[length],
        "keys": key[length],
        "head_size": query[3],
    }


def _rows(_operator: str, shapes: Shapes) -> Sizes:
    """Return the sizes of a kernel that reads one large tensor: its elements, and the last dimension."""
    largest = max(shapes, key=math.prod, default=[])
    return {"elements": math.prod(largest), "width": largest[-1]} if largest and min(largest) > 0 else {}


READERS: tuple[tuple[frozenset[str], Callable[[str, Shapes], Sizes]], ...] = (
    (frozenset({"gemm", "batched_gemm"}), _product),
    (frozenset({"flash_attention"}), _attention),
    (
        frozenset(
            {
                "layernorm", "rmsnorm", "softmax", "scaled_masked_softmax", "cross_entropy", "gelu", "silu",
                "swiglu", "dropout", "residual_add", "copy", "elementwise", "reduction", "rope",
            }
        ),
        _rows,
    ),
)  # fmt: skip

WIDTHS = ELEMENT_BYTES | {"fp64": 8.0, "int32": 4.0, "uint8": 1.0}


def dtype_of(name: str) -> str:
    """Return flopcast's name for a profiler's dtype, or "unknown" for any other.

    >>> dtype_of("c10::BFloat16"), dtype_of("Half"), dtype_of("")
    ('bf16', 'fp16', 'unknown')
    """
    return DTYPES.get(name.lower(), "unknown")


def message_bytes(collective: str, in_elements: Number, out_elements: Number, dtype: str) -> float:
    """Return a message's size by the definition of operators/messages.py, or NaN for an unknown dtype.

    Profilers state the numbers of elements of one rank's input and output. The message of an all-reduce, a
    broadcast, a reduce-scatter or an all-to-all is the input; that of an all-gather is the output. A
    receive has no input, and its message is the received tensor.

    >>> message_bytes("all_gather", 2, 16, "BFloat16")
    32.0
    """
    width = WIDTHS.get(dtype_of(dtype), math.nan)
    takes_output = collective == "all_gather" or in_elements == 0
    return float(width * (out_elements if takes_output else in_elements))
