"""What chunks of a space leave, joined: the same as one sieve of all plans, made up by hand, would keep."""

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plans import JOB

from flopcast.search.top_candidates import BEST, Candidate, TopCandidates

FEW = settings(max_examples=40)
LOSS = st.integers(1, 6).map(float)
OVER = st.sampled_from([(0.5, True), (1.0, True), (1.1, True), (4.0, True), (1.2, False), (3.0, False)])
PLAN = st.tuples(LOSS, LOSS, OVER)  # seconds, bytes, over a limit and whether in memory
CHUNKS = st.lists(st.lists(PLAN, max_size=6), min_size=1, max_size=5)


def sifted(order, step_s, used_bytes, over):
    ratio, in_memory = over
    return Candidate(
        job=JOB,
        losses=(step_s, used_bytes),
        used_bytes=used_bytes,
        over_ratio=ratio,
        in_memory=in_memory,
        order=order,
    )


def dominates(one, other):
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def undominated(plans, numbers):
    return tuple(
        one for one in plans if not any(dominates(numbers(other), numbers(one)) for other in plans)
    )


def sieve_of(plans):
    """By the definition of what a sieve keeps, pair by pair."""
    kept = [sifted(place, *plan) for place, plan in enumerate(plans)]
    feasible = [one for one in kept if one.over_ratio <= 1.0]
    best = sorted(feasible, key=lambda one: (one.losses[0], one.order))[:BEST]
    limit = best[0].losses[0] if best else float("inf")
    lacking = [one for one in kept if not one.in_memory and one.losses[0] < limit]
    return TopCandidates(
        candidates=len(kept),
        possible=len(kept),
        in_memory=sum(one.in_memory for one in kept),
        feasible=len(feasible),
        best=tuple(best),
        on_front=undominated(feasible, lambda one: one.losses),
        faster=undominated(lacking, lambda one: (one.losses[0], one.used_bytes)),
        near=()
        if best
        else tuple(by_excess([one for one in kept if one.in_memory])[:BEST] or by_excess(kept)[:1]),
    )


def by_excess(kept):
    return sorted(kept, key=lambda one: one.over_ratio)


def told(candidates_kept):
    """What a sieve holds, whatever the order of fronts."""
    names = ("best", "on_front", "faster", "near")
    kept = {name: sorted(one.order for one in getattr(candidates_kept, name)) for name in names}
    counts = (
        candidates_kept.candidates,
        candidates_kept.possible,
        candidates_kept.feasible,
        candidates_kept.thinned,
    )
    return counts, kept, candidates_kept.nearest


@FEW
@given(CHUNKS, st.integers(0, 5))
def test_chunks_joined_in_any_grouping_leave_what_all_plans_at_once_leave(chunks, cut):
    left, right = (
        reduce(TopCandidates.joined, map(sieve_of, part), TopCandidates())
        for part in (chunks[:cut], chunks[cut:])
    )

    assert told(left.joined(right)) == told(sieve_of([plan for chunk in chunks for plan in chunk]))


@FEW
@given(CHUNKS)
def test_each_plan_is_played_once_and_the_best_and_their_front_are_among_them(chunks):
    joined = reduce(TopCandidates.joined, map(sieve_of, chunks), TopCandidates())

    played = [one.order for one in joined.to_play()]
    assert len(played) == len(set(played))
    assert {one.order for one in (*joined.best, *joined.on_front)} <= set(played)
    if not joined.best and joined.nearest is not None:
        assert joined.nearest.order in played


@pytest.mark.parametrize("sizes", [(BEST, 10), (10, BEST), (BEST, BEST, BEST)])
def test_no_more_than_so_many_of_the_best_are_kept_however_many_chunks_bring_some(sizes):
    chunks = [[(1.0 + (7 * n) % 97, 1.0, (0.5, True)) for n in range(size)] for size in sizes]

    joined = reduce(TopCandidates.joined, map(sieve_of, chunks), TopCandidates())

    whole = sieve_of([plan for chunk in chunks for plan in chunk])
    assert [one.order for one in joined.best] == [one.order for one in whole.best]
    assert len(joined.best) == BEST


def test_a_front_that_was_thinned_anywhere_is_said_to_be():
    thin = replace(sieve_of([(1.0, 1.0, (0.5, True))]), thinned=True)

    assert thin.joined(sieve_of([])).thinned
    assert sieve_of([]).joined(thin).thinned
