"""Decoupled segments (arXiv:2403.11204): no stage waits for another, nothing is sent, one is kept."""

import pytest
from conftest import make_job
from single_calls import step_seconds
from workbench import only, priced_job, repriced

from flopcast.library.curves import load_book
from flopcast.memory.in_flight import depths
from flopcast.prediction import predict
from flopcast.schedules import SCHEDULES
from flopcast.timeline.step import run_step

SECONDS = {
    ("mlp.up", "forward"): 1.0,
    ("mlp.up.dgrad", "backward"): 2.0,
    ("hop.activation", "forward"): 9.0,
    ("hop.gradient", "backward"): 9.0,
}


def job_of(schedule, words="pp=4 dp=2 gbs=24"):
    return make_job(
        stack="megatron-2022", cluster="dgx-a100:1", plan=f"{words} precision=fp16 schedule={schedule}"
    )


@pytest.mark.parametrize("words", ["pp=4 dp=2 gbs=24", "pp=4 dp=2 gbs=24 stage_layers=1,4,2,1"])
def test_a_step_is_that_of_the_slowest_stage_whatever_messages_would_take(words):
    priced = repriced(priced_job(job_of("decoupled", words)), only(SECONDS))

    step_s = run_step(priced).step_time_s

    blocks = 4 if "stage_layers" in words else 2  # of eight on four stages
    assert step_s == pytest.approx(12 * blocks * 3.0)
    assert float(step_seconds(priced)[0]) == pytest.approx(step_s, rel=1e-9)


def test_a_stage_keeps_one_micro_batch():
    order = SCHEDULES["decoupled"].order(4, 1, 12)

    assert [depths(order, s, (0,), 1).in_flight.max() for s in range(4)] == [1] * 4


def test_it_is_faster_than_1f1b_needs_less_memory_and_no_time_for_messages_between_stages():
    apart, chained = (
        predict(job, load_book(job.cluster)) for job in (job_of(name) for name in ("decoupled", "1f1b"))
    )

    assert apart.step_time_s < chained.step_time_s
    assert apart.memory.expected_bytes < chained.memory.expected_bytes
    assert apart.breakdown.get("pp_communication", 0.0) == 0.0
    assert apart.metrics.model_flop == chained.metrics.model_flop
