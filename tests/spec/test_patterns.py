"""Kinds of blocks that alternate: written as a pattern, divided over stages, priced as kinds."""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import memory_of, predict
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.stack import Pipeline
from flopcast.workload.stages import divide_all


def block(count, window=None, heads=16):
    mixer = {"heads": heads, "kv_heads": 4, "window": window}
    return {
        "count": count, "norm": "rmsnorm", "mixer": mixer,
        "feed_forward": {"ffn_hidden": 4096, "activation": "swiglu"},
    }  # fmt: skip


def model(blocks, pattern=()):
    return Model(name="small", hidden=1024, vocabulary=51200, blocks=blocks, pattern=pattern)


def stages_of(found, pipeline_parallel, virtual=1):
    parts, counts = zip(*found.runs(), strict=True)
    plan = Plan(pp=pipeline_parallel, vpp=virtual, gbs=pipeline_parallel)
    return divide_all(counts, one_plan(plan), Pipeline(partition="even"), parts)


def job_of(found, **parts):
    written = found.model_dump(mode="json", exclude_defaults=True)
    return make_job(model=written, cluster="dgx-h100:1", stack="megatron-core", **parts)


GEMMA = ([0] * 5 + [1], 62)  # Gemma 3 27B: arXiv:2503.19786, section 2


def test_a_pattern_is_repeated_until_all_layers_are_named():
    found = model([block(52, 1024), block(10)], GEMMA[0])

    runs = found.runs()[1:-2]

    assert runs == ((1, 5), (2, 1)) * 10 + ((1, 2),)


def test_very_many_blocks_of_a_pattern_are_counted_without_a_list_of_them():
    """Three of four layers are of the first kind; a wrong count is an error that needs no list either."""
    many = 10**30

    assert model([block(3 * many, 1024), block(many)], [0, 0, 0, 1]).num_blocks == 4 * many
    with pytest.raises(ValueError, match="which is how often the pattern contains"):
        model([block(3 * many, 1024), block(many + 1)], [0, 0, 0, 1])


@all_cases(("stages", "virtual"), [(1, 1), (2, 1), (4, 2), (8, 1), (4, 4)])
def test_stages_hold_the_layers_that_stand_there(stages, virtual):
    """Against the list of layers, cut into chunks: chunk c of stage s is number c · stages + s."""
    layers = np.tile([0, 0, 0, 1], 16)
    found = model([block(48, 1024), block(16)], [0, 0, 0, 1])

    division = stages_of(found, stages, virtual).of(0)

    for chunk, held in enumerate(np.split(layers, stages * virtual)):
        stage, of_stage = chunk % stages, chunk // stages
        kinds = division.chunk_counts[division.chunk_class[stage, of_stage]][1:3]
        assert kinds.tolist() == [(held == 0).sum(), (held == 1).sum()]


def test_chunks_that_differ_in_the_order_of_their_layers_alone_are_one_class():
    found = model([block(12, 1024), block(12)], [0, 1, 1, 0])

    division = stages_of(found, 12).of(0)

    assert sorted(division.multiplicity.tolist()) == [1, 1, 10]  # first, last, all between


def test_a_pattern_costs_what_the_same_layers_cost_written_out():
    alternating = model([block(4, 512), block(4)], [0, 1])
    written_out = model([block(1, window) for window in [512, None] * 4])
    plan = {"plan": "tp=8 sp gbs=8", "batch": {"seq": 4096}}

    one, other = (predict(job, load_book(job.cluster)) for job in (
        job_of(found, **plan) for found in (alternating, written_out)
    ))  # fmt: skip

    assert one.step_time_s == pytest.approx(other.step_time_s, rel=1e-3)
    assert one.memory.allocated_bytes == pytest.approx(other.memory.allocated_bytes, rel=1e-9)
    assert alternating.parameters() == written_out.parameters()


def test_the_order_of_kinds_changes_nothing_on_one_stage():
    first, second = (model([block(4, 512), block(4)], pattern) for pattern in ([0, 1], [1, 0]))

    one, other = (
        memory_of(job_of(found, plan="tp=8 sp gbs=8", batch={"seq": 4096})) for found in (first, second)
    )

    assert one == other


def test_windows_of_half_the_layers_make_a_long_step_shorter():
    plan = {"plan": "tp=8 sp gbs=8 recompute=full", "batch": {"seq": 65536}}
    local, whole = (job_of(model([block(8, window), block(8)], [0, 1]), **plan) for window in (1024, None))

    assert predict(local, load_book(local.cluster)).step_time_s < (
        0.8 * predict(whole, load_book(whole.cluster)).step_time_s
    )


@all_cases(
    ("counts", "pattern", "told"),
    [
        ((4, 4), [0, 0, 1], "counts of \\[6, 2\\]"),
        ((4, 4), [0], "a pattern that contains the index of every entry"),
        ((4, 4), [0, 2], "a pattern that contains the index of every entry"),
        ((4, 4), [-1, 0], "a pattern that contains the index of every entry"),
    ],
)
def test_a_pattern_that_does_not_deal_out_the_blocks_is_refused(counts, pattern, told):
    with pytest.raises(ValueError, match=told):
        model([block(counts[0], 512), block(counts[1])], pattern)


@pytest.mark.parametrize(("length", "causal"), [(8192, False), (8192, True), (512, False)])
def test_model_flop_count_the_band_of_windows(length, causal):
    """Half of the layers see 1024 keys at most: 2 s w - w² pairs of both sides, of the square s²."""
    width = min(1024, length)
    band = 2 * length * width - width**2
    found = model([block(4, 1024), block(4)], [0, 1])

    flop = found.attention_flop(length, causal)

    assert flop == pytest.approx((0.5 if causal else 1.0) * 4 * 4 * 1024 * (band + length**2))
    assert found.attention_flop(length, causal, windows=False) == pytest.approx(
        (0.5 if causal else 1.0) * 8 * 4 * 1024 * length**2
    )
