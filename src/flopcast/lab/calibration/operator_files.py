"""The rows of `data/operators` as operators, and which of these rows are broken.

Answers: which operators ran in the forward and backward pass of each file, and which of its rows are
wrong? Source: data/operators of arXiv:2509.22832 (GitHub DebarghaG/estimate-train-time, MIT), fp16, one
GPU; a backward time covers all gradients together.

Shapes follow data/README.md: tokens T = micro_batch · seq_len, and one of tp shards of the heads, of the
MLP's width and of the vocabulary, which is padded to a multiple of 128 · tp. A function of columns takes
arrays of any shape and returns that shape.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.operators.base import AbstractOperator
from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.records import dataclass

DTYPE = "fp16"
VOCABULARY = 50257
WEIGHTS_PER_LAYER = 4
FUSED_ADAM_BYTES = 14.0  # 16-bit weight, gradient and moments read; weight and moments written
Columns = Mapping[str, Floats]
Keep = Callable[[Columns], np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class MeasuredFile:
    """The conversion of one file's rows to operators.

    `forward` creates the operator that ran from the file's columns, of shape (rows, 1); `seconds` names
    the column of its time, in microseconds. The backward time, in `bwd_us`, was measured unless
    `measures_backward` is False. If it is the sum of several gradient operators without curves of their
    own, `backward_is_sum` is True.

    A qkv GEMM has neither: its backward time also contains the sum for the bias, so it is not used.
    """

    forward: Callable[[Columns], AbstractOperator]
    seconds: str = "fwd_us"
    measures_backward: bool = True
    backward_is_sum: bool = False  # of several gradient operators: fitted by layout


def _tokens(row: Columns) -> Counts:
    return row["micro_batch"] * row["seq_len"]


def _rows_of_table(row: Columns) -> Counts:
    """Return the number of vocabulary rows on one rank, a multiple of 128 because Megatron pads it.

    >>> _rows_of_table({"tp": np.array([1.0, 4.0])}).tolist()
    [50304.0, 12672.0]
    """
    return np.ceil(VOCABULARY / (128 * row["tp"])) * 128


def _linear(
    columns: Callable[[Columns], Counts], depth: Callable[[Columns], Counts]
) -> Callable[[Columns], AbstractOperator]:
    return lambda r: Matmul(m=_tokens(r), n=columns(r), k=depth(r), dtype=DTYPE)


def _streaming(
    kind: str,
    elements: Callable[[Columns], Counts],
    width: Callable[[Columns], Counts] = lambda r: r["hidden"],
) -> Callable[[Columns], AbstractOperator]:
    def make(row: Columns) -> AbstractOperator:
        """Return an operator. The width matters only for kinds that reduce rows."""
        return MemoryBound(kind=kind, elements=elements(row), width=width(row), dtype=DTYPE)

    return make


def _activation(row: Columns) -> Counts:
    return _tokens(row) * row["hidden"]


def _score_elements(row: Columns) -> Counts:
    """Return the elements of the score matrices of one rank: sequences · heads · s · s."""
    return row["micro_batch"] * np.floor(row["heads"] / row["tp"]) * row["seq_len"] ** 2


def _heads(row: Columns) -> dict[str, Any]:
    """Return the sizes of self-attention over whole sequences and heads."""
    batch = row["micro_batch"] * np.floor(row["heads"] / row["tp"])
    head_size = np.floor(row["hidden"] / row["heads"])
    return {"batch": batch, "kv_batch": batch, "queries": row["seq_len"], "head_size": head_size}


def _batched(role: str) -> Callable[[Columns], AbstractOperator]:
    """Return products with as many keys as queries."""
    return lambda r: BatchedMatmul(role=role, keys=r["seq_len"], dtype=DTYPE, **_heads(r))


def _flash(row: Columns) -> AbstractOperator:
    """Return attention without a causal mask, as it was measured; a mask halves the time in training."""
    return FlashAttention(causal=False, dtype=DTYPE, **_heads(row))


def _embedding(row: Columns) -> AbstractOperator:
    return EmbeddingLookup(
        tokens=_tokens(row), hidden=row["hidden"], vocabulary=_rows_of_table(row), dtype=DTYPE
    )


def _adam(row: Columns) -> AbstractOperator:
    """Return the optimizer of the first stage: embedding and layers, whose states have 16 bits.

    A layer's weights form four tensors; biases and norms are too small to count.
    """
    layer = 12 * row["hidden"] ** 2 / row["tp"]
    parameters = row["layers"] * layer + _rows_of_table(row) * row["hidden"]
    return OptimizerUpdate(
        parameters=parameters,
        bytes_per_parameter=np.full_like(parameters, FUSED_ADAM_BYTES),
        dtype=DTYPE,
        tensors=parameters / (layer / WEIGHTS_PER_LAYER),
    )


def _rope_elements(row: Columns) -> Counts:
    """Return the elements of queries and keys, because both are rotated."""
    return 2 * _tokens(row) * row["hidden"] / row["tp"]


FILES: dict[str, MeasuredFile] = {
    "linear_qkv": MeasuredFile(forward=_linear(lambda r: 3 * r["hidden"] / r["tp"], lambda r: r["hidden"])),
    "linear_attn_out": MeasuredFile(
        forward=_linear(lambda r: r["hidden"], lambda r: r["hidden"] / r["tp"]), backward_is_sum=True
    ),
    "linear_mlp_up": MeasuredFile(
        forward=_linear(lambda r: 4 * r["hidden"] / r["tp"], lambda r: r["hidden"]), backward_is_sum=True
    ),
    "linear_mlp_down": MeasuredFile(
        forward=_linear(lambda r: r["hidden"], lambda r: 4 * r["hidden"] / r["tp"]), backward_is_sum=True
    ),
    "linear_lm_head": MeasuredFile(
        forward=_linear(_rows_of_table, lambda r: r["hidden"]), backward_is_sum=True
    ),
    "attn_scores_baddbmm": MeasuredFile(forward=_batched("scores"), measures_backward=False),
    "attn_context_bmm": MeasuredFile(forward=_batched("context"), measures_backward=False),
    "flash_attention": MeasuredFile(forward=_flash),
    "mask_fill": MeasuredFile(forward=_streaming("mask_fill", _score_elements, lambda r: r["seq_len"])),
    "softmax": MeasuredFile(forward=_streaming("softmax", _score_elements, lambda r: r["seq_len"])),
    "scaled_upper_triang_masked_softmax": MeasuredFile(
        forward=_streaming("scaled_masked_softmax", _score_elements, lambda r: r["seq_len"])
    ),
    "rmsnorm": MeasuredFile(forward=_streaming("unfused_rmsnorm", _activation)),
    "layernorm": MeasuredFile(forward=_streaming("layernorm", _activation)),
    "rope": MeasuredFile(forward=_streaming("unfused_rope", _rope_elements)),
    "gelu": MeasuredFile(forward=_streaming("gelu", lambda r: 4 * _activation(r) / r["tp"])),
    "residual_add": MeasuredFile(forward=_streaming("residual_add", _activation), measures_backward=False),
    "embedding": MeasuredFile(forward=_embedding),
    "parallel_cross_entropy": MeasuredFile(
        forward=_streaming("cross_entropy", lambda r: _tokens(r) * _rows_of_table(r), _rows_of_table)
    ),
    "optimizer_first_stage": MeasuredFile(forward=_adam, seconds="step_us", measures_backward=False),
}


def _all(row: Columns) -> np.ndarray:
    return np.ones(len(next(iter(row.values()))), dtype=bool)


def _none(row: Columns) -> np.ndarray:
    return ~_all(row)


def _passes_differ(row: Columns) -> np.ndarray:
    """Return False if one pass repeats the other's time to within 1 %, so it was not measured."""
    return np.abs(row["fwd_us"] / row["bwd_us"] - 1) > 0.01


def _one_launch(row: Columns) -> np.ndarray:
    """Return the rows with one launch: beyond 2^30 elements, only one of several was recorded."""
    return _score_elements(row) <= 2.0**30


GH200, A100 = "vista-gh200", "perlmutter-a100-sxm4-80gb"

BROKEN: dict[tuple[str, str, str], tuple[Keep, str]] = {
    # (system, file, pass): rows to keep, and what is wrong with the others (data/README.md, defects)
    (GH200, "flash_attention", "backward"): (
        _none,
        "defect 1: only a part of the backward pass was recorded",
    ),
    (GH200, "layernorm", "backward"): (_none, "defect 0: only one of two kernels was recorded"),
    (GH200, "optimizer_first_stage", "forward"): (
        _none,
        "defect 2: the time does not grow with the number of parameters",
    ),
    (GH200, "embedding", "forward"): (_none, "defect 4: most rows state the same time for both passes"),
    (GH200, "embedding", "backward"): (_none, "defect 4: most rows state the same time for both passes"),
    (GH200, "softmax", "forward"): (
        _passes_differ,
        "defect 4: these rows state the same time for both passes",
    ),
    (GH200, "softmax", "backward"): (
        _passes_differ,
        "defect 4: these rows state the same time for both passes",
    ),
    (GH200, "mask_fill", "forward"): (_one_launch, "defect 5: only one of several launches was recorded"),
    (A100, "flash_attention", "backward"): (
        lambda r: r["bwd_us"] > 1.5 * r["fwd_us"],
        "defect 10: the backward pass is faster than the forward pass",
    ),
}


def kept_rows(system: str, file: str, which: str, row: Columns) -> np.ndarray:
    """Return the rows that are not known to be broken, (rows,); `which` is forward or backward.

    samples.py finds further impossible rows, which are faster than the peaks.
    """
    return BROKEN.get((system, file, which), (_all, ""))[0](row)
