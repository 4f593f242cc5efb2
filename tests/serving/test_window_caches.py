"""Caches of layers with a window, as vLLM's hybrid KV cache manager allocates them."""

import pytest

from flopcast import predict_serving, serving_job
from flopcast.library import catalog
from flopcast.serving.memory import serving_memory
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

GEMMA, WINDOWS, FULL, WINDOW = "gemma-3-12b", 40, 8, 1024
PLAN = "tp=2 replicas=1 weights=int4"
TOKEN_BYTES = 2 * 8 * 256 * 2  # keys and values of 8 heads of 256 elements in 16 bits


def memory_of(**traffic):
    job = ServingJob(
        model=catalog.model(GEMMA),
        cluster=catalog.cluster("dgx-h100", 1),
        engine=catalog.engine("vllm"),
        plan=Deployment(),
        traffic=Traffic.model_validate({"rate": "1/s", **traffic}),
    )
    return serving_memory(job)


@pytest.mark.parametrize(("prompt", "output"), [(100, 50), (1000, 500), (20_000, 400)])
def test_caches_hold_the_last_tokens_of_requests_and_not_a_window_for_each_sequence_of_the_engine(
    prompt, output
):
    memory = memory_of(prompt=prompt, output=output)

    held = TOKEN_BYTES * WINDOWS * min(prompt + output, WINDOW)
    running = held + TOKEN_BYTES * FULL * (prompt + output / 2)
    assert memory.window_bytes == held
    assert memory.token_bytes == TOKEN_BYTES * FULL
    assert memory.most_sequences == min(int(memory.cache_bytes / running), 1024)
    left_bytes = memory.cache_bytes - memory.most_sequences * held
    assert memory.cache_tokens == int(left_bytes / memory.token_bytes)


def test_a_cache_that_holds_fewer_sequences_than_a_pass_limits_the_engine():
    """Gemma 3 27B on two RTX 4090 with 4-bit weights has room for fewer than 64 requests."""
    load = "concurrency=64 prompt=2000 output=100 requests=128"
    job = serving_job("gemma-3-27b", engine="vllm", cluster="rtx-4090-8", gpus=8, plan=PLAN, traffic=load)

    report = predict_serving(job)

    assert report.memory.most_sequences < report.job.most_sequences == 64
    assert report.limited_by == "kv"


def test_recorded_requests_may_fill_their_windows():
    memory = memory_of(rate=None, trace="requests.csv")

    assert memory.window_bytes == TOKEN_BYTES * WINDOWS * WINDOW
    assert 0 < memory.most_sequences * memory.window_bytes < memory.cache_bytes / 2
