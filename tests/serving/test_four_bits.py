"""Weights, activations and caches in 4 bits, as COMET runs them on A100 (arXiv:2410.12168).

Published facts: products 2.88 times as fast as cuBLAS in 16 bits and 1.77 times as fast as TensorRT-LLM
with 4-bit weights, means over large batches; 2.02 and 1.63 times the throughput of TensorRT-LLM with 4-bit
weights, for two pairs of lengths. Chosen inputs, because the text that we read states none: Llama 3 8B and
70B, batches of 64, 128 and 256 (of 16, 64 and 256 against 4-bit weights), prompts of 1024 tokens with 512
of output, 16 % of the blocks of activations in 8 bits. Nothing is fitted.
"""

import numpy as np
import pytest
from all_cases import all_cases
from command_line import flopcast
from serving.test_passes import decoding

from flopcast import predict_serving, serving_job
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.formats import MIXED_ENGINES, SERVED_FORMATS
from flopcast.serving.instances import price_of
from flopcast.serving.memory import serving_memory

PRODUCTS = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
DEGREES = {"llama-3-8b": "tp=1", "llama-3-70b": "tp=1 pp=4"}  # one rank multiplies whole weights


def job_of(model, plan, **traffic):
    return serving_job(model, engine="comet", cluster="dgx-a100", gpus=8, plan=plan, **traffic)


def products_s(model, weights, rows):
    job = job_of(model, f"{DEGREES[model]} weights={weights}")
    priced = price_of(job, load_serving_book(job.cluster), decoding(rows))
    return sum(seconds for item, seconds in priced.seconds() if item.name in PRODUCTS)


def mean_speed_up(of, over, rows):
    ratios = [products_s(model, of, rows) / products_s(model, over, rows) for model in DEGREES]
    return float(np.mean(ratios))


def test_products_are_as_much_faster_as_published():
    """3.10 and 1.72 times."""
    over_16_bits = mean_speed_up("bf16", "w4a4", [64.0, 128.0, 256.0])
    over_4_bit_weights = mean_speed_up("int4", "w4a4", [16.0, 64.0, 256.0])

    assert over_16_bits == pytest.approx(2.88, rel=0.10)
    assert over_4_bit_weights == pytest.approx(1.77, rel=0.10)


def test_throughput_rises_more_than_published():
    """2.47 times with these lengths, where the published mean over models is 2.02."""

    def tokens_per_s(formats):
        load = "concurrency=256 prompt=1024 output=512 requests=600"
        return predict_serving(
            job_of("llama-3-8b", f"tp=1 replicas=1 {formats}", traffic=load)
        ).output_tokens_per_s.value

    ratio = tokens_per_s("weights=w4a4 cache=int4") / tokens_per_s("weights=int4")

    assert 2.02 < ratio == pytest.approx(2.02, rel=0.25)


def test_few_rows_wait_for_weights_and_many_for_engines():
    """The bytes of weights bound one row; scaling sums of 128 integers in fp32 bounds many rows."""
    rows = [1.0, 65536.0]
    few, many = (products_s("llama-3-8b", "bf16", rows) / products_s("llama-3-8b", "w4a4", rows)).ravel()

    device = catalog.device("a100-sxm4-80gb")
    sums_per_s = device.peak("fp32") / 2 / 3  # an instruction is two FLOP
    assert few < 2.0 / SERVED_FORMATS["w4a4"].weight_bytes
    assert device.peak("int4_int8") == pytest.approx(sums_per_s * 256)
    assert many == pytest.approx(device.peak("int4_int8") / device.peak("bf16"), rel=0.02)


@all_cases("fp32_flop_per_s, expected_flop_per_s", [(1e18, 1000e12 / (0.84 + 2 * 0.16)), (3e12, 128e12)])
def test_blocks_of_both_engines_run_one_after_another(fp32_flop_per_s, expected_flop_per_s):
    peaks = {"int4": 1000e12, "int8": 500e12}

    rate = MIXED_ENGINES["int4_int8"].flop_per_s(peaks, fp32_flop_per_s)

    assert rate == pytest.approx(expected_flop_per_s)


def test_a_cache_of_4_bits_holds_and_moves_a_quarter_with_its_scales():
    """A 16-bit scale and zero point for each head of 128 elements: 4 bytes beside 64."""
    wide, narrow = (serving_memory(job_of("llama-3-8b", f"cache={each}")) for each in ("bf16", "int4"))
    sizes = {name: constant(value) for name, value in {"keys": 1e9, "heads": 8, "head_size": 128}.items()}
    shape = sizes | {"sequences": constant(1), "kv_heads": constant(1), "dtype": "bf16"}
    moved = [DecodeAttention(**shape, cache=each).work().moved_bytes.item() for each in ("", "int4")]

    assert narrow.token_bytes / wide.token_bytes == pytest.approx(68 / 256)
    assert moved[1] / moved[0] == pytest.approx(68 / 256, rel=1e-4)


def test_devices_without_integer_engines_refuse_the_format():
    words = ["predict", "llama-3-8b", "--engine", "comet", "--cluster", "dgx-h100:1", "--plan"]

    assert "has no int4 tensor cores" in flopcast(*words, "weights=w4a4 cache=int4").err
    assert (
        "vllm does not support other formats" in flopcast(*words[:3], "vllm", *words[4:], "cache=int4").err
    )


def test_llama_cpp_reads_the_head_and_the_embedding_in_four_bits_as_well():
    """Gemma 3 4B shares a table of 262,208 x 2,560 weights between both; a weight takes about 4.5 bits."""
    llama_cpp = serving_job(
        "gemma-3-4b", engine="llama.cpp", cluster="rtx-3090-8", plan="tp=1 weights=int4"
    )
    wide = llama_cpp.engine.model_copy(update={"narrow_tables": False})
    table_bytes = 262_208 * 2560 * (2 - SERVED_FORMATS["int4"].bytes_of_weight("bf16"))

    both = [llama_cpp, llama_cpp.model_copy(update={"engine": wide})]
    narrow_bytes, wide_bytes = (serving_memory(job).weight_bytes for job in both)
    narrow_s, wide_s = (
        next(
            seconds
            for item, seconds in price_of(job, load_serving_book(job.cluster), decoding([1.0])).seconds()
            if item.name == "head.logits"
        )
        for job in both
    )

    assert wide_bytes - narrow_bytes == pytest.approx(table_bytes, rel=1e-3)  # rows are padded
    assert narrow_s < wide_s / 2
