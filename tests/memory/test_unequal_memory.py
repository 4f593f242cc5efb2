"""Memory where micro-batches differ: a walk over every task, with the sizes of steps of one kind."""

import numpy as np
import pytest
from memory_cases import GPT, LENGTH, MEGATRON, plan_of, stack_with
from single_calls import memory_curve

from flopcast.memory.categories import AT_WORK, IN_FLIGHT, STANDING, UPDATE, WAITING
from flopcast.memory.curve import peak_of
from flopcast.memory.peak import peak_memory
from flopcast.schedules import schedule_of
from flopcast.schedules.base import BACKWARD, FORWARD
from flopcast.spec.batch import Batch
from flopcast.spec.plan import one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

KINDS = (LENGTH, LENGTH // 4, LENGTH // 2)
ORDER = (1, 1, 0, 1, 2, 2, 0, 0, 1, 1, 1, 2)
CORE = "pp=4 gbs=12 schedule=zb_h1"
PLANS = [
    "gbs=12",
    "pp=4 gbs=12",
    "tp=2 sp pp=4 gbs=12 recompute=full",
    "pp=4 vpp=2 gbs=12",
    "pp=4 gbs=12 schedule=gpipe",
    CORE,
]
EACH_PLAN = pytest.mark.parametrize("text", PLANS)


def programs_of(text, batch, stack=MEGATRON):
    return realise(lower(GPT, one_plan(plan_of(text)), batch), stack)


def listed(order):
    return Batch(seq=LENGTH, micro_batches=tuple({"seq": KINDS[kind]} for kind in order))


def bytes_of(categories, programs, at, chunk=None):
    """One dict of categories of a stage class, or of one of its chunks, added up."""
    shape = programs.stages.chunks_of_class.shape[: 2 if chunk is None else 3]
    where = (0, at) if chunk is None else (0, at, programs.stages.of(0).stage_chunks[at, chunk])
    return sum(np.broadcast_to(category(programs), shape)[where] for category in categories.values())


def walk(text, stage, order, stack=MEGATRON):
    """The most that a stage holds, task by task."""
    kinds = [programs_of(text, Batch(seq=length), stack) for length in KINDS]
    plans, division = kinds[0].plans, kinds[0].stages.of(0)
    at, shape = int(division.stage_class[stage]), division.chunk_class.shape
    tasks = schedule_of(plans.structure.pipeline_schedule).order(*shape, len(order))
    splits = plans.structure.order_rule.splits_backward
    standing = max(bytes_of(STANDING, kinds[kind], at) for kind in order)
    held, most = {}, standing + bytes_of(UPDATE, kinds[0], at)
    columns = (tasks.kind[stage], tasks.chunk[stage], tasks.micro_batch[stage])
    for kind, chunk, m in zip(*(column.tolist() for column in columns), strict=True):
        mine = kinds[order[m]]
        if kind == FORWARD:
            held[chunk, m] = bytes_of(IN_FLIGHT, mine, at, chunk)
        elif kind == BACKWARD:
            most = max(most, standing + sum(held.values()) + bytes_of(AT_WORK, mine, at, chunk))
            held[chunk, m] = bytes_of(WAITING, mine, at, chunk) if splits else 0.0
        else:
            held[chunk, m] = 0.0
        most = max(most, standing + sum(held.values()))
    return most


@EACH_PLAN
@pytest.mark.parametrize("order", [ORDER, ORDER[::-1], (0,) * 11 + (1,)], ids=["mixed", "reversed", "last"])
def test_every_stage_peaks_where_a_walk_over_its_tasks_does(text, order):
    programs = programs_of(text, listed(order))
    stage_class = programs.stages.of(0).stage_class
    memory = peak_memory(programs)

    walked = [walk(text, stage, order) for stage in range(len(stage_class))]

    peaks = [peak_of(memory_curve(programs, stage)).allocated_bytes for stage in range(len(stage_class))]
    assert peaks == pytest.approx(walked, rel=1e-12)
    for at in set(stage_class.tolist()):
        fullest = max(peak for peak, mine in zip(peaks, stage_class, strict=True) if mine == at)
        assert memory.allocated_bytes[0, at] == pytest.approx(fullest, rel=1e-12)


@EACH_PLAN
def test_a_mixed_step_holds_no_more_than_one_of_its_longest_and_no_less_than_of_its_shortest(text):
    mixed, longest, shortest = (
        peak_memory(programs_of(text, batch)).allocated_bytes
        for batch in (listed(ORDER), Batch(seq=max(KINDS)), Batch(seq=min(KINDS)))
    )

    assert (shortest <= mixed).all()
    assert (mixed <= longest * (1 + 1e-12)).all()


@EACH_PLAN
def test_categories_add_up_to_what_is_allocated(text):
    memory = peak_memory(programs_of(text, listed(ORDER)))

    assert sum(memory.by_category.values()) == pytest.approx(memory.allocated_bytes, rel=1e-12)


def test_a_long_micro_batch_that_comes_late_is_the_peak():
    programs = programs_of("pp=4 gbs=12", listed((1,) * 11 + (0,)))

    peak = peak_of(memory_curve(programs, 3))

    assert (peak.moment, peak.micro_batch) == ("backward", 11)


def test_a_step_begins_and_ends_with_what_stands():
    programs = programs_of("pp=4 vpp=2 gbs=12", listed(ORDER))

    for stage in range(4):
        curve = memory_curve(programs, stage)
        ends = [curve.level_bytes[0], curve.level_bytes[-1]]
        assert ends == pytest.approx([curve.standing_bytes] * 2, rel=1e-12)


def test_buffers_of_scores_are_those_of_the_longest():
    stack = stack_with(memory={"score_buffer": True})
    mixed, longest = (
        peak_memory(programs_of("gbs=12", batch, stack)).by_category["buffers"]
        for batch in (listed(ORDER), Batch(seq=LENGTH))
    )

    assert mixed.item() == longest.item()


def test_a_device_holds_what_the_fullest_of_unequal_ranks_does():
    orders = [(1,) * 6, (1, 1, 1, 0, 1, 1)]
    ranks = tuple({"micro_batches": listed(order).micro_batches} for order in orders)
    plan = "dp=2 pp=2 gbs=12"

    memory = peak_memory(programs_of(plan, Batch(seq=LENGTH, ranks=ranks)))

    apart = [peak_memory(programs_of(plan, listed(order))).allocated_bytes for order in orders]
    assert memory.allocated_bytes == pytest.approx(np.maximum(*apart), rel=1e-12)
