"""A stream of plans, sifted: as if all of them had been looked at together, whatever the batches."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.library.curves import load_book
from flopcast.search import top_candidates as sifting
from flopcast.search.grid import batches, plan_at
from flopcast.search.pareto_front import front
from flopcast.search.question import Question
from flopcast.search.screen import Screened, screen
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.plan import Plan, batch_plans

JOB = make_job(cluster="selene:1", stack="megatron-core", plan="dp=8 gbs=64")
SPACE = Space(gbs=64, mbs="1,2,4", vpp="1,2", cp=1)
QUESTION = Question(jobs=(JOB,), space=SPACE)
DEVICE_BYTES = JOB.cluster.node.device.memory_bytes


def sifted(question, job, space, rows, most=sifting.BEST):
    """The space through the sieve, and everything that went into it."""
    book, kept, seen = load_book(job.cluster), TopCandidates(most=most), []
    for sized, plans in batches(job, space, rows):
        part = screen(sized, plans, book)
        seen += [
            (
                plan_at(plans, row),
                float(part.step_time_s[row]),
                float(part.device_used_bytes[row]),
                float(part.high_bytes[row]),
            )
            for row in np.flatnonzero(part.possible)
        ]
        kept = kept.with_batch(question, sized, plans, part)
    return kept, seen


def test_what_is_kept_is_the_best_and_the_front_of_the_whole_space():
    kept, seen = sifted(QUESTION, JOB, SPACE, 65_536)

    fitting = [row for row in seen if row[3] <= DEVICE_BYTES]
    losses = np.array([[step, used] for _, step, used, _ in fitting])
    order = np.argsort(losses[:, 0], kind="stable")[: sifting.BEST]
    ratio = JOB.cluster.jitter.ratio
    assert kept.possible == len(seen)
    assert kept.feasible == len(fitting)
    assert [one.losses[0] for one in kept.best] == pytest.approx(losses[order, 0] * ratio)
    assert {one.job.plan for one in kept.on_front} == {fitting[i][0] for i in np.flatnonzero(front(losses))}


@cache
def few_sifted(rows):
    few = Space(gbs=64, mbs="1,2", vpp="1", cp=1, zero="1", recompute=("none",))
    return sifted(QUESTION, JOB, few, rows, most=10)[0]


@all_cases("rows", [1, 7, 40])
def test_batches_of_any_size_leave_the_same(rows):
    parts, whole = few_sifted(rows), few_sifted(65_536)

    assert (parts.candidates, parts.possible, parts.feasible) == (
        whole.candidates,
        whole.possible,
        whole.feasible,
    )
    for name in ("best", "on_front", "faster"):
        ours, theirs = getattr(parts, name), getattr(whole, name)
        assert sorted(one.job.plan.short() for one in ours) == sorted(
            one.job.plan.short() for one in theirs
        )


def made(*rows):
    """Plans told apart by their global batch, with what screening says of each: seconds, and the part of a
    device that is used."""
    plans = batch_plans(
        [Plan(dp=8, gbs=8 * number, precision="bf16") for number in range(1, len(rows) + 1)]
    )
    seconds, used = np.array(rows, dtype=float).T
    return plans, Screened(
        possible=np.isfinite(seconds),
        fits=used <= 1.0,
        step_time_s=seconds,
        device_used_bytes=used * DEVICE_BYTES,
        high_bytes=used * DEVICE_BYTES / 0.95,
        outside_ratio=np.zeros_like(used),
    )


def steps_s(kept):
    return [round(one.losses[0] / JOB.cluster.jitter.ratio, 9) for one in kept]


def test_only_the_best_few_are_kept():
    kept = TopCandidates(most=3)
    for part in ([(5, 0.5), (1, 0.5), (4, 0.5)], [(2, 0.5), (6, 0.5)], [(3, 0.5), (1, 0.5)]):
        kept = kept.with_batch(QUESTION, JOB, *made(*part))

    assert steps_s(kept.best) == [1, 1, 2]
    assert [one.order for one in kept.best] == [1, 6, 3]


def test_plans_without_room_are_kept_where_they_would_be_better():
    kept = TopCandidates().with_batch(
        QUESTION, JOB, *made((2, 0.5), (1.5, 1.2), (1, 2.0), (1.2, 2.5), (3, 1.1))
    )

    assert steps_s(kept.faster) == [1.5, 1]


def test_a_faster_plan_that_fits_later_makes_them_worthless():
    before = TopCandidates().with_batch(QUESTION, JOB, *made((2, 0.5), (1.5, 1.2), (1, 2.0)))

    after = before.with_batch(QUESTION, JOB, *made((1.2, 0.5), (2, 0.4)))

    assert steps_s(before.faster) == [1.5, 1]
    assert steps_s(after.faster) == [1]


def test_the_nearest_plan_is_the_one_that_lacks_least():
    kept = TopCandidates().with_batch(QUESTION, JOB, *made((1, 3.0), (9, 1.4)))
    kept = kept.with_batch(QUESTION, JOB, *made((2, 2.0), (np.nan, 1.1)))

    assert steps_s([kept.nearest]) == [9]
    assert kept.feasible == 0
    assert kept.nearest in kept.to_play()


def test_a_deadline_is_kept_but_for_what_estimates_may_miss_it_by():
    tokens = 1e9
    rows = [(1.0, 0.5), (1.0, 0.5)]  # the second trains twice as many tokens in a step
    needed_s = tokens / (8 * JOB.batch.mean_sequence_tokens)
    asked = Question(jobs=(JOB,), space=SPACE, total_tokens=tokens, deadline_s=0.6 * needed_s)

    kept = TopCandidates().with_batch(asked, JOB, *made(*rows))

    assert [one.job.plan.global_batch for one in kept.best] == [16]


def test_each_plan_is_played_once_and_a_long_front_in_part():
    rows = [(1 + 0.01 * number, 0.9 - 0.01 * number) for number in range(50)]

    kept = TopCandidates(most=5).with_batch(QUESTION, JOB, *made(*rows))

    played = [one.order for one in kept.to_play()]
    assert len(kept.on_front) == 50
    assert len(played) == len(set(played)) == 9  # five best, five of the front, one of them both
    assert {0, 49} <= set(played)


def test_a_front_that_is_too_long_to_keep_is_thinned_and_says_so(monkeypatch):
    monkeypatch.setattr(sifting, "LONGEST_FRONT", 10)
    rows = [(1 + 0.01 * number, 0.9 - 0.01 * number) for number in range(50)]

    kept = TopCandidates().with_batch(QUESTION, JOB, *made(*rows))

    assert len(kept.on_front) == 10
    assert kept.thinned


@st.composite
def streams(draw):
    """Batches of plans: seconds, and the part of a device that is used; NaN where a rule is broken."""
    row = st.tuples(
        st.sampled_from([1.0, 1.5, 2.0, 3.0, 5.0, np.nan]), st.sampled_from([0.2, 0.5, 0.9, 1.2])
    )
    return draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=6))


@given(streams())
@settings(max_examples=60)
def test_any_stream_is_sifted_as_if_it_were_one_batch(parts):
    kept = TopCandidates()
    for part in parts:
        kept = kept.with_batch(QUESTION, JOB, *made(*part))

    rows = [row for part in parts for row in part]
    room = 0.95  # as `made` says: the high end is the whole of a device there
    fitting = [(s, u, at) for at, (s, u) in enumerate(rows) if np.isfinite(s) and u <= room]
    losses = np.array([(s, u) for s, u, _ in fitting]).reshape(len(fitting), 2)
    assert kept.candidates == len(rows)
    assert kept.possible == sum(np.isfinite(s) for s, _ in rows)
    assert kept.feasible == len(fitting)
    assert [one.order for one in kept.best] == [
        at for _, _, at in sorted(fitting, key=lambda r: (r[0], r[2]))
    ]
    assert sorted(one.order for one in kept.on_front) == [
        at for (_, _, at), stays in zip(fitting, front(losses), strict=True) if stays
    ]
    limit = min((s for s, _, _ in fitting), default=np.inf)
    assert all(one.used_bytes > room * DEVICE_BYTES for one in kept.faster)
    assert all(seconds < limit for seconds in steps_s(kept.faster))
