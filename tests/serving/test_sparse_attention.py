"""Serving of DeepSeek's sparse attention: an indexer chooses the tokens that a query attends to."""

import pytest

import flopcast
from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.serving.memory import token_bytes

INDEXED, DENSE = "deepseek-v3.2", "deepseek-v3"


def served(model, **fields):
    fields = {"cluster": "dgx-h200:1", "plan": "tp=8"} | fields
    return flopcast.serving_job(model, **fields)


def seconds(model, traffic, latency):
    return flopcast.predict_serving(served(model, traffic=traffic)).latencies[latency]["mean"].value


def test_models_have_the_indexers_of_their_configs():
    """An indexer projects queries, keys and weights, and has a norm with bias (arXiv:2512.02556, 2.1)."""
    extra = catalog.model(INDEXED).parameters() - catalog.model(DENSE).parameters()

    assert extra == 61 * (1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128)


def test_a_token_keeps_a_key_of_eight_bits_and_its_scale_in_each_layer():
    dense, indexed = (
        served(model, traffic="concurrency=1 prompt=9 output=9") for model in (DENSE, INDEXED)
    )

    assert token_bytes(indexed) - token_bytes(dense) == 61 * (128 + 4)


def test_time_between_tokens_grows_less_with_the_context_than_with_attention_to_all_tokens():
    def growth(model):
        short, long = (
            seconds(model, f"concurrency=16 prompt={prompt} output=30000 requests=160", "tpot")
            for prompt in (1000, 30000)
        )
        return long - short

    assert growth(INDEXED) < 0.6 * growth(DENSE)


def test_prompts_that_are_no_longer_than_the_choice_need_none():
    traffic = "concurrency=1 prompt=1000 output=10"

    dense_s, indexed_s = (seconds(model, traffic, "ttft") for model in (DENSE, INDEXED))

    assert dense_s < indexed_s < 1.15 * dense_s  # the indexer has projections and scores of its own


def test_training_of_sparse_attention_is_an_error_with_a_way_out():
    plan = "dp=64 tp=8 ep=64 etp=1 pp=2 mbs=1 gbs=1024 sp zero=1"
    with pytest.raises(SpecError) as caught:
        flopcast.job(INDEXED, cluster="dgx-h100", gpus=1024, plan=plan)

    changes = [f"model.blocks.{place}.mixer.index=null" for place in (0, 1)]
    assert any(" ".join(changes) in problem.fix for problem in caught.value.problems)
    mended = flopcast.job(
        INDEXED, cluster="dgx-h100", gpus=1024, plan=f"{plan} stage_layers=30,31", changes=changes
    )
    assert mended.model.blocks[0].mixer.index is None
