"""Layers against a block that multiplies real arrays, cut over ranks: tests/layers/counted_block.py."""

import numpy as np
from all_cases import all_cases
from counted_block import run
from layer_examples import BLOCKS, HIDDEN, RESIDUALS, flop, gpt, messages, split

SEQUENCES, LENGTH = 2, 6


def matrix_elements(block, cut):
    """Elements of the weight matrices of one rank; vectors left out."""
    weights = block.weights(HIDDEN, cut)
    matrices = [w for w in weights if "bias" not in w.name and "norm" not in w.name]
    return sum(weight.elements.item() for weight in matrices)


@all_cases("name", BLOCKS)
def test_the_numpy_block_computes_the_same_however_many_ranks_share_it(name):
    _, alone = run(BLOCKS[name], HIDDEN, SEQUENCES, LENGTH, ranks=1)

    for ranks in (2, 4, 8):
        _, together = run(BLOCKS[name], HIDDEN, SEQUENCES, LENGTH, ranks)
        np.testing.assert_allclose(together, alone, rtol=1e-9)


@all_cases("ranks", [1, 2, 4, 8])
@all_cases("name", BLOCKS)
def test_every_rank_needs_the_flop_that_numpy_counts(name, ranks):
    accounts, _ = run(BLOCKS[name], HIDDEN, SEQUENCES, LENGTH, ranks)

    needed = flop(BLOCKS[name].forward(HIDDEN, split(SEQUENCES, LENGTH, ranks)))

    assert {account.flop for account in accounts} == {needed.item()}


@all_cases("ranks", [1, 2, 4, 8])
@all_cases("name", BLOCKS)
def test_every_rank_holds_the_weights_that_numpy_cuts_out(name, ranks):
    accounts, _ = run(BLOCKS[name], HIDDEN, SEQUENCES, LENGTH, ranks)

    held = matrix_elements(BLOCKS[name], split(tensor=ranks))

    assert {account.weights for account in accounts} == {held}


@all_cases("name", [name for name, block in BLOCKS.items() if block.residual == "sequential"])
def test_every_rank_sums_the_arrays_that_numpy_adds_up(name):
    accounts, _ = run(BLOCKS[name], HIDDEN, SEQUENCES, LENGTH, ranks=4)

    everything = messages(BLOCKS[name].forward(HIDDEN, split(SEQUENCES, LENGTH, 4)))
    sent = [item for item in everything if "qk_norm" not in item.name]  # numpy's block has no norms

    assert {item.work.collective for item in sent} == {"all_reduce"}
    assert sum(item.work.message_bytes.item() for item in sent) == accounts[0].summed_bytes


@all_cases("residual", RESIDUALS)
def test_the_residual_order_changes_neither_flop_nor_matrices(residual):
    accounts, _ = run(gpt(8, HIDDEN), HIDDEN, SEQUENCES, LENGTH, ranks=2)
    block = gpt(8, HIDDEN, residual=residual)

    assert flop(block.forward(HIDDEN, split(SEQUENCES, LENGTH, 2))).item() == accounts[0].flop
    assert matrix_elements(block, split(tensor=2)) == accounts[0].weights
