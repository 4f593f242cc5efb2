"""Attention of decoding sequences in the kernel that also computes prompts: FlashAttention 2 in vLLM.

Answers: how long does decode attention take in a pass with prompts, if one kernel computes both?
Elsewhere: decode attention in passes that only decode (operators/decode_attention.py and its curve).

In a pass that only decodes, the kernel computes the query heads that share keys together, and splits long
contexts over multiprocessors. In a pass with prompts, it does neither (mha_varlen_fwd in
csrc/flash_attn/flash_api.cpp of vllm-project/flash-attention: only if max_seqlen_q is 1). One thread block
then computes one query head of one sequence, in tiles of 64 rows of which one is used (kBlockM in
flash_fwd_launch_template.h). Blocks start in the order of sequences, and then of heads. Query heads whose
blocks do not run at the same time read their keys and values from memory again, unless the cache of the
device holds those of all sequences.
"""

import numpy as np

from flopcast.cost.kernels.roofline import cycle_seconds, moving_seconds
from flopcast.dtypes import ELEMENT_BYTES, Floats
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.records import replace
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.pass_prices import PricedPasses, has_prompts
from flopcast.spec.cluster import Device
from flopcast.spec.engine import Engine

TILE_ROWS = 64
# Cycles of a thread block beside its products: from kernels of vLLM on RTX PRO 6000 and RTX 4090
# (data/peers/llmservingsim/vllm_attention.csv.gz; tests/cost/test_measured_rows.py scores both). A
# multiprocessor of these boards holds one block at a time, so that its softmax overlaps with no product.
BLOCK_CYCLES = 10_000.0
KEY_CYCLES = 25.0


def joins_attention(engine: Engine, device: Device) -> bool:
    """Return whether one kernel computes prompts and decoding sequences of a pass on a device."""
    return device.clock_hz is not None and device.name.startswith(engine.joined_attention)


def with_joined_attention(
    priced: PricedPasses, run: EnginePass, engine: Engine, device: Device
) -> PricedPasses:
    """Return prices in which decode attention in passes with prompts takes the time of the prompt kernel.

    The kernel reads caches in 16 bits; engines compute other caches with other kernels.
    """
    if not joins_attention(engine, device):
        return priced
    prompts, prices = has_prompts(run)[:, None], dict(priced.prices)
    for item, price in priced.prices.items():
        if isinstance(item.work, DecodeAttention) and not item.work.cache:
            joined_s = joined_seconds(item.work, device)
            prices[item] = replace(price, alone_s=np.where(prompts, joined_s, price.alone_s))
    return replace(priced, prices=prices)


def joined_seconds(work: DecodeAttention, device: Device) -> Floats:
    """Return the seconds by which decoding sequences lengthen the kernel that computes prompts."""
    row_bytes = 2 * work.head_size * ELEMENT_BYTES[work.dtype]  # key and value
    sharing = work.heads / np.maximum(work.kv_heads, 1.0)
    at_once = np.maximum(np.floor(device.multiprocessors / np.maximum(work.sequences, 1.0)), 1.0)
    reads = np.where(work.keys * row_bytes > device.cache_bytes, np.ceil(sharing / at_once), 1.0)
    moving_s = moving_seconds(reads * work.keys * work.kv_heads * row_bytes, device)
    products_s = TILE_ROWS * work.work().flop / device.peak(work.dtype)
    cycles = work.heads * (work.sequences * BLOCK_CYCLES + work.keys * KEY_CYCLES)
    joined_s: Floats = np.maximum(products_s + cycle_seconds(cycles, device), moving_s)
    return joined_s
