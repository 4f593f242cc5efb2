"""Tables of kernels in serving engines as operators, from one row or token upwards: products, whole
layers of experts, and linear attention over prompts.

Answers: which serving class, device and format does each row have, how many rows and experts of a rank does
a layer of experts represent, and which rows are left out? Sources: data/serving and data/peers; on GitHub
aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0), which times kernels of vLLM. It times experts on the
rank with the most rows. Products with fewer than 64 rows, and experts with fewer than 128 tokens, are in
data/serving, and larger ones are in data/peers. Both together give one curve.
Elsewhere: the definition of an entry (peer_tables.py), attention (peer_decode.py), the same tables as
kernels of training (peer_operators.py, peer_grouped.py), fitting (peer_fit.py).

The benchmark replays recorded launches, as engines do. The times of 8-bit products with a scale for each
block are determined by the host, which launches several kernels one after another: 60 us on H100, 170 us
on B200 and 340 us on L40S for every shape. They do not give a curve. Products that take much longer than
that are as long as products with one scale: the median difference is within a tenth on H100, H200 and
Blackwell. On L40S, whose kernels are written in Triton, they take a third longer.

The benchmark repeatedly multiplies by the same weight. On L40S and RTX PRO 6000 weights of 1 to 16 MB
then come from the cache, at up to twice the rate of memory. An engine reads all other layers before it
reads a weight again, so these rows are left out where products wait for weights. Products with smaller
weights take the time of a launch in either case.

Balanced rows of experts distribute the selections of all tokens evenly over all experts. The tables do
not contain the loads drawn from a power law, so the expected loads are used (layers/expert_load.py).

Kernels of linear attention have the shapes of Qwen3.5, whose heads have 128 elements. The table has no
decode steps.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.dtypes import Counts, constant
from flopcast.lab.calibration.peer_decode import DECODE_FILES
from flopcast.lab.calibration.peer_grouped import LAYER_FAULTS, POWER_LAWS, TUNED
from flopcast.lab.calibration.peer_operators import BLACKWELL, BLOCKED, NARROW, ODD_ROWS, SYSTEMS, odd_rows
from flopcast.lab.calibration.peer_tables import Columns, Mask, PeerFile, all_of, column, is_word
from flopcast.layers.expert_load import fullest_rank_load
from flopcast.operators.formats import SERVED_FORMATS
from flopcast.operators.fused_experts import FusedExperts
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.served_matmul import ServedMatmul

CACHED = ("system=l40s", "system=rtx_pro_6000_server")
CACHED_BYTES = (1e6, 16e6)
FEW_ROWS = 256.0  # with more, products take longer than reading such weights
CACHE_FAULT = "the benchmark read the weights from the L2 cache, but an engine reads them from memory"
GB200_FAULT = "its kernels of 16 bits have two speeds, 0.42 and 0.72 of the peak; B200 has the same chip"
UNGATED = "these experts have no gate, and the table does not state which GEMMs were measured"
DATA_CENTRE = {mark: name for mark, name in BLACKWELL.items() if not name.startswith("rtx")}
NEWER = {mark: name for mark, name in SYSTEMS.items() if not name.startswith("a100")}
FORMATS: dict[str, tuple[str, Mapping[str, str]]] = {  # the table's word → ours, and who measured it
    "bfloat16": ("", SYSTEMS),
    "fp8": ("fp8", TUNED),
    "fp8_block": ("fp8_block", BLOCKED),
    "nvfp4": ("nvfp4", BLACKWELL),
    "int4_wo": ("int4", NARROW),
    "w4a16_mxfp4": ("mxfp4", NEWER),
    "w4a8_mxfp4_mxfp8": ("mxfp4_mxfp8", DATA_CENTRE),
}
MANY_EXPERTS = (
    "rows with 896 experts take four times as long as rows that read equally many bytes for fewer experts,"
    " so another kernel ran"
)
FAULTS: dict[str, Mask] = {
    UNGATED: LAYER_FAULTS[UNGATED],
    MANY_EXPERTS: lambda r: (
        (r["num_experts"] == 896) & np.any([is_word(mark)(r) for mark in DATA_CENTRE], axis=0)
    ),
}
Loads = tuple[Counts, Counts, Counts]  # rows, touched experts, imbalance; (rows of the table,)
LINEAR_ATTENTION = "aiconfigurator/gated_deltanet_prefill.csv.gz"
HOPPER_AND_LATER = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300")
FLASHINFER = tuple(f"system={name}" for name in HOPPER_AND_LATER)
TRITON = ("system=l40s", "system=rtx_pro_6000_server")


def _product(weights: str) -> Callable[[Columns], ServedMatmul]:
    def make(r: Columns) -> ServedMatmul:
        """Return products of columns m, n, k."""
        m, n, k = (column(r[name]) for name in ("m", "n", "k"))
        return ServedMatmul(m=m, n=n, k=k, dtype="bf16", weights=weights)

    return make


def _cached(weights: str) -> Mask:
    """Return a mask of the rows whose weights the benchmark read from the cache."""
    each_bytes = SERVED_FORMATS[weights].bytes_of_weight("bf16")

    def mask(r: Columns) -> np.ndarray:
        """Return the rows of these devices and sizes."""
        size_bytes = r["n"] * r["k"] * each_bytes
        least_bytes, most_bytes = CACHED_BYTES
        sized = (size_bytes >= least_bytes) & (size_bytes < most_bytes) & (r["m"] < FEW_ROWS)
        return np.asarray(sized & np.any([is_word(name)(r) for name in CACHED], axis=0))

    return mask


def _faults(word: str, weights: str) -> dict[str, Mask]:
    """Return the faults of the rows of one format, by reason."""
    faults = {CACHE_FAULT: _cached(weights)}
    if word == "bfloat16":
        return {**faults, GB200_FAULT: lambda r: r["system=gb200"] == 1}
    return {**faults, ODD_ROWS: odd_rows} if word == "fp8" else faults


def _products(word: str, devices: Mapping[str, str], large: str) -> tuple[PeerFile, ...]:
    """Return the two tables of products in one format, with few rows and with many (`large`)."""
    weights = "" if word == "bfloat16" else word
    of_vllm = all_of(is_word("framework_name=vllm"), is_word(f"dtype={word}"))
    few = is_word(f"gemm_dtype={word}")
    return tuple(
        PeerFile(
            path=path,
            name=f"served_gemm.{weights}".rstrip("."),
            devices=devices,
            operator=_product(weights),
            belongs=belongs,
            faults=_faults(word, weights),
            remark=f"{word}, {rows}",
        )
        for path, belongs, rows in (
            ("kernels_gemm_decode.csv.gz", few, "fewer than 64 rows"),
            (f"aiconfigurator/{large}.csv.gz", of_vllm, "64 rows or more"),
        )
    )


def balanced_load(tokens: Counts, top_k: Counts, experts: Counts, ranks: Counts) -> Loads:
    """Return the load of the first rank if the selections are distributed evenly over all experts.

    A token selects experts at a distance of experts / top_k, and the next token selects the experts one
    further. The first rank therefore always has a selection, and experts repeat only after as many tokens
    as this distance.

    Examples
    --------
    >>> one = np.ones(1)
    >>> [each.tolist() for each in balanced_load(2 * one, 8 * one, 128 * one, 8 * one)]
    [[2.0], [2.0], [1.0]]
    """
    stride, held = np.ceil(experts / top_k), experts / ranks
    touched = np.minimum(held, np.ceil(held * np.minimum(tokens, stride) / stride - 1e-9))
    rows = np.maximum(tokens * top_k / ranks, touched)
    return rows, touched, np.ceil(rows / touched) * touched / rows


def loads_of(r: Columns) -> Loads:
    """Return the load of every row of the table: rows, experts with tokens, and imbalance.

    The load of balanced rows follows from the routing alone. For power laws, the expected load of the
    fullest rank is used (`fullest_rank_load`), computed once for each combination of top-k, experts and
    ranks.
    """
    names = ("num_tokens", "topk", "num_experts", "moe_ep_size")
    loads = np.stack(balanced_load(*(r[name] for name in names)))
    for law, exponent in POWER_LAWS.items():
        drawn = np.stack([r[name] for name in names[1:]], axis=1)
        mine = is_word(law)(r)
        for top_k, experts, ranks in np.unique(drawn[mine], axis=0).astype(int).tolist():
            same = mine & (drawn == (top_k, experts, ranks)).all(axis=1)
            load = fullest_rank_load(r["num_tokens"][same], top_k, experts, ranks, skew=constant(exponent))
            loads[:, same] = load.rows, load.touched, load.imbalance
    return loads[0], loads[1], loads[2]


def _layers(word: str) -> tuple[PeerFile, ...]:
    """Return the two tables of layers of experts in one format, with few tokens and with many."""
    weights, devices = FORMATS[word]

    def make(r: Columns) -> FusedExperts:
        """Return the experts of the fullest rank."""
        rows, touched, imbalance = loads_of(r)
        return FusedExperts(
            tokens=column(r["num_tokens"]),
            rows=column(rows),
            hidden=column(r["hidden_size"]),
            inner=column(r["inter_size"] / r["moe_tp_size"]),
            touched=column(touched),
            imbalance=column(imbalance),
            dtype="bf16",
            weights=weights,
        )

    return tuple(
        PeerFile(
            path=path,
            name=f"fused_experts.{weights}".rstrip("."),
            devices=devices,
            belongs=is_word(f"{formats}={word}"),
            operator=make,
            faults=FAULTS,
            remark=f"{word}, {tokens}",
        )
        for path, formats, tokens in (
            ("kernels_moe_decode.csv.gz", "moe_dtype", "fewer than 128 tokens"),
            ("aiconfigurator/moe_fused_experts.csv.gz", "dtype", "128 tokens or more"),
        )
    )


def _core(r: Columns) -> GatedDelta:
    """Return the delta rule operator of every row."""
    return GatedDelta(
        sequences=column(r["batch_size"]),
        tokens=column(r["seq_len"]),
        heads=column(r["num_v_heads"]),
        key_heads=column(r["num_k_heads"]),
        key_size=column(r["head_k_dim"]),
        value_size=column(r["head_v_dim"]),
        dtype="bf16",
    )


def _convolution(r: Columns) -> MemoryBound:
    """Return the convolution operator of queries, keys and values of every row."""
    channels = 2.0 * r["num_k_heads"] * r["head_k_dim"] + r["num_v_heads"] * r["head_v_dim"]
    return MemoryBound(
        kind="causal_convolution", elements=column(r["batch_size"] * r["seq_len"] * channels), dtype="bf16"
    )


def _linear_attention(kernel: str, devices: tuple[str, ...], convolves: bool) -> PeerFile:
    """Return the rows of one kernel on the devices on which it was measured."""
    return PeerFile(
        path=LINEAR_ATTENTION,
        name="causal_convolution" if convolves else "gated_delta",
        devices={mark: SYSTEMS[mark] for mark in devices},
        operator=_convolution if convolves else _core,
        belongs=is_word(f"kernel_source={kernel}"),
        remark="prompts, heads of 128",
    )


SERVED_FILES: tuple[PeerFile, ...] = (
    *_products("bfloat16", SYSTEMS, "gemm_bf16"),
    *_products("fp8", NARROW, "gemm_low_precision"),
    *_products("nvfp4", BLACKWELL, "gemm_low_precision"),
    *DECODE_FILES,
    *(file for word in FORMATS for file in _layers(word)),
    _linear_attention("chunk_gated_delta_rule_flashinfer", FLASHINFER, convolves=False),
    _linear_attention("chunk_gated_delta_rule_triton", TRITON, convolves=False),
    _linear_attention("causal_conv1d_fn", (*FLASHINFER, *TRITON), convolves=True),
)
