"""Laws of Pareto fronts that hold in whatever units losses are, and of lists that are thinned."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.search.pareto_front import front, thinned

FEW = settings(max_examples=40)
ROWS = st.integers(1, 4).flatmap(
    lambda columns: st.lists(
        st.lists(st.integers(1, 7), min_size=columns, max_size=columns), min_size=1, max_size=25
    )
)
VALUES = st.lists(st.floats(-100, 100), min_size=1, max_size=60).map(np.array)


def kept(losses):
    """Rows on the front, each once."""
    return {tuple(row) for row in losses[front(losses)]}


@FEW
@given(ROWS, st.floats(0.1, 9.0))
def test_other_units_and_any_growing_scale_leave_the_front_as_it_is(rows, scale):
    losses = np.array(rows, dtype=float)

    for other in (scale * losses, np.log(losses), losses**3 - 5.0, np.exp(losses)):
        assert front(other).tolist() == front(losses).tolist()


@FEW
@given(ROWS, st.randoms())
def test_the_order_of_objectives_leaves_the_front_as_it_is(rows, chance):
    losses = np.array(rows, dtype=float)
    order = chance.sample(range(losses.shape[1]), losses.shape[1])

    assert front(losses[:, order]).tolist() == front(losses).tolist()


@FEW
@given(ROWS)
def test_the_front_of_a_front_is_itself(rows):
    losses = np.array(rows, dtype=float)

    assert front(losses[front(losses)]).all()


@FEW
@given(ROWS, st.integers(0, 25))
def test_the_front_of_parts_joined_is_the_front_of_all(rows, cut):
    losses = np.array(rows, dtype=float)
    one, other = losses[:cut], losses[cut:]

    parts = np.concatenate([one[front(one)], other[front(other)]])

    assert kept(parts) == kept(losses)


@FEW
@given(ROWS)
def test_whatever_is_left_out_is_beaten_by_something_on_the_front(rows):
    losses = np.array(rows, dtype=float)
    on_it = front(losses)

    for row in losses[~on_it]:
        better = losses[on_it]
        assert ((better <= row).all(axis=1) & (better < row).any(axis=1)).any()


@FEW
@given(ROWS)
def test_the_best_by_each_objective_is_on_the_front(rows):
    losses = np.array(rows, dtype=float)

    chosen = losses[front(losses)]

    assert (chosen.min(axis=0) == losses.min(axis=0)).all()


@FEW
@given(ROWS)
def test_by_one_more_objective_at_least_as_many_different_values_are_worth_keeping(rows):
    losses = np.array(rows, dtype=float)
    fewer = losses[:, :1]

    assert kept(fewer) == {(losses[:, 0].min(),)}
    assert len(kept(losses)) >= len(kept(fewer))


@FEW
@given(st.lists(st.integers(0, 50), min_size=1, max_size=30, unique=True))
def test_where_one_objective_is_paid_for_by_the_other_everything_is_on_the_front(values):
    losses = np.array([[value, -value] for value in values], dtype=float)

    assert front(losses).all()


@FEW
@given(VALUES, st.integers(2, 20))
def test_a_thinned_list_has_both_ends_in_order_and_no_place_twice(values, most):
    places = thinned(values, most)

    assert len(places) <= max(most, 1) or len(values) <= most
    assert sorted(set(places.tolist())) == places.tolist()
    assert values[places].min() == values.min()
    assert values[places].max() == values.max()


@FEW
@given(st.integers(3, 200), st.integers(2, 20), st.randoms())
def test_of_evenly_spread_values_the_thinned_ones_are_evenly_spread_too(size, most, chance):
    values = np.arange(float(size))
    chance.shuffle(values)

    left = np.sort(values[thinned(values, most)])

    if size > most:
        gaps = np.diff(left)
        assert gaps.max() - gaps.min() <= 1.0
        assert len(left) == most


@pytest.mark.parametrize("size", [1, 5, 20])
def test_a_list_that_is_short_enough_stays_whole(size):
    assert thinned(np.random.default_rng(size).random(size), 20).tolist() == list(range(size))
