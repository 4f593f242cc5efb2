"""lab/calibration/conformal.py by its definitions, row by row, and the invariances of its numbers."""

import math

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.lab.calibration.conformal import REACH, added_log_sigma, covered, log_sigma, noise

ERRORS = st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=40).map(np.array)
GROUPS = st.lists(st.tuples(ERRORS, st.floats(0.0, 0.2)), min_size=1, max_size=4)
FEW = settings(max_examples=20)


def held(groups, added):
    """The share of errors inside their intervals, the mean over groups."""
    return np.mean([covered(errors, math.hypot(sigma, added)) for errors, sigma in groups])


@FEW
@given(ERRORS)
def test_the_sigma_would_have_held_nine_of_ten_of_its_errors_and_no_smaller_one_of_them_would(errors):
    sigma = log_sigma(errors)

    assert covered(errors, sigma * (1 + 1e-12)) >= 0.9
    smaller = [abs(error) / REACH for error in errors if abs(error) / REACH < sigma * (1 - 1e-9)]
    needed = math.ceil(0.9 * (len(errors) + 1) - 1e-9)
    assert all(sum(np.abs(errors) <= REACH * other) < needed for other in smaller)


@all_cases("rows", [9, 19, 50])
@all_cases("draw", ["normal", "laplace", "uniform"])
def test_whatever_law_errors_follow_the_next_one_is_held_nine_times_in_ten(rows, draw):
    """The theorem behind it: at least ceil(0.9 (n + 1)) / (n + 1) of draws, whatever their law."""
    chance = getattr(np.random.default_rng(rows), draw)
    inside = []
    for _ in range(3000):
        *seen, new = chance(size=rows + 1)
        inside.append(covered(np.array([new]), log_sigma(np.array(seen)) * (1 + 1e-12)))

    promised = math.ceil(0.9 * (rows + 1) - 1e-9) / (rows + 1)
    assert np.mean(inside) == pytest.approx(promised, abs=0.02)


@FEW
@given(ERRORS, st.floats(0.1, 10.0), st.randoms())
def test_errors_twice_as_large_have_twice_the_sigma_in_any_order_and_of_any_sign(errors, scale, chance):
    mixed = [scale * error * chance.choice((-1, 1)) for error in errors]
    chance.shuffle(mixed)

    assert log_sigma(np.array(mixed)) == pytest.approx(scale * log_sigma(errors))


@FEW
@given(ERRORS, st.floats(0.0, 0.3), st.floats(0.0, 0.3))
def test_a_wider_sigma_never_covers_less(errors, one, other):
    narrow, wide = sorted((one, other))

    assert covered(errors, narrow) <= covered(errors, wide) <= 1.0


@FEW
@given(GROUPS)
def test_with_what_is_added_nine_tenths_of_all_groups_are_held(groups):
    added = added_log_sigma(groups)

    assert held(groups, added + 1e-9) >= 0.9 - 1e-9
    if added > 1e-6:
        assert held(groups, added * (1 - 1e-6) - 1e-9) < 0.9 + 1e-9


@FEW
@given(GROUPS, st.randoms())
def test_the_order_of_groups_and_of_their_errors_changes_nothing_that_is_added(groups, chance):
    mixed = [(chance.sample(list(errors), len(errors)), sigma) for errors, sigma in groups]
    chance.shuffle(mixed)

    other = added_log_sigma([(np.array(errors), sigma) for errors, sigma in mixed])

    assert other == pytest.approx(added_log_sigma(groups), abs=1e-9)


@FEW
@given(GROUPS)
def test_a_group_that_is_counted_twice_as_often_row_by_row_weighs_the_same(groups):
    doubled = [(np.repeat(errors, 2), sigma) for errors, sigma in groups]

    assert added_log_sigma(doubled) == pytest.approx(added_log_sigma(groups))


def test_groups_that_nobody_has_need_nothing():
    assert added_log_sigma([]) == 0.0


def apart_by_hand(shapes, times_s):
    """Every row's |log ratio| to the geometric mean of the other rows of its shape."""
    found = []
    for place, shape in enumerate(shapes):
        others = [math.log(times_s[n]) for n, other in enumerate(shapes) if other == shape and n != place]
        if others:
            found.append(abs(math.log(times_s[place]) - sum(others) / len(others)))
    return len(found), (sum(found) / len(found) if found else 0.0)


@FEW
@given(
    st.lists(
        st.tuples(st.sampled_from([64, 128, 4096]), st.sampled_from([1, 3]), st.floats(1e-5, 1e-2)),
        min_size=1,
        max_size=15,
    )
)
def test_noise_is_what_rows_differ_from_the_others_of_their_shape(rows):
    *shape, times_s = zip(*rows, strict=True)

    count, apart = noise(np.array(shape, dtype=float), np.array(times_s))

    by_hand = apart_by_hand(list(zip(*shape, strict=True)), times_s)
    assert count == by_hand[0]
    assert apart == pytest.approx(by_hand[1], abs=1e-12)


@FEW
@given(st.floats(1e-3, 1e3))
def test_the_unit_of_time_is_no_noise(unit):
    shapes, times_s = np.array([[8.0, 8.0, 16.0, 16.0, 16.0]]), np.array([1.0, 1.1, 3.0, 3.3, 2.7])

    assert noise(shapes, unit * times_s)[1] == pytest.approx(noise(shapes, times_s)[1])


def test_of_no_rows_there_is_no_noise():
    assert noise(np.zeros((2, 0)), np.zeros(0)) == (0, 0.0)
