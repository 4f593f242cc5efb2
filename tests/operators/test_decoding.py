"""Attention while tokens are generated, against closed forms and against attention over prompts."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.latent_decode import LatentDecode


def decoding(cache="", **changes):
    sizes = {"sequences": 16, "keys": 16 * 1000, "heads": 32, "kv_heads": 8, "head_size": 128} | changes
    return DecodeAttention(
        **{name: constant(size) for name, size in sizes.items()}, dtype="bf16", cache=cache
    )


def latent(cache="", **changes):
    sizes = {"sequences": 16, "keys": 16 * 1000, "heads": 128, "rank": 512, "rope_size": 64} | changes
    return LatentDecode(**{name: constant(size) for name, size in sizes.items()}, dtype="bf16", cache=cache)


def test_a_token_multiplies_as_often_as_the_last_row_of_a_prompt():
    prompt = FlashAttention(
        batch=constant(16 * 32),
        kv_batch=constant(16 * 8),
        queries=constant(1000),
        head_size=constant(128),
        causal=False,
        dtype="bf16",
    )

    assert decoding().work().flop.item() == prompt.work().flop.item() / 1000


def test_the_cache_of_a_layer_is_read_once():
    # Llama 3 8B, arXiv:2407.21783, table 3: 4096 bytes a token and layer, in 16 bits
    without = decoding(keys=16)

    read = decoding().work().moved_bytes - without.work().moved_bytes

    assert read.item() == (16_000 - 16) * 4096


def test_latents_are_576_elements_a_token():
    # DeepSeek-V2, arXiv:2405.04434, table 1: (4 + 1/2) head sizes of 128 a token and layer
    read = latent(keys=16_001).work().moved_bytes - latent().work().moved_bytes

    assert read.item() == 2 * 4.5 * 128


@all_cases("make", [decoding, latent])
def test_a_cache_of_8_bits_halves_what_is_read_of_it(make):
    growth = [
        make(cache, keys=32_000).work().moved_bytes - make(cache).work().moved_bytes
        for cache in ("", "fp8")
    ]

    assert growth[0].item() == 2 * growth[1].item()
    assert [make(cache).kernel.endswith(".fp8") for cache in ("", "fp8")] == [False, True]


def test_heads_over_ranks_share_the_work_of_grouped_queries_but_each_rank_reads_all_latents():
    whole, shard = decoding().work(), decoding(heads=8, kv_heads=2).work()
    all_heads, some_heads = latent().work(), latent(heads=32).work()

    assert (shard.flop / whole.flop).item() == (shard.moved_bytes / whole.moved_bytes).item() == 0.25
    assert (some_heads.flop / all_heads.flop).item() == 0.25
    assert (some_heads.moved_bytes / all_heads.moved_bytes).item() > 0.25


@all_cases("make", [decoding, latent])
def test_engines_that_serve_keep_nothing_for_a_backward_pass(make):
    assert make().saves() == make().gradients() == ()


def test_latent_attention_has_the_coordinates_of_one_cached_head():
    one = decoding(heads=128, kv_heads=1, head_size=576)

    np.testing.assert_array_equal(one.coordinates(), latent().coordinates())
    assert latent().work().flop.item() == pytest.approx(one.work().flop.item() * (576 + 512) / (2 * 576))
