"""A search over shard groups: which ones it tries, and that it finds the best plan."""

from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.find import find
from flopcast.search.question import Question
from flopcast.search.shard_choices import shard_choices
from flopcast.search.space import Space
from flopcast.spec.shards import shards_word
from flopcast.workload.checks import check

FEW = {
    "cp": 1,
    "tp": 1,
    "pp": 1,
    "mbs": 1,
    "zero": 3,
    "gbs": 32,
    "dp": 32,
    "dp_shard": 0,
    "recompute": "full",
}


def job_on(cluster, stack="generic"):
    return make_job(cluster=cluster, stack=stack, plan="dp=32 gbs=32 zero=3")


def test_every_choice_is_allowed_and_the_first_names_no_group():
    for cluster, stack in (
        ("frontier:4", "generic"),
        ("dgx-a100:4", "deepspeed-zero"),
        ("frontier:4", "megatron-core"),
    ):
        job = job_on(cluster, stack)
        choices = shard_choices(job)

        assert choices[0] == ()
        assert len(set(choices)) == len(choices)
        for choice in choices:
            plan = job.plan.model_copy(update={"shards": choice})
            assert check(job.model_copy(update={"plan": plan})) == (), shards_word(choice)


def test_groups_are_those_of_the_dies_the_node_and_all():
    words = {shards_word(choice) for choice in shard_choices(job_on("frontier:4"))}

    assert {"parameters:2,gradients:8", "secondary:8", "parameters:8,gradients:8,secondary:2"} <= words
    assert shard_choices(job_on("frontier:4", "megatron-core")) == ((),)


def test_a_search_tries_groups_only_if_it_is_asked_to_and_finds_the_fastest():
    job = job_on("frontier:4", "deepspeed-zero")

    plain, tried = (
        find(Question(jobs=(job,), space=Space(**FEW | {"refine": False} | more)), load_book)
        for more in ({}, {"shards": "auto"})
    )

    assert not any(one.played.plan.shards for one in plain.plans)
    assert tried.candidates == plain.candidates * len(shard_choices(job))
    plans = [
        job.plan.model_copy(update={"shards": choice, "recompute": "full"}) for choice in shard_choices(job)
    ]
    times = [
        predict(job.model_copy(update={"plan": plan}), load_book(job.cluster)).step_time_s for plan in plans
    ]
    best = min(one.played.step_time_s for one in tried.plans)
    assert abs(best / min(times) - 1) < 1e-9
