"""Grouped products against their members: one product for each group, and loops over drawn loads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.kernels.features import features_of
from flopcast.dtypes import constant
from flopcast.operators.matmul import GroupedMatmul, Matmul

size = st.integers(min_value=1, max_value=2**14)
loads = st.lists(st.integers(min_value=1, max_value=4096), min_size=1, max_size=16)


def grouped(rows, n, k, groups=1, imbalance=1.0, dtype="bf16"):
    return GroupedMatmul(
        rows=constant(rows),
        n=constant(n),
        k=constant(k),
        groups=constant(groups),
        imbalance=constant(imbalance),
        dtype=dtype,
    )


def of_loads(rows, n, k):
    """The operator of groups with these numbers of rows."""
    return grouped(sum(rows), n, k, len(rows), max(rows) * len(rows) / sum(rows))


def members(rows, n, k):
    """One dense product for each group."""
    return [Matmul(m=constant(m), n=constant(n), k=constant(k), dtype="bf16") for m in rows]


def passes(operator):
    """Forward, input gradient, weight gradient."""
    return [operator, *(gradient for _, gradient in operator.gradients())]


@given(m=size, n=size, k=size)
@settings(max_examples=60, deadline=None)
def test_one_group_needs_what_a_dense_product_needs_in_every_pass(m, n, k):
    dense = Matmul(m=constant(m), n=constant(n), k=constant(k), dtype="bf16")

    for one, other in zip(passes(grouped(m, n, k)), passes(dense), strict=True):
        assert one.work().flop == other.work().flop
        assert one.work().moved_bytes == other.work().moved_bytes


@given(rows=loads, n=size, k=size)
@settings(max_examples=60, deadline=None)
def test_every_pass_needs_the_flop_of_its_groups_however_uneven_they_are(rows, n, k):
    together = passes(of_loads(rows, n, k))

    alone = zip(*(passes(member) for member in members(rows, n, k)), strict=True)

    for whole, parts in zip(together, alone, strict=True):
        assert whole.work().flop == sum(part.work().flop for part in parts)


@given(rows=loads, n=size, k=size)
@settings(max_examples=60, deadline=None)
def test_every_pass_moves_the_bytes_of_its_groups_however_uneven_they_are(rows, n, k):
    together = passes(of_loads(rows, n, k))

    alone = zip(*(passes(member) for member in members(rows, n, k)), strict=True)

    for whole, parts in zip(together, alone, strict=True):
        assert whole.work().moved_bytes == sum(part.work().moved_bytes for part in parts)


@given(rows=loads, n=size, k=size)
@settings(max_examples=30, deadline=None)
def test_the_rows_of_all_groups_are_kept_and_no_weight(rows, n, k):
    kept = of_loads(rows, n, k).saves()

    each = [member.saves()[0].size_bytes for member in members(rows, n, k)]
    assert [(tensor.role, tensor.size_bytes) for tensor in kept] == [("input:0", sum(each))]


def test_splitting_the_same_rows_over_more_groups_moves_one_weight_more_for_each():
    few, many = (grouped(4096, 512, 256, groups).work() for groups in (8, 9))

    assert many.flop == few.flop
    assert (many.moved_bytes - few.moved_bytes).item() == 512 * 256 * 2


def test_the_gradient_of_the_input_exchanges_columns_and_sum_and_that_of_the_weight_keeps_them():
    (_, dx), (_, dw) = grouped(8, 16, 32, groups=2).gradients()

    assert (dx.n.item(), dx.k.item()) == (32, 16)
    assert (dw.n.item(), dw.k.item()) == (16, 32)


def test_the_three_passes_are_three_layouts_of_one_curve():
    kernels = [each.kernel for each in passes(grouped(8, 16, 32))]

    assert kernels == [
        "grouped_gemm.forward",
        "grouped_gemm.input_gradient",
        "grouped_gemm.weight_gradient",
    ]


def test_the_gradients_keep_the_groups_and_their_imbalance():
    forward = grouped(64, 16, 32, groups=4, imbalance=2.5)

    spread = [(each.groups.item(), each.imbalance.item()) for each in passes(forward)]

    assert spread == [(4.0, 2.5)] * 3


def test_the_experts_of_mixtral_need_the_flop_of_its_published_active_weights():
    """arXiv:2401.04088, table 1: hidden 4096, width 14336, two of eight experts a token, 32 layers."""
    tokens = 1024
    up, down = grouped(2 * tokens, 2 * 14336, 4096, 8), grouped(2 * tokens, 4096, 14336, 8)

    flop = (up.work().flop + down.work().flop).item()

    active_expert_parameters = 2 * 3 * 4096 * 14336
    assert flop == 2 * tokens * active_expert_parameters
    assert 32 * active_expert_parameters == pytest.approx(12.9e9, rel=0.15)  # all active: 12.9 G


@pytest.mark.parametrize("name", ["grouped_gemm", "grouped_gemm.fp8"])
def test_the_table_sees_the_mean_group_so_more_groups_of_equal_size_are_another_axis(name):
    shape = tuple(
        np.array([value, 2 * value if place in (0, 3) else value])
        for place, value in enumerate((4096.0, 512.0, 256.0, 8.0, 1.0))
    )

    rows, weight, groups = features_of(name).table(shape)

    assert rows.tolist() == [512.0, 512.0]
    assert weight.tolist() == [512.0 * 256.0] * 2
    assert groups.tolist() == [8.0, 16.0]


def test_the_skew_term_is_nothing_for_equal_groups_and_the_fullest_groups_share_at_most():
    imbalance = np.array([1.0, 2.0, 8.0])
    shape = (*(np.full(3, value) for value in (4096.0, 512.0, 256.0, 8.0)), imbalance)

    term = features_of("grouped_gemm").terms["skew"](shape, 108)

    assert np.exp(-term).tolist() == pytest.approx([1.0, 2.0, 8.0])
