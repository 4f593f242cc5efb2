"""Orders of ranks: a faster one that the stack can run is found, and no other is offered."""

import pytest
from all_cases import all_cases
from conftest import described_model, make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.default_plan import choose
from flopcast.search.find import find
from flopcast.search.question import Question
from flopcast.search.refine import Refining, refined
from flopcast.search.space import Space
from flopcast.workload.checks import check

ORDERS_ALONE = Refining(stages=False, recompute=False)
SETTLED = {"gbs": 1024, "mbs": 1, "cp": 1, "tp": 1, "zero": 1, "recompute": "none"}
PLAN = "dp=8 pp=4 vpp=4 mbs=1 gbs=1024 zero=1 precision=fp16"
USUAL, STAGES_INSIDE = "tp-cp-dp-pp", "tp-cp-pp-dp"


def on_a_slow_spine(spine_bytes_per_s=2e9, plan=PLAN, **parts):
    """A job on four nodes that a slow network joins: hops between stages wait for it in every chunk."""
    words = {"model": described_model(count=16), "cluster": "dgx-a100:4", "stack": "megatron-core"}
    job = make_job(**(words | {"plan": plan} | parts))
    *near, spine = job.cluster.tiers
    tiers = (*near, spine.model_copy(update={"bytes_per_s": spine_bytes_per_s}))
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"tiers": tiers})})


def in_order(job, order):
    """The job with its ranks in another order."""
    return job.model_copy(update={"plan": job.plan.model_copy(update={"rank_order": order})})


def step_s(job):
    return predict(job, load_book(job.cluster)).step_time_s


def test_an_order_that_takes_hops_into_nodes_is_offered():
    job = on_a_slow_spine()

    assert refined([job], [], ORDERS_ALONE, load_book) == (in_order(job, STAGES_INSIDE),)


@pytest.mark.parametrize(("spine_bytes_per_s", "fastest"), [(2e9, STAGES_INSIDE), (200e9, USUAL)])
def test_a_search_finds_the_order_that_brute_force_finds(spine_bytes_per_s, fastest):
    job = on_a_slow_spine(spine_bytes_per_s)
    space = Space(**SETTLED, pp=4, vpp=4)
    plain = find(Question(jobs=(job,), space=space.model_copy(update={"refine": False})), load_book)
    orders = (USUAL, *job.stack.rank_orders)
    every = [
        in_order(job.model_copy(update={"plan": one.played.plan}), order)
        for one in plain.plans
        for order in orders
    ]

    found = find(Question(jobs=(job,), space=space), load_book)

    truth = min((one for one in every if not check(one)), key=step_s)
    assert truth.plan.rank_order == fastest
    played = {one.played.plan: one.played.step_time_s for one in found.plans}
    assert played[truth.plan] == pytest.approx(step_s(truth), rel=1e-12)
    assert min(played, key=played.__getitem__).rank_order == fastest


@all_cases(
    "parts",
    [
        {"stack": "megatron-2022"},
        {"stack": "oneflow", "plan": "dp=8 pp=4 mbs=1 gbs=1024 precision=fp16"},
        {"cluster": "dgx-a100:1", "plan": "dp=2 pp=4 mbs=1 gbs=1024 zero=1 precision=fp16"},
        {"plan": "dp=4 cp=2 pp=4 vpp=4 mbs=1 gbs=1024 zero=1 precision=fp16"},
        {"plan": "dp=8 pp=4 mbs=1 gbs=1024 zero=2 precision=fp16"},
        {"plan": "dp=4 tp=8 sp mbs=1 gbs=1024 zero=1 precision=fp16"},
        {"plan": "tp=8 sp pp=4 mbs=1 gbs=1024 precision=fp16"},
        {"plan": "dp=32 mbs=1 gbs=1024 zero=1 precision=fp16"},
    ],
)
def test_no_order_is_offered_that_cannot_be_run_or_changes_nothing(parts):
    assert refined([on_a_slow_spine(**parts)], [], ORDERS_ALONE, load_book) == ()


@pytest.mark.parametrize("order", [USUAL, "pp-tp-cp-dp"])
def test_an_order_that_the_question_settles_stays(order):
    job = in_order(on_a_slow_spine(), order)
    space = Space(**SETTLED, pp=4, vpp="2,4", refine=order != USUAL)

    found = find(Question(jobs=(job,), space=space), load_book)

    assert {one.played.plan.rank_order for one in found.plans} == {order}


@pytest.mark.parametrize("fixed", [{}, {"rank_order": USUAL}])
def test_a_chosen_plan_has_the_order_that_is_worth_a_word(fixed):
    job = on_a_slow_spine()
    settled = {"global_batch": 1024, "pipeline_parallel": 4, "virtual_stages": 4, "tensor_parallel": 1}
    settled |= {"precision": "fp16"}

    plan = choose(job, settled | fixed, load_book(job.cluster)).plan

    assert plan.rank_order == fixed.get("rank_order", STAGES_INSIDE)
    usual, other = (
        in_order(job.model_copy(update={"plan": plan}), order) for order in (USUAL, STAGES_INSIDE)
    )
    assert step_s(other) < 0.99 * step_s(usual)
