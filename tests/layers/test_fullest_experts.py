"""layers/expert_load.py against routers that draw by lot, and every way to deal experts to ranks."""

from itertools import combinations

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.layers.expert_load import fullest_by_chance, fullest_rank

DRAWS = 300


def by_chance(experts, top_k, rows):
    return fullest_by_chance(constant(experts), constant(top_k), constant(rows)).item()


def drawn(experts, top_k, rows):
    """Mean load of the fullest expert over the mean one, of tokens that pick different experts by lot."""
    draw = np.random.default_rng(experts + top_k + rows)
    tokens = rows * experts // top_k
    fullest = []
    for _ in range(DRAWS):
        order = draw.random((tokens, experts)).argpartition(top_k - 1, axis=1)
        picked = order[:, :top_k].ravel()
        fullest.append(np.bincount(picked, minlength=experts).max())
    return np.mean(fullest) / rows


@all_cases(("experts", "top_k", "rows"), [(4, 1, 40), (8, 2, 30), (16, 1, 50), (16, 4, 16), (32, 1, 20)])
def test_routers_that_draw_by_lot_fill_no_expert_more_than_is_said_in_the_mean(experts, top_k, rows):
    bound, mean = by_chance(experts, top_k, rows), drawn(experts, top_k, rows)

    assert 1.0 + (bound - 1.0) / 3 < mean <= bound


@pytest.mark.parametrize("top_k", [1, 2, 8])
def test_where_a_token_picks_every_expert_all_are_equally_full(top_k):
    assert by_chance(top_k, top_k, 3) == 1.0


@all_cases(("experts", "top_k"), [(8, 1), (8, 2), (64, 6), (256, 8)])
def test_an_expert_takes_each_token_once(experts, top_k):
    for rows in (1e-3, 1.0, 10.0):
        assert by_chance(experts, top_k, rows) <= experts / top_k


@pytest.mark.parametrize("experts", [8, 64, 256])
def test_chance_falls_with_the_root_of_the_rows(experts):
    few, many = (by_chance(experts, 1, rows) - 1.0 for rows in (1e4, 4e4))

    assert few == pytest.approx(2.0 * many)


def test_among_more_experts_the_fullest_is_fuller():
    ratios = [by_chance(experts, 1, 500) for experts in (1, 2, 8, 64, 256)]

    assert ratios == sorted(ratios)
    assert ratios[0] == 1.0


@all_cases(("experts", "ranks"), [(6, 2), (6, 3), (8, 2), (8, 4), (9, 3), (12, 3)])
def test_ranks_deviate_as_means_of_experts_that_are_dealt_to_them_in_every_way(experts, ranks):
    """The deviation of a rank's mean, over all choices of its experts, by that of one expert."""
    loads = np.random.default_rng(experts * ranks).gamma(3.0, size=experts)
    of_rank = [np.mean(loads[list(held)]) for held in combinations(range(experts), experts // ranks)]

    ratio = fullest_rank(constant(2.0), constant(experts), constant(ranks)).item()

    assert ratio - 1.0 == pytest.approx(np.std(of_rank) / np.std(loads))


@all_cases("fullest", [1.0, 1.3, 4.0])
@all_cases("experts", [1, 8, 128])
def test_one_rank_has_all_experts_and_as_many_ranks_as_experts_one_each(fullest, experts):
    first, last = (
        fullest_rank(constant(fullest), constant(experts), constant(n)).item() for n in (1, experts)
    )

    assert first == 1.0
    assert last == pytest.approx(fullest if experts > 1 else 1.0)


def test_fewer_experts_a_rank_are_never_more_even():
    ratios = [
        fullest_rank(constant(1.5), constant(64), constant(ranks)).item() for ranks in (1, 2, 4, 8, 64)
    ]

    assert ratios == sorted(ratios)


def test_loads_of_several_plans_are_those_of_each():
    experts, rows = np.array([[8.0], [64.0], [8.0]]), np.array([[100.0], [100.0], [5.0]])

    together = fullest_by_chance(experts, constant(2), rows)

    assert together.ravel().tolist() == [by_chance(8, 2, 100), by_chance(64, 2, 100), by_chance(8, 2, 5)]
