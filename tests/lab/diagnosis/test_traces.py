"""Traces of steps whose parts are known: the diagnosis names the part that takes too long."""

import json

import pytest
from all_cases import all_cases
from judged import without_plans

from flopcast.api import predict
from flopcast.jobs import job
from flopcast.lab.traces.kineto import kineto_trace
from flopcast.lab.validation.step_parts import components

KERNELS = {  # part of a step → the name of a kernel of it
    "gemm": "ampere_bf16_s16816gemm_bf16_128x256",
    "attention": "flash_fwd_kernel",
    "memory_bound": "rmsnorm_fwd",
    "communication": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
}
JOB = job(model="llama-2-7b", cluster="dgx-a100:4", stack="megatron-core-2025", plan="dp=32 gbs=128 zero=1")


def trace_of(seconds, idle_s=0.0):
    """Two equal steps of kernels in a row, and time in which nothing runs."""
    events, at_us = [], 0.0
    for step in (1, 2):
        start_us = at_us
        for part, spent_s in seconds.items():
            events.append(
                {"ph": "X", "cat": "kernel", "name": KERNELS[part], "ts": at_us, "dur": 1e6 * spent_s}
                | {"args": {"device": 0, "stream": 7}}
            )
            at_us += 1e6 * spent_s
        at_us += 1e6 * idle_s
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "tid": 1}
            | {"ts": start_us, "dur": at_us - start_us}
        )
    return kineto_trace([json.dumps({"traceEvents": events})], "rank0.json")


def first_of(seconds, idle_s=0.0):
    return without_plans(JOB, trace=trace_of(seconds, idle_s)).suspects[0]


def predicted():
    """Predicted seconds by part, those that have kernels."""
    report = predict(JOB)
    return {part: seconds for part, seconds in components(report).items() if part in KERNELS}


def test_a_trace_that_is_as_predicted_has_no_measured_suspect():
    told = without_plans(JOB, trace=trace_of(predicted()))

    assert [one.name for one in told.suspects if one.basis not in ("predicted", "unsettled")] == []
    assert len(told.cleared) == 5


SLOW = {  # name of the suspect → parts that take longer, by a factor
    "communication": {"communication": 8.0},
    "attention": {"attention": 2.5},
    "memory_bound": {"memory_bound": 4.0},
    "products": {"gemm": 1.3},
    "clocks": {"gemm": 1.3, "attention": 1.3},
}


@all_cases("name", SLOW)
def test_the_part_that_takes_longer_comes_first_with_its_seconds(name):
    usual = predicted()
    slow = {part: seconds * SLOW[name].get(part, 1.0) for part, seconds in usual.items()}

    first = first_of(slow)

    assert first.name == name
    assert first.cost_s == pytest.approx(sum(slow.values()) - sum(usual.values()), rel=0.02)


def test_time_in_which_nothing_runs_is_the_hosts():
    first = first_of(predicted(), idle_s=1.0)

    assert first.name == "idle_device"
    assert first.cost_s == pytest.approx(1.0, rel=0.1)


def test_a_trace_without_steps_is_compared_only_if_it_may_be_one_step():
    def told(number):
        events = [
            {"ph": "X", "cat": "kernel", "name": KERNELS[part], "ts": 1e6 * start_s, "dur": 1e6 * spent_s}
            | {"args": {"device": 0, "stream": 7}}
            for start_s, part, spent_s in in_a_row(predicted(), number)
        ]
        return without_plans(JOB, trace=kineto_trace([json.dumps({"traceEvents": events})], "rank0.json"))

    one, five = told(1), told(5)

    assert len(one.cleared) == 4
    assert five.cleared == ()
    assert any("contains no step marks" in advice for advice in five.advice)
    assert [each.name for each in five.suspects if each.basis == "measured"] == []


def in_a_row(seconds, number):
    """Start, part and seconds of kernels of so many steps."""
    start_s = 0.0
    for _ in range(number):
        for part, spent_s in seconds.items():
            yield start_s, part, spent_s
            start_s += spent_s


def test_kernels_that_are_hardly_slower_are_no_clock():
    """Products and attention are 6 % slower, but they are a small part of the step."""
    usual = predicted()
    slow = {
        part: spent_s * (1.06 if part in ("gemm", "attention") else 1.0) for part, spent_s in usual.items()
    }
    shares = {part: 0.1 if part in ("gemm", "attention") else 1.0 for part in usual}

    told = without_plans(JOB, trace=trace_of({part: slow[part] * shares[part] for part in slow}))

    assert "clocks" not in [one.name for one in told.suspects if one.basis == "measured"]
    assert all(one.cost_s > 0.0 for one in told.suspects)


def test_a_stage_that_computes_less_waits_longer_and_that_is_as_predicted():
    one = job(
        model="llama-2-7b",
        cluster="dgx-a100:4",
        stack="megatron-core-2025",
        plan="dp=8 pp=4 gbs=128 zero=1",
    )
    report = predict(one)
    busiest = {part: seconds for part, seconds in components(report).items() if part in KERNELS}
    less_s = 0.1 * sum(seconds for part, seconds in busiest.items() if part != "communication")
    waits_s = busiest["communication"] + report.breakdown["pipeline_bubble"] + less_s
    other = {part: 0.9 * seconds for part, seconds in busiest.items()} | {"communication": waits_s}

    told = without_plans(one, trace=trace_of(other))

    assert [each.name for each in told.suspects if each.basis not in ("predicted", "unsettled")] == []
