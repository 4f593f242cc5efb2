"""Bytes and hops of collectives, against rings and trees that are played out chunk by chunk."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.collectives.formulas import FORMULAS

RANKS = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 16.0, 72.0, 1024.0])
BUS_FACTORS = {  # bus bandwidth / algorithm bandwidth on 2, 4, 8 ranks: nccl-tests, doc/PERFORMANCE.md
    "all_reduce": (1.0, 1.5, 1.75),
    "all_gather": (0.5, 0.75, 0.875),
    "reduce_scatter": (0.5, 0.75, 0.875),
    "all_to_all": (0.5, 0.75, 0.875),
}


def ring_all_gather(ranks):
    """Chunks that one rank sends until every rank holds every chunk."""
    held = [{rank} for rank in range(ranks)]
    newest = list(range(ranks))
    sent = 0
    while any(len(chunks) < ranks for chunks in held):
        newest = [newest[rank - 1] for rank in range(ranks)]
        for rank in range(ranks):
            held[rank].add(newest[rank])
        sent += 1
    return sent


def ring_reduce_scatter(ranks):
    """Chunks that one rank sends until every rank holds one chunk that all have added to."""
    added = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    sent = 0
    while not all(any(len(chunk) == ranks for chunk in mine) for mine in added):
        travelling = [set(added[rank][(rank - sent) % ranks]) for rank in range(ranks)]
        for rank in range(ranks):
            added[rank][(rank - 1 - sent) % ranks] |= travelling[rank - 1]
        sent += 1
    return sent


def rounds_of_doubling(ranks):
    """Rounds until one rank's news has reached all, each informed rank telling one other a round."""
    informed, rounds = 1, 0
    while informed < ranks:
        informed, rounds = 2 * informed, rounds + 1
    return rounds


@all_cases("ranks", [1, 2, 3, 4, 7, 8, 16])
def test_a_ring_all_gather_sends_the_share_of_the_formula(ranks):
    share = FORMULAS["all_gather"].share(np.array([float(ranks)]))

    assert share * ranks == pytest.approx(ring_all_gather(ranks))


@all_cases("ranks", [1, 2, 3, 4, 7, 8, 16])
def test_a_ring_reduce_scatter_sends_the_share_of_the_formula(ranks):
    share = FORMULAS["reduce_scatter"].share(np.array([float(ranks)]))

    assert share * ranks == pytest.approx(ring_reduce_scatter(ranks))


@all_cases("name", BUS_FACTORS)
def test_shares_are_the_bus_bandwidth_factors_of_nccl_tests(name):
    share = FORMULAS[name].share(np.array([2.0, 4.0, 8.0]))

    assert tuple(share) == BUS_FACTORS[name]


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    parts = FORMULAS["reduce_scatter"].share(RANKS) + FORMULAS["all_gather"].share(RANKS)

    np.testing.assert_allclose(FORMULAS["all_reduce"].share(RANKS), parts, rtol=1e-15)


def test_a_transfer_between_two_ranks_sends_the_message_once():
    formula = FORMULAS["send_receive"]

    assert formula.share(np.array([2.0])) == 1.0
    assert formula.hops(np.array([2.0])) == 1.0


@all_cases("ranks", [1, 2, 3, 4, 5, 8, 9, 64, 72])
def test_small_collectives_take_the_rounds_of_a_doubling_tree_and_sums_for_all_go_up_and_down(ranks):
    for name, times in (("all_gather", 1), ("reduce_scatter", 1), ("all_to_all", 1), ("all_reduce", 2)):
        assert FORMULAS[name].hops(np.array([float(ranks)])) == times * rounds_of_doubling(ranks)


@all_cases("name", FORMULAS)
def test_a_collective_over_one_rank_sends_nothing_and_waits_for_nobody(name):
    one = np.array([1.0])

    assert FORMULAS[name].share(one) == 0.0
    assert FORMULAS[name].hops(one) == 0.0


@all_cases("name", FORMULAS)
def test_more_ranks_never_send_less_nor_take_fewer_hops(name):
    assert (np.diff(FORMULAS[name].share(RANKS)) >= 0).all()
    assert (np.diff(FORMULAS[name].hops(RANKS)) >= 0).all()


@all_cases("name", FORMULAS)
def test_no_rank_sends_its_message_more_than_twice_except_one_that_answers_all(name):
    most = 2.0 * (RANKS - 1) if FORMULAS[name].over_one_rank else 2.0
    assert (FORMULAS[name].share(RANKS) <= most).all()


@all_cases("name", FORMULAS)
def test_formulas_keep_the_shape_of_their_ranks(name):
    ranks = np.array([[1.0, 2.0], [4.0, 8.0], [16.0, 3.0]])

    assert FORMULAS[name].share(ranks).shape == (3, 2)
    assert FORMULAS[name].hops(ranks).shape == (3, 2)


@pytest.mark.parametrize("name", ["dispatch", "combine"])
def test_copies_of_tokens_reach_any_number_of_ranks_in_one_hop_and_one_rank_in_none(name):
    hops = FORMULAS[name].hops(np.array([1.0, 2.0, 8.0, 72.0]))

    assert hops.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("name", ["dispatch", "combine"])
def test_of_evenly_spread_copies_all_but_the_ranks_own_cross_its_links(name):
    """As in an all-to-all, whose shares are printed by nccl-tests."""
    share = FORMULAS[name].share(np.array([2.0, 4.0, 8.0]))

    assert tuple(share) == BUS_FACTORS["all_to_all"]
