"""One sweep of plans against hand-made measurements: ranks, regret, what is called equal."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given
from hypothesis import strategies as st

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.lab.validation.decisions import Choice, Sweep, rank_correlation
from flopcast.timeline.uncertainty import Sensitivity, difference

TIMES = st.lists(st.floats(0.1, 100.0), min_size=2, max_size=9)


def choice(name, measured_s, predicted_s, trivial_s=1.0, **changes):
    made = Choice(
        name=name,
        plan=f"plan of {name}",
        measured_s=measured_s,
        predicted_s=predicted_s,
        trivial_s=trivial_s,
        breakdown={"everything": predicted_s},
    )
    return replace(made, **changes)


def sweep(*choices):
    return Sweep("made-up", "plan", {}, choices)


def swept(measured, predicted, trivial=None):
    """A sweep of as many choices as there are times."""
    others = trivial or [1.0] * len(measured)
    names = "abcdefghijklm"
    return sweep(*(choice(*each) for each in zip(names, measured, predicted, others, strict=False)))


def hanging_on(share):
    """Factors of a prediction that hangs by this share on one thing that is half as sure as it is long."""
    return (Sensitivity(name="fabric", log_sigma_factor=0.5, share=share),)


@all_cases(
    ("predicted", "measured", "correlation"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [40, 30, 20, 10], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),  # 1 − 6 · 4 / (5 · 24)
        ([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], [7, 27, 2, 50, 28, 29, 20, 12, 6, 17], -29 / 165),
        ([1, 1, 2], [1, 2, 3], math.sqrt(3) / 2),  # ranks 1.5, 1.5, 3
    ],
)
def test_rank_correlations_are_the_textbooks(predicted, measured, correlation):
    assert rank_correlation(predicted, measured) == pytest.approx(correlation)


@given(TIMES, st.randoms())
def test_a_rank_correlation_hangs_on_the_order_alone(times, chance):
    others = chance.sample(times, len(times))
    bent = [math.log(each) ** 3 for each in others]

    one, two = rank_correlation(times, others), rank_correlation(times, [7.0 * each for each in others])

    assert one == pytest.approx(two)
    if len({f"{each:.6g}" for each in others}) == len(others) and one is not None:
        assert rank_correlation(times, bent) == pytest.approx(one)


@given(st.permutations(range(8)))
def test_without_ties_it_is_one_less_six_times_the_squared_differences_over_n_cubed_less_n(order):
    squares = float(np.sum((np.array(order) - np.arange(8)) ** 2))

    assert rank_correlation(list(range(8)), list(order)) == pytest.approx(1 - 6 * squares / (8**3 - 8))


def test_who_tells_no_plans_apart_has_no_rank_correlation():
    found = swept([1.0, 2.0], [3.0, 4.0], trivial=[5.0, 5.0 + 1e-12])

    assert found.spearman == 1.0
    assert found.trivial_spearman is None


def test_regret_is_what_the_recommended_plan_takes_longer_than_the_fastest():
    found = swept([1.0, 1.2, 1.5], [2.0, 1.9, 3.0], trivial=[2.0, 3.0, 1.0])

    assert [one.name for one in found.recommended] == ["b"]
    assert found.fastest.name == "a"
    assert found.regret_ratio == pytest.approx(0.2)
    assert found.trivial_regret_ratio == pytest.approx(0.5)


def test_who_tells_no_plans_apart_regrets_the_mean_of_all():
    found = swept([1.0, 1.2, 1.7], [1.0, 2.0, 3.0])

    assert found.trivial_regret_ratio == pytest.approx(0.3)
    assert found.regret_ratio == 0.0


@given(TIMES, st.floats(0.1, 10.0))
def test_nothing_is_regretted_of_predictions_that_are_wrong_by_one_ratio(measured, ratio):
    found = swept(measured, [ratio * each for each in measured])

    assert found.regret_ratio == pytest.approx(0.0, abs=1e-8)


@given(TIMES, st.randoms())
def test_regret_is_at_least_nothing_and_at_most_the_slowest_plan(measured, chance):
    found = swept(measured, chance.sample(measured, len(measured)))

    assert -1e-12 <= found.regret_ratio <= max(measured) / min(measured) - 1 + 1e-9


def test_what_does_not_fit_is_not_recommended():
    full = choice("full", 1.0, 1.0, fits=False)
    fits = choice("fits", 1.1, 1.1)

    assert sweep(full, fits).recommended == (fits,)
    assert sweep(full, replace(fits, fits=False)).recommended == (full,)


@pytest.mark.parametrize(("ratio", "apart"), [(1.0, 0), (TIED_RATIO - 1e-3, 0), (TIED_RATIO + 1e-3, 1)])
def test_plans_are_apart_where_they_differ_by_more_than_repeats_do(ratio, apart):
    pairs = swept([1.0, ratio], [1.0, 2.0]).pairs

    assert (pairs.number, pairs.apart, pairs.tied) == (1, apart, 1 - apart)


def test_of_plans_apart_the_share_in_the_right_order_is_told_and_a_tie_is_half_right():
    """Measured a < b < c; predicted c = a < b: a and b right, a and c tied, b and c wrong."""
    pairs = swept([1.0, 2.0, 3.0], [1.0, 2.0, 1.0]).pairs

    assert pairs.right_share == pytest.approx((1.0 + 0.5 + 0.0) / 3)


def test_pairs_that_share_all_that_is_unknown_are_settled():
    pairs = swept([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]).pairs

    assert (pairs.settled, pairs.settled_wrong) == (3, 1)
    assert pairs.covered == 0


def test_a_pair_that_hangs_on_what_nobody_knows_is_called_equal_until_it_is_far_enough_apart():
    """One hangs on the fabric by half: 1.645 · 0.5 · 0.5 is 1.51 either way, 1.53 with its own."""
    found = {
        ratio: sweep(choice("a", 1.0, 1.0), choice("b", 1.01, ratio, factors=hanging_on(0.5)))
        for ratio in (1.4, 1.7)
    }

    assert (found[1.4].pairs.tied_equal, found[1.4].pairs.settled) == (1, 0)
    assert (found[1.7].pairs.tied_equal, found[1.7].pairs.settled) == (0, 1)
    assert (found[1.4].pairs.covered, found[1.7].pairs.covered) == (1, 0)


def test_the_fastest_plan_may_be_called_equal_to_the_recommended_one():
    taken, near, far = (choice(n, m, p) for n, m, p in (("a", 2.0, 1.0), ("b", 1.0, 1.1), ("c", 1.0, 3.0)))

    assert not sweep(taken, near).fastest_is_called_equal
    assert sweep(taken, replace(near, factors=hanging_on(0.5))).fastest_is_called_equal
    assert not sweep(taken, replace(far, factors=hanging_on(0.5))).fastest_is_called_equal
    assert sweep(replace(taken, measured_s=0.5), near).fastest_is_called_equal


THOUSANDTHS = st.integers(500, 2000).map(lambda value: value / 1000)  # no two differ by rounding alone


@given(st.lists(st.tuples(THOUSANDTHS, THOUSANDTHS, st.floats(0.0, 1.0)), min_size=2, max_size=6))
def test_pairs_are_counted_as_one_by_one(values):
    choices = [
        choice(f"{number}", measured, predicted, factors=hanging_on(share))
        for number, (measured, predicted, share) in enumerate(values)
    ]
    wanted = {"apart": 0, "settled": 0, "covered": 0}
    for one, other in combinations(choices, 2):
        low, high = difference(one.factors, other.factors, math.log(one.predicted_s / other.predicted_s))
        measured = one.measured_s / other.measured_s
        wanted["apart"] += not 1 / TIED_RATIO <= measured <= TIED_RATIO
        wanted["settled"] += not low <= 1.0 <= high
        wanted["covered"] += low / TIED_RATIO <= measured <= high * TIED_RATIO

    pairs = sweep(*choices).pairs

    assert pairs.number == len(values) * (len(values) - 1) / 2
    assert {name: getattr(pairs, name) for name in wanted} == pytest.approx(wanted, abs=1)
    assert pairs.settled_wrong <= pairs.settled
    assert pairs.tied_equal <= pairs.tied


SWEPT = st.lists(
    st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=2, max_size=7
)


def told(found):
    """Everything that is said of a sweep, without names."""
    pairs = found.pairs
    return {
        "spearman": found.spearman,
        "trivial_spearman": found.trivial_spearman,
        "regret": found.regret_ratio,
        "trivial_regret": found.trivial_regret_ratio,
        "apart": pairs.apart,
        "right": pairs.right_share,
        "settled": pairs.settled,
        "settled_wrong": pairs.settled_wrong,
        "tied_equal": pairs.tied_equal,
    }


def near(wanted):
    return {
        name: value if value is None else pytest.approx(value, abs=1e-8) for name, value in wanted.items()
    }


def sure(values):
    """A sweep of choices whose predictions hang on nothing."""
    return swept(*([round(each[column], 3) for each in values] for column in range(3)))


@given(SWEPT, st.randoms())
def test_in_which_order_plans_were_measured_plays_no_part(values, chance):
    shuffled = chance.sample(values, len(values))

    assert told(sure(shuffled)) == near(told(sure(values)))


@given(SWEPT, st.floats(0.1, 10.0))
def test_a_level_that_all_predictions_share_plays_no_part(values, ratio):
    found = sure(values)
    higher = [replace(each, predicted_s=ratio * each.predicted_s) for each in found.choices]

    assert told(sweep(*higher)) == near(told(found))


@given(SWEPT)
def test_who_predicts_what_is_measured_is_always_right(values):
    found = swept(*([[round(one, 3) for one, _, _ in values]] * 2))

    assert found.spearman in (None, pytest.approx(1.0))
    assert found.regret_ratio == pytest.approx(0.0, abs=1e-8)
    assert found.pairs.right_share == 1.0
    assert found.pairs.settled_wrong == 0
    assert found.pairs.covered == found.pairs.number


@given(SWEPT)
def test_who_predicts_the_reverse_recommends_the_slowest_plan(values):
    measured = [round(one, 3) for one, _, _ in values]
    found = swept(measured, [1.0 / each for each in measured])

    assert found.spearman in (None, pytest.approx(-1.0))
    assert found.regret_ratio == pytest.approx(max(measured) / min(measured) - 1.0)
    assert found.pairs.right_share == (0.0 if found.pairs.apart else 1.0)
    assert found.pairs.settled_wrong == found.pairs.apart


@given(SWEPT, st.floats(1.1, 3.0))
def test_a_plan_that_is_slower_than_all_and_known_to_be_costs_nothing(values, ratio):
    found = sure(values)
    slowest = choice(
        "slow",
        ratio * max(one.measured_s for one in found.choices),
        ratio * max(one.predicted_s for one in found.choices),
        ratio * max(one.trivial_s for one in found.choices),
    )

    more = sweep(*found.choices, slowest)

    assert more.regret_ratio == pytest.approx(found.regret_ratio)
    assert more.fastest == found.fastest
    assert more.pairs.number == found.pairs.number + len(values)
    assert more.pairs.settled_wrong == found.pairs.settled_wrong


def test_a_recommendation_that_ties_regrets_the_mean_of_its_plans():
    found = swept([1.0, 1.4, 1.1], [2.0, 2.0, 3.0])

    assert [one.name for one in found.recommended] == ["a", "b"]
    assert found.regret_ratio == pytest.approx(0.2)
    assert found.fastest_is_called_equal
