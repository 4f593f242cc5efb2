"""economics/amount.py against sums and products whose factors are drawn at random."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopcast.economics.amount import Amount

sigmas = st.floats(0.0, 0.5)


def share(amount, name):
    return {f.name: f.share for f in amount.factors}.get(name, 0.0)


def test_a_number_that_hangs_on_nothing_is_certain():
    assert Amount(3.0).bounds == (3.0, 3.0)
    assert (Amount(3.0) + Amount(4.0) * 2).value == 11.0


@given(sigma=sigmas, scale=st.floats(0.1, 10.0))
def test_what_two_amounts_share_adds_up_before_it_is_squared(sigma, scale):
    hours, watts = Amount(2.0).hanging_on("clock", sigma), Amount(scale).hanging_on("clock", sigma)

    both = hours * watts

    assert share(both, "clock") == pytest.approx(2)
    assert both.bounds[1] / both.value == pytest.approx(math.exp(2 * 1.6449 * sigma))


def test_a_quotient_of_an_amount_and_itself_hangs_on_nothing():
    amount = Amount(5.0).hanging_on("fabric", 0.1).hanging_on("price", 0.2, 1.0)

    one = amount * amount.inverse

    assert one.value == pytest.approx(1)
    assert one.bounds == pytest.approx((1, 1))


def test_the_interval_of_a_bill_holds_nine_of_ten_draws_of_its_factors():
    """Independent log-normal factors drawn anew, the bill computed from them directly."""
    draws = np.random.default_rng(7).standard_normal((3, 200_000))
    clock, price, fabric = (np.exp(s * z) for s, z in zip((0.05, 0.04, 0.06), draws, strict=True))
    true_usd = (8.0 * clock + 2.0 * fabric) * 3.0 * price

    seconds = Amount(8.0).hanging_on("clock", 0.05) + Amount(2.0).hanging_on("fabric", 0.06)
    low, high = (seconds * Amount(3.0).hanging_on("price", 0.04)).bounds

    assert np.mean((true_usd > low) & (true_usd < high)) == pytest.approx(0.9, abs=0.005)


FACTORS = ("clock", "fabric", "price")


def _amount(value, moves):
    """An amount that hangs on each factor by a sigma and a share."""
    made = Amount(value)
    for name, (sigma, part) in moves.items():
        made = made.hanging_on(name, sigma, part * value)
    return made


amounts = st.builds(
    _amount,
    st.floats(0.1, 100.0),
    st.dictionaries(st.sampled_from(FACTORS), st.tuples(st.floats(0.0, 0.5), st.floats(-2.0, 2.0))),
)


def same(one, other):
    """Equal values, and equal shares of every factor."""
    assert one.value == pytest.approx(other.value)
    for name in FACTORS:
        assert share(one, name) == pytest.approx(share(other, name), abs=1e-9)


@given(one=amounts, two=amounts, three=amounts)
def test_amounts_add_and_multiply_as_numbers_do(one, two, three):
    same(one + two, two + one)
    same(one * two, two * one)
    same((one + two) + three, one + (two + three))
    same((one * two) * three, one * (two * three))
    same((one + two) * three, one * three + two * three)


@given(one=amounts, scale=st.floats(0.1, 100.0))
def test_a_number_that_is_certain_scales_an_amount_and_its_bounds(one, scale):
    scaled = one * scale

    assert scaled.bounds == pytest.approx([bound * scale for bound in one.bounds])
    same(scaled, one * Amount(scale))


@given(one=amounts)
def test_the_interval_is_as_far_in_ratio_on_both_sides(one):
    low, high = one.bounds

    assert low <= one.value <= high
    assert low * high == pytest.approx(one.value**2)
    inverse_low, inverse_high = one.inverse.bounds
    assert (inverse_low, inverse_high) == pytest.approx((1 / high, 1 / low))


@given(one=amounts, two=amounts)
def test_shares_of_a_product_are_slopes_of_its_logarithm(one, two):
    """A nudge of the factor itself: each part moves by its own share."""
    nudge = 1e-6
    for name in FACTORS:
        moved = [a.value * (1 + share(a, name) * nudge) for a in (one, two)]
        slope = (math.log(moved[0] * moved[1]) - math.log(one.value * two.value)) / nudge
        assert share(one * two, name) == pytest.approx(slope, abs=1e-4)
