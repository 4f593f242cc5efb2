"""timeline/uncertainty.py against machines drawn at random: how often intervals of ratios hold."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.between_plans import OWN_LOG_SIGMA_FACTOR, OWN_SHARE
from flopcast.timeline.uncertainty import (
    Sensitivity,
    difference,
    interval,
    log_sigmas,
    own_log_sigma_factor,
)

FEW = settings(max_examples=20)
NAMES = ("gemm", "fabric", "host", "memory")
SHARES = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4)
SIGMAS = st.lists(st.floats(0.01, 0.3), min_size=4, max_size=4)
DRAWS = 4000


def factors(shares, sigmas=(0.05, 0.1, 0.2, 0.08)):
    return tuple(
        Sensitivity(name=name, log_sigma_factor=sigma, share=share)
        for name, share, sigma in zip(NAMES, shares, sigmas, strict=True)
    )


def reach(bounds):
    """Half the width of an interval, as a logarithm."""
    return math.log(bounds[1] / bounds[0]) / 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0.8, 0.2, 0.1, 0.0), (0.5, 0.5, 0.1, 0.3)),
        ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)),
        ((0.6, 0.3, 0.0, 0.1), (0.55, 0.35, 0.0, 0.1)),
    ],
)
def test_nine_of_ten_machines_have_a_ratio_inside_its_interval(first, second):
    """Each factor is drawn once for both plans; each plan has a deviation of its own besides."""
    draw = np.random.default_rng(7)
    ours, theirs = factors(first), factors(second)
    common = draw.normal(size=(DRAWS, 4)) * [f.log_sigma_factor for f in ours]
    own = own_log_sigma_factor(ours, theirs) / math.sqrt(2) * draw.normal(size=(DRAWS, 2))

    logs = common @ (np.array(first) - np.array(second)) + own @ [1.0, -1.0]

    low, high = difference(ours, theirs, 0.0)
    assert np.mean((np.log(low) <= logs) & (logs <= np.log(high))) == pytest.approx(0.9, abs=0.02)


@FEW
@given(SHARES, SHARES, SIGMAS, st.randoms())
def test_the_order_of_factors_changes_nothing(first, second, sigmas, chance):
    ours, theirs = factors(first, sigmas), factors(second, sigmas)
    mixed = tuple(chance.sample(ours, 4))

    assert difference(mixed, theirs, 0.1) == pytest.approx(difference(ours, theirs, 0.1))
    assert interval(3.0, mixed) == pytest.approx(interval(3.0, ours))


@FEW
@given(SHARES, SHARES, st.floats(-1.0, 1.0))
def test_the_ratio_itself_stands_in_the_middle_and_widens_nothing(first, second, log_ratio):
    ours, theirs = factors(first), factors(second)

    low, high = difference(ours, theirs, log_ratio)

    assert math.sqrt(low * high) == pytest.approx(math.exp(log_ratio))
    assert reach((low, high)) == pytest.approx(reach(difference(ours, theirs, 0.0)))


@FEW
@given(SHARES, SHARES, SHARES)
def test_what_two_steps_have_of_their_own_is_a_distance(first, second, third):
    """As far apart either way, nothing from itself, and no detour is shorter."""
    one, two, three = factors(first), factors(second), factors(third)

    assert own_log_sigma_factor(one, two) == own_log_sigma_factor(two, one)
    assert own_log_sigma_factor(one, one) == 0.0
    detour = own_log_sigma_factor(one, two) + own_log_sigma_factor(two, three)
    assert own_log_sigma_factor(one, three) <= detour + 1e-12


@FEW
@given(st.floats(0.0, 1.0))
def test_a_share_that_moves_from_one_factor_to_another_is_counted_once(moved):
    """A quarter of it for each step, at most 5 %, and both of them in quadrature."""
    ours, theirs = factors((1.0, 0, 0, 0)), factors((1.0 - moved, moved, 0, 0))

    each = min(OWN_LOG_SIGMA_FACTOR, moved * OWN_LOG_SIGMA_FACTOR / OWN_SHARE)

    assert own_log_sigma_factor(ours, theirs) == pytest.approx(math.hypot(each, each))


@FEW
@given(SHARES, SIGMAS, st.floats(0.1, 10.0))
def test_an_interval_hangs_on_no_unit_of_time(shares, sigmas, unit):
    told = factors(shares, sigmas)

    assert interval(unit, told) == pytest.approx([unit * bound for bound in interval(1.0, told)])


@FEW
@given(SHARES, SIGMAS)
def test_a_factor_that_is_cut_into_independent_parts_of_equal_sigma_is_surer(shares, sigmas):
    """Two halves of one share, each with a factor of its own: their errors partly cancel."""
    whole = factors(shares, sigmas)
    halves = tuple(
        Sensitivity(name=f"{f.name}{n}", log_sigma_factor=f.log_sigma_factor, share=f.share / 2)
        for f in whole
        for n in "ab"
    )

    assert log_sigmas(halves)[1] == pytest.approx(log_sigmas(whole)[1] / math.sqrt(2))
