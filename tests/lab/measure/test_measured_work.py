"""A measured shape is the operator that prices it: FLOP and bytes by hand."""

import numpy as np
from all_cases import all_cases

from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.lab.measure.kernels import MAKERS
from flopcast.lab.measure.measured_operators import columns_of, need_of, operator_of
from flopcast.lab.measure.memory_bound_kernels import STREAMS
from flopcast.lab.measure.shapes import SPACES, Shape

WITHOUT = {"grouped_gemm", "transpose", "host.launch", "host.round_trip", "host.empty_kernel"}


def shape_of(kernel, dtype="bf16", layout="", flags=(), **sizes):
    """A shape from its sizes."""
    return Shape(kernel=kernel, dtype=dtype, layout=layout, flags=flags, sizes=tuple(sizes.items()))


def test_a_product_needs_two_flop_for_each_term_and_moves_each_operand_once():
    need = need_of(shape_of("gemm", layout="forward", m=4, n=8, k=16))

    assert need.flop_flop == 2 * 4 * 8 * 16
    assert need.moved_bytes == 2 * (4 * 16 + 16 * 8 + 4 * 8)


def test_accumulating_in_fp32_reads_and_writes_four_bytes_an_element():
    need = need_of(shape_of("gemm", layout="weight_gradient", flags=("fp32_accumulate",), m=4, n=8, k=16))

    assert need.moved_bytes == 2 * (4 * 16 + 16 * 8) + 8 * 4 * 8


def test_a_causal_attention_needs_half_of_the_flop():
    """FlashAttention-2 (arXiv:2307.08691, section 4.1): 4 · s² · d · heads, divided by two if causal."""
    sizes = {"sequences": 2, "heads": 16, "group": 4, "queries": 1024, "head_size": 128}

    full = need_of(shape_of("flash_attention", **sizes)).flop_flop
    causal = need_of(shape_of("flash_attention", flags=("causal",), **sizes)).flop_flop

    assert full == 4 * 1024**2 * 128 * 16 * 2
    assert causal == full / 2


def test_grouped_queries_move_fewer_keys_and_values():
    sizes = {"sequences": 1, "heads": 16, "queries": 512, "head_size": 64}

    alone = need_of(shape_of("flash_attention", group=1, **sizes)).moved_bytes
    grouped = need_of(shape_of("flash_attention", group=4, **sizes)).moved_bytes

    assert alone == 2 * 512 * 64 * (2 * 16 + 2 * 16)
    assert grouped == 2 * 512 * 64 * (2 * 16 + 2 * 4)


def test_adam_in_fp32_moves_28_bytes_a_parameter():
    """Weight, gradient and two moments read (16), the last three but the gradient written (12)."""
    assert need_of(shape_of("adam", dtype="fp32", parameters=1000)).moved_bytes == 28000


def test_groups_share_no_weights():
    need = need_of(shape_of("grouped_gemm", groups=3, m=4, n=8, k=16))

    assert need.flop_flop == 3 * 2 * 4 * 8 * 16
    assert need.moved_bytes == 3 * 2 * (4 * 16 + 16 * 8 + 4 * 8)


def test_a_launch_moves_nothing():
    assert need_of(shape_of("host.launch", dtype="fp32")).moved_bytes == 0


@all_cases("space", SPACES)
def test_every_class_is_priced_by_its_own_operator_or_by_none(space):
    shape = space.shape(0, False, 0)

    operator = operator_of(shape, columns_of([shape]))

    if space.kernel in WITHOUT or "fp32_accumulate" in shape.flags:
        assert operator is None
    else:
        kernel = f"narrow_{space.kernel}.{shape.dtype}" if shape.dtype == "fp8" else space.kernel
        assert operator.kernel in (kernel, f"{kernel}.{shape.layout}")


@all_cases("space", SPACES)
def test_every_class_can_be_run(space):
    assert (space.kernel in MAKERS) != (space.kernel in STREAMS)


@all_cases("name", ["swiglu", "rmsnorm", "rope", "copy", "adam", "dropout"])
def test_classes_that_others_stand_in_for_are_measured(name):
    """What the catalogue could only borrow is what a pack should bring."""
    assert name in FALLBACK_CLASSES
    assert name in {space.kernel for space in SPACES}


def test_columns_hold_one_row_for_each_shape():
    shapes = [shape_of("gemm", layout="forward", m=m, n=8, k=16) for m in (1, 2, 3)]

    columns = columns_of(shapes)

    assert columns["m"].tolist() == [[1.0], [2.0], [3.0]]
    assert operator_of(shapes[0], columns).work().flop.ravel().tolist() == [256.0, 512.0, 768.0]
    assert np.shape(columns["k"]) == (3, 1)
