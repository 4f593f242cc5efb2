"""Activations in fewer bytes, as DeepSeek-V3 keeps them (arXiv:2412.19437, section 3.3.3), by hand."""

import pytest
from workload_cases import HIDDEN, LENGTH, LLAMA, at, block_of, flop_of, realised, stack_with

from flopcast.api import predict
from flopcast.jobs import job
from flopcast.library import catalog
from flopcast.operators.formats import FORMATS
from flopcast.operators.quantise import Quantise
from flopcast.spec.precision import RECIPES

FFN = 2816
RECIPE = "fp8_blockwise"
NARROW_BYTES = FORMATS[RECIPES[RECIPE].format].size_bytes


def block(*smaller, precision=RECIPE, recompute="selective:layernorm"):
    stack = stack_with(catalog.stack("megatron-core"), narrow={"smaller_activations": smaller})
    return block_of(realised(LLAMA, stack, f"mbs=1 gbs=1 recompute={recompute} precision={precision}"))


def spared(*smaller, **settings):
    return at(block(**settings).kept_bytes) - at(block(*smaller, **settings).kept_bytes)


def test_inputs_of_the_gate_are_kept_in_8_bits():
    assert spared("gate_inputs") == pytest.approx(LENGTH * 2 * FFN * (2 - NARROW_BYTES))
    assert spared("gate_inputs", precision="nvfp4") == pytest.approx(LENGTH * 2 * FFN * (2 - 1))


def test_the_output_of_attention_is_kept_once_in_12_bits():
    assert spared("attention_outputs") == pytest.approx(LENGTH * HIDDEN * (2 + NARROW_BYTES - 1.5))


def test_what_a_recomputed_norm_makes_is_cast_again_and_not_kept():
    plain, recast = block(), block("recast")

    repeated = [item for item in recast.backward if item.phase == "recompute"]
    again = [item for item in repeated if isinstance(item.work, Quantise)]
    assert spared("recast") == pytest.approx(2 * LENGTH * HIDDEN * NARROW_BYTES)
    assert sorted(item.name for item in again) == ["attention.qkv_cast", "mlp.up_cast"]
    assert len(recast.backward) == len(plain.backward) + len(again)
    assert flop_of(recast.backward) == flop_of(plain.backward)


def test_each_cast_runs_again_after_its_norm_and_before_the_weight_gradient_that_reads_it():
    names = [item.name for item in block("recast").backward]

    for norm, cast, gradient in (
        ("attention.norm", "attention.qkv_cast", "attention.qkv.wgrad"),
        ("mlp.norm", "mlp.up_cast", "mlp.up.wgrad"),
    ):
        assert names.index(norm) < names.index(cast) < names.index(gradient)


def test_nothing_is_spared_in_16_bits_or_where_nothing_is_recomputed():
    everything = ("recast", "gate_inputs", "attention_outputs")

    assert spared(*everything, precision="bf16") == 0
    assert spared("recast", recompute="none") == 0


def test_products_take_longer_in_proportion_to_the_multiprocessors_that_messages_leave():
    words = {"model": "llama-2-7b", "cluster": "dgx-h100:1", "plan": "dp=8 mbs=1 gbs=8", "seq": 2048}
    whole = job(**words).cluster.node.device.multiprocessors
    found = []
    for number in (0, whole // 4):
        stack = {"base": "megatron-core", "contention": {"reserved_multiprocessors": number}}
        prices = predict(job(**words, stack=stack)).priced.prices
        found.append({item.name: price.one_s(0) for item, price in prices.items()})

    plain, reserved = found
    assert reserved["mlp.up"] == pytest.approx(plain["mlp.up"] * whole / (whole - whole // 4))
    assert reserved["mlp.norm"] == pytest.approx(plain["mlp.norm"])
