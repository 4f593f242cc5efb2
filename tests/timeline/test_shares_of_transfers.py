"""timeline/critical_path.py: transfers and ends of a step, each charged to its own direction and stage."""

from collections import defaultdict

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from sample_jobs import OVERLAPPED
from workbench import priced_job, repriced

from flopcast.timeline.step import run_step

FORWARD_S, BACKWARD_S = 1.0, 2.0  # of a block
ON_S, BACK_S = 0.25, 0.75  # of an activation, and of its gradient
STAGES, BLOCKS_EACH = 4, 2


def priced(micro_batches=1, **ends):
    """Four equal stages whose transfers differ by direction; `ends` gives other items their seconds."""
    job = make_job(stack=OVERLAPPED, plan=f"dp=2 pp={STAGES} gbs={2 * micro_batches} precision=fp16")
    seconds = {
        ("mlp.up", "forward"): FORWARD_S,
        ("mlp.up.dgrad", "backward"): BACKWARD_S,
        ("hop.activation", "forward"): ON_S,
        ("hop.gradient", "backward"): BACK_S,
    }
    return repriced(priced_job(job), lambda i: seconds.get((i.name, i.phase), ends.get(i.name, 0.0)))


def told(shares):
    found = defaultdict(float)
    for share in shares:
        found[share.item.name] += share.path_s
    return found


def test_one_micro_batch_goes_up_and_down_the_pipeline_and_its_transfers_are_told_by_direction():
    timeline = run_step(priced())

    found = told(timeline.shares)
    assert found["hop.activation"] == pytest.approx((STAGES - 1) * ON_S)
    assert found["hop.gradient"] == pytest.approx((STAGES - 1) * BACK_S)
    assert found["mlp.up"] == pytest.approx(STAGES * BLOCKS_EACH * FORWARD_S)
    assert found["mlp.up.dgrad"] == pytest.approx(STAGES * BLOCKS_EACH * BACKWARD_S)
    assert timeline.step_time_s == pytest.approx(sum(found.values()))


def test_the_busiest_of_equal_stages_waits_for_one_micro_batchs_way_to_the_others_and_back():
    """The first stage: its transfers go out, and one comes back; all others' work and hops are waiting."""
    timeline = run_step(priced())

    own_s = BLOCKS_EACH * (FORWARD_S + BACKWARD_S)
    found = told(timeline.bottleneck_attribution)
    assert found["mlp.up"] + found["mlp.up.dgrad"] == pytest.approx(own_s)
    assert found.get("hop.activation", 0.0) == 0.0  # nothing is sent to the first stage forward
    assert found["hop.gradient"] == pytest.approx(BACK_S)
    assert timeline.bottleneck_waits_s == pytest.approx(timeline.step_time_s - own_s - BACK_S)


@pytest.mark.parametrize("update_s", [0.0, 3.0])
def test_an_update_of_every_stage_stands_once_on_the_path_and_once_with_the_busiest_stage(update_s):
    plain, longer = (run_step(priced(4, **{"optimizer.update": each})) for each in (0.0, update_s))

    assert longer.step_time_s - plain.step_time_s == pytest.approx(update_s)
    for shares in (longer.shares, longer.bottleneck_attribution):
        assert told(shares).get("optimizer.update", 0.0) == pytest.approx(update_s)


def on_stage(priced, stage, seconds, name="optimizer.update"):
    """The same, where the item of that name takes so long on the class of one stage alone."""
    classes = priced.programs.stages.of(0).stage_class
    only = np.zeros((1, int(classes.max()) + 1))
    only[0, classes[stage]] = seconds
    known = {item: priced.of(item).alone_s for item in priced.programs.items()}
    return repriced(priced, lambda item: only if item.name == name else known[item])


@pytest.mark.parametrize("stage", [0, STAGES - 1])
def test_a_stage_whose_update_is_longest_is_the_busiest_though_its_passes_are_like_the_others(stage):
    timeline = run_step(on_stage(priced(4), stage, 5.0))

    assert told(timeline.bottleneck_attribution)["optimizer.update"] == pytest.approx(5.0)


@pytest.mark.parametrize("stage", [0, STAGES - 1])
def test_a_long_update_of_one_stage_is_hidden_where_that_stage_is_not_waited_for_so_soon(stage):
    """The last stage's first work comes only after the others have filled the pipeline."""
    plain, longer = run_step(priced(4)), run_step(on_stage(priced(4), stage, 1.0))

    added_s = longer.step_time_s - plain.step_time_s
    assert added_s == pytest.approx(1.0 if stage == 0 else 0.0, abs=1e-9)


@pytest.mark.parametrize("micro_batches", [4, 16])
def test_shares_of_transfers_never_exceed_the_gaps_that_they_fill(micro_batches):
    timeline = run_step(priced(micro_batches))

    found = told(timeline.bottleneck_attribution)
    work_s = micro_batches * BLOCKS_EACH * (FORWARD_S + BACKWARD_S)
    hops_s = found["hop.gradient"] + found["hop.activation"]
    assert found["mlp.up"] + found["mlp.up.dgrad"] == pytest.approx(work_s)
    assert hops_s <= timeline.step_time_s - work_s
    assert hops_s + work_s + timeline.bottleneck_waits_s == pytest.approx(timeline.step_time_s)


BLOCKING = {
    "batched": ("megatron-2022", "dp=4 pp=2 gbs=4 precision=fp16", "dgx-a100:1"),
    "sequential": ("gpt-neox-deepspeed", "dp=4 pp=2 gbs=4 zero=1 precision=fp16", "dgx-a100:1"),
}


@all_cases("style", BLOCKING)
def test_transfers_that_block_stand_on_the_path_whole_and_in_a_stages_gap_no_longer_than_they_take(style):
    """One micro-batch over two stages: sent on, worked on by the other, and its gradient sent back."""
    stack, plan, cluster = BLOCKING[style]
    job = make_job(stack=stack, plan=plan, cluster=cluster)
    seconds = {
        ("mlp.up", "forward"): FORWARD_S,
        ("mlp.up.dgrad", "backward"): BACKWARD_S,
        ("hop.activation", "forward"): ON_S,
        ("hop.gradient", "backward"): BACK_S,
    }

    timeline = run_step(repriced(priced_job(job), lambda i: seconds.get((i.name, i.phase), 0.0)))

    each_s = 4 * (FORWARD_S + BACKWARD_S)  # of four blocks
    found = told(timeline.bottleneck_attribution)
    assert timeline.step_time_s == pytest.approx(2 * each_s + ON_S + BACK_S)
    hops_s = found["hop.activation"] + found["hop.gradient"]
    assert 0 < hops_s <= ON_S + BACK_S
    own_s = found["mlp.up"] + found["mlp.up.dgrad"]
    assert own_s >= each_s  # DeepSpeed's stages hold five blocks and three
    assert timeline.bottleneck_waits_s == pytest.approx(timeline.step_time_s - own_s - hops_s)
    path = told(timeline.shares)
    assert (path["hop.activation"], path["hop.gradient"]) == pytest.approx((ON_S, BACK_S))


@pytest.mark.parametrize("stage", [0, STAGES - 1])
def test_a_stage_whose_reduction_is_longest_is_the_busiest(stage):
    job = make_job(stack="megatron-2022", plan=f"dp=2 pp={STAGES} gbs=8 precision=fp16")
    passes = {("mlp.up", "forward"): FORWARD_S, ("mlp.up.dgrad", "backward"): BACKWARD_S}
    equal = repriced(priced_job(job), lambda i: passes.get((i.name, i.phase), 0.0))

    (reduction,) = (item for item in equal.programs.reduce if item.name == "gradients.reduce")
    buckets = reduction.count[0, equal.programs.stages.of(0).stage_class[stage]]

    timeline = run_step(on_stage(equal, stage, 5.0 / buckets, name="gradients.reduce"))

    assert told(timeline.bottleneck_attribution)["gradients.reduce"] == pytest.approx(5.0)
    # the last stage's last backward ends three stages before the first's: its reduction is not waited for
    on_path_s = told(timeline.shares)["gradients.reduce"]
    assert on_path_s == pytest.approx(5.0 if stage == 0 else 0.0, abs=1e-9)
