"""cost/collectives/formulas.py against messages that are counted one by one: who sends what to whom."""

from itertools import product

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.collectives.formulas import FORMULAS

SHAPES = [(1, 2), (2, 2), (4, 2), (4, 3), (8, 4), (8, 16)]  # ranks inside, nodes
BLOCKS = [(1, 2, 2), (4, 4, 2), (2, 6, 3), (8, 8, 4)]  # ranks inside, nodes, blocks of nodes
TO_ALL = ("all_to_all", "dispatch", "combine", "hybrid_dispatch", "hybrid_combine")
RINGS = ("all_gather", "reduce_scatter")


def column(*values):
    return tuple(np.array([float(value)]) for value in values)


@all_cases(("inside", "nodes"), SHAPES)
@all_cases("collective", TO_ALL)
def test_where_everybody_sends_to_everybody_a_card_carries_what_leaves_its_node(collective, inside, nodes):
    """Message over bandwidth, as the formula has it, against a count over all receivers."""
    ranks = inside * nodes
    formula = FORMULAS[collective]

    time = formula.share(*column(ranks)) / formula.lanes(*column(inside, nodes))

    leaving = sum(other // inside != 0 for other in range(ranks))  # of n equal parts of rank 0's message
    assert time.item() == pytest.approx(leaving / ranks)


@all_cases(("inside", "nodes"), SHAPES)
@all_cases("collective", [*RINGS, "all_reduce"])
def test_rings_side_by_side_share_what_crosses_between_nodes_over_all_cards(collective, inside, nodes):
    """One ring for each card: together as many bytes leave a node as one ring of the whole message."""
    formula = FORMULAS[collective]

    time = formula.share(*column(inside * nodes)) / formula.lanes(*column(inside, nodes))

    one_ring = formula.share(*column(inside * nodes)).item()
    assert time.item() * inside == pytest.approx(one_ring)


@all_cases("collective", ["send_receive", "ring_pass"])
@all_cases(("inside", "nodes"), SHAPES)
def test_a_pair_sends_its_message_whole_through_one_card(collective, inside, nodes):
    formula = FORMULAS[collective]

    time = formula.share(*column(2)) / formula.lanes(*column(inside, nodes))

    assert time.item() == 1.0


@all_cases(("inside", "nodes", "blocks"), BLOCKS)
@all_cases("collective", TO_ALL)
def test_of_what_leaves_nodes_the_part_that_leaves_blocks_is_that_of_all_pairs(
    collective, inside, nodes, blocks
):
    pairs = [(a, b) for a, b in product(range(inside * nodes), repeat=2) if a // inside != b // inside]
    each = inside * nodes // blocks
    beyond = [pair for pair in pairs if pair[0] // each != pair[1] // each]

    part = FORMULAS[collective].uplinked(*column(nodes, blocks)).item()

    assert part == pytest.approx(len(beyond) / len(pairs))


@all_cases(("inside", "nodes", "blocks"), BLOCKS)
@all_cases("collective", [*RINGS, "all_reduce", "ring_pass"])
def test_a_ring_leaves_a_block_once_for_every_block(collective, inside, nodes, blocks):
    ranks = inside * nodes
    hops = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    leaving = [hop for hop in hops if hop[0] // inside != hop[1] // inside]
    beyond = [hop for hop in leaving if hop[0] // (ranks // blocks) != hop[1] // (ranks // blocks)]

    part = FORMULAS[collective].uplinked(*column(nodes, blocks)).item()

    assert part == pytest.approx(len(beyond) / len(leaving))


@all_cases("collective", FORMULAS)
def test_inside_one_block_nothing_loads_its_uplinks_but_pairs_that_may_lie_anywhere(collective):
    part = FORMULAS[collective].uplinked(*column(8, 8)).item()

    assert part == pytest.approx(1.0)  # every node a block of its own: all that leaves a node leaves it
    assert 0.0 <= FORMULAS[collective].uplinked(*column(8, 1)).item() <= 1.0


@all_cases("collective", FORMULAS)
def test_more_blocks_never_load_uplinks_less(collective):
    parts = [FORMULAS[collective].uplinked(*column(16, blocks)).item() for blocks in (1, 2, 4, 8, 16)]

    assert parts == sorted(parts)
