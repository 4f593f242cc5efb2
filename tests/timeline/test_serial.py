"""timeline/serial.py and the seconds of one item: the ends of a step, against sums by hand."""

import pytest
from conftest import make_job
from workbench import only, priced_job, priced_plans, repriced

from flopcast.spec.plan import Plan
from flopcast.timeline.serial import serial_seconds

UPDATE_S, UNSCALE_S, REDUCE_S = 7.0, 2.0, 0.5
ENDS = {
    ("optimizer.update", "step"): UPDATE_S,
    ("optimizer.unscale", "step"): UNSCALE_S,
    ("gradients.reduce", "step"): REDUCE_S,
}
BUCKETS = {"bucket_elements": 1_000_000, "single_bucket_after_backward": False}
SMALL_BUCKETS = {"base": "megatron-2022", "gradients": BUCKETS}


def test_items_of_an_end_follow_each_other_on_every_stage():
    priced = repriced(priced_job(make_job(plan="dp=2 pp=4 gbs=16 precision=fp16")), only(ENDS))

    seconds = serial_seconds(priced.programs.update, priced)

    assert seconds.tolist() == [[UNSCALE_S + UPDATE_S] * 3]  # first, inner and last stages


def test_an_item_lasts_as_long_as_all_of_its_executions():
    job = make_job(stack=SMALL_BUCKETS, plan="dp=2 pp=4 gbs=16 precision=fp16")
    priced = repriced(priced_job(job), only(ENDS))
    programs = priced.programs
    (reduction,) = [item for item in programs.reduce if item.name == "gradients.reduce"]

    found = [priced.seconds(reduction, stage_class=at) for at in range(programs.parameters.shape[1])]

    buckets = [-(-held // 1_000_000) for held in programs.parameters[0].tolist()]
    assert len(set(buckets)) > 1  # the ends of the pipeline hold the tables
    assert found == pytest.approx([REDUCE_S * number for number in buckets])


def test_an_item_is_looked_up_for_the_plan_that_is_asked_for():
    job = make_job(stack=SMALL_BUCKETS)
    plans = [Plan(dp=8 // tensor, tp=tensor, gbs=16, precision="fp16") for tensor in (1, 2, 4)]
    priced = repriced(priced_plans(job, plans), only(ENDS))
    (reduction,) = [item for item in priced.programs.reduce if item.name == "gradients.reduce"]

    found = [priced.seconds(reduction, plan) for plan in range(3)]

    buckets = [-(-held // 1_000_000) for held in priced.programs.parameters[:, 0].tolist()]
    assert found == pytest.approx([REDUCE_S * number for number in buckets])
    assert found == sorted(found, reverse=True)  # more ranks, fewer gradients each
