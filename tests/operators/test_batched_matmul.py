"""The two products of attention against arrays of the same shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.dtypes import constant
from flopcast.operators.matmul import BatchedMatmul

small = st.integers(min_value=1, max_value=5)


def product(role, batch, queries, keys, head_size, kv_batch=None):
    return BatchedMatmul(
        role=role,
        batch=constant(batch),
        kv_batch=constant(kv_batch or batch),
        queries=constant(queries),
        keys=constant(keys),
        head_size=constant(head_size),
        dtype="fp16",
    )


def arrays(role, batch, queries, keys, head_size):
    """Both factors and the result, as 16-bit arrays."""
    q = np.ones((batch, queries, head_size), np.float16)
    kv = np.ones((batch, keys, head_size), np.float16)
    if role == "scores":
        return q, kv, q @ kv.transpose(0, 2, 1)
    p = np.ones((batch, queries, keys), np.float16)
    return p, kv, p @ kv


def length_of_sum(role, queries, keys, head_size):
    return head_size if role == "scores" else keys


def shape(operator):
    """(rows, columns, length of the sum) of one of the products."""
    queries, keys, head = (a.item() for a in (operator.queries, operator.keys, operator.head_size))
    return (queries, keys, head) if operator.role == "scores" else (queries, head, keys)


@pytest.mark.parametrize("role", ["scores", "context"])
@given(batch=small, queries=small, keys=small, head_size=small)
@settings(max_examples=40, deadline=None)
def test_flop_are_two_for_every_term_of_every_entry(role, batch, queries, keys, head_size):
    *_, result = arrays(role, batch, queries, keys, head_size)

    flop = product(role, batch, queries, keys, head_size).work().flop.item()

    assert flop == 2 * result.size * length_of_sum(role, queries, keys, head_size)


@pytest.mark.parametrize("role", ["scores", "context"])
@given(batch=small, queries=small, keys=small, head_size=small)
@settings(max_examples=40, deadline=None)
def test_moved_bytes_are_those_of_both_factors_and_the_result(role, batch, queries, keys, head_size):
    factors_and_result = arrays(role, batch, queries, keys, head_size)

    moved_bytes = product(role, batch, queries, keys, head_size).work().moved_bytes.item()

    assert moved_bytes == sum(array.nbytes for array in factors_and_result)


@pytest.mark.parametrize("role", ["scores", "context"])
@given(batch=small, queries=small, keys=small, head_size=small)
@settings(max_examples=40, deadline=None)
def test_both_factors_are_kept_each_for_the_gradient_of_the_other(role, batch, queries, keys, head_size):
    first, second, _ = arrays(role, batch, queries, keys, head_size)

    kept = product(role, batch, queries, keys, head_size).saves()

    assert [tensor.size_bytes.item() for tensor in kept] == [first.nbytes, second.nbytes]
    assert [tensor.role for tensor in kept] == ["input:0", "input:1"]


@given(batch=small, length=small, head_size=small)
@settings(max_examples=40, deadline=None)
def test_context_is_one_of_the_gradients_of_scores_and_the_reverse(batch, length, head_size):
    scores, context = (product(role, batch, length, length, head_size) for role in ("scores", "context"))

    assert [gradient.role for _, gradient in scores.gradients()] == ["context", "context"]
    assert [gradient.role for _, gradient in context.gradients()] == ["scores", "context"]


@pytest.mark.parametrize(
    ("role", "first", "second"),
    [
        # scores S[q,t] = Q[q,d] @ K[t,d].T: dQ[q,d] = dS @ K sums over t, dK[t,d] = dS.T @ Q over q
        ("scores", ("query", 3, 7, 5), ("key", 5, 7, 3)),
        # context O[q,d] = P[q,t] @ V[t,d]: dP[q,t] = dO @ V.T sums over d, dV[t,d] = P.T @ dO over q
        ("context", ("probabilities", 3, 5, 7), ("value", 5, 7, 3)),
    ],
)
def test_gradients_of_rectangular_attention_have_the_shapes_of_what_they_are_gradients_of(
    role, first, second
):
    found = product(role, batch=2, queries=3, keys=5, head_size=7).gradients()

    told = [(suffix.removeprefix("dgrad_"), *shape(gradient)) for suffix, gradient in found]

    assert told == [first, second]


@pytest.mark.parametrize("role", ["scores", "context"])
def test_shared_keys_are_repeated_for_every_query_head_where_scores_are_written(role):
    """A batched GEMM takes one K or V per query head: only a fused kernel reads the shared one."""
    shared, own = (product(role, 32, 64, 64, 16, kv_batch=kv) for kv in (4, 32))

    assert shared.work().flop.item() == own.work().flop.item()
    assert shared.work().moved_bytes.item() == own.work().moved_bytes.item()
    assert [t.size_bytes.item() for t in shared.saves()] == [t.size_bytes.item() for t in own.saves()]


@pytest.mark.parametrize("role", ["scores", "context"])
def test_a_product_is_looked_up_by_keys_head_size_and_number_of_products(role):
    coordinates = product(role, batch=32, queries=48, keys=64, head_size=16, kv_batch=4).coordinates()

    assert [coordinate.item() for coordinate in coordinates] == [64, 16, 32]


def test_each_role_has_a_curve_of_its_own():
    assert product("scores", 1, 2, 2, 2).kernel == "batched_gemm.scores"
    assert product("context", 1, 2, 2, 2).kernel == "batched_gemm.context"


def test_long_sequences_make_the_square_matrix_all_that_matters():
    scores = product("scores", 1, 2**20, 2**20, 128)

    assert scores.work().moved_bytes.item() == pytest.approx(2 * 2.0**40, rel=1e-3)
