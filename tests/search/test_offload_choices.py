"""Placements outside the devices as an axis of a search: what is tried, and which plan is the best."""

import pytest
from conftest import make_job

from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.find import find
from flopcast.search.offload_choices import offload_choices
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.spec.offload import Placement, offload_word
from flopcast.workload.checks import check

DEEPSPEED = {"cluster": "dgx-h100:1", "stack": "deepspeed-zero"}
FEW = {"cp": 1, "mbs": (1, 2), "zero": (2, 3), "gbs": 64, "dp": 8, "refine": False}


def searched(job, **space):
    return find(Question(jobs=(job,), space=Space(**FEW | space)), load_book)


def with_memory(job, *, device_bytes=80e9, host_bytes=2e12):
    """The job on devices and hosts with so much memory."""
    (group,) = job.cluster.groups
    memory = group.node.memory.model_copy(update={"capacity_bytes": host_bytes})
    device = group.node.device.model_copy(update={"memory_bytes": device_bytes})
    node = group.node.model_copy(update={"memory": memory, "device": device})
    cluster = job.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return job.model_copy(update={"cluster": cluster})


def test_every_choice_is_one_that_the_stack_has_and_nothing_is_tried_without_memory_of_the_host():
    job = make_job(**DEEPSPEED, plan="dp=8 gbs=64 zero=3")
    (group,) = job.cluster.groups
    bare = group.node.model_copy(update={"memory": None})
    cluster = job.cluster.model_copy(update={"groups": (group.model_copy(update={"node": bare}),)})

    choices = offload_choices(job)

    assert choices[0] == ()
    assert len(set(choices)) == len(choices)
    for choice in choices:
        plan = job.plan.model_copy(update={"offload": choice})
        assert check(job.model_copy(update={"plan": plan})) == (), offload_word(choice)
    assert offload_choices(job.model_copy(update={"cluster": cluster})) == ((),)
    assert set(offload_choices(job, in_parts=False)) < set(choices)


def test_placements_are_tried_if_asked_for_and_the_best_plan_is_within_one_percent_of_the_best_of_all():
    job = make_job(**DEEPSPEED, plan="dp=8 gbs=64 zero=3", model="llama-3-8b")
    job = with_memory(job, device_bytes=18e9)
    book, kept = load_book(job.cluster), KeptResults(4096)
    seconds, choices = {}, offload_choices(job)
    for offload in choices:
        fields = {"recompute": "full", "offload": offload}
        one = job.model_copy(update={"plan": job.plan.model_copy(update=fields)})
        assert check(one) == ()
        report = predict(one, book, kept)
        if report.memory.verdict == "fits":
            seconds[one.plan] = report.step_time_s

    few = {"zero": 3, "mbs": 1, "recompute": "full"}
    plain, found = searched(job, **few), searched(job, **few, offload="auto")

    best = min(one.played.step_time_s for one in found.plans)
    assert not any(one.played.plan.offload for one in (*plain.plans, *plain.nearest))
    assert any(one.played.plan.offload for one in found.plans)
    assert (plain.candidates, found.candidates) == (1, len(choices))
    assert 10 < len(seconds) < len(choices)
    assert best <= 1.01 * min(seconds.values())


def test_plans_whose_host_overflows_are_not_proposed():
    job = make_job(**DEEPSPEED, plan="dp=8 gbs=64 zero=3")
    placed = {"offload": "optimizer:host", "zero": 3}

    roomy, small = (searched(with_memory(job, host_bytes=size), **placed) for size in (2e12, 1e9))

    assert roomy.plans
    assert not small.plans
    assert small.nearest[0].played.device_verdict == "fits"
    assert small.nearest[0].played.verdict == "does not fit"


@pytest.mark.parametrize("tier", ["host", "nvme"])
def test_a_searched_plan_has_the_memory_and_the_step_of_its_prediction(tier):
    job = make_job(**DEEPSPEED, plan="dp=8 gbs=64 zero=3")
    placement = Placement(kind="optimizer", tier=tier, fraction=0.5)

    found = searched(job, offload=[(placement,)], zero=3, recompute="none")

    for one in found.plans:
        report = predict(one.played.job, load_book(job.cluster))
        assert one.played.step_time_s == pytest.approx(report.step_time_s, rel=1e-9)
        assert one.played.verdict == report.memory.verdict
        (held,) = (each for each in report.memory.tiers if each.tier == tier)
        assert one.played.outside_ratio >= held.high_bytes / held.capacity_bytes * (1 - 1e-9)
