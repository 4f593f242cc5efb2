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
