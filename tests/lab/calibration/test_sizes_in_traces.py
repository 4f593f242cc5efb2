"""lab/calibration/traced_shapes.py against NumPy: the sizes of a product are those that NumPy
multiplies."""

import json

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flopcast.lab.calibration.traced_shapes import DTYPES, SIZES, WIDTHS, dtype_of, shapes_from, sizes_of

SIZE = st.integers(1, 6)
FEW = settings(max_examples=20)


def shapes_of(*arrays):
    return [list(array.shape) for array in arrays]


def flop_of(sizes):
    return 2 * sizes["m"] * sizes["n"] * sizes["k"] * sizes.get("batch", 1)


def counted(left, right):
    """The result of NumPy's product, and FLOP counted at each of its elements: a multiply and an add."""
    product = left @ right
    return product.shape, 2 * product.size * left.shape[-1]


@FEW
@given(SIZE, SIZE, SIZE)
def test_a_product_of_matrices_has_the_rows_columns_and_sum_of_numpys(m, n, k):
    left, right, bias = np.ones((m, k)), np.ones((k, n)), np.ones(n)

    plain = sizes_of("aten::mm", "gemm", shapes_of(left, right))
    biased = sizes_of("aten::addmm", "gemm", shapes_of(bias, left, right))

    shape, flop = counted(left, right)
    assert (plain["m"], plain["n"]) == shape
    assert flop_of(plain) == flop
    assert biased == plain


@FEW
@given(SIZE, SIZE, SIZE, SIZE)
def test_a_linear_multiplies_by_its_weight_transposed_and_takes_all_leading_sizes_as_rows(b, s, n, k):
    hidden, weight = np.ones((b, s, k)), np.ones((n, k))

    sizes = sizes_of("aten::linear", "gemm", shapes_of(hidden, weight, np.ones(n)))

    shape, flop = counted(hidden, weight.T)
    assert (sizes["m"], sizes["n"]) == (shape[0] * shape[1], shape[2])
    assert flop_of(sizes) == flop


@FEW
@given(SIZE, SIZE, SIZE, SIZE)
def test_a_batched_product_is_one_for_each_of_its_batch(batch, m, n, k):
    left, right = np.ones((batch, m, k)), np.ones((batch, k, n))

    plain = sizes_of("aten::bmm", "batched_gemm", shapes_of(left, right))
    summed = sizes_of("aten::baddbmm", "batched_gemm", shapes_of(np.ones((batch, m, n)), left, right))

    shape, flop = counted(left, right)
    assert (plain["batch"], plain["m"], plain["n"]) == shape
    assert flop_of(plain) == flop
    assert summed == plain


@FEW
@given(SIZE, SIZE, SIZE)
def test_sides_that_numpy_would_not_multiply_have_no_sizes(m, n, k):
    left, right = np.ones((m, k + 1)), np.ones((k, n))

    with pytest.raises(ValueError, match="mismatch"):
        left @ right
    assert sizes_of("aten::mm", "gemm", shapes_of(left, right)) == {}


@FEW
@given(SIZE, SIZE, SIZE, SIZE, st.booleans())
def test_heads_and_length_stand_where_each_kernel_keeps_them(batch, length, heads, head_size, backward):
    """Scores q · kᵀ of every head are (length, length): by that NumPy tells the two layouts apart."""
    by_length = np.ones((batch, length, heads, head_size))
    by_head = by_length.transpose(0, 2, 1, 3)
    suffix = "_backward" if backward else ""
    of_class = "flash_attention.backward" if backward else "flash_attention"

    flash = sizes_of(f"aten::_flash_attention{suffix}", of_class, shapes_of(*[by_length] * 4))
    dotted = sizes_of(
        f"aten::_scaled_dot_product_flash_attention{suffix}", of_class, shapes_of(*[by_head] * 4)
    )

    scores = by_head @ by_head.swapaxes(-1, -2)
    assert flash == dotted
    assert (flash["batch"], flash["heads"], flash["queries"], flash["keys"]) == scores.shape
    assert flash["head_size"] == head_size


@pytest.mark.parametrize("kind", ["layernorm", "gelu.backward", "softmax", "dropout", "residual_add"])
@FEW
@given(SIZE, SIZE, SIZE)
def test_a_pass_over_memory_has_the_elements_and_rows_of_its_largest_tensor(kind, batch, length, width):
    large, small = np.ones((batch, length, width)), np.ones(width)

    sizes = sizes_of("aten::any_name", kind, shapes_of(small, large))

    assert sizes["elements"] == large.size
    assert sizes["elements"] % sizes["width"] == 0
    assert sizes["width"] == width


@all_cases("kind", ["gemm", "flash_attention", "layernorm", "", "memcpy", "all_reduce"])
def test_without_shapes_there_are_no_sizes(kind):
    for shapes in ([], [[]], [[], []]):
        assert sizes_of("aten::mm", kind, shapes) == {}


@pytest.mark.parametrize("kind", ["gemm", "batched_gemm", "flash_attention", "rmsnorm", "swiglu"])
@FEW
@example(shapes=[[0], [0, 0]], operator="bmm")  # a batch has three sizes on both sides
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6),
    operator=st.sampled_from(["mm", "bmm", "baddbmm", "addmm", "linear", "x"]),
)
def test_no_shapes_whatever_break_the_reader(kind, shapes, operator):
    found = sizes_of(f"aten::{operator}", kind, shapes)

    assert set(found) <= set(SIZES)


@FEW
@given(st.lists(st.lists(st.integers(0, 10**6), max_size=5), max_size=6))
def test_printed_shapes_are_read_back(shapes):
    assert shapes_from(json.dumps(shapes)) == shapes
    assert shapes_from(str(shapes)) == shapes


@all_cases("text", ["", "[[4, 8", "{}", '"a"', "3", "null", "[" * 5000])
def test_what_is_no_list_of_shapes_is_none(text):
    assert shapes_from(text) == []


@all_cases(
    ("text", "shapes"),
    [
        ("[[1, 2], 3]", [[1, 2], []]),
        ('[["a"], [4]]', [[], [4]]),
        ("[[1.5], [4]]", [[], [4]]),
        ("[[true], [4]]", [[], [4]]),
    ],
)
def test_an_input_that_is_no_shape_keeps_its_place(text, shapes):
    assert shapes_from(text) == shapes


@all_cases("name", DTYPES)
def test_a_dtype_is_known_however_it_is_spelt_and_has_a_width(name):
    ours = dtype_of(name)

    assert dtype_of(name.upper()) == dtype_of(name.title()) == ours != "unknown"
    assert ours in WIDTHS or ours in ("int64", "bool")


@all_cases(
    ("names", "numpy_type"),
    [
        (("c10::Half", "Half"), np.float16),
        (("float", "Float32"), np.float32),
        (("double",), np.float64),
        (("int",), np.int32),
        (("unsigned char", "Byte"), np.uint8),
    ],
)
def test_widths_are_those_of_numpy(names, numpy_type):
    for name in names:
        assert WIDTHS[dtype_of(name)] == np.dtype(numpy_type).itemsize
