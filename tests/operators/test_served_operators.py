"""Products and experts of serving against those of training, and against bytes counted by hand."""

import pytest
from all_cases import all_cases

from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.dtypes import constant
from flopcast.operators.formats import SERVED_FORMATS
from flopcast.operators.fused_experts import FusedExperts, padded_rows
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.served_matmul import ServedMatmul


def product(m, n, k, weights=""):
    return ServedMatmul(m=constant(m), n=constant(n), k=constant(k), dtype="bf16", weights=weights)


def experts(tokens, picks, touched, weights="", gated=True, padded=False):
    return FusedExperts(
        tokens=constant(tokens),
        rows=constant(tokens * picks),
        hidden=constant(1024),
        inner=constant(512),
        touched=constant(touched),
        imbalance=constant(1),
        dtype="bf16",
        weights=weights,
        gated=gated,
        padded=padded,
    )


@all_cases("narrow", ["", "fp8", "nvfp4"])
def test_a_served_product_needs_the_work_of_the_forward_product_of_training(narrow):
    served = product(48, 512, 1024, weights=narrow).work()
    trained = Matmul(m=constant(48), n=constant(512), k=constant(1024), dtype="bf16", narrow=narrow).work()

    assert served.flop.item() == trained.flop.item()
    assert served.moved_bytes.item() == pytest.approx(trained.moved_bytes.item())
    assert served.unit == trained.unit


@all_cases(
    ("weights", "weight_bytes", "input_bytes", "engine"),
    [
        ("int4", 64 + 2, 256, "bf16"),  # 128 codes of 4 bits and a scale of 16
        ("mxfp4", 64 + 4, 256, "bf16"),  # the same with four scales of 8 bits
        ("mxfp4_mxfp8", 64 + 4, 128 + 4, "fp8"),
        ("nvfp4", 64 + 8, 64 + 8, "fp4"),
        ("fp8_block", 128 + 4 / 128, 128 + 4, "fp8"),  # a scale for 128 x 128 weights, and 1 x 128 inputs
    ],
)
def test_128_elements_of_a_format_have_their_codes_and_scales(weights, weight_bytes, input_bytes, engine):
    work = product(1, 1, 128, weights).work()

    assert work.moved_bytes.item() == pytest.approx(weight_bytes + input_bytes + 2)
    assert work.unit == engine


def test_experts_need_the_products_of_their_rows_and_the_weights_of_those_touched():
    work = experts(tokens=4, picks=8, touched=6, gated=False).work()

    assert work.flop.item() == 2 * (4 * 8) * (2 * 1024 * 512)
    assert work.moved_bytes.item() == 2 * (6 * 2 * 1024 * 512) + 2 * 2 * (4 * 1024)


def test_padded_experts_move_the_rows_between_their_kernels():
    fused, padded = (experts(128, 1, 6, padded=each).work() for each in (False, True))

    of_a_row = 2 * 1024 + 2 * 512  # inputs and activated rows, which are written and read
    of_a_row += 2 * 2 * 512 + 1024  # results of gate and up weights, written and read; results, written
    assert padded.flop.item() == fused.flop.item()
    assert padded.moved_bytes.item() - fused.moved_bytes.item() == 128 * of_a_row * 2


def test_padded_experts_compute_whole_groups_of_128_rows():
    """8 rows and 128 experts: 8 + 128 x 127 rows, rounded up, as vLLM's compute_aligned_M."""
    assert padded_rows(constant(8), constant(128)).item() == 128 * 128
    assert padded_rows(constant(4096), constant(16)).item() == 4096 + 128 * 16


def test_a_gate_adds_half_of_the_products():
    gated, plain = (experts(4, 8, 6, gated=gated).work() for gated in (True, False))

    assert gated.flop.item() == 1.5 * plain.flop.item()


def test_experts_are_looked_up_as_the_grouped_products_that_they_borrow_from():
    work = experts(tokens=64, picks=8, touched=16)
    columns, hidden = constant(3 * 512), constant(1024)
    one = GroupedMatmul(
        groups=constant(16), rows=constant(512), n=columns, k=hidden, imbalance=constant(1), dtype="bf16"
    )

    assert [each.item() for each in work.coordinates()[:5]] == [each.item() for each in one.coordinates()]
    assert work.work().flop.item() == one.work().flop.item()


def test_every_format_of_serving_has_a_class_to_borrow_from():
    for weights in filter(None, SERVED_FORMATS):
        assert experts(1, 1, 1, weights).kernel in FALLBACK_CLASSES
        assert product(1, 1, 1, weights).kernel in FALLBACK_CLASSES
