"""Spaces of plans: which plans they hold, against plain loops; how they are written; how they are cut."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from conftest import described_model, make_job

from flopcast.errors import SpecError
from flopcast.search.grid import batches, divided_evenly, num_plans, plan_at, plans_by_structure
from flopcast.search.space import Space
from flopcast.spec.divisors import divided_over_chunks, divisors
from flopcast.spec.plan import Plan, structure_of
from flopcast.workload.checks import check

JOB = make_job()
EXPERTS = described_model(vocabulary=1024, num_experts=4, expert_hidden=512, top_k=1)
SMALL = {"gbs": 64, "mbs": "1,2", "zero": 1, "recompute": "none", "cp": 1, "sp": [True]}


def plans_of(job, space, rows=1000):
    return [plan_at(plans, row) for _, plans in batches(job, space, rows=rows) for row in range(plans.size)]


def degrees(plans, *names):
    return {tuple(getattr(plan, name) for name in names) for plan in plans}


def with_blocks(job, count):
    block = job.model.blocks[0].model_copy(update={"count": count})
    return job.model_copy(update={"model": job.model.model_copy(update={"blocks": (block,)})})


def test_every_way_to_divide_the_devices_is_in_the_space_once():
    plans = plans_of(JOB, Space(**SMALL, dp_shard=0))

    expected = {
        (8 // tp // pp, tp, pp, virtual, micro)
        for tp, pp in product(divisors(8), divisors(8))
        if 8 % (tp * pp) == 0
        for virtual in (range(1, 9) if pp > 1 else (1,))
        if 8 % (pp * virtual) == 0
        or 10 % (pp * virtual) == 0  # equal without the ends of the model, or with
        for micro in (1, 2)
    }
    names = ("data_parallel", "tensor_parallel", "pipeline_parallel", "virtual_stages", "micro_batch")
    assert degrees(plans, *names) == expected
    assert len(plans) == len(expected) == len(set(plans))
    assert all(plan.devices == 8 and plan.global_batch == 64 for plan in plans)


def test_an_option_is_offered_only_where_it_matters():
    plans = plans_of(
        JOB, Space(gbs=64, mbs=1, cp="1,2", zero="0,1", context_exchange="all", schedule="all")
    )

    assert {plan.sequence_parallel for plan in plans if plan.tensor_parallel == 1} == {False}
    assert {plan.sequence_parallel for plan in plans if plan.tensor_parallel > 1} == {False, True}
    alone = [plan for plan in plans if plan.data_parallel * plan.context_parallel == 1]
    assert {plan.zero for plan in alone} == {0}
    assert {plan.context_exchange for plan in plans if plan.context_parallel == 1} == {"ring"}
    assert {plan.schedule for plan in plans if plan.pipeline_parallel == 1} == {"auto"}
    seen = {
        (plan.schedule, plan.virtual_stages > 1, plan.pipeline_parallel > 1)
        for plan in plans
        if plan.schedule != "auto"
    }
    one_chunk = {(name, False, True) for name in ("eager_1f1b", "gpipe", "zb_h1", "zb_h2", "dualpipe")}
    assert seen == one_chunk | {("zb_v", True, True), ("dualpipe_v", True, True)}


def test_where_a_named_value_cannot_matter_the_plan_is_offered_without_it():
    plans = plans_of(JOB, Space(gbs=64, mbs=1, cp=1, zero=1, tp=1, pp="1,8"))

    assert degrees(plans, "data_parallel", "zero") == {(8, 1), (1, 0)}


def test_replicas_share_states_in_groups_of_every_size_that_is_named():
    words = {"gbs": 64, "mbs": 1, "cp": 1, "tp": 1, "pp": 1, "recompute": "none", "zero": "0,1"}

    plans = plans_of(JOB, Space(**words, dp_shard="0,2,3,4,8"))

    assert {plan.data_shard for plan in plans if plan.zero} == {0, 2, 4}  # 8 are all of them
    assert {plan.data_shard for plan in plans if not plan.zero} == {0}
    assert {plan.data_shard for plan in plans_of(JOB, Space(**words))} == {0}


def test_parameters_are_shared_by_all_replicas_or_by_those_of_a_domain():
    job = make_job(cluster="dgx-a100:4", stack="torch-fsdp2", plan="dp=32 gbs=64 zero=3")
    words = {"gbs": 64, "mbs": 1, "cp": 1, "pp": 1, "recompute": "none", "zero": 3}

    plans = plans_of(job, Space(**words))

    found = degrees(plans, "tensor_parallel", "data_shard")
    assert found == {(1, 0), (1, 8), (2, 0), (2, 4), (4, 0), (4, 2), (8, 0)}


def test_global_batches_that_no_replicas_share_evenly_are_left_out():
    space = Space(gbs="8..64:8", mbs="1,2,3", cp=1, tp=1, pp="1,2", zero=0, recompute="none")

    found = degrees(plans_of(JOB, space), "data_parallel", "micro_batch", "global_batch")

    every = product((8, 4), (1, 2, 3), range(8, 65, 8))
    assert found == {(dp, micro, batch) for dp, micro, batch in every if batch % (dp * micro) == 0}


@all_cases("rows", [1, 7, 100, 2**18])
def test_the_size_of_batches_changes_neither_plans_nor_their_order(rows):
    space = Space(gbs="32..128", cp="1,2", mbs="1,2,4")

    sizes = [plans.size for _, plans in batches(JOB, space, rows=rows)]

    assert max(sizes) <= rows
    assert plans_of(JOB, space, rows) == plans_of(JOB, space, 1000)


@all_cases(
    "words",
    [
        SMALL,
        {"gbs": "16..48:16", "mbs": "1,2", "schedule": "all"},
        {"gbs": 64, "mbs": "1,2", "cp": "all", "context_exchange": "all", "context_order": "all"},
        {"gpus": "4,8,16", "gbs": "16,24", "mbs": 1, "vpp": "1,2"},
        {"gbs": 7},
    ],
)
@all_cases("model", [None, EXPERTS])
def test_plans_are_counted_without_being_made(words, model):
    job = JOB if model is None else make_job(model=model, stack="megatron-core", plan="dp=8 gbs=16")
    space = Space(**words)

    plans = plans_of(job, space)

    by_structure = sum(sum(plans_by_structure(sized, space)) for sized in space.jobs(job))
    assert num_plans(job, space) == by_structure == len(plans) == len(set(plans))


def test_batches_hold_one_structure_each():
    for _, plans in batches(JOB, Space(gbs=64, schedule="all", cp="1,2")):
        found = {structure_of(plan_at(plans, row)) for row in range(plans.size)}
        resolved = {"schedule": plans.structure.schedule, "stage_layers": ()}
        assert {each.model_copy(update=resolved) for each in found} == {plans.structure}


def test_several_numbers_of_devices_are_several_clusters():
    space = Space(gpus="4,8,32", gbs=64, mbs=1)

    found = Counter()
    for job, plans in batches(JOB, space):
        used = {plan_at(plans, row).devices for row in range(plans.size)}
        assert used == {job.cluster.num_devices}
        found[job.cluster.num_devices] += plans.size

    assert set(found) == {4, 8, 32}
    assert num_plans(JOB, space) == found.total()


def test_a_number_of_devices_that_is_no_number_of_nodes_is_refused():
    with pytest.raises(SpecError, match="multiple of 8"):
        num_plans(JOB, Space(gpus=12))


def test_chunks_that_are_equal_with_the_ends_of_the_model_list_their_blocks():
    """One block a chunk, none at both ends: as Llama 3 405B with 126 blocks, arXiv:2407.21783, 3.3.2."""
    job = with_blocks(JOB, 14)

    plans = plans_of(job, Space(**SMALL | {"vpp": 4}, pp=4, tp=1, dp_shard=0))

    listed = [plan for plan in plans if plan.virtual_stages == 4]
    assert {plan.stage_layers for plan in listed} == {(0, *[1] * 14, 0)}
    assert all(check(job.model_copy(update={"plan": plan})) == () for plan in listed)


@all_cases("blocks", [61, 62, 80, 126])
def test_no_chunk_that_a_space_deals_out_is_much_longer_than_its_stage_allows(blocks):
    for stages, virtual in product((2, 4, 8, 16), range(2, 9)):
        held = np.array(divided_over_chunks(blocks, stages * virtual))
        held[[0, -1]] += 1
        fullest = held.reshape(virtual, stages).sum(axis=0).max()

        even = divided_evenly(blocks, stages, virtual)

        equal = blocks % (stages * virtual) == 0
        assert even == (equal or (held.min() > 0 and held.max() <= 1.1 * fullest / virtual))


def test_stages_that_blocks_do_not_divide_have_one_chunk_and_uneven_blocks():
    job = with_blocks(JOB, 7)

    plans = plans_of(job, Space(**SMALL))

    assert max(plan.pipeline_parallel for plan in plans) == 4  # never more stages than blocks
    for plan in plans:
        uneven = plan.pipeline_parallel > 1
        assert plan.stage_layers == (divided_over_chunks(7, plan.pipeline_parallel) if uneven else ())
        assert plan.virtual_stages == 1


def test_tensor_parallelism_leaves_a_domain_only_where_that_is_asked_for():
    job = make_job(cluster="dgx-a100:4", plan="dp=32 gbs=64 precision=fp16")

    inside, anywhere = (
        degrees(plans_of(job, Space(**SMALL, tensor_in_domain=inside)), "tensor_parallel")
        for inside in (True, False)
    )

    assert inside == {(1,), (2,), (4,), (8,)}
    assert anywhere == inside | {(16,), (32,)}


def test_what_a_space_does_not_name_is_as_the_plan_of_the_job_says():
    job = make_job(plan="dp=8 gbs=16 precision=fp16 optimizer=sgd recompute=selective:core_attention")

    plans = plans_of(job, Space(**SMALL | {"recompute": "none selective full:block:2"}))

    assert {plan.optimizer for plan in plans} == {"sgd"}
    assert {(p.recompute, p.recompute_modules, p.recompute_method, p.recompute_layers) for p in plans} == {
        ("none", (), "uniform", 1),
        ("selective", ("core_attention",), "uniform", 1),
        ("full", (), "block", 2),
    }


def test_some_plan_of_every_usual_space_keeps_every_rule():
    plans = plans_of(JOB, Space(gbs=64, mbs=1, cp=1))

    assert any(not check(JOB.model_copy(update={"plan": plan})) for plan in plans)


@all_cases(
    ("word", "numbers"),
    [
        (4, (4,)),
        ("4", (4,)),
        ("1,2, 4", (1, 2, 4)),
        ("3..24", (3, 6, 12, 24)),
        ("3..23", (3, 6, 12)),
        ("8..24:8", (8, 16, 24)),
        ("1,8..16:8", (1, 8, 16)),
        ("all", ()),
        ([2, 4], (2, 4)),
    ],
)
def test_numbers_are_written_in_one_word_or_as_a_list(word, numbers):
    assert Space(global_batch=word).global_batch == numbers
    assert Space(gbs=word).global_batch == numbers


@all_cases(
    "words",
    [
        {"tp": 0},
        {"tp": "two"},
        {"tp": True},
        {"gbs": "1..x"},
        {"schedule": "fastest"},
        {"recompute": "full:often"},
        {"zero": 4},
        {"headroom_fraction": 1.5},
        {"speed": 1},
    ],
)
def test_words_that_mean_nothing_are_refused(words):
    with pytest.raises(SpecError):
        Space(**words)


def test_a_schedule_that_auto_means_is_told_as_auto():
    plans = plans_of(JOB, Space(**SMALL))

    assert {plan.schedule for plan in plans} == {"auto"}
    assert Plan(**plans[0].model_dump()) == plans[0]


@all_cases("given", ["x,2", "1..", "2,,4", "-1", "1e3", 1000.0, True, None, {"a": 1}])
def test_what_is_no_list_of_numbers_is_told_how_one_is_written(given):
    with pytest.raises(SpecError) as told:
        Space(tensor_parallel=given)

    assert all("256..4096" in each.allowed for each in told.value.problems)


def test_steps_without_end_are_refused_before_they_are_made():
    with pytest.raises(ValueError, match="at most 65,536 values"):
        Space(context_parallel="1..1000000000000:1")
