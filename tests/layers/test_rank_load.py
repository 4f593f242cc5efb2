"""The load of the fullest rank, against routing drawn token by token and against what must hold."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.layers.expert_load import fullest_rank_load

CASES = [(tokens, ranks) for tokens in (1, 8, 64, 512) for ranks in (1, 8)]
SKEWS = [None, constant(1.01), constant(1.2)]
TOP_K, EXPERTS = 8, 128


def drawn_by_token(tokens, ranks, draws=60):
    """Mean rows and touched experts of the fullest rank, and rows of its fullest expert."""
    rng, found = np.random.default_rng(3), []
    for _ in range(draws):
        order = rng.random((tokens, EXPERTS)).argsort(axis=1)[:, :TOP_K]
        loads = np.bincount(order.ravel(), minlength=EXPERTS).reshape(ranks, -1)
        fullest = loads[loads.sum(axis=1).argmax()]
        found.append((fullest.sum(), (fullest > 0).sum(), fullest.max()))
    return np.mean(found, axis=0)


@all_cases(("tokens", "ranks"), CASES)
def test_chance_gives_what_tokens_give_that_pick_at_random(tokens, ranks):
    rows, touched, _ = drawn_by_token(tokens, ranks)

    load = fullest_rank_load(constant(tokens), TOP_K, EXPERTS, ranks)

    assert load.rows.item() == pytest.approx(rows, rel=0.12 if tokens == 1 else 0.05)
    assert load.touched.item() == pytest.approx(touched, rel=0.12 if tokens == 1 else 0.05)


@all_cases(("tokens", "ranks", "skew"), [(*case, skew) for case in CASES for skew in SKEWS])
def test_a_rank_has_no_more_than_there_is(tokens, ranks, skew):
    load = fullest_rank_load(constant(tokens), TOP_K, EXPERTS, ranks, skew)
    rows, touched = load.rows.item(), load.touched.item()

    assert tokens * TOP_K / ranks * (1 - 1e-9) <= rows <= tokens * TOP_K * (1 + 1e-9)
    assert 0 < touched <= min(EXPERTS / ranks, rows) * (1 + 1e-9)
    assert load.imbalance.item() >= 1
    if ranks == 1:
        assert rows == pytest.approx(tokens * TOP_K, rel=1e-6)


@all_cases("skew", SKEWS)
def test_a_batch_of_plans_has_the_loads_of_its_members(skew):
    tokens = np.array([[3.0], [700.0], [3.0], [64.0]])

    together = fullest_rank_load(tokens, TOP_K, EXPERTS, 8, skew)

    for place, each in enumerate(tokens[:, 0]):
        alone = fullest_rank_load(constant(each), TOP_K, EXPERTS, 8, skew)
        assert together.rows[place, 0] == alone.rows.item()
        assert together.touched[place, 0] == alone.touched.item()


def test_a_power_law_fills_its_fullest_expert_more_than_chance():
    skewed, chance = (
        fullest_rank_load(constant(4096), TOP_K, EXPERTS, 8, skew) for skew in (constant(1.2), None)
    )

    assert skewed.imbalance.item() > 3 * chance.imbalance.item()
    assert skewed.rows.item() > 1.5 * chance.rows.item()
