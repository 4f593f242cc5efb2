"""Tables of grouped products (experts) of other projects as operators.

Answers: which rows measure several products in one kernel, and which device, class and layout do they have?
How does imbalance affect the times? Sources: data/peers; on GitHub simumax (MooreThreads/SimuMax,
Apache-2.0: kernels of training, all three layouts), infersim (alibaba/InferSim, Apache-2.0: fp8 kernels of
serving), aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0: whole expert layers). This order is also the
order of trust.
Elsewhere: the definition of an entry (peer_tables.py), products with one weight (peer_operators.py), curves
(peer_fit.py).

The power-law rows of aiconfigurator draw each expert's load from a power law, scale the loads to the number
of tokens, and measure the fullest rank. On one rank, all rows are known, and only their spread differs from
that of the balanced rows. The coefficient of the term "skew" is fitted to both together. With expert
parallelism, the tables do not contain the rows of the fullest rank, so these measurements are left out.
"""

from collections.abc import Mapping

import numpy as np

from flopcast.dtypes import Counts
from flopcast.lab.calibration.peer_operators import BLACKWELL, BLOCKED, INFERSIM, NARROW, SIMUMAX, SYSTEMS
from flopcast.lab.calibration.peer_tables import (
    Columns,
    Mask,
    PeerFile,
    column,
    is_word,
    of_efficiency,
    seconds_in,
)
from flopcast.operators.grouped_matmul import GroupedMatmul

SMALLEST_GROUP = 32.0  # rows of the mean group: fewer are serving's
SMALLEST_FRACTION = 0.02  # of the peak: below it the three printed digits are 2.5 % or more apart
FP8_FLOP_PER_S = {"gpu=h20": 296e12, "gpu=h800": 1979e12}  # dense peaks that infersim's fractions refer to
UNGATED = 2688.0  # a width of Nemotron's experts, which have two weights and not three
POWER_LAWS = {"distribution=power_law_1.01": 1.01, "distribution=power_law_1.2": 1.2}
LARGEST_DRAW = 0.8  # of the tokens: where the power law is cut
BALANCED = "distribution=balanced"
LAYOUTS = {"forward": "fwd", "input_gradient": "bwd_grad_act", "weight_gradient": "bwd_grad_w"}
NO_FULLEST_RANK = (
    "tokens follow a power law, and the table does not state how many the busiest rank received"
)
FEW_ROWS = "each expert receives fewer than 32 rows"


def grouped(
    groups: Counts,
    rows: Counts,
    shape: tuple[Counts, Counts],
    imbalance: Counts,
    dtype: str = "bf16",
    layout: str = "forward",
) -> GroupedMatmul:
    """Return the operator of columns, each of shape (rows,).

    Parameters
    ----------
    groups, rows : arrays
        Number of weights, and the total rows of all groups.
    shape : tuple of arrays
        n and k.
    imbalance : array
        Rows of the fullest group divided by those of the mean group.
    dtype, layout : str
        8-bit elements count as one byte; layouts are those of the forward product and of both gradients.
    """
    n, k = shape
    return GroupedMatmul(
        groups=column(groups),
        rows=column(rows),
        n=column(n),
        k=column(k),
        imbalance=column(imbalance),
        dtype=dtype,
        layout=layout,
    )


def expected_imbalance(experts: Counts, top_k: Counts, tokens: Counts, exponent_of_law: Counts) -> Counts:
    """Return the expected ratio of the fullest group to the mean group under the power law of the tables;
    (rows,).

    Loads are drawn with a density x^-a on [1, LARGEST_DRAW · tokens]. The fullest of E draws is taken at
    its median, where the distribution function is 0.5^(1/E), and divided by the mean of the law. A token
    selects an expert at most once, so the ratio is at most E / top_k. This is an estimate, because the
    tables do not contain the drawn loads.

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
    """Return the number that each text of a column stands for, row by row."""
    return np.asarray(sum((r[name] * value for name, value in names.items() if name in r), start=0.0))


def _is_law(r: Columns) -> np.ndarray:
    return np.asarray(_sum_of(POWER_LAWS, r) > 0)


def _rows_of_layer(r: Columns) -> Counts:
    """Return the number of rows of all experts of a rank if every rank has equally many."""
    return r["num_tokens"] * r["topk"] / r["moe_ep_size"]


def _experts(r: Columns) -> Counts:
    return r["num_experts"] / r["moe_ep_size"]


def _layer(r: Columns, dtype: str) -> GroupedMatmul:
    """Return the gate, up and down products as one product of three times the width: it has all FLOP, all
    weights and most rows.

    It moves fewer elements, by hidden · rows, than the two kernels that run. This difference is less than
    half of the elements that their rows move, and the bound remains a lower bound.
    """
    width = r["inter_size"] / r["moe_tp_size"]
    exponent = _sum_of({**POWER_LAWS, BALANCED: 2.5}, r)  # any law for balanced rows, which use none
    drawn = expected_imbalance(r["num_experts"], r["topk"], r["num_tokens"], exponent)
    imbalance = np.where(_is_law(r), drawn, 1.0)
    return grouped(_experts(r), _rows_of_layer(r), (3 * width, r["hidden_size"]), imbalance, dtype)


# FlashInfer tunes its CUTLASS kernel of experts only within autotune(); outside, it runs its first tactic
# (flashinfer/autotuner.py). Times with scales per tensor on Hopper look untuned: 128 tokens take six to
# nine times as long as reading their weights, and for a quarter of the shapes longer than more tokens.
# vLLM tunes as it starts (vllm/model_executor/warmup/kernel_warmup.py)
TUNED = {mark: name for mark, name in NARROW.items() if not name.startswith("h")}
PRECISIONS: dict[str, tuple[Mapping[str, str], str]] = {  # devices, and whose peak, if not its own
    "bfloat16": (SYSTEMS, ""),
    "fp8": (TUNED, "fp8"),
    "fp8_block": (BLOCKED, "fp8"),
    "nvfp4": (BLACKWELL, "fp4"),
}
LAYER_FAULTS: dict[str, Mask] = {
    NO_FULLEST_RANK: lambda r: _is_law(r) & (r["moe_ep_size"] > 1),
    "these experts have no gate, and the table does not state which GEMMs were measured": lambda r: (
        (r["hidden_size"] == UNGATED) | (r["inter_size"] == UNGATED)
    ),
    FEW_ROWS: lambda r: _rows_of_layer(r) < SMALLEST_GROUP * _experts(r),
}


def _layers(word: str) -> PeerFile:
    """Return whole expert layers of vLLM in one precision, including routing, activation and sum."""
    narrow = "" if word == "bfloat16" else f".{word}"
    devices, peak = PRECISIONS[word]
    return PeerFile(
        path="aiconfigurator/moe_fused_experts.csv.gz",
        name=f"grouped_gemm{narrow}",
        devices=devices,
        belongs=is_word(f"dtype={word}"),
        operator=lambda r: _layer(r, "fp8" if narrow else "bf16"),
        faults=LAYER_FAULTS,
        remark=f"{word}; whole expert layers, with activation and permutation",
        peak=peak,
    )


def _of_training(layout: str) -> PeerFile:
    """Return products of training. The table has the forward shape for all layouts; groups are equal."""

    def make(r: Columns) -> GroupedMatmul:
        """Return an operator. M is the number of rows of one group."""
        shape = (r["K"], r["N"]) if layout == "input_gradient" else (r["N"], r["K"])
        return grouped(r["ng"], r["ng"] * r["M"], shape, np.ones_like(r["M"]), layout=layout)

    return PeerFile(
        path="simumax/grouped_gemm_efficiency.csv",
        name="grouped_gemm",
        devices=SIMUMAX,
        belongs=is_word(f"stage={LAYOUTS[layout]}"),
        operator=make,
        measured_s=lambda r: of_efficiency(r, make(r)),
        remark="bf16, of training, groups of equal size",
        layout=layout,
    )


def _of_serving(phase: str, product: str) -> PeerFile:
    """Return products of serving. infersim draws group sizes at random; their sum follows from the
    fraction of the fp8 peak.

    With the fp8 peak of the device, the fractions agree with tokens_per_expert to within a few percent;
    with the 16-bit peak, they differ by a factor of two. The table does not state how uneven the drawn
    groups are, so they count as equal.
    """

    def make(r: Columns) -> GroupedMatmul:
        """Return an operator. Gate and up are one product of twice the width."""
        inner, hidden = r["intermediate_size"], r["hidden_size"]
        n, k = (2 * inner, hidden) if product == "up" else (hidden, inner)
        flop = r[f"{product}_mfu"] * _sum_of(FP8_FLOP_PER_S, r) * r[f"{product}_proj_us"] * 1e-6
        rows = flop / (2 * n * k)
        return grouped(r["num_local_experts"], rows, (n, k), np.ones_like(rows), "fp8")

    return PeerFile(
        table=phase,
        path=f"infersim/grouped_gemm_{phase}.csv",
        name="grouped_gemm.fp8",
        devices=INFERSIM,
        belongs=lambda r: np.ones(len(r["topk"]), dtype=bool),
        operator=make,
        measured_s=seconds_in(f"{product}_proj_us"),
        faults={
            FEW_ROWS: lambda r: r["tokens_per_expert"] < SMALLEST_GROUP,
            "the fraction of the peak has too few digits": lambda r: (
                r[f"{product}_mfu"] < SMALLEST_FRACTION
            ),
        },
        remark="fp8",
    )


GROUPED_FILES: tuple[PeerFile, ...] = (
    *(_of_training(layout) for layout in LAYOUTS),
    *(_of_serving(phase, product) for phase in ("prefill", "decode") for product in ("up", "down")),
    *(_layers(word) for word in PRECISIONS),
)
