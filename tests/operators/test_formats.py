"""Narrow formats: bits of an element with its share of a scale, and what products of them ask for."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.operators.formats import FORMATS
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.quantise import Quantise

BITS = {  # of 1024 elements of one row, scales included
    "fp8": 8 * 1024,
    "fp8_block": 8 * 1024 + 32 * 8,  # 128 elements share an fp32: arXiv:2412.19437, section 3.3.2
    "mxfp8": 8 * 1024 + 8 * 32,  # 32 share an E8M0: OCP Microscaling Formats 1.0, section 5.2
    "nvfp4": 4 * 1024 + 8 * 64,  # 16 share an E4M3: arXiv:2509.25149, section 2
}


def linear(narrow="", layout="forward"):
    one = {"m": constant(4096), "n": constant(8192), "k": constant(2048)}
    return Matmul(**one, dtype="bf16", narrow=narrow, layout=layout)


def experts(narrow=""):
    sizes = {"groups": 8, "rows": 4096, "n": 1024, "k": 2048, "imbalance": 1}
    return GroupedMatmul(**{k: constant(v) for k, v in sizes.items()}, dtype="bf16", narrow=narrow)


@all_cases("name", FORMATS)
def test_a_format_has_the_bits_of_its_specification(name):
    assert 1024 * FORMATS[name].size_bytes * 8 == BITS[name]


@all_cases("make", [linear, experts])
@all_cases("name", FORMATS)
def test_narrow_products_need_the_flop_of_wide_ones_on_another_engine(make, name):
    narrow, wide = make(name).work(), make().work()

    assert narrow.flop == wide.flop
    assert narrow.unit == ("fp4" if name == "nvfp4" else "fp8")


def test_operands_are_narrow_and_the_result_is_wide_in_all_three_passes():
    product = linear("fp8")
    passes = [product, *(gradient for _, gradient in product.gradients())]

    moved = [each.work().moved_bytes.item() for each in passes]

    x, w, y = 4096 * 2048, 2048 * 8192, 4096 * 8192
    assert moved == [x + w + 2 * y, y + w + 2 * x, x + y + 2 * w]


def test_products_of_experts_write_wide_weight_gradients_and_wide_rows():
    product = experts("fp8")
    passes = [product, *(gradient for _, gradient in product.gradients())]

    moved = [each.work().moved_bytes.item() for each in passes]

    x, w, y = 4096 * 2048, 8 * 2048 * 1024, 4096 * 1024
    assert moved == [x + w + 2 * y, y + w + 2 * x, x + y + 2 * w]


@pytest.mark.parametrize("make", [linear, experts])
def test_a_narrow_input_is_kept_narrow(make):
    kept = {name: make(name).saves()[0].size_bytes.item() for name in ("", "fp8", "mxfp8", "nvfp4")}

    assert np.array([kept["fp8"], kept["mxfp8"], kept["nvfp4"]]) / kept[""] == pytest.approx(
        [1 / 2, 33 / 64, 9 / 32]
    )


def test_a_cast_of_a_gradient_moves_in_the_backward_what_a_cast_of_its_tensor_does_in_the_forward():
    fields = {"elements": constant(1000), "each_bytes": 4.0, "dtype": "bf16"}

    (gradient,) = [work for _, work in Quantise(**fields, of_gradient=True).gradients()]

    assert gradient.work().moved_bytes == Quantise(**fields).work().moved_bytes == 4000
    assert Quantise(**fields).gradients() == ()
