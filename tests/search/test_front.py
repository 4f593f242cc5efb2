"""The Pareto front against its definition, asked pair by pair, and laws of lists that are thinned."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.search.pareto_front import front, thinned

FEW = settings(max_examples=40)
VALUES = st.lists(st.floats(-100, 100), min_size=1, max_size=60).map(np.array)


def by_definition(losses):
    """No other row is at most as large everywhere and smaller somewhere."""
    return [not any((other <= row).all() and (other < row).any() for other in losses) for row in losses]


@given(
    st.integers(1, 4).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(0, 5), min_size=columns, max_size=columns), max_size=40
        )
    )
)
def test_the_front_is_what_its_definition_says(rows):
    losses = np.array(rows, dtype=float).reshape(len(rows), -1 if rows else 2)

    assert front(losses).tolist() == by_definition(losses)


@all_cases("columns", [1, 2, 3, 5])
def test_the_front_of_many_numbers_is_that_of_its_definition_too(columns):
    losses = np.random.default_rng(columns).random((300, columns))

    assert front(losses).tolist() == by_definition(losses)


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
