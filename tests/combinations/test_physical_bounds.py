"""Time and memory of random combinations: never below physics, never slower with more, sums that add up."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from combination_cases import (
    LAYOUTS,
    LENGTH,
    MODELS,
    SPREADS,
    book_of,
    drawn,
    job_of,
    product_flop,
    programs_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopcast.memory.peak import peak_memory
from flopcast.prediction import memory_of, predict
from flopcast.spec.plan import Plan

MODES = {
    "recompute": ["none", "full", "selective", "full:uniform:2"],
    "precision": ["bf16", "fp8", "fp8_blockwise", "nvfp4"],
    "zero": [0, 1, 3],
    "schedule": ["auto", "gpipe", "zb_h1"],
    "optimizer": ["adamw", "adamw_8bit", "sgd"],
}
COMBINATIONS = {
    "name": st.sampled_from(sorted(MODELS)),
    "layout": st.sampled_from(LAYOUTS),
    "spread": st.sampled_from(SPREADS),
    "modes": st.fixed_dictionaries({name: st.sampled_from(values) for name, values in MODES.items()}),
    "software": st.sampled_from(["megatron-core", "megatron-core-2026", "torch-fsdp2", "deepspeed-zero"]),
}
FEW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def faster(job, **factors):
    """The job on devices and links that are so many times as fast."""
    device = job.cluster.node.device
    links = factors.get("links", 1.0)
    tiers = tuple(
        tier.model_copy(update={"bytes_per_s": tier.bytes_per_s * links}) for tier in job.cluster.tiers
    )
    memory = device.memory_bytes_per_s * factors.get("memory", 1.0)
    peaks = {name: peak * factors.get("peak", 1.0) for name, peak in device.peak_flop_per_s.items()}
    changed = device.model_copy(update={"memory_bytes_per_s": memory, "peak_flop_per_s": peaks})
    groups = tuple(
        group.model_copy(update={"node": group.node.model_copy(update={"device": changed})})
        for group in job.cluster.groups
    )
    return job.model_copy(
        update={"cluster": job.cluster.model_copy(update={"tiers": tiers, "groups": groups})}
    )


@FEW
@given(**COMBINATIONS)
def test_a_step_is_no_shorter_than_physics_allows_and_the_sum_of_its_lines(
    name, layout, spread, modes, software
):
    """Products at the peak of the engine, one reading of what the update moves; lines of memory too."""
    job = drawn(name, layout, spread, modes, software)

    report = predict(job, book_of())

    multiplied = product_flop(programs_of(job.model, job.plan, software=job.software), job.plan)
    fastest = max(job.cluster.node.device.peak_flop_per_s.values())
    assert report.step_time_s > multiplied / job.plan.devices / fastest
    # every trained parameter is held in 32 bits on some rank, read and written once at least
    shards = job.plan.devices if job.plan.zero else job.plan.tensor_parallel * job.plan.pipeline_parallel
    shards *= 1 if job.plan.zero else job.plan.expert_parallel
    moved_bytes = 2 * 4 * job.model.trained_parameters() / shards
    assert report.step_time_s > moved_bytes / job.cluster.node.device.memory_bytes_per_s
    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)
    assert min(report.breakdown.values()) >= 0
    memory = report.memory
    assert sum(memory.by_category.values()) == pytest.approx(memory.allocated_bytes, rel=1e-12)
    assert min(memory.by_category.values()) >= 0
    assert (
        memory.resident_bytes <= memory.allocated_bytes <= memory.reserved_bytes < memory.device_used_bytes
    )
    assert memory == memory_of(job)


@FEW
@given(**COMBINATIONS, what=st.sampled_from(["links", "memory", "peak"]))
def test_twice_the_speed_of_anything_makes_no_step_slower_and_halves_none(
    name, layout, spread, modes, software, what
):
    job = drawn(name, layout, spread, modes, software)

    before, after = (predict(each, book_of()).step_time_s for each in (job, faster(job, **{what: 2.0})))

    assert before / 2 <= after * (1 + 1e-12)
    assert after <= before * (1 + 1e-12)


@FEW
@given(**COMBINATIONS)
def test_a_longer_sequence_keeps_more_and_holds_the_same_parameters(name, layout, spread, modes, software):
    job = drawn(name, layout, spread, modes, software)

    short, long = (
        peak_memory(programs_of(job.model, job.plan, software=job.software, length=length))
        for length in (LENGTH, 2 * LENGTH)
    )

    assert (long.allocated_bytes >= short.allocated_bytes).all()
    for category in ("parameters", "gradients", "optimizer_states"):
        np.testing.assert_array_equal(long.by_category[category], short.by_category[category])


@cache
def allocated_bytes(name, recompute, **fields):
    """Bytes of the fullest stage on eight devices."""
    plan = Plan(data_parallel=8, global_batch=64, micro_batch=4, recompute=recompute, **fields)
    return memory_of(job_of(MODELS[name], plan)).allocated_bytes


@all_cases("name", sorted(MODELS))
def test_what_runs_again_is_not_kept(name):
    kept = [allocated_bytes(name, mode) for mode in ("none", "full:every:2", "full")]

    assert kept == sorted(kept, reverse=True)
    assert kept[-1] < kept[0]


@all_cases("name", sorted(set(MODELS) - {"further"}))  # its module is no block of a chunk
def test_blocks_that_run_again_one_by_one_lie_between_none_and_all(name):
    blocks = [allocated_bytes(name, f"full:block:{count}") for count in (1, 4, 8)]

    assert allocated_bytes(name, "none") >= blocks[0] >= blocks[1] >= blocks[2]
    assert blocks[2] == allocated_bytes(name, "full")


@all_cases("name", sorted(set(MODELS) - {"adapted"}))
def test_each_stage_of_zero_keeps_no_more_than_the_one_before(name):
    kept = [allocated_bytes(name, "none", zero=stage) for stage in (0, 1, 3)]

    assert kept == sorted(kept, reverse=True)


@all_cases("name", sorted(set(MODELS) - {"adapted"}))
def test_optimizers_keep_states_in_the_order_of_their_tensors(name):
    kept = [
        allocated_bytes(name, "none", optimizer=optimizer)
        for optimizer in ("adamw", "sgd_momentum", "adamw_8bit", "adafactor", "sgd")
    ]

    # beside a master weight: 8 bytes, 4, 2 and a little, rows and columns, nothing
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == len(kept)
