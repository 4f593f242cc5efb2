"""The course of a step: it starts and ends empty, and its most is the peak that plans are judged by."""

import numpy as np
import pytest
from memory_cases import GPT, HIDDEN, LENGTH, Kept, programs_of, stack_with
from single_calls import memory_curve

from flopcast.memory.curve import peak_of
from flopcast.memory.peak import peak_memory

PLANS = [
    "pp=4 gbs=8",
    "pp=4 gbs=2",
    "tp=2 sp pp=4 gbs=12 recompute=full",
    "pp=4 vpp=2 gbs=16",
    "tp=2 pp=2 vpp=8 gbs=4 recompute=selective",
    "pp=4 gbs=6 schedule=gpipe",
    "pp=4 gbs=16 schedule=zb_h1",
    "tp=8 sp pp=4 gbs=16 schedule=zb_h1 recompute=selective",
    "pp=4 gbs=16 schedule=zb_h2",
]
EACH_PLAN = pytest.mark.parametrize("text", PLANS)


@EACH_PLAN
@pytest.mark.parametrize("vocabulary", [128, 51200, 10**6])
def test_the_most_of_all_curves_of_a_class_is_its_peak(text, vocabulary):
    programs = programs_of(text, model=GPT.model_copy(update={"vocabulary": vocabulary}))
    stage_class = programs.stages.of(0).stage_class

    memory = peak_memory(programs)

    peaks = [peak_of(memory_curve(programs, stage)).allocated_bytes for stage in range(len(stage_class))]
    for at in set(stage_class.tolist()):
        fullest = max(peak for peak, mine in zip(peaks, stage_class, strict=True) if mine == at)
        assert memory.allocated_bytes[0, at] == pytest.approx(fullest, rel=1e-12)


@EACH_PLAN
def test_a_step_begins_and_ends_with_what_stands(text):
    programs = programs_of(text)

    for stage in range(len(programs.stages.of(0).stage_class)):
        curve = memory_curve(programs, stage)
        ends = [curve.level_bytes[0], curve.level_bytes[-1]]
        assert ends == pytest.approx([curve.standing_bytes] * 2, rel=1e-12)


@EACH_PLAN
def test_no_category_is_ever_below_nothing(text):
    programs = programs_of(text)

    for stage in range(len(programs.stages.of(0).stage_class)):
        for name, level in memory_curve(programs, stage).by_category.items():
            assert level.min() >= -1e-6, name


def test_inner_stages_of_1f1b_hold_a_micro_batch_less_each():
    programs = programs_of("pp=4 gbs=16", model=GPT.model_copy(update={"vocabulary": 128}))

    peaks = [peak_of(memory_curve(programs, stage)).allocated_bytes for stage in (1, 2)]

    kept = programs.layers[1].kept_bytes.item() * 4  # blocks
    assert peaks[0] - peaks[1] == pytest.approx(kept)


def test_the_peak_names_the_first_backward_of_a_full_pipeline():
    programs = programs_of("pp=4 gbs=16", model=GPT.model_copy(update={"vocabulary": 128}))

    found = [peak_of(memory_curve(programs, stage)) for stage in range(4)]

    assert {(peak.moment, peak.micro_batch) for peak in found} == {("backward", 0)}


def test_gpipe_is_fullest_where_the_last_micro_batch_turns_round():
    programs = programs_of("pp=2 gbs=6 schedule=gpipe")

    peak = peak_of(memory_curve(programs, 0))

    assert (peak.moment, peak.micro_batch) == ("backward", 5)


def test_an_update_that_needs_most_belongs_to_no_task():
    programs = programs_of("gbs=2", stack=stack_with(memory={"update_bytes": 1e4}))

    peak = peak_of(memory_curve(programs, 0))

    assert (peak.moment, peak.chunk, peak.micro_batch) == ("update", -1, -1)
    assert peak.allocated_bytes == pytest.approx(Kept("gbs=2", stack=programs.stack).allocated[0])


@EACH_PLAN
@pytest.mark.parametrize("update_bytes", [0.0, 1e4])
def test_categories_of_a_peak_add_up_to_it_and_are_those_of_its_class(text, update_bytes):
    programs = programs_of(text, stack=stack_with(memory={"update_bytes": update_bytes}))
    stage_class = programs.stages.of(0).stage_class
    memory = peak_memory(programs)

    for stage, at in enumerate(stage_class.tolist()):
        peak = peak_of(memory_curve(programs, stage))
        assert sum(peak.by_category.values()) == pytest.approx(peak.allocated_bytes, rel=1e-12)
        if np.isclose(peak.allocated_bytes, memory.allocated_bytes[0, at], rtol=1e-12):
            shape = memory.allocated_bytes.shape
            wanted = {name: np.broadcast_to(s, shape)[0, at] for name, s in memory.by_category.items()}
            found = {name: peak.by_category.get(name, 0.0) for name in wanted}
            assert found == pytest.approx(wanted, rel=1e-9, abs=1.0)


def test_a_recomputed_step_rises_by_one_input_a_block_with_every_forward():
    programs = programs_of("recompute=full gbs=4 schedule=gpipe", model=GPT)

    curve = memory_curve(programs, 0)

    rises = np.diff(curve.by_category["activations"][1:8:2])  # behind each of four forwards
    x_bytes = 2 * LENGTH * HIDDEN
    assert rises.tolist() == [16 * x_bytes + 2 * x_bytes + 8 * LENGTH] * 3  # blocks, norm and head, ids
