"""search/screen.py: thousands of plans at once, against the same plans one by one and against laws."""

import math
import random
from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from single_calls import screen_each

from flopcast.library.curves import load_book
from flopcast.prediction import memory_of, predict
from flopcast.report.metrics import measure
from flopcast.spec.plan import Plan
from flopcast.spec.site import Site, SiteFactor
from flopcast.workload.checks import check

SINGLES = 10  # of each batch, looked at alone
STACKS = {"megatron-2022": "selene:64", "gpt-neox-deepspeed": "perlmutter:128"}
RECOMPUTE = ("none", "selective", "full")


@cache
def job_on(stack):
    return make_job(
        model="gpt3-175b",
        cluster=STACKS[stack],
        stack=stack,
        batch={"sequence_length": 2048},
        plan="tp=8 pp=8 dp=8 gbs=64 precision=fp16",
    )


def some_plan(rng):
    """One plan for 512 devices; about one in ten is impossible."""
    tensor, stages = rng.choice([1, 2, 4, 8, 16]), rng.choice([1, 2, 4, 8, 16, 32])
    replicas = max(1, 512 // (tensor * stages))
    virtual = rng.choice([1, 1, 2, 3]) if stages > 1 else 1
    micro_batch = rng.choice([1, 2, 4])
    micro_batches = rng.choice([1, 2, 3, 4, 8]) * stages
    return Plan(
        dp=rng.choice([replicas] * 19 + [3]),
        tp=tensor,
        pp=stages,
        vpp=virtual,
        mbs=micro_batch,
        gbs=replicas * micro_batch * micro_batches + rng.choice([0] * 19 + [1]),
        sp=rng.random() < 0.5,
        zero=rng.choice([0, 1]),
        recompute=rng.choice(RECOMPUTE),
        precision="fp16",
    )


@cache
def thousands(stack):
    rng = random.Random(17)
    plans = [some_plan(rng) for _ in range(4000)]
    job = job_on(stack)
    return plans, screen_each(job, plans, load_book(job.cluster))


def first_of(stack, number):
    """The first of the plans, their seconds, and which of them are possible."""
    plans, together = thousands(stack)
    return plans[:number], together.step_time_s[:number], together.possible[:number]


def screened(job, plans):
    return screen_each(job, plans, load_book(job.cluster))


@all_cases("stack", STACKS)
def test_plans_in_a_batch_of_thousands_equal_the_plans_one_by_one(stack):
    plans, together = thousands(stack)
    chosen = random.Random(1).sample(range(len(plans)), SINGLES)

    alone = [screened(job_on(stack), [plans[index]]) for index in chosen]

    for field in ("step_time_s", "device_used_bytes"):
        batch = getattr(together, field)[chosen]
        single = np.array([getattr(one, field)[0] for one in alone])
        np.testing.assert_allclose(batch, single, rtol=1e-12, atol=0, err_msg=field)
    assert [bool(one.fits[0]) for one in alone] == together.fits[chosen].tolist()
    assert [bool(one.possible[0]) for one in alone] == together.possible[chosen].tolist()


@all_cases("stack", STACKS)
def test_the_batch_holds_every_kind_of_plan(stack):
    # what the test above compares is worth nothing if the draw is poor
    plans, together = thousands(stack)

    kept = [plan for plan, possible in zip(plans, together.possible, strict=True) if possible]
    seen = {(plan.recompute, plan.sequence_parallel, plan.zero) for plan in kept}
    assert seen == {(mode, sp, zero) for mode in RECOMPUTE for sp in (False, True) for zero in (0, 1)}
    assert 0 < together.fits.sum() < together.possible.sum() < len(plans)


@all_cases("stack", STACKS)
def test_impossible_plans_are_not_a_number_and_do_not_fit(stack):
    _, together = thousands(stack)

    impossible = ~together.possible
    assert impossible.any()
    assert np.isnan(together.step_time_s[impossible]).all()
    assert np.isnan(together.device_used_bytes[impossible]).all()
    assert not together.fits[impossible].any()
    assert np.isfinite(together.step_time_s[together.possible]).all()


@all_cases("stack", STACKS)
def test_possible_are_exactly_the_plans_that_a_job_may_have(stack):
    plans, together = thousands(stack)
    chosen = random.Random(2).sample(range(len(plans)), 500)

    allowed = [not check(job_on(stack).model_copy(update={"plan": plans[index]})) for index in chosen]

    assert together.possible[chosen].tolist() == allowed


@all_cases("stack", STACKS)
def test_no_plan_multiplies_faster_than_its_devices_can(stack):
    # arXiv:2104.04473, eq. 3, without recompute: 72 B s l h² (1 + s / 6h + V / 12lh) FLOP a step
    plans, together = thousands(stack)
    hidden, layers, length, vocabulary = 12288, 96, 2048, 51200
    per_sequence = 72 * length * layers * hidden**2
    per_sequence *= 1 + length / (6 * hidden) + vocabulary / (12 * layers * hidden)
    batches = np.array([plan.global_batch for plan in plans])

    bound_s = batches * per_sequence / (512 * 312e12)

    assert (together.step_time_s >= bound_s)[together.possible].all()


@all_cases("stack", STACKS)
def test_what_is_run_again_counts_in_the_bound(stack):
    plans, together = thousands(stack)
    job = job_on(stack)

    for index in random.Random(4).sample(np.flatnonzero(together.possible).tolist(), 300):
        seconds = float(together.step_time_s[index])
        assert measure(job.model_copy(update={"plan": plans[index]}), seconds).hfu_ratio < 1


def test_faster_network_cards_are_never_slower():
    job = job_on("megatron-2022")
    inner, outer = job.cluster.tiers
    plans, before_s, kept = first_of("megatron-2022", 150)

    for factor in (1.5, 4.0):
        tiers = (inner, outer.model_copy(update={"bytes_per_s": outer.bytes_per_s * factor}))
        faster = job.model_copy(update={"cluster": job.cluster.model_copy(update={"tiers": tiers})})
        after = screened(faster, plans)

        assert (after.step_time_s[kept] <= before_s[kept] * (1 + 1e-12)).all(), factor
        assert (after.step_time_s[kept] < before_s[kept]).any(), factor


def test_a_faster_host_is_never_slower():
    job = job_on("gpt-neox-deepspeed")
    (group,) = job.cluster.groups
    host = group.node.host.model_copy(update={"speed_ratio": 2.0})
    group = group.model_copy(update={"node": group.node.model_copy(update={"host": host})})
    faster = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    plans, before_s, kept = first_of("gpt-neox-deepspeed", 150)

    after_s = screened(faster, plans).step_time_s

    assert (after_s[kept] <= before_s[kept] * (1 + 1e-12)).all()
    assert (after_s[kept] < before_s[kept]).any()


def test_a_site_scales_what_is_screened():
    # twice as slow a fabric makes every plan slower that sends over it, by its messages alone
    job = job_on("megatron-2022")
    site = Site(name="here", factors=(SiteFactor(name="fabric[infiniband]", ratio=2.0),))
    plans, before_s, kept = first_of("megatron-2022", 150)

    slower = screened(job.model_copy(update={"site": site}), plans)

    ratio = (slower.step_time_s / before_s)[kept]
    assert ((ratio > 1) & (ratio < 2)).all()


@all_cases("mode", RECOMPUTE[1:])
def test_recompute_trades_time_for_memory(mode):
    job = job_on("megatron-2022")
    words = {"tp": 8, "pp": 8, "dp": 8, "mbs": 2, "gbs": 256, "precision": "fp16"}

    found = screened(job, [Plan(**words), Plan(**words, recompute=mode)])

    assert found.step_time_s[1] > found.step_time_s[0]
    assert found.device_used_bytes[1] < found.device_used_bytes[0]


def test_memory_is_that_of_the_job_with_this_plan():
    plans, together = thousands("megatron-2022")
    job = job_on("megatron-2022")

    for index in random.Random(5).sample(np.flatnonzero(together.possible).tolist(), 40):
        told = memory_of(job.model_copy(update={"plan": plans[index]}))
        assert together.device_used_bytes[index] == pytest.approx(told.device_used_bytes, rel=1e-12)
        assert together.fits[index] == told.fits


@all_cases("schedule", ["auto", "gpipe", "zb_h1", "zb_v"])
def test_memory_of_many_batches_is_that_of_each(schedule):
    # plans that differ in their global batch share programs, and their memory until the pipeline is full
    shape = {"dp": 8, "tp": 8, "pp": 8, "vpp": 2 if schedule == "zb_v" else 1, "sp": True}
    job = job_on("megatron-2022")
    plans = [
        Plan(gbs=8 * number, zero=1, schedule=schedule, precision="bf16", **shape)
        for number in (1, 2, 4, 16, 64, 128)
    ]

    found = screened(job, plans)

    alone = [memory_of(job.model_copy(update={"plan": plan})) for plan in plans]
    each = [one.device_used_bytes for one in alone]
    assert found.device_used_bytes.tolist() == pytest.approx(each, rel=1e-12)
    assert found.fits.tolist() == [one.fits for one in alone]
    assert len(set(each)) > 2


def test_the_jobs_own_plan_plays_no_part():
    job = job_on("megatron-2022")
    plans = [Plan(tp=8, pp=8, dp=8, gbs=gbs, precision="fp16") for gbs in (64, 128)]
    other = job.model_copy(update={"plan": Plan(dp=512, gbs=512, precision="bf16", recompute="full")})

    np.testing.assert_array_equal(screened(job, plans).step_time_s, screened(other, plans).step_time_s)


def test_a_schedule_that_is_named_and_one_that_is_meant_are_the_same():
    words = {"tp": 8, "pp": 8, "dp": 8, "gbs": 64, "precision": "fp16"}

    result = screened(job_on("megatron-2022"), [Plan(**words), Plan(**words, schedule="1f1b")])

    assert result.step_time_s[0] == result.step_time_s[1]


def test_schedules_and_modes_that_are_not_built_are_impossible_not_wrong():
    words = {"tp": 8, "pp": 8, "dp": 8, "gbs": 64, "precision": "fp16"}
    unbuilt = [{"zero": 3}, {"precision": "fp8"}, {"offload": "optimizer:host"}, {"cp": 2, "dp": 4}]

    result = screened(job_on("megatron-2022"), [Plan(**words | change) for change in unbuilt])

    assert not result.possible.any()
    assert np.isnan(result.step_time_s).all()


def test_screening_tells_the_plans_of_a_sweep_apart_as_exact_play_does():
    job = job_on("gpt-neox-deepspeed")
    plans = [
        Plan(
            tp=tp, pp=pp, dp=512 // tp // pp, mbs=mbs, gbs=1024, zero=1, recompute="full", precision="fp16"
        )
        for tp in (4, 8)
        for pp in (8, 16, 32)
        for mbs in (1, 4)
    ]
    book = load_book(job.cluster)

    rough = screen_each(job, plans, book).step_time_s

    exact = [predict(job.model_copy(update={"plan": plan}), book).clean_step_time_s for plan in plans]
    ranks = [np.argsort(np.argsort(times)) for times in (rough, exact)]
    assert not math.isnan(rough.sum())
    assert np.corrcoef(*ranks)[0, 1] > 0.9
