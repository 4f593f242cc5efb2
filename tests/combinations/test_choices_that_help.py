"""What a choice is for: pairs of jobs that differ in one choice, whose effect has a known direction."""

from functools import cache

import pytest
from all_cases import all_cases
from combination_cases import MODELS, book_of, job_of, plan_of, possible, stack

from flopcast.prediction import predict

EIGHT = {"data_parallel": 8, "global_batch": 64}
STAGES = {"data_parallel": 2, "pipeline_parallel": 4, "global_batch": 64}
SHARDS = {"data_parallel": 8, "zero": 3, "global_batch": 64}
TENSOR = {"data_parallel": 2, "tensor_parallel": 4, "global_batch": 64}
SEQUENCE = {"data_parallel": 2, "context_parallel": 4, "global_batch": 64}
EXPERTS = {"data_parallel": 8, "expert_parallel": 8, "global_batch": 64}

LESS_MEMORY = {  # a model, what both have in common, and two choices, the first of which needs more
    "more of a step run again": ("dense", EIGHT, {}, {"recompute": "selective:mlp"}),
    "all of it run again": ("dense", EIGHT, {"recompute": "selective:mlp"}, {"recompute": "full"}),
    "one input kept for two blocks": (
        "windows",
        EIGHT | {"micro_batch": 8},
        {"recompute": "full"},
        {"recompute": "full:uniform:2"},
    ),
    "states over replicas": ("latent", EIGHT, {}, {"zero": 1}),
    "parameters too": ("latent", EIGHT, {"zero": 1}, {"zero": 3}),
    "shards over all, not groups": ("dense", SHARDS, {"data_shard": 2}, {"data_shard": 8}),
    "moments in 8 bits": ("experts", EIGHT, {}, {"optimizer": "adamw_8bit"}),
    "no moments": ("experts", EIGHT, {"optimizer": "sgd_momentum"}, {"optimizer": "sgd"}),
    "experts over ranks": ("experts", EIGHT, {}, {"expert_parallel": 8}),
    "norms cut too": ("dense", TENSOR | {"micro_batch": 4}, {"sequence_parallel": False}, {}),
    "fewer micro-batches in flight than with GPipe": ("dense", STAGES, {"schedule": "gpipe"}, {}),
    "even stages": ("dense", STAGES, {"stage_layers": "5,1,1,1"}, {"stage_layers": "2,2,2,2"}),
    "a ring instead of heads exchanged twice": (
        "dense",
        SEQUENCE | {"micro_batch": 8},
        {"context_exchange": "all_to_all"},
        {"context_exchange": "ring"},
    ),
}
LESS_TIME = {  # likewise; the first takes longer
    "nothing run again": ("dense", EIGHT, {"recompute": "full"}, {}),
    "modules instead of blocks run again": (
        "latent",
        EIGHT,
        {"recompute": "full"},
        {"recompute": "selective"},
    ),
    "fewer blocks run again": (
        "dense",
        EIGHT,
        {"recompute": "full:block:8"},
        {"recompute": "full:block:2"},
    ),
    "every second block run again": (
        "windows",
        EIGHT,
        {"recompute": "full"},
        {"recompute": "full:every:2"},
    ),
    "even stages": ("dense", STAGES, {"stage_layers": "5,1,1,1"}, {"stage_layers": "2,2,2,2"}),
    "states not written": ("dense", EIGHT, {}, {"optimizer": "sgd"}),
    "experts instead of blocks run again": (
        "further",
        EIGHT,
        {"recompute": "full"},
        {"recompute": "selective:moe"},
    ),
    "weight gradients in the bubble": (
        "dense",
        STAGES | {"global_batch": 8},
        {"schedule": "1f1b"},
        {"schedule": "zb_h1"},
    ),
    "chunks instead of whole stages": (
        "dense",
        STAGES | {"global_batch": 8, "micro_batch": 1},
        {},
        {"virtual_stages": 2},
    ),
}


@cache
def report(name, fields, software="megatron-core"):
    """The report of a plan, told as pairs of field and value."""
    job = job_of(MODELS[name], plan_of(MODELS[name], dict(fields)), stack(software))
    assert possible(job)
    return predict(job, book_of())


def both(case):
    """The reports of two plans that differ in one choice."""
    name, common, before, after = case
    return [report(name, tuple((common | choice).items())) for choice in (before, after)]


@all_cases("name", LESS_MEMORY)
def test_a_choice_that_saves_memory_does(name):
    before, after = both(LESS_MEMORY[name])

    assert after.memory.allocated_bytes < before.memory.allocated_bytes


@all_cases("name", LESS_TIME)
def test_a_choice_that_saves_time_does(name):
    before, after = both(LESS_TIME[name])

    assert after.step_time_s < before.step_time_s


@all_cases("name", sorted(set(LESS_MEMORY) & set(LESS_TIME)))
def test_uneven_stages_change_nothing_that_the_model_needs(name):
    before, after = both(LESS_TIME[name])

    assert before.metrics.model_flop == after.metrics.model_flop
    assert before.metrics.hardware_flop == after.metrics.hardware_flop


@all_cases(
    ("recompute", "again"),
    [("full:block:2", 2), ("full:block:8", 8), ("full:every:2", 4), ("full:every:4", 2), ("full", 8)],
)
def test_hardware_flop_count_the_blocks_that_run_again(recompute, again):
    plain, chosen = (
        report("dense", tuple((EIGHT | choice).items())).metrics
        for choice in ({}, {"recompute": recompute})
    )

    # two FLOP for each weight of a block and token, and four for each pair of tokens and channel
    linears = 256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 1024
    block_flop = 64 * (2 * 512 * linears + 4 * 512**2 * 256)
    assert chosen.hardware_flop - plain.hardware_flop == pytest.approx(again * block_flop, rel=1e-9)
    assert chosen.model_flop == plain.model_flop


@all_cases("precision", ["fp8", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"])
def test_a_recipe_changes_the_peak_that_mfu_is_counted_against_and_not_the_work(precision):
    wide, narrow = (
        report("dense", tuple((EIGHT | {"precision": each}).items())).metrics
        for each in ("bf16", precision)
    )

    assert narrow.model_flop == wide.model_flop
    assert narrow.peak_flop_per_s > wide.peak_flop_per_s


@all_cases("times", [2, 4])
@all_cases("common", [EIGHT, SHARDS, TENSOR, SEQUENCE])
def test_more_micro_batches_take_longer_but_never_more_than_so_many_steps(common, times):
    one, many = (
        report("dense", tuple((common | {"global_batch": batch}).items())) for batch in (64, 64 * times)
    )

    assert one.step_time_s < many.step_time_s <= times * one.step_time_s
    assert many.metrics.model_flop == times * one.metrics.model_flop
    assert many.memory.allocated_bytes == pytest.approx(one.memory.allocated_bytes, rel=1e-12)
