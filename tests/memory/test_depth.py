"""Moments of a stage: those that are kept are as full as any, whatever chunks weigh."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.memory.in_flight import depths, fullest
from flopcast.memory.peak import level_bytes
from flopcast.schedules import SCHEDULES

PLAIN = [(p, 1, m) for p in (1, 2, 3, 5) for m in (1, 2, 3, 11)]
CHUNKED = [(p, v, rounds * p) for p in (2, 3, 4) for v in (2, 3) for rounds in (1, 2, 5)]
CASES = [(name, *shape) for name in ("1f1b", "eager_1f1b", "gpipe", "zb_h1", "zb_h2") for shape in PLAIN]
CASES += [("interleaved_1f1b", *shape) for shape in CHUNKED]
EACH_CASE = all_cases(("name", "stages", "virtual", "micro"), CASES)


def rows(name, stages, virtual, micro):
    """Per stage: kind ("F", "B" or "W") and chunk of each task."""
    order = SCHEDULES[name].order(stages, virtual, micro)
    return [
        [("FBW"[k], int(c)) for k, c in zip(kinds, chunks, strict=True)]
        for kinds, chunks in zip(order.kind, order.chunk, strict=True)
    ]


def walked(order, flying, waiting, at_work):
    """The fullest level of one stage's row of tasks, one task after the other."""
    splits = any(kind == "W" for kind, _ in order)
    level, best = 0.0, 0.0
    for kind, chunk in order:
        if kind == "F":
            level += flying[chunk]
        if kind == "B":
            best = max(best, level + at_work[chunk])
            level += (waiting[chunk] if splits else 0.0) - flying[chunk]
        if kind == "W":
            level -= waiting[chunk]
        best = max(best, level)
    return best


@EACH_CASE
def test_the_moments_that_are_kept_are_as_full_as_a_walk_over_all_tasks(name, stages, virtual, micro):
    weights = np.random.default_rng(stages * 100 + micro).uniform(0.0, 9.0, (5, 3, 1, virtual))

    for stage, order in enumerate(rows(name, stages, virtual, micro)):
        moments = fullest(name, stages, tuple(range(virtual)), virtual, micro, (stage,))
        for flying, waiting, at_work in weights:
            best = level_bytes(moments, flying, waiting, at_work).max()
            assert best == pytest.approx(walked(order, flying[0], waiting[0], at_work[0]), rel=1e-12)


@EACH_CASE
def test_a_class_of_stages_is_as_full_as_its_fullest_member(name, stages, virtual, micro):
    flying, waiting, at_work = np.random.default_rng(micro).uniform(0.0, 9.0, (3, 1, virtual))

    together = fullest(name, stages, tuple(range(virtual)), virtual, micro, tuple(range(stages)))

    each = [
        walked(order, flying[0], waiting[0], at_work[0]) for order in rows(name, stages, virtual, micro)
    ]
    assert level_bytes(together, flying, waiting, at_work).max() == pytest.approx(max(each), rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    stages=st.integers(2, 8),
    virtual=st.integers(2, 4),
    rounds=st.integers(1, 12),
)
def test_the_micro_batches_after_which_a_schedule_is_full_show_all_it_ever_holds(
    name, stages, virtual, rounds
):
    chunks = {"interleaved_1f1b": virtual, "zb_v": 2, "dualpipe_v": 2, "dualpipe": 2}.get(name, 1)
    micro = rounds * stages
    enough = SCHEDULES[name].fills_after(stages, micro)

    short, long = (
        fullest(name, stages, tuple(range(chunks)), chunks, m, tuple(range(stages)))
        for m in (enough, micro)
    )

    assert enough <= micro
    columns = [np.hstack([d.in_flight, d.waiting, d.at_work[:, None]]).tolist() for d in (short, long)]
    assert sorted(columns[0]) == sorted(columns[1])


def test_chunks_that_weigh_the_same_may_be_counted_together():
    flying, at_work = np.array([[3.0, 5.0]]), np.array([[7.0, 2.0]])
    held = (1, 0, 1)
    apart = fullest("interleaved_1f1b", 4, (0, 1, 2), 3, 16, (1, 2))

    together = fullest("interleaved_1f1b", 4, held, 2, 16, (1, 2))

    each = [sizes[:, list(held)] for sizes in (flying, at_work)]
    expected = level_bytes(apart, each[0], np.zeros((1, 3)), each[1]).max()
    assert level_bytes(together, flying, np.zeros((1, 2)), at_work).max() == expected
    assert len(together.task) < len(apart.task)


def test_what_is_left_of_1f1b_is_one_moment():
    moments = fullest("1f1b", 4, (0,), 1, 64, (1, 2))

    assert moments.in_flight.tolist() == [[3]]  # arXiv:2104.04473, section 2.2.1: stages that are left
    assert moments.at_work.tolist() == [0]


@EACH_CASE
def test_a_stage_ends_a_step_empty(name, stages, virtual, micro):
    order = SCHEDULES[name].order(stages, virtual, micro)

    for stage in range(stages):
        moments = depths(order, stage, tuple(range(virtual)), virtual)
        assert moments.in_flight[-1].tolist() == moments.waiting[-1].tolist() == [0] * virtual
        assert len(moments.task) == 2 * order.kind.shape[1]
