"""Traces of steps whose parts are known: the diagnosis names the part that takes too long."""

import json

import pytest
from all_cases import all_cases

from flopcast.api import predict
from flopcast.jobs import job
from flopcast.lab.diagnosis.diagnose import diagnose
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
    return diagnose(JOB, predict, trace=trace_of(seconds, idle_s)).suspects[0]


def predicted():
    """Predicted seconds by part, those that have kernels."""
    report = predict(JOB)
    return {part: seconds for part, seconds in components(report).items() if part in KERNELS}


def test_a_trace_that_is_as_predicted_has_no_measured_suspect():
    told = diagnose(JOB, predict, trace=trace_of(predicted()))

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
