"""Packed sequences: documents cost what they would cost as sequences of their own."""

import pytest
from all_cases import all_cases
from conftest import make_job
from unmarked import unmarked

from flopcast.api import predict
from flopcast.render.report_text import marked_text
from flopcast.spec.batch import Batch

as_text = unmarked(marked_text)

MODEL = {
    "hidden": 1024,
    "vocabulary": 50257,
    "blocks": [{"count": 8, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}],
}
LATENT = {
    "kind": "latent_attention",
    "heads": 16,
    "q_lora_rank": 512,
    "kv_lora_rank": 256,
    "qk_rope_head_size": 64,
    "qk_nope_head_size": 128,
    "value_head_size": 128,
}


def report_of(batch, plan, mixer=None):
    block = MODEL["blocks"][0] | ({"mixer": mixer} if mixer else {})
    return predict(
        make_job(model=MODEL | {"blocks": [block]}, stack="megatron-core", batch=batch, plan=plan)
    )


@all_cases("plan", ["dp=8 mbs={} gbs={}", "tp=2 pp=2 dp=2 sp mbs={} gbs={} recompute=full"])
@all_cases("mixer", [{"heads": 16, "kv_heads": 4}, LATENT])
def test_equal_documents_take_time_memory_and_flop_of_as_many_sequences(plan, mixer):
    packed = report_of({"seq": 4096, "documents": [1024] * 4}, plan.format(1, 16), mixer)

    apart = report_of({"seq": 1024}, plan.format(4, 64), mixer)

    assert packed.step_time_s == pytest.approx(apart.step_time_s, rel=1e-9)
    assert packed.memory.allocated_bytes == pytest.approx(apart.memory.allocated_bytes, rel=1e-9)
    assert packed.metrics.model_flop == pytest.approx(apart.metrics.model_flop, rel=1e-12)
    assert packed.metrics.hardware_flop == pytest.approx(apart.metrics.hardware_flop, rel=1e-12)


def test_flop_of_attention_count_the_square_of_each_document():
    plan = "dp=8 mbs=1 gbs=16"
    whole, packed = (
        report_of({"seq": 4096} | documents, plan).metrics.model_flop
        for documents in ({}, {"documents": [96, 1000, 3000]})
    )

    # three passes of 4 h s² each (arXiv:2104.04473, appendix), 8 blocks, 16 sequences
    saved = 3 * 4 * 1024 * (4096**2 - 96**2 - 1000**2 - 3000**2) * 8 * 16
    assert whole - packed == pytest.approx(saved, rel=1e-9)


def test_shorter_documents_are_never_slower_and_one_document_is_the_sequence():
    plan = "dp=8 mbs=1 gbs=16"
    steps = [
        report_of({"seq": 4096, "documents": documents}, plan).step_time_s
        for documents in ([4096], [96, 4000], [2048, 2048], [1024] * 4)
    ]

    assert steps == sorted(steps, reverse=True)
    assert steps[0] == report_of({"seq": 4096}, plan).step_time_s


def test_the_mean_document_is_that_of_a_token():
    batch = Batch(seq=100, documents=(10, 90))

    assert batch.mean_document_tokens == pytest.approx(0.1 * 10 + 0.9 * 90)


def test_a_report_says_that_sequences_are_packed():
    told = as_text(report_of({"seq": 4096, "documents": [2048, 2048]}, "dp=8 mbs=1 gbs=16"))

    assert "seq=4096 in 2 documents of 2048" in told
