"""One operator of every class and kind, over a batch of three plans that differ in every size."""

import numpy as np

from flopcast.operators.convolution import Convolution
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.fused_experts import FusedExperts
from flopcast.operators.fused_pass import FusedPass
from flopcast.operators.gated_delta import DeltaDecode, GatedDelta
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.latent_decode import LatentDecode
from flopcast.operators.matmul import BatchedMatmul, GroupedMatmul, Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.operators.quantise import Quantise
from flopcast.operators.row_sort import RowSort
from flopcast.operators.served_matmul import ServedMatmul

PLANS = 3


def column(*values):
    """One value per plan, shape (plans, 1)."""
    return np.array([[float(value)] for value in values])


TOKENS = column(128, 4096, 10_000)
HIDDEN = column(64, 1024, 5120)
INNER = column(48, 4096, 1280)
LENGTH = column(32, 2048, 1000)
HEADS = column(4, 96, 7)
KV_HEADS = column(4, 8, 1)
HEAD_SIZE = column(16, 128, 80)


def examples(rows=slice(None), dtype="bf16"):
    """Operators by name; `rows` picks plans of the batch."""
    heads = {"batch": HEADS[rows], "kv_batch": KV_HEADS[rows], "head_size": HEAD_SIZE[rows]}
    square = {**heads, "queries": LENGTH[rows], "keys": LENGTH[rows]}
    flash = {**heads, "queries": LENGTH[rows]}
    found = {
        "matmul": Matmul(m=TOKENS[rows], n=INNER[rows], k=HIDDEN[rows], dtype=dtype),
        "narrow_matmul": Matmul(m=TOKENS[rows], n=INNER[rows], k=HIDDEN[rows], dtype=dtype, narrow="mxfp8"),
        "narrow_grouped_matmul": GroupedMatmul(
            groups=KV_HEADS[rows],
            rows=TOKENS[rows],
            n=INNER[rows],
            k=HIDDEN[rows],
            imbalance=1 + 0 * TOKENS[rows],
            dtype=dtype,
            narrow="mxfp8",
        ),
        "quantise": Quantise(elements=TOKENS[rows] * HIDDEN[rows], each_bytes=4.0, dtype=dtype),
        "quantise_gradient": Quantise(
            elements=TOKENS[rows] * HIDDEN[rows], each_bytes=4.0, dtype=dtype, of_gradient=True
        ),
        "grouped_matmul": GroupedMatmul(
            groups=KV_HEADS[rows],
            rows=TOKENS[rows],
            n=INNER[rows],
            k=HIDDEN[rows],
            imbalance=1 + 0 * TOKENS[rows],
            dtype=dtype,
        ),
        "served_matmul": ServedMatmul(m=TOKENS[rows], n=INNER[rows], k=HIDDEN[rows], dtype=dtype),
        "fused_experts": FusedExperts(
            tokens=TOKENS[rows],
            rows=2 * TOKENS[rows],
            hidden=HIDDEN[rows],
            inner=INNER[rows],
            touched=KV_HEADS[rows],
            imbalance=1 + 0 * TOKENS[rows],
            dtype=dtype,
        ),
        "scores": BatchedMatmul(role="scores", dtype=dtype, **square),
        "context": BatchedMatmul(role="context", dtype=dtype, **square),
        "flash_attention": FlashAttention(causal=False, dtype=dtype, **flash),
        "flash_attention_causal": FlashAttention(causal=True, dtype=dtype, **flash),
        "window_attention": FlashAttention(causal=True, dtype=dtype, **flash, mean_keys=LENGTH[rows] / 8),
        "latent_attention": FlashAttention(
            causal=True, dtype=dtype, **flash, value_head_size=2 * HEAD_SIZE[rows] / 3
        ),
        "embedding": EmbeddingLookup(
            tokens=TOKENS[rows], hidden=HIDDEN[rows], vocabulary=10 * INNER[rows], dtype=dtype
        ),
        "dequantise": Dequantise(elements=TOKENS[rows] * HIDDEN[rows], stored="nf4", dtype=dtype),
        "convolution": Convolution(
            rows=TOKENS[rows],
            columns=HIDDEN[rows],
            terms=9 * INNER[rows],
            read=TOKENS[rows] * INNER[rows],
            dtype=dtype,
        ),
        "depthwise_convolution": Convolution(
            rows=TOKENS[rows],
            columns=HIDDEN[rows],
            terms=9 + 0 * HIDDEN[rows],
            read=4 * TOKENS[rows] * HIDDEN[rows],
            groups=HIDDEN[rows],
            is_depthwise=True,
            dtype=dtype,
        ),
        "graph_kernel": GraphKernel(
            family="elementwise",
            moved=2 * TOKENS[rows],
            moved_backward=3 * TOKENS[rows],
            written=TOKENS[rows],
            kept=(("x", TOKENS[rows]),),
            dtype=dtype,
        ),
        "optimizer": OptimizerUpdate(
            parameters=TOKENS[rows], bytes_per_parameter=HEADS[rows] + 24, dtype=dtype
        ),
        "fused_pass": FusedPass(
            moved=TOKENS[rows] * HIDDEN[rows], kept=(("x", TOKENS[rows] * INNER[rows]),), dtype=dtype
        ),
    }
    states = {"sequences": HEADS[rows], "heads": KV_HEADS[rows], "key_heads": KV_HEADS[rows]}
    states |= {"key_size": HEAD_SIZE[rows], "value_size": 2 * HEAD_SIZE[rows], "dtype": dtype}
    found["gated_delta"] = GatedDelta(tokens=LENGTH[rows], **states)
    alike = states | {"key_heads": states["heads"]}
    found["gated_linear_attention"] = GatedDelta(tokens=LENGTH[rows], rule="gated", **alike)
    found["channel_delta"] = GatedDelta(tokens=LENGTH[rows], rule="channel", **alike)
    channels = states | {"key_heads": HEADS[rows] * 0 + 1, "value_size": HEADS[rows] * 0 + 1}
    found["selective_scan"] = GatedDelta(tokens=LENGTH[rows], rule="selective", **channels)
    for version in (5, 6, 7):
        found[f"wkv{version}"] = GatedDelta(tokens=LENGTH[rows], rule=f"rwkv{version}", **alike)
    found["delta_decode"] = DeltaDecode(**states)
    found["state_space_decode"] = DeltaDecode(rule="additive", **states)
    found["row_sort"] = RowSort(rows=TOKENS[rows], columns=HIDDEN[rows], dtype=dtype)
    for cache in ("", "fp8"):
        cached = {"sequences": HEADS[rows], "keys": HEADS[rows] * LENGTH[rows], "cache": cache}
        found[f"decode_attention{cache}"] = DecodeAttention(
            heads=8 * KV_HEADS[rows],
            kv_heads=KV_HEADS[rows],
            head_size=HEAD_SIZE[rows],
            dtype=dtype,
            **cached,
        )
        found[f"latent_decode{cache}"] = LatentDecode(
            heads=8 * KV_HEADS[rows],
            rank=4 * HEAD_SIZE[rows],
            rope_size=HEAD_SIZE[rows] / 2,
            dtype=dtype,
            **cached,
        )
    for kind in KINDS:
        elements = TOKENS[rows] * HIDDEN[rows]
        found[kind] = MemoryBound(kind=kind, elements=elements, width=HIDDEN[rows], dtype=dtype)
    return found


NAMES = tuple(examples())
