"""Vision towers in training steps: FLOP over ranks, frozen towers, stages, images as rows of a batch."""

import numpy as np
import pytest
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.operators.messages import AllReduce
from flopcast.prediction import memory_of, predict, programs_of
from flopcast.search.exact import play_each

PLAN = "dp=8 mbs=2 gbs=32 precision=bf16"
IMAGES = "2x560x560"  # 800 tokens
MODEL = {
    "hidden": 1024,
    "vocabulary": 32000,
    "blocks": [{"count": 8, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}],
    "vision": {
        "hidden": 64,
        "patch": 14,
        "merge": 2,
        "blocks": [
            {"count": 2, "mixer": {"heads": 4, "causal": False}, "feed_forward": {"ffn_hidden": 256}}
        ],
        "projections": [{"widths": [256, 1024]}],
    },
}
ADAPTERS = {"rank": 8, "targets": ["q", "v"]}


def job(plan=PLAN, images=IMAGES, stack="pytorch-ddp", tower=(), batch=None, **model):
    seen = MODEL | model | {"vision": MODEL["vision"] | dict(tower)}
    return make_job(
        model=seen, plan=plan, batch=batch or {"sequence_length": 1024, "images": images}, stack=stack
    )


def reported(found):
    return predict(found, load_book(found.cluster))


def tower_layers(found):
    return [layer for layer in programs_of(found).layers if layer.logical.tower]


def flop(layers, phases=("forward", "backward")):
    """FLOP of one rank's products in one micro-batch."""
    return sum(
        layer.logical.count * float(item.work.work().flop.item())
        for layer in layers
        for phase in phases
        for item in getattr(layer, phase)
        if isinstance(item.work, AbstractOperator)
    )


def test_the_items_of_a_tower_have_its_flop():
    for tower in ({}, {"trained": "projector"}, {"trained": "none"}):
        found = job(tower=tower, stack="megatron-2021")
        vision, images = found.model.vision, found.batch.images

        wanted = vision.step_flop(images, adapted=False, backward=True)

        assert flop(tower_layers(found)) == pytest.approx(2 * wanted, rel=1e-12)


def test_the_model_flop_of_a_step_count_the_tower():
    text, seen = reported(job(images="none")), reported(job())
    vision = seen.job.model.vision.step_flop(seen.job.batch.images, adapted=False, backward=True)

    assert seen.metrics.model_flop - text.metrics.model_flop == pytest.approx(32 * vision, rel=1e-9)
    assert seen.step_time_s > text.step_time_s
    assert seen.breakdown["vision"] > 0.0
    assert "vision" not in text.breakdown


def test_ranks_of_a_tensor_parallel_group_share_the_flop_of_the_blocks():
    """Each rank has half of the heads, inner widths and pairs of projections, and sees all patches."""
    one, two = (tower_layers(job(plan=f"dp={8 // each} tp={each} mbs=2 gbs=32")) for each in (1, 2))

    for before, after in zip(one[1:2], two[1:2], strict=True):
        assert 2 * flop([after]) == pytest.approx(flop([before]), rel=1e-12)
    assert flop(two[:1]) == flop(one[:1])  # the matrix of patches, which every rank holds
    sums = [item for item in two[1].forward if isinstance(item.work, AllReduce)]
    patches = 2 * 2 * 40 * 40  # sequences, images, grid
    assert len(sums) == 2
    assert all(item.work.message_bytes.item() == patches * 64 * 2 for item in sums)


def test_a_frozen_tower_runs_forward_and_keeps_nothing():
    whole, projector, none = (
        tower_layers(job(tower={"trained": each})) for each in ("all", "projector", "none")
    )

    assert all(layer.backward and layer.kept_bytes.item() > 0 for layer in whole)
    assert not any(layer.backward or layer.kept_bytes.item() for layer in none)
    assert [bool(layer.backward) for layer in projector] == [False, False, True]
    assert flop(none, ("forward",)) == flop(whole, ("forward",))
    trained = {each: reported(job(tower={"trained": each})) for each in ("all", "none")}
    assert trained["none"].memory.allocated_bytes < trained["all"].memory.allocated_bytes


def test_adapters_freeze_the_tower_and_only_they_are_trained():
    tuned = job(adapters=ADAPTERS)

    assert not any(layer.backward for layer in tower_layers(tuned))
    assert tuned.model.trained_parameters() == 8 * 2 * 8 * (1024 + 1024)  # blocks, targets, rank, sizes


def test_the_first_stage_holds_the_whole_tower():
    found = programs_of(job(plan="dp=2 pp=4 mbs=2 gbs=32 precision=bf16", stack="megatron-core"))
    division = found.stages.divisions[0]
    held = division.stage_counts[division.stage_class]

    tower = [place for place, layer in enumerate(found.layers) if layer.logical.tower]
    assert held[0, tower].tolist() == [1.0, 2.0, 1.0]
    assert not held[1:, tower].any()
    blocks = next(place for place, layer in enumerate(found.layers) if layer.kind == "block" and place > 3)
    assert held[:, blocks].tolist() == [2.0] * 4


def test_micro_batches_with_different_images_are_rows_of_a_batch():
    """A step of both kinds of micro-batches takes the mean time of steps of one kind."""
    few, many = "1x280x280", "6x280x280"

    def step_s(*images):
        rows = [{"images": each} for each in images]
        batch = {"sequence_length": 1024, "micro_batches": rows}
        return reported(job(plan="dp=8 mbs=1 gbs=16 precision=bf16", batch=batch)).step_time_s

    alike = [step_s(each, each) for each in (few, many)]
    assert alike[0] < step_s(few, many) < alike[1]
    assert step_s(few, many) == pytest.approx(np.mean(alike), rel=0.02)


def test_recompute_repeats_the_blocks_of_a_trained_tower():
    kept, again = (job(f"{PLAN} recompute={each}", stack="megatron-2021") for each in ("none", "full"))

    extra = reported(again).metrics.hardware_flop - reported(again).metrics.model_flop
    blocks = sum(flop([layer], ("forward",)) for layer in programs_of(kept).layers if layer.kind == "block")
    assert extra == pytest.approx(16 * blocks, rel=1e-6)
    assert memory_of(again).allocated_bytes < memory_of(kept).allocated_bytes


def test_plans_with_and_without_stages_have_in_a_batch_the_times_that_they_have_alone():
    plans = ("dp=8 mbs=1 gbs=32 precision=bf16", "dp=4 pp=2 mbs=1 gbs=32 precision=bf16")
    jobs = [job(plan, stack="megatron-core") for plan in plans]
    book = load_book(jobs[0].cluster)

    together = {place: exact.step_time_s for place, exact in play_each(jobs, lambda _: book)}

    assert together == {place: predict(one, book).step_time_s for place, one in enumerate(jobs)}
