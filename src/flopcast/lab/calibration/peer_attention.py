"""Attention tables of other projects as operators, on the devices of the catalogue.

Answers: which rows are plain causal attention, and which are latent attention with heads of 192 and 128?
What do their sizes, times and fractions of a peak count? Sources: data/peers; on GitHub aiconfigurator
(ai-dynamo/aiconfigurator, Apache-2.0), simumax (MooreThreads/SimuMax, Apache-2.0: both passes of training),
infersim (alibaba/InferSim, Apache-2.0).
Elsewhere: the definition of an entry (peer_tables.py), products (peer_operators.py), fitting (peer_fit.py).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Counts
from flopcast.lab.calibration.peer_operators import SIMUMAX, SYSTEMS
from flopcast.lab.calibration.peer_tables import (
    SMALLEST,
    Columns,
    PeerFile,
    all_of,
    attention,
    column,
    is_word,
    not_small,
    of_efficiency,
    seconds_in,
)
from flopcast.operators.base import AbstractOperator
from flopcast.operators.flash_attention import FlashAttention

LATENT_SIZES = (192.0, 128.0)  # of queries and keys, of values: DeepSeek-V3, arXiv:2412.19437, section 4.2


def _latent(sequences: str, heads: str, is_gradient: bool = False) -> Callable[[Columns], FlashAttention]:
    """Return a function that makes causal attention with DeepSeek's heads from the named columns."""
    wide, narrow = LATENT_SIZES

    def make(r: Columns) -> FlashAttention:
        """Return attention over the heads of all sequences, each with its own keys and values."""
        batch = column(r[sequences] * r[heads])
        return FlashAttention(
            batch=batch,
            kv_batch=batch,
            queries=column(r["seq_len"]),
            head_size=0 * batch + wide,
            value_head_size=0 * batch + narrow,
            causal=True,
            dtype="bf16",
            is_gradient=is_gradient,
        )

    return make


ATTENTION_PASSES = {"sdp_fwd": "", "sdp_bwd": ".backward"}


def _simumax(which: str, is_latent: bool) -> PeerFile:
    """Return causal attention whose efficiency counts the whole square: heads of one size, or of sizes
    192 and 128.

    Values above 1 when only half of the square counts show that the table counts the whole square. In the
    backward pass of latent attention, it counts both sizes in every product: 5 · (192 + 128) elements per
    pair, although the five products have 3 · 192 + 2 · 128 (its benchmark,
    simu_tools/efficency_test/test_fa_efficiency.py of MooreThreads/SimuMax).
    """
    backward, (wide, narrow) = which == "sdp_bwd", LATENT_SIZES
    counted_ratio, remark = 2.0, "bf16, causal, of training"
    make = attention("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", is_gradient=backward)
    if is_latent:
        make = _latent("batch", "head_num", is_gradient=backward)
        counted_ratio *= 5 * (wide + narrow) / (2 * (3 * wide + 2 * narrow)) if backward else 1.0
        remark = "training attention: bf16, causal, heads of 192 (Q and K) and 128 (V)"
    return PeerFile(
        path="simumax/attention_efficiency.csv",
        name=f"flash_attention{'.latent' * is_latent}{ATTENTION_PASSES[which]}",
        devices=SIMUMAX,
        operator=make,
        measured_s=lambda r: of_efficiency(r, make(r), counted_ratio),
        belongs=all_of(is_word(f"op={which}"), lambda r: (r["qk_head_dim"] > r["v_head_dim"]) == is_latent),
        remark=remark,
    )


def _part_of_shape(r: Columns, number: int) -> Counts:
    """Return one number of a text such as "32-8-128": heads, key/value heads, head size."""
    words = [name for name in r if name.startswith("shape=")]
    numbers = [float(name.removeprefix("shape=").split("-")[number]) for name in words]
    return np.asarray(sum(r[name] * value for name, value in zip(words, numbers, strict=True)))


def _infersim_attention(r: Columns) -> AbstractOperator:
    """Return one causal sequence: in the table's fractions of the peak, half of the square counts."""
    heads, kv_heads, head_size = (_part_of_shape(r, number) for number in range(3))
    shape = {"one": np.ones_like(heads), "heads": heads, "kv": kv_heads, "size": head_size}
    return attention("one", "seq_len", "heads", "kv", "size")({**r, **shape})


def _infersim_latent(r: Columns) -> AbstractOperator:
    """Return one causal sequence from "128-128-64": number of heads, plain size, rotated size."""
    return _latent("one", "heads")({**r, "one": np.ones_like(r["seq_len"]), "heads": _part_of_shape(r, 0)})


ATTENTION_FILES: tuple[PeerFile, ...] = (
    PeerFile(
        path="aiconfigurator/attention_prefill_bf16.csv.gz",
        name="flash_attention",
        devices=SYSTEMS,
        operator=attention("batch_size", "seq_len", "num_heads", "num_kv_heads", "head_dim"),
        belongs=all_of(
            is_word("framework_name=vllm"), not_small("seq_len"), lambda r: r["head_dim"] <= 256
        ),
        remark="bf16, causal",
    ),
    PeerFile(
        path="aiconfigurator/mla_prefill_bf16.csv.gz",
        name="flash_attention.latent",
        devices={mark: name for mark, name in SYSTEMS.items() if mark != "system=b60"},
        operator=_latent("batch_size", "num_heads"),
        belongs=all_of(is_word("framework_name=trtllm"), not_small("seq_len")),
        remark="bf16, causal, heads of 192 and 128; rotation and cache included",
    ),
    *(_simumax(which, is_latent) for is_latent in (False, True) for which in ATTENTION_PASSES),
    PeerFile(
        path="infersim/mha_prefill.csv",
        name="flash_attention",
        devices={"gpu=h20": "h20-96gb"},
        operator=_infersim_attention,
        measured_s=seconds_in("latency_us"),
        belongs=lambda r: r["seq_len"] >= SMALLEST,
        remark="bf16, causal, one sequence",
    ),
    PeerFile(
        path="infersim/mla_prefill.csv",
        name="flash_attention.latent",
        devices={"gpu=h800": "h800-sxm-80gb"},
        operator=_infersim_latent,
        measured_s=seconds_in("latency_us"),
        belongs=lambda r: r["seq_len"] >= SMALLEST,
        remark="bf16, causal, heads of 192 and 128, one sequence",
    ),
)
