"""Embedding look-ups and optimizer updates against arrays of the same shapes."""

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
