"""Dense products against loops, array sizes and published arithmetic intensities."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.dtypes import constant
from flopcast.operators.matmul import Matmul
from flopcast.records import replace

small = st.integers(min_value=1, max_value=6)
large = st.integers(min_value=1, max_value=2**20)


def matmul(m, n, k, dtype="fp16"):
    return Matmul(m=constant(m), n=constant(n), k=constant(k), dtype=dtype)


def loops(m, n, k):
    """Multiplies and adds of the schoolbook product, counted one by one."""
    count = 0
    for _row in range(m):
        for _column in range(n):
            for _term in range(k):
                count += 1  # multiply
                count += 1  # add to the sum
    return count


def shape(product):
    """(rows, columns, length of the sum)."""
    return product.m.item(), product.n.item(), product.k.item()


@given(m=small, n=small, k=small)
@settings(max_examples=60, deadline=None)
def test_flop_are_those_of_three_nested_loops(m, n, k):
    assert matmul(m, n, k).work().flop.item() == loops(m, n, k)


@given(m=small, n=small, k=small)
@settings(max_examples=60, deadline=None)
def test_moved_bytes_are_those_of_the_three_arrays(m, n, k):
    x, w = np.ones((m, k), np.float16), np.ones((k, n), np.float16)

    assert matmul(m, n, k).work().moved_bytes.item() == x.nbytes + w.nbytes + (x @ w).nbytes


@given(m=small, n=small, k=small)
@settings(max_examples=60, deadline=None)
def test_the_input_alone_is_kept_because_the_weight_is_there_anyway(m, n, k):
    x = np.ones((m, k), np.float16)

    kept = matmul(m, n, k).saves()

    assert [(tensor.role, tensor.size_bytes.item()) for tensor in kept] == [("input:0", x.nbytes)]


@given(m=small, n=small, k=small)
@settings(max_examples=60, deadline=None)
def test_each_gradient_is_the_product_that_calculus_asks_for(m, n, k):
    x, w, dout = np.ones((m, k)), np.ones((k, n)), np.ones((m, n))

    (_, dx), (_, dw) = matmul(m, n, k).gradients()

    assert shape(dx) == (*(dout @ w.T).shape, n)
    assert shape(dw) in {(*(x.T @ dout).shape, m), (*(dout.T @ x).shape, m)}


@given(m=large, n=large, k=large)
@settings(max_examples=60, deadline=None)
def test_the_backward_pass_costs_twice_the_forward_exactly(m, n, k):
    forward = matmul(m, n, k)

    backward = [gradient.work() for _, gradient in forward.gradients()]

    assert sum(work.flop.item() for work in backward) == 2 * forward.work().flop.item()
    assert sum(work.moved_bytes.item() for work in backward) == 2 * forward.work().moved_bytes.item()


def test_the_three_passes_of_a_linear_layer_are_three_layouts_of_one_curve():
    forward = matmul(8, 16, 32)

    kernels = [forward.kernel, *(gradient.kernel for _, gradient in forward.gradients())]

    assert kernels == ["gemm.forward", "gemm.input_gradient", "gemm.weight_gradient"]


@all_cases(
    ("m", "n", "k", "flop_per_byte"),
    [
        (512, 4096, 1024, 315),  # NVIDIA, GPU Performance Background User's Guide, table 1
        (1, 4096, 1024, 1),  # the same layer at batch size 1
        (8192, 8192, 128, 124.1),  # NVIDIA, Matrix Multiplication Background User's Guide, section 2.1
        (8192, 8192, 8192, 2730),
    ],
)
def test_arithmetic_intensity_is_the_published_one(m, n, k, flop_per_byte):
    work = matmul(m, n, k).work()

    assert (work.flop / work.moved_bytes).item() == pytest.approx(flop_per_byte, rel=2e-3)


@given(size=st.integers(min_value=1, max_value=2**16))
@settings(max_examples=30, deadline=None)
def test_square_products_in_16_bit_reach_a_third_of_their_size_in_flop_per_byte(size):
    work = matmul(size, size, size, "bf16").work()

    assert (work.flop / work.moved_bytes).item() == pytest.approx(size / 3)


def test_a_product_is_looked_up_by_rows_columns_and_length_of_the_sum():
    rows_columns_sum = [coordinate.item() for coordinate in matmul(8, 16, 32).coordinates()]

    assert rows_columns_sum == [8, 16, 32]


def test_the_gradients_of_input_and_weight_are_told_apart_by_name():
    assert [suffix for suffix, _ in matmul(8, 16, 32).gradients()] == ["dgrad", "wgrad"]


def test_sizes_of_the_largest_models_do_not_overflow():
    tokens, hidden = 2**31, 2**20

    assert matmul(tokens, 4 * hidden, hidden).work().flop.item() == 2.0**74


def test_only_rows_of_no_multiple_of_8_elements_take_cycles_of_unaligned_kernels():
    cycles = {
        name: product.work().cycles.item()
        for name, product in {
            "aligned": matmul(7, 50304, 2048),
            "odd columns": matmul(7, 50257, 2048),
            "odd sum": matmul(7, 2048, 50257),
            "even columns": matmul(7, 50260, 2048),
            "mean size": matmul(7, 50257.5, 2048),
            "fp32": matmul(7, 50257, 2048, dtype="fp32"),
            "8 bits": replace(matmul(7, 50257, 2048), narrow="fp8"),
        }.items()
    }
    slow = {name for name, value in cycles.items() if value > 0}

    assert slow == {"odd columns", "odd sum", "even columns"}
    assert cycles["odd sum"] == cycles["odd columns"] > cycles["even columns"]


def test_all_gradients_of_an_unaligned_product_are_unaligned_but_rows_of_tokens_do_not_count():
    odd = dict(matmul(4096, 50257, 2048).gradients())
    tokens = dict(matmul(4095, 50304, 2048).gradients())

    assert all(product.work().cycles.item() > 0 for product in odd.values())
    assert all(product.work().cycles.item() == 0 for product in tokens.values())
