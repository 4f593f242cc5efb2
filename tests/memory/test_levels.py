"""memory/batch_peaks.py: batches of plans at their fullest, against a walk over every task of every
stage."""

from dataclasses import replace

import numpy as np
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.memory.batch_peaks import CategoryBytes, fullest_bytes, held_bytes
from flopcast.memory.in_flight import _undominated
from flopcast.schedules import schedule_of
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT
from flopcast.spec.orders import order_of
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

JOB = make_job(model="gpt3-175b", cluster="selene:64", plan="dp=8 tp=8 pp=8 mbs=1 gbs=64 precision=bf16")
MICRO = (1, 3, 8, 16, 40)
SCHEDULES = {
    "1f1b": ((2, 1), (8, 1), (5, 1)),  # stages and chunks; 96 blocks leave one over on five stages
    "eager_1f1b": ((4, 1), (5, 1)),
    "gpipe": ((1, 1), (8, 1)),
    "zb_h1": ((4, 1), (5, 1)),
    "zb_h2": ((4, 1),),
    "interleaved_1f1b": ((4, 2), (8, 3)),
}


def programs_of(schedule):
    """Programs of plans that share a structure, one for each number of stages and chunks."""
    plans = [
        Plan(dp=512 // (8 * stages), tp=8, pp=stages, vpp=chunks, gbs=512, schedule=schedule)
        for stages, chunks in SCHEDULES[schedule]
    ]
    plans = replace(batch_plans(plans), uneven_blocks=JOB.model.num_blocks)
    return realise(lower(JOB.model, plans, JOB.batch), JOB.software)


def walked_bytes(programs, weights, plan, micro):
    """Each stage class of one plan at its fullest: one task after the other, on all of its stages."""
    division = programs.stages.of(plan)
    stages, chunks = division.chunk_class.shape
    order = schedule_of(order_of(programs.plans.structure, chunks)).order(stages, chunks, micro)
    splits = (order.kind == WEIGHT).any()
    fullest = np.zeros(weights.shape[1])
    for stage, at in enumerate(division.stage_class):
        flying, waits, work = (total[plan, at] for total in weights.totals())
        level = 0.0
        for kind, chunk in zip(order.kind[stage], order.chunk[stage], strict=True):
            column = division.chunk_class[stage, chunk]
            if kind == BACKWARD:
                fullest[at] = max(fullest[at], level + work[column])
            level += {
                FORWARD: flying[column],
                BACKWARD: (waits[column] if splits else 0.0) - flying[column],
                WEIGHT: -waits[column],
            }[kind]
            fullest[at] = max(fullest[at], level)
    return fullest


def pairs(programs):
    """Every plan with every number of micro-batches that it may have, shuffled."""
    chunked = programs.plans.virtual_stages[:, 0] > 1
    stages = programs.plans.pipeline_parallel[:, 0]
    both = [
        (plan, micro)
        for plan in range(programs.plans.size)
        for micro in MICRO
        if not chunked[plan] or micro % stages[plan] == 0
    ]
    return np.random.default_rng(3).permutation(np.array(both)).T


@all_cases("schedule", SCHEDULES)
def test_many_plans_are_as_full_as_a_walk_over_their_tasks_finds_each(schedule):
    programs = programs_of(schedule)
    weights = CategoryBytes.of(programs)
    plan, micro = pairs(programs)

    found = fullest_bytes(programs, weights, plan, micro.astype(float))

    walked = [walked_bytes(programs, weights, *pair) for pair in zip(plan, micro, strict=True)]
    np.testing.assert_allclose(found, walked, rtol=1e-12)
    assert found.max(axis=1).min() > 0


@all_cases("schedule", SCHEDULES)
def test_categories_at_the_fullest_moment_add_up_to_it(schedule):
    programs = programs_of(schedule)
    weights = CategoryBytes.of(programs)
    plan, micro = pairs(programs)

    by_category = held_bytes(programs, weights, plan, micro.astype(float))

    found = fullest_bytes(programs, weights, plan, micro.astype(float))
    np.testing.assert_allclose(sum(by_category.values()), found, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 3, st.integers(-1, 1)), min_size=1, max_size=30, unique=True)
)
def test_what_is_left_of_rows_is_what_no_other_row_reaches(rows):
    def reaches(one, other):
        return all(a >= b for a, b in zip(one[:-1], other[:-1], strict=True)) and other[-1] in (one[-1], -1)

    kept = _undominated(np.array(rows))

    alone = [row for row in rows if not any(reaches(other, row) for other in rows if other != row)]
    assert sorted(rows[place] for place in kept) == sorted(alone)
