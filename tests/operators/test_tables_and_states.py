"""Embedding look-ups and optimizer updates against arrays of the same shapes."""

from dataclasses import replace

import numpy as np
from all_cases import all_cases

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, constant
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.optimizer import OptimizerUpdate

TOKENS, HIDDEN, VOCABULARY = 12, 10, 70


def lookup(tokens=TOKENS, vocabulary=VOCABULARY):
    return EmbeddingLookup(
        tokens=constant(tokens), hidden=constant(HIDDEN), vocabulary=constant(vocabulary), dtype="fp16"
    )


def gradient(forward):
    ((suffix, backward),) = forward.gradients()
    assert suffix == "wgrad"
    return backward


def update(parameters, bytes_per_parameter=28):
    return OptimizerUpdate(
        parameters=constant(parameters), bytes_per_parameter=constant(bytes_per_parameter), dtype="fp32"
    )


def test_a_look_up_reads_and_writes_one_row_a_token_whatever_the_table():
    table, ids = np.ones((VOCABULARY, HIDDEN), np.float16), np.arange(TOKENS)
    rows = table[ids]

    assert lookup().work().moved_bytes.item() == 2 * rows.nbytes
    assert lookup(vocabulary=10**6).work().moved_bytes.item() == 2 * rows.nbytes


def test_the_gradient_of_a_table_is_dense():
    table, rows = np.ones((VOCABULARY, HIDDEN), np.float16), np.ones((TOKENS, HIDDEN), np.float16)

    backward = gradient(lookup())

    assert backward.work().moved_bytes.item() == rows.nbytes + table.nbytes


def test_token_ids_are_kept_and_the_rows_are_not():
    ids = np.arange(TOKENS, dtype=np.int64)

    assert [(t.role, t.size_bytes.item()) for t in lookup().saves()] == [("ids", ids.nbytes)]


def test_both_passes_are_looked_up_by_tokens_rows_and_width():
    for operator in (lookup(), gradient(lookup())):
        assert [c.item() for c in operator.coordinates()] == [TOKENS, VOCABULARY, HIDDEN]


def test_the_two_passes_of_an_embedding_have_curves_of_their_own():
    assert lookup().kernel == "embedding"
    assert gradient(lookup()).kernel == "embedding.backward"


def test_adam_in_mixed_precision_moves_28_bytes_a_parameter():
    """Reads a 16-bit gradient and fp32 master weight, mean, variance; writes the three and a weight."""
    half, single = (np.zeros(1000, dtype) for dtype in (np.float16, np.float32))
    moved = [half, single, single, single, single, single, single, half]

    assert update(1000).work().moved_bytes.item() == sum(array.nbytes for array in moved)


@all_cases("ranks", [1, 2, 8, 64])
def test_a_sharded_update_moves_its_share(ranks):
    whole, shard = update(6.4e9), update(6.4e9 / ranks)

    assert ranks * shard.work().moved_bytes.item() == whole.work().moved_bytes.item()


def test_an_update_is_looked_up_by_its_bytes_and_those_of_one_tensor():
    one, many = update(1000), replace(update(1000), tensors=constant(4))

    assert [coordinate.item() for coordinate in one.coordinates()] == [28_000, 28_000]
    assert [coordinate.item() for coordinate in many.coordinates()] == [28_000, 7_000]


def test_an_update_keeps_nothing():
    step = update(1000)

    assert step.saves() == step.gradients() == ()
    assert step.kernel == "adam"


@all_cases("value", [0, 1, 4096, 2.5, 6 * 175e9 * 300e9])
def test_a_constant_is_one_float_for_all_plans(value):
    array = constant(value)

    assert (array.shape, array.dtype, array.item()) == ((1, 1), np.float64, value)


def test_a_constant_broadcasts_over_plans_without_changing_them():
    plans = np.array([[1.0], [2.0], [4.0]])

    assert (plans * ONE + ZERO).tolist() == plans.tolist()


@all_cases(("dtype", "numpy_type"), [("fp32", "f4"), ("fp16", "f2"), ("int64", "i8"), ("bool", "?")])
def test_element_bytes_are_those_of_the_same_array_type(dtype, numpy_type):
    assert ELEMENT_BYTES[dtype] == np.dtype(numpy_type).itemsize
