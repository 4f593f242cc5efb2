"""Blocks dealt out to unequal stages: the best of all divisions, each tried by itself."""

from itertools import combinations

import numpy as np
import pytest
from all_cases import all_cases
from conftest import described_model, make_job
from hypothesis import given
from hypothesis import strategies as st
from single_calls import screen_each

from flopcast.library.curves import load_book
from flopcast.search.uneven_stages import balanced_stages, best_cuts

LARGE_HEAD = {
    "hidden": 1024,
    "vocabulary": 128256,
    "blocks": [{"count": 7, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}],
}
TWO_KINDS = LARGE_HEAD | {
    "vocabulary": 32000,
    "blocks": [
        {"count": 3, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 2048}},
        {"count": 4, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 16384}},
    ],
}

HUGE = {
    "hidden": 8192,
    "vocabulary": 50257,
    "blocks": [{"count": 8, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 32768}}],
}


def closed_form_s(busy_s, cuts, micro_batches):
    each_s = [busy_s[s, cuts[s], cuts[s + 1]] for s in range(len(busy_s))]
    if np.isinf(each_s).any():
        return np.inf
    return micro_batches * max(each_s) + sum(each_s) - max(each_s)


def every_division(blocks, stages):
    """Cuts of all divisions, empty stages too."""
    for inner in combinations(range(blocks + stages - 1), stages - 1):
        yield (0, *(place - number for number, place in enumerate(inner)), blocks)


@st.composite
def costs(draw):
    """Seconds of every stage with every slice, some of them not allowed."""
    stages, blocks = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    shape = (stages, blocks + 1, blocks + 1)
    size = stages * (blocks + 1) ** 2
    seconds = draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    allowed = draw(st.lists(st.sampled_from([True, True, False]), min_size=size, max_size=size))
    busy_s = np.where(allowed, np.array(seconds, dtype=float), np.inf).reshape(shape)
    return np.where(np.tri(blocks + 1, k=-1, dtype=bool), np.inf, busy_s)  # no slice ends before it begins


@given(busy_s=costs(), micro_batches=st.integers(1, 8))
def test_no_division_is_faster_than_the_best_cuts_whatever_slices_cost(busy_s, micro_batches):
    stages, cuts = busy_s.shape[:2]
    divisions = every_division(cuts - 1, stages)
    every_s = [closed_form_s(busy_s, division, micro_batches) for division in divisions]

    found = best_cuts(busy_s, micro_batches)

    if found is None:
        assert not np.isfinite(min(every_s))
    else:
        assert closed_form_s(busy_s, found, micro_batches) == pytest.approx(min(every_s), rel=1e-5)


def of_divisions(job, divisions):
    """Screened plans of the job, one for each list of blocks."""
    return [job.plan.model_copy(update={"stage_layers": layers}) for layers in divisions]


@all_cases("model", [LARGE_HEAD, TWO_KINDS])
def test_the_division_is_the_fastest_of_all_that_are_screened(model):
    plan = "dp=2 pp=4 stage_layers=2,2,2,1 precision=fp16"
    few, many = (make_job(model=model, plan=f"{plan} gbs={gbs}") for gbs in (8, 64))
    book, blocks = load_book(few.cluster), few.model.num_blocks
    all_layers = [tuple(np.diff(cuts).tolist()) for cuts in every_division(blocks, 4)]
    all_layers = [layers for layers in all_layers if 0 not in layers[1:-1]]
    plans = [plan for layers in all_layers for job in (few, many) for plan in of_divisions(job, [layers])]

    steps_s = screen_each(few, plans, book).step_time_s.reshape(-1, 2)

    assert len(all_layers) > 50
    for column, job in enumerate((few, many)):
        ours_s = steps_s[all_layers.index(balanced_stages(job, book)), column]
        # both ends of a step are not what cuts are chosen by
        assert ours_s <= np.nanmin(steps_s[:, column]) * (1 + 2e-3)


def test_several_chunks_of_a_stage_are_dealt_out_as_well_as_any_list_of_blocks():
    # for a long step: what fills the pipeline is a stage's mean chunk here, its first one on the screen
    model = LARGE_HEAD | {"blocks": [LARGE_HEAD["blocks"][0] | {"count": 8}]}
    job = make_job(model=model, plan="dp=4 pp=2 vpp=2 gbs=2048 precision=fp16")
    book = load_book(job.cluster)
    all_layers = [tuple(np.diff(cuts).tolist()) for cuts in every_division(8, 4)]
    plans = of_divisions(job, [layers for layers in all_layers if 0 not in layers[1:-1]])

    layers = balanced_stages(job, book)

    steps_s = screen_each(job, plans, book).step_time_s
    ours_s = screen_each(job, of_divisions(job, [layers]), book).step_time_s[0]
    assert ours_s <= np.nanmin(steps_s) * (1 + 2e-3)
    assert ours_s < 0.97 * screen_each(job, [job.plan], book).step_time_s[0]


def test_early_stages_that_keep_more_micro_batches_hold_fewer_blocks_where_memory_is_short():
    """Of all divisions that fit, screened one by one, none is faster; the even one does not fit."""
    parts = {"cluster": "dgx-a100:2", "stack": "megatron-core", "batch": {"sequence_length": 32768}}
    job = make_job(model=HUGE, **parts, plan="dp=4 pp=4 gbs=32 precision=fp16 zero=1")
    book = load_book(job.cluster)
    all_layers = [tuple(np.diff(cuts).tolist()) for cuts in every_division(8, 4)]
    plans = of_divisions(job, [layers for layers in all_layers if 0 not in layers[1:-1]])
    every = screen_each(job, plans, book)
    assert not screen_each(job, [job.plan], book).fits[0]
    assert every.fits.any()

    layers = balanced_stages(job, book)

    ours = screen_each(job, of_divisions(job, [layers]), book)
    assert ours.fits[0]
    assert ours.step_time_s[0] <= every.step_time_s[every.fits].min() * (1 + 2e-3)
    assert balanced_stages(job, book, headroom_fraction=0.1) is None


def test_models_deeper_than_any_known_one_are_not_divided_anew():
    plan = "dp=4 pp=2 gbs=32 precision=fp16"
    known, deeper = (make_job(model=described_model(count=count), plan=plan) for count in (128, 130))

    assert balanced_stages(known, load_book(known.cluster)) is not None
    assert balanced_stages(deeper, load_book(deeper.cluster)) is None


@pytest.mark.parametrize("plan", ["dp=8 gbs=16", "dp=2 pp=4 gbs=16 schedule=zb_h1"])
def test_a_question_that_is_not_answered_is_no_division(plan):
    job = make_job(plan=f"{plan} precision=fp16")

    assert balanced_stages(job, load_book(job.cluster)) is None
