"""Tables of kernels of serving engines as operators, from one row or token on.

Answers: which rows are of which class of serving, device and format, and which are left out?
Sources: data/serving and data/peers; on GitHub aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0), which
times kernels of vLLM. Products with fewer than 64 rows, and experts with fewer than 128 tokens, stand in
data/serving, larger ones in data/peers. Both make one curve.
Elsewhere: what an entry is (peer_tables.py), whole layers of experts (peer_served_experts.py), attention
(peer_decode.py), linear attention (peer_linear_attention.py), the same
tables as kernels of training (peer_operators.py, peer_grouped.py), fitting
(peer_fit.py).

Engines replay recorded launches, and so did the benchmark. The times of 8-bit products with a scale for
each block are those of a host that launches several kernels one after another: 60 us on H100, 170 us on
B200, 340 us on L40S, whatever the shape. They give no curve. Where they last much longer than that, they
are as long as products with one scale: within a tenth in the median on H100, H200 and Blackwell, a third
longer on L40S, whose kernels are written in Triton.

The benchmark multiplies by the same weight again and again. On L40S and RTX PRO 6000 weights of 1 to 16 MB
then come from the cache, at up to twice the rate of memory. An engine reads all layers in between, so these
rows are left out where products wait for weights. Smaller weights take the time of a launch in either case.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.lab.calibration import peer_tables
from flopcast.lab.calibration.peer_decode import DECODE_FILES
from flopcast.lab.calibration.peer_linear_attention import LINEAR_ATTENTION_FILES
from flopcast.lab.calibration.peer_operators import BLACKWELL, NARROW, SYSTEMS
from flopcast.lab.calibration.peer_served_experts import EXPERT_FILES
from flopcast.operators.formats import SERVED_FORMATS
from flopcast.operators.served_matmul import ServedMatmul

AICONFIGURATOR = "aiconfigurator"
CACHED = ("system=l40s", "system=rtx_pro_6000_server")
CACHED_BYTES = (1e6, 16e6)
FEW_ROWS = 256.0  # with more, products take longer than reading such weights
CACHE_FAULT = "the benchmark read the weights from the cache, but an engine reads them from memory"
GB200_FAULT = "its kernels of 16 bits have two speeds, 0.42 and 0.72 of the peak; B200 has the same chip"


def _product(weights: str) -> Callable[[peer_tables.Columns], ServedMatmul]:
    def make(r: peer_tables.Columns) -> ServedMatmul:
        """Return products of columns m, n, k."""
        m, n, k = (peer_tables.column(r[name]) for name in ("m", "n", "k"))
        return ServedMatmul(m=m, n=n, k=k, dtype="bf16", weights=weights)

    return make


def _cached(weights: str) -> peer_tables.Mask:
    """Return a mask of rows whose weights the benchmark read from the cache."""
    each_bytes = SERVED_FORMATS[weights].bytes_of_weight("bf16")

    def mask(r: peer_tables.Columns) -> np.ndarray:
        """Return rows of the devices and sizes that are known to be so."""
        size_bytes = r["n"] * r["k"] * each_bytes
        least_bytes, most_bytes = CACHED_BYTES
        sized = (size_bytes >= least_bytes) & (size_bytes < most_bytes) & (r["m"] < FEW_ROWS)
        return np.asarray(sized & np.any([peer_tables.is_word(name)(r) for name in CACHED], axis=0))

    return mask


def _faults(word: str, weights: str) -> dict[str, peer_tables.Mask]:
    """Return the faults of the rows of one format, by reason."""
    faults = {CACHE_FAULT: _cached(weights)}
    return {**faults, GB200_FAULT: lambda r: r["system=gb200"] == 1} if word == "bfloat16" else faults


def _products(word: str, devices: Mapping[str, str], large: str) -> tuple[peer_tables.PeerFile, ...]:
    """Return the two tables of products in one format, with few rows and with many (`large`)."""
    weights = "" if word == "bfloat16" else word
    return tuple(
        peer_tables.PeerFile(
            folder=folder,
            project=AICONFIGURATOR,
            path=path,
            name=f"served_gemm.{weights}".rstrip("."),
            devices=devices,
            operator=_product(weights),
            measured_s=peer_tables.seconds_in("latency_ms"),
            belongs=belongs,
            faults=_faults(word, weights),
            remark=f"{word}, {rows}",
        )
        for folder, path, belongs, rows in (
            (
                "serving",
                "kernels_gemm_decode.csv.gz",
                peer_tables.is_word(f"gemm_dtype={word}"),
                "fewer than 64 rows",
            ),
            (
                "peers",
                large,
                peer_tables.all_of(
                    peer_tables.is_word("framework_name=vllm"), peer_tables.is_word(f"dtype={word}")
                ),
                "64 rows or more",
            ),
        )
    )


SERVED_FILES: tuple[peer_tables.PeerFile, ...] = (
    *_products("bfloat16", SYSTEMS, "aiconfigurator/gemm_bf16.csv.gz"),
    *_products("fp8", NARROW, "aiconfigurator/gemm_low_precision.csv.gz"),
    *_products("nvfp4", BLACKWELL, "aiconfigurator/gemm_low_precision.csv.gz"),
    *DECODE_FILES,
    *EXPERT_FILES,
    *LINEAR_ATTENTION_FILES,
)
