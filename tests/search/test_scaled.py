"""search/scaled.py: one plan on other numbers of devices, and which of them cannot be."""

from functools import cache
from itertools import pairwise

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.scaled import GROWN, KEPT, MOST_TASKS, RATIOS, scaled

JOBS = {
    "replicas": {"cluster": "dgx-a100:4", "plan": "dp=8 tp=4 gbs=64 precision=fp16"},
    "pipeline": {"cluster": "dgx-a100:4", "plan": "dp=2 tp=4 pp=4 gbs=32 precision=fp16"},
    "sharded": {
        "cluster": "dgx-a100:1",
        "stack": "torch-fsdp2",
        "plan": "dp=8 zero=3 gbs=64 precision=bf16",
    },
    "one node": {"cluster": "dgx-a100:1", "plan": "dp=8 gbs=16 precision=fp16"},
    "one replica": {"cluster": "dgx-a100:1", "plan": "tp=8 gbs=16 precision=fp16"},
}
EVERY = pytest.mark.parametrize("name", JOBS)


@cache
def report_of(name):
    job = make_job(**JOBS[name])
    return predict(job, load_book(job.cluster))


@cache
def steps_of(name):
    report = report_of(name)
    return scaled(report, load_book(report.job.cluster))


@EVERY
def test_there_is_one_step_for_each_size_and_way_in_order(name):
    steps = steps_of(name)

    keys = [(one.num_devices, one.batch) for one in steps]
    assert keys == sorted(set(keys))
    devices = report_of(name).job.cluster.num_devices
    assert {number / devices for number, _ in keys} <= set(RATIOS)


@EVERY
def test_the_job_s_own_size_is_the_report_itself(name):
    report = report_of(name)

    own = [one for one in steps_of(name) if one.num_devices == report.job.cluster.num_devices]

    assert [one.batch for one in own] == [GROWN, KEPT]
    for one in own:
        assert (one.step_time_s, one.mfu_ratio, one.fits) == (
            report.step_time_s,
            report.metrics.mfu_ratio,
            report.memory.fits,
        )


@EVERY
def test_a_batch_that_is_kept_is_kept_and_one_that_grows_grows_with_the_devices(name):
    job = report_of(name).job

    for one in steps_of(name):
        ratio = one.num_devices / job.cluster.num_devices
        wanted = job.plan.global_batch * (ratio if one.batch == GROWN else 1)
        assert one.global_batch == wanted


@EVERY
def test_rates_are_tokens_of_the_batch_over_the_step_and_money_is_their_inverse(name):
    job = report_of(name).job
    price = job.cluster.price.device_usd_per_hour

    for one in steps_of(name):
        assert one.tokens_per_s == pytest.approx(one.global_batch * 1024 / one.step_time_s)
        hours = 1e12 / one.tokens_per_s / 3600
        assert one.many_usd == pytest.approx(hours * one.num_devices * price, rel=1e-9)


@EVERY
def test_utilisation_and_money_are_two_sides_of_one_number(name):
    """FLOP of a token are the same on every size, so dollars for tokens times MFU are too."""
    products = [one.many_usd * one.mfu_ratio for one in steps_of(name)]

    assert products == pytest.approx([products[0]] * len(products), rel=1e-9)


@all_cases("name", ["replicas", "pipeline", "one node", "one replica"])
def test_more_replicas_of_the_same_work_are_never_faster_each(name):
    """A replica's step with more of them holds the same work and more messages."""
    grown = sorted((one for one in steps_of(name) if one.batch == GROWN), key=lambda one: one.num_devices)

    steps_s = [one.step_time_s for one in grown]
    assert len(steps_s) >= 4
    assert all(after >= before * (1 - 5e-3) for before, after in pairwise(steps_s))


@pytest.mark.parametrize("name", ["replicas", "pipeline"])
def test_a_shared_batch_is_done_sooner_by_more_but_not_in_proportion(name):
    kept = sorted((one for one in steps_of(name) if one.batch == KEPT), key=lambda one: one.num_devices)

    for few, many in pairwise(kept):
        assert many.step_time_s < few.step_time_s
        assert many.step_time_s * many.num_devices >= few.step_time_s * few.num_devices * (1 - 5e-3)


def test_a_single_replica_cannot_be_halved():
    assert min(one.num_devices for one in steps_of("one replica")) == 8


def test_a_part_of_a_node_is_offered_down_to_one_device_a_replica():
    assert min(one.num_devices for one in steps_of("one node")) == 2


def test_a_batch_of_as_many_sequences_as_replicas_is_not_shared_by_more():
    job = make_job(plan="dp=8 gbs=8 precision=fp16")
    steps = scaled(predict(job, load_book(job.cluster)), load_book(job.cluster))

    assert max(one.num_devices for one in steps if one.batch == KEPT) == 8
    assert max(one.num_devices for one in steps if one.batch == GROWN) == 64


def test_micro_batches_that_are_listed_stay_those_of_the_job():
    listed = {"seq": 2048, "micro_batches": [{"seq": 512}, {"seq": 2048}]}
    job = make_job(batch=listed, stack="megatron-core", plan="dp=8 gbs=16 precision=bf16")
    steps = scaled(predict(job, load_book(job.cluster)), load_book(job.cluster))

    assert {one.num_devices for one in steps} == {8}


def test_pipelines_that_are_too_long_to_play_for_a_mark_are_left_out():
    sequences = MOST_TASKS // 8  # forward and backward of four stages, on one replica
    job = make_job(cluster="dgx-a100:1", plan=f"dp=2 pp=4 gbs={sequences} precision=fp16")
    steps = scaled(predict(job, load_book(job.cluster)), load_book(job.cluster))

    least = {batch: min(one.num_devices for one in steps if one.batch == batch) for batch in (KEPT, GROWN)}
    assert least == {KEPT: 4, GROWN: 4}
    longer = make_job(cluster="dgx-a100:1", plan=f"dp=2 pp=4 gbs={sequences + 2} precision=fp16")
    steps = scaled(predict(longer, load_book(job.cluster)), load_book(job.cluster))
    least = {batch: min(one.num_devices for one in steps if one.batch == batch) for batch in (KEPT, GROWN)}
    assert least == {KEPT: 8, GROWN: 4}


def test_sizes_that_break_a_rule_are_left_out():
    """Experts over eight ranks cannot be held by four replicas."""
    experts = {
        "model": {
            "hidden": 1024,
            "vocabulary": 50257,
            "blocks": [
                {
                    "count": 8,
                    "mixer": {"heads": 16},
                    "feed_forward": {
                        "kind": "experts",
                        "num_experts": 8,
                        "top_k": 2,
                        "expert_hidden": 4096,
                    },
                }
            ],
        },
        "stack": "megatron-core",
        "plan": "dp=8 ep=8 gbs=16 zero=1 precision=bf16",
    }
    job = make_job(**experts)
    steps = scaled(predict(job, load_book(job.cluster)), load_book(job.cluster))

    assert min(one.num_devices for one in steps) == 8
    assert max(one.num_devices for one in steps) == 64
