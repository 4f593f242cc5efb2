"""What devices are busy with in the mean: kernels as often as programs run them, whatever hides them."""

from collections import defaultdict

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.economics.energy import power_class
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.prediction import predict
from flopcast.report.events import events

JOBS = {
    "one stage": {},
    "sharded": {"plan": "dp=8 mbs=1 gbs=32 zero=3 precision=bf16", "stack": "torch-fsdp2"},
    "pipeline": {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 sp gbs=16 recompute=selective precision=fp16"},
    "interleaved": {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 vpp=2 gbs=16 precision=fp16"},
}


def report_of(name):
    job = make_job(**JOBS[name])
    return predict(job, load_book(job.cluster))


@all_cases("name", JOBS)
def test_kernels_are_busy_as_long_as_the_events_of_a_step_show(name):
    """Every operator of every task of every stage, laid out one by one."""
    report = report_of(name)
    kernels = {
        item.name
        for item in report.priced.programs.items()
        if isinstance(item.work, AbstractOperator) and report.priced.of(item).alone_s.max() > 0
    }
    laid_out: dict[str, float] = defaultdict(float)
    stages = set()
    for event in events(report):
        stages.add(event.stage)
        if event.operator in kernels and event.stream == "compute":
            laid_out[event.operator] += event.end_s - event.start_s

    busy: dict[str, float] = defaultdict(float)
    for share in report.timeline.mean_attribution:
        if isinstance(share.item.work, AbstractOperator):
            busy[share.item.name] += share.path_s * len(stages)

    assert sum(busy.values()) == pytest.approx(sum(laid_out.values()), rel=1e-6)


@all_cases("name", JOBS)
def test_no_device_is_busy_for_longer_than_the_step(name):
    report = report_of(name)
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.mean_attribution:
        seconds[power_class(share.item)] += share.path_s

    assert all(each >= 0 for each in seconds.values())
    assert sum(seconds.values()) <= report.timeline.step_time_s * 1.01
