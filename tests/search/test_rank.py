"""The order of played plans: by intervals of differences, the simplest of equals first."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plans import JOB, factor, played

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.cost.factors import NINETY_PERCENT
from flopcast.search.find import ranked
from flopcast.search.question import Question
from flopcast.search.rank import grouped, simplicity
from flopcast.search.space import Space
from flopcast.timeline.uncertainty import difference

QUESTION = Question(jobs=(JOB,))
KERNELS = factor("gemm_level[a100]", 0.3)  # wide, but common to all plans


def fabric(share):
    return factor("fabric[x]", 0.05, share)


def test_what_all_plans_share_does_not_blur_their_order():
    fast, slow = played(1.0, KERNELS, tp=2, dp=4), played(1.01, KERNELS)

    first, second = ranked(QUESTION, [slow, fast])

    assert (first.played, second.played) == (fast, slow)
    assert not second.equal
    assert second.ratio_low == pytest.approx(1.01) == second.ratio_high


def test_of_plans_that_cannot_be_told_apart_the_simplest_comes_first():
    intricate = played(1.0, KERNELS, fabric(0.2), dp=1, tp=4, pp=2, vpp=2)
    simple = played(1.01, KERNELS, fabric(0.0))

    first, second = ranked(QUESTION, [intricate, simple])

    assert first.played is simple
    assert second.played is intricate
    assert (first.equal, second.equal) == (True, True)


@pytest.mark.parametrize(
    ("behind", "recommended"), [(1.015, "simple"), (1.025, "intricate"), (1.1, "intricate")]
)
def test_a_simpler_plan_is_recommended_only_where_it_is_as_near_as_repeats_of_one_run(behind, recommended):
    """A sixth of the step is spent on something else, so that all of them are called equal."""
    intricate = played(1.0, KERNELS, fabric(0.33), dp=1, tp=4, pp=2, vpp=2)
    simple = played(behind, KERNELS, fabric(0.0))

    first, second = ranked(QUESTION, [intricate, simple])

    assert (first.equal, second.equal) == (True, True)
    assert first.played is {"simple": simple, "intricate": intricate}[recommended]


def test_the_interval_of_a_ratio_is_that_of_the_difference_of_shares():
    best, other = played(1.0, KERNELS, fabric(0.3)), played(1.1, KERNELS, fabric(0.1), tp=2, dp=4)

    behind = ranked(QUESTION, [best, other])[-1]

    half = NINETY_PERCENT * math.hypot(0.05 * 0.2, math.sqrt(2) * 0.1 / 4)  # a tenth of the step moved
    assert math.log(behind.ratio_high / behind.ratio) == pytest.approx(half)
    assert math.log(behind.ratio / behind.ratio_low) == pytest.approx(half)


def test_a_plan_is_equal_as_long_as_its_interval_holds_one():
    best = played(1.0, KERNELS, fabric(0.5), tp=2, dp=4)
    edge = math.exp(NINETY_PERCENT * math.hypot(0.05 * 0.5, math.sqrt(2) * 0.05))  # a quarter moved

    inside, outside = (ranked(QUESTION, [best, played(s, KERNELS)]) for s in (edge * 0.999, edge * 1.001))

    assert [one.equal for one in inside] == [True, True]
    assert [one.equal for one in outside] == [True, False]


def test_without_plans_there_is_no_order():
    assert ranked(QUESTION, []) == ()


def test_a_plan_with_more_of_everything_is_less_simple():
    """Each step adds one thing to run."""
    plain = {"dp": 8}
    steps = [
        plain,
        {"dp": 8, "zero": 1},
        {"dp": 8, "zero": 1, "recompute": "full"},
        {"dp": 4, "tp": 2, "zero": 1},
        {"dp": 2, "tp": 4, "zero": 1},
        {"dp": 2, "tp": 4, "zero": 1, "recompute": "selective"},
        {"dp": 2, "tp": 2, "pp": 2, "zero": 1},
        {"dp": 2, "tp": 2, "pp": 2, "vpp": 2, "zero": 1},
    ]

    measures = [simplicity(played(1.0, **plan)) for plan in steps]

    assert measures == sorted(measures)
    assert len(set(measures)) == len(measures)


def test_an_option_that_a_space_settles_makes_no_plan_simpler():
    """A search leaves options out where they do not matter; `flopcast predict` states what the user set."""
    settled = Space(zero=1, schedule="gpipe", context_order="contiguous")
    stated = {"zero": 1, "schedule": "gpipe", "context_order": "contiguous"}
    one_replica, one_stage = {"tp": 2, "pp": 4}, {"dp": 4, "tp": 2}

    for plan, matters in ((one_replica, {"schedule": "gpipe"}), (one_stage, {"zero": 1})):
        left_out, written = played(1.0, **plan, **matters), played(1.0, **plan, **stated)

        assert simplicity(left_out) < simplicity(written)
        assert simplicity(left_out, settled) == simplicity(written, settled) == simplicity(written)
    assert simplicity(played(1.0, **one_stage), Space()) == simplicity(played(1.0, **one_stage))


def test_rates_are_ranked_by_their_inverse():
    """Twice the batch in one and a half times the time is a higher rate."""
    small, large = played(1.0, KERNELS), played(1.5, KERNELS, gbs=32)

    rates = Question(jobs=(JOB,), objectives=("tokens_per_s",))

    assert ranked(rates, [small, large])[0].played is large
    objective = rates.first
    rate = objective.shown(ranked(rates, [large])[0].losses[0].value)
    assert rate == pytest.approx(large.job.step_tokens / 1.5)


@given(
    st.lists(
        st.tuples(st.floats(1.0, 1.2), st.floats(0.0, 0.6), st.sampled_from([1, 2, 4, 8])),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=60)
def test_any_plans_are_ranked_by_their_losses_behind_one_that_ties_with_the_best(rows):
    plans = [played(s, KERNELS, fabric(share), dp=8 // tp, tp=tp) for s, share, tp in rows]

    order = ranked(QUESTION, plans)

    losses = [one.losses[0].value for one in order]
    best = min(losses)
    assert len(order) == len(plans)
    assert losses[1:] == sorted(losses[1:])
    assert order[0].equal
    assert order[0].ratio <= TIED_RATIO
    assert all(one.ratio == pytest.approx(loss / best) for one, loss in zip(order, losses, strict=True))
    tied = [one for one in order if one.equal and one.ratio <= TIED_RATIO]
    assert simplicity(order[0].played) == min(simplicity(one.played) for one in tied)


@settings(max_examples=50)
@given(
    drawn=st.lists(
        st.tuples(st.floats(1.0, 1.2), st.floats(0.0, 1.0), st.integers(0, 3), st.sampled_from([2, 4])),
        min_size=1,
        max_size=12,
    )
)
def test_groups_hold_every_plan_once_beside_a_plan_that_is_tied_with_it(drawn):
    plans = ranked(
        QUESTION,
        [played(step_s, fabric(share), zero=zero, tp=tp, dp=8 // tp) for step_s, share, zero, tp in drawn],
    )

    groups = grouped(plans)

    assert sorted(map(id, plans)) == sorted(id(one) for group in groups for one in group)
    for first, *others in groups:
        for one in others:
            ratio = one.losses[0].value / first.losses[0].value
            low, high = difference(one.losses[0].factors, first.losses[0].factors, math.log(ratio))
            assert low <= 1.0 <= high
            own, theirs = one.played.plan, first.played.plan
            assert own.model_copy(update={"zero": theirs.zero}) == theirs
            assert plans.index(first) < plans.index(one)
