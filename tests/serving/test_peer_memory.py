"""Weights in the memory of peer devices (EnergonAI, arXiv:2209.02341): bytes, links, and what they cost.

The text of the paper that was read states no numbers: the oracles are closed forms.
"""

import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast import predict_serving, serving_job
from flopcast.library.curves import load_serving_book
from flopcast.serving.instances import times_of
from flopcast.serving.memory import fetched_bytes, serving_memory

WORDS = ["predict", "llama-2-70b", "--engine", "vllm", "--cluster", "dgx-a100:1", "--plan"]


def job_of(share, model="opt-30b", replicas=1):
    plan = f"tp=1 replicas={replicas} weights=bf16 peer_weight_fraction={share}"
    traffic = "concurrency=8 prompt=500 output=50 requests=32"
    return serving_job(model, engine="vllm", cluster="dgx-a100", gpus=8, plan=plan, traffic=traffic)


@all_cases("share", (0.25, 0.5))
def test_weights_on_a_peer_leave_their_room_to_the_cache(share):
    alone, pooled = (serving_memory(job_of(each)) for each in (0.0, share))

    freed = alone.weight_bytes - pooled.weight_bytes
    assert freed == pytest.approx(fetched_bytes(job_of(share)) * 47 / 48)  # room for one of 48 blocks
    assert pooled.cache_bytes == pytest.approx(alone.cache_bytes + freed)


def test_a_pass_takes_at_least_the_time_of_its_weights_on_the_link():
    """OPT-30B, half of its weights at the 300 GB/s of one direction of NVLink, or less."""
    alone, pooled = (
        times_of(job_of(each), load_serving_book(job_of(each).cluster), 600) for each in (0.0, 0.5)
    )

    fetch_s = pooled.copies.weights_s
    assert 1 < fetch_s / (fetched_bytes(job_of(0.5)) / 300e9) < 2
    host_s = pooled.engine.iteration.host_s + pooled.engine.iteration.sequence_s
    assert pooled(1.0, 1.0, 100.0, 100.0) == pytest.approx(fetch_s + host_s)
    long = 8000.0, 1.0, 8000.0, 8000.0**2 / 2
    assert pooled(*long) == pytest.approx(alone(*long))  # prompts hide the transfer


def test_a_model_that_does_not_fit_is_served_and_the_report_says_what_it_waits_for():
    with pytest.raises(ValueError, match=r"weights \("):
        predict_serving(job_of(0.0, "llama-2-70b"))
    report = predict_serving(job_of(0.6, "llama-2-70b"))

    assert report.shares["fetch"] > 0.3
    assert sum(report.shares.values()) == pytest.approx(1)
    assert report.job.devices == 1
    text = flopcast(*WORDS, "tp=1 replicas=1 peer_weight_fraction=0.6").out
    assert "peer_weight_fraction=0.6" in text
    assert "waiting for weights from other devices" in text


@all_cases(
    "plan, because",
    (
        ("tp=8 peer_weight_fraction=0.5", "no spare device is left"),
        ("tp=1 pp=2 replicas=1 peer_weight_fraction=0.5", "stages or pools"),
        ("tp=1 replicas=1 peer_weight_fraction=1.5", "peer_weight_fraction"),
    ),
)
def test_where_no_peer_has_room_it_is_refused(plan, because):
    ended = flopcast(*WORDS, plan)

    assert ended.code == 1
    assert because in ended.err
