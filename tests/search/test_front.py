"""The Pareto front against its definition, asked pair by pair."""

import numpy as np
from all_cases import all_cases
from hypothesis import given
from hypothesis import strategies as st

from flopcast.search.pareto_front import front, thinned


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


def test_the_order_of_rows_changes_nothing():
    losses = np.random.default_rng(0).integers(0, 9, (200, 3)).astype(float)
    order = np.random.default_rng(1).permutation(200)

    assert front(losses[order]).tolist() == front(losses)[order].tolist()


def test_a_thinned_list_keeps_both_ends_and_no_more_than_it_may():
    values = np.random.default_rng(2).random(1000)

    few = thinned(values, 20)

    assert len(few) == 20
    assert {values.argmin(), values.argmax()} <= set(few.tolist())
    assert few.tolist() == sorted(few.tolist())
