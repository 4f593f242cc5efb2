"""`valid` over arrays says of every plan what `check` says of it alone, and what dealing by hand says."""

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from spec_cases import DEEPSPEED, model

from flopcast.spec.checks import Case, broken
from flopcast.spec.plan import Plan, batch_plans, structure_of
from flopcast.workload.checks import RULES, check, valid

GRID = {
    "tensor_parallel": (1, 2, 3, 4, 8),
    "pipeline_parallel": (1, 2, 3, 4),
    "virtual_stages": (1, 2),
    "data_parallel": (1, 2, 4, 8, 16),
    "micro_batch": (1, 2),
    "global_batch": (8, 12, 16),
}
MODES = [
    {},
    {"sequence_parallel": True, "recompute": "selective"},
    {"zero": 1, "precision": "bf16", "recompute": "full", "partition_activations": True},
    {"partition_activations": True},
    {"zero": 2},
    {"schedule": "gpipe"},
    {"schedule": "zb_h1"},
    {"schedule": "zb_h2", "recompute": "selective"},
    {"schedule": "1f1b"},
    {"schedule": "interleaved_1f1b"},
    {"precision": "fp8"},
    {"precision": "mxfp8"},
    {"offload": "optimizer:host"},
]
JOB = make_job(model=model(blocks=12, heads=12, kv_heads=4, ffn_hidden=6144), plan="dp=8 mbs=1 gbs=16")


def plans_of(mode):
    """Every plan of the grid with this mode, by structure."""
    return _plans_of(tuple(mode.items()))


@cache
def _plans_of(mode):
    found = defaultdict(list)
    for values in product(*GRID.values()):
        plan = Plan(**dict(zip(GRID, values, strict=True)), **dict(mode))
        found[structure_of(plan)].append(plan)
    return list(found.values())


def mask(job, plans):
    """Which of the plans are possible, asked at once."""
    return valid(Case.of(job, batch_plans(plans)))


def hands(things, number):
    """How many things each of `number` hands holds after dealing them out one by one."""
    held = [0] * number
    for thing in range(things):
        held[thing % number] += 1
    return held


def possible(plan, job):
    """Whether a plan can be dealt out: brute force, for plans of the 1F1B family."""
    block = job.model.blocks[0]
    devices = plan.data_parallel * plan.tensor_parallel * plan.pipeline_parallel
    heads, key_values = (hands(n, plan.tensor_parallel) for n in (block.mixer.heads, block.mixer.groups))
    copies = hands(plan.tensor_parallel, block.mixer.groups)  # ranks that share a key/value head
    columns = hands(block.feed_forward.ffn_hidden, plan.tensor_parallel)
    chunks = hands(job.model.num_blocks, plan.pipeline_parallel * plan.virtual_stages)
    sequences = hands(plan.global_batch, plan.data_parallel)
    micro = hands(sequences[0], max(1, sequences[0] // plan.micro_batch))
    even = [heads, columns, chunks, sequences, micro]
    return (
        devices == job.cluster.num_devices
        and all(len(set(held)) == 1 for held in even)
        and (len(set(key_values)) == 1 or len(set(copies)) == 1)
        and micro[0] == plan.micro_batch
        and (plan.virtual_stages == 1 or plan.pipeline_parallel > 1)
        and (plan.virtual_stages == 1 or len(micro) % plan.pipeline_parallel == 0)
    )


@all_cases("mode", MODES)
@all_cases("stack", ["megatron-2022", DEEPSPEED])
def test_the_mask_of_a_batch_is_what_each_plan_is_told_alone(mode, stack):
    job = make_job(model=JOB.model.model_dump(), stack=stack)

    for plans in plans_of(mode):
        thinned = plans[::29]  # every degree: 29 divides no axis of the grid
        alone = [not check(job.model_copy(update={"plan": plan})) for plan in thinned]

        assert mask(job, thinned)[:, 0].tolist() == alone


@pytest.mark.parametrize("mode", [{}, {"recompute": "full"}, {"zero": 1}], ids=str)
def test_the_mask_finds_the_plans_that_can_be_dealt_out_evenly(mode):
    found = 0

    for plans in plans_of(mode):
        expected = [possible(plan, JOB) for plan in plans]
        found += sum(expected)
        assert mask(JOB, plans)[:, 0].tolist() == expected

    assert found > 0


def test_a_mask_has_one_row_for_each_plan():
    plans = [Plan(data_parallel=degree, global_batch=8) for degree in (8, 4, 2)]

    found = mask(JOB, plans)

    assert found.shape == (3, 1)
    assert found.dtype == np.bool_


def test_a_rule_of_the_whole_structure_covers_every_plan_of_a_batch():
    plans = [Plan(data_parallel=8, global_batch=8 * n, zero=3, schedule="zb_h1") for n in (1, 2, 3)]

    assert not mask(JOB, plans).any()


def test_shuffling_a_batch_shuffles_its_mask():
    plans = plans_of({})[0]
    order = np.random.default_rng(7).permutation(len(plans))

    shuffled = mask(JOB, [plans[i] for i in order])

    assert (shuffled == mask(JOB, plans)[order]).all()


@all_cases("mode", MODES)
def test_a_rule_that_is_not_about_steps_says_the_same_whatever_the_global_batch(mode):
    plans = batch_plans(plans_of(mode)[0])
    unknown = replace(plans, global_batch=np.full_like(plans.global_batch, np.nan))
    about = {
        "model": JOB.model,
        "cluster": JOB.cluster,
        "stack": JOB.stack,
        "batch": JOB.batch,
        "site": JOB.site,
    }

    for rule in (rule for rule in RULES if not (rule.about_steps or rule.about_lists)):
        told, blind = (np.asarray(rule.holds(Case(plans=each, **about))) for each in (plans, unknown))
        assert np.array_equal(told, blind), rule.because


def test_checks_that_are_kept_for_a_structure_find_what_all_rules_find():
    found = set()
    for mode in ({}, {"zero": 2}, {"partition_activations": True}):
        for plan in plans_of(mode)[0][::40]:
            job = JOB.model_copy(update={"plan": plan})

            assert check(job) == broken(job, RULES)
            found.add(len(check(job)))

    assert {0, 1, 2} <= found
