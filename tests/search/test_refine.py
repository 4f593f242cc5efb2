"""Variants of good plans: as little recompute as fits, stages as level as they get, nothing impossible."""

import math

import pytest
from conftest import described_model, make_job
from single_calls import screen_each

from flopcast.library.curves import load_book
from flopcast.search.find import find
from flopcast.search.question import Question
from flopcast.search.refine import Refining, partly_recomputed, refined
from flopcast.search.space import Space
from flopcast.workload.checks import check

TIGHT = {
    "model": described_model(hidden=8192, count=16, heads=64),
    "cluster": "dgx-a100:2",
    "stack": "megatron-core",
    "batch": {"sequence_length": 16384},
    "plan": "dp=4 pp=4 gbs=32 precision=fp16 zero=1 recompute=full",
}
LARGE_HEAD = described_model(vocabulary=128256)


def fitting(job, numbers):
    """Which numbers of recomputed blocks fit, asked one by one."""
    book = load_book(job.cluster)
    plans = [partly_recomputed(job.plan, number) for number in numbers]
    return [
        number for number, fits in zip(numbers, screen_each(job, plans, book).fits, strict=True) if fits
    ]


def test_as_few_blocks_run_again_as_fit():
    job = make_job(**TIGHT)
    assert 1 < min(fitting(job, [1, 2, 3, 4])) < 4

    variants = refined([job], [], Refining(stages=False, orders=False), load_book)

    assert [one.plan.recompute_word for one in variants] == [
        f"full:block:{min(fitting(job, [1, 2, 3, 4]))}"
    ]
    assert check(variants[0]) == ()


def test_a_plan_that_lacks_memory_is_made_to_fit_by_some_recompute():
    whole = make_job(**TIGHT)
    job = whole.model_copy(update={"plan": whole.plan.model_copy(update={"recompute": "none"})})

    variants = refined([], [(job, math.inf)], Refining(), load_book)

    steps = screen_each(job, [whole.plan, *(one.plan for one in variants)], load_book(job.cluster))
    assert steps.fits.all()
    assert steps.step_time_s[1:].min() < steps.step_time_s[0]


def test_where_nothing_can_be_better_there_is_no_variant():
    job = make_job(plan="dp=8 gbs=16 precision=fp16")

    assert refined([job], [], Refining(), load_book) == ()


@pytest.mark.parametrize("refine", [True, False])
def test_a_search_finds_level_stages_unless_it_is_told_not_to(refine):
    job = make_job(model=LARGE_HEAD, stack="megatron-core", plan="dp=8 gbs=64 precision=fp16")
    space = Space(pp=4, tp=1, cp=1, vpp=1, mbs=1, gbs=64, zero=1, recompute="none", refine=refine)

    found = find(Question(jobs=(job,), space=space), load_book)

    best = min(found.plans, key=lambda one: one.losses[0].value).played.plan
    assert bool(best.stage_layers) == bool(found.refined) == refine
