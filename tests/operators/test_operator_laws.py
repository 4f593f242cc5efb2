"""What holds for every operator: a new kind or class joins by an entry in operator_examples."""

import pkgutil
from dataclasses import FrozenInstanceError, fields
from importlib import import_module
from itertools import pairwise
from re import fullmatch

import numpy as np
import pytest
from all_cases import all_cases
from operator_examples import HEAD_SIZE, NAMES, PLANS, examples

import flopcast.operators
from flopcast.dtypes import ELEMENT_BYTES
from flopcast.operators.base import AbstractOperator, AbstractWithoutBackward

MATRIX = {  # FLOP of the backward pass over those of the forward
    "served_matmul": 0.0,
    "fused_experts": 0.0,
    "matmul": 2.0,
    "convolution": 2.0,
    "depthwise_convolution": 2.0,
    "grouped_matmul": 2.0,
    "narrow_matmul": 2.0,
    "narrow_grouped_matmul": 2.0,
    "scores": 2.0,
    "context": 2.0,
    "flash_attention": 2.5,  # arXiv:2307.08691, section 4.1: two products forward, five backward
    "flash_attention_causal": 2.5,
    "window_attention": 2.5,
    "decode_attention": 0.0,  # engines that serve have no backward pass
    "decode_attentionfp8": 0.0,
    "gated_delta": 3.0,  # each product again, and two gradients of it
    "channel_delta": 3.0,
    # five products with the state for two, four inside the chunk for two; values are twice as wide as keys
    "gated_linear_attention": 2.0 + HEAD_SIZE / (2.0 * HEAD_SIZE + 96.0),
    "latent_decode": 0.0,
    "latent_decodefp8": 0.0,
    "latent_attention": (3 * 3 + 2 * 2) / (3 + 2),  # three products of five over heads of 3, two over 2
}


def numbers(operator):
    """Every number that an operator tells, by name."""
    work = operator.work()
    told = {"flop": work.flop, "moved_bytes": work.moved_bytes}
    told |= {f"coordinate {place}": value for place, value in enumerate(operator.coordinates())}
    told |= {f"saved {kept.role}": kept.size_bytes for kept in operator.saves()}
    for suffix, gradient in operator.gradients():
        work = gradient.work()
        told |= {f"{suffix} flop": work.flop, f"{suffix} moved_bytes": work.moved_bytes}
        told |= {f"{suffix} coordinate {p}": v for p, v in enumerate(gradient.coordinates())}
    return told


def test_every_operator_class_has_an_example():
    for module in pkgutil.iter_modules(flopcast.operators.__path__):
        import_module(f"flopcast.operators.{module.name}")

    built = {
        kind.__name__
        for base in (AbstractOperator, AbstractWithoutBackward)
        for kind in base.__subclasses__()
        if kind.__module__.startswith("flopcast.")  # pages of the documentation define others
    } - {AbstractWithoutBackward.__name__}
    assert {type(operator).__name__ for operator in examples().values()} == built


@all_cases("name", NAMES)
def test_a_batch_of_plans_needs_what_its_members_need_one_by_one(name):
    together = numbers(examples()[name])

    for plan in range(PLANS):
        alone = numbers(examples(slice(plan, plan + 1))[name])
        assert alone.keys() == together.keys()
        for word, value in alone.items():
            whole = np.broadcast_to(together[word], (PLANS, 1))
            np.testing.assert_allclose(whole[plan], value[0], rtol=1e-12, err_msg=word)


@all_cases("name", NAMES)
def test_every_number_is_a_column_over_plans_and_never_negative(name):
    for word, value in numbers(examples()[name]).items():
        assert value.dtype == np.float64, word
        assert value.shape in {(PLANS, 1), (1, 1)}, word
        assert np.isfinite(value).all(), word
        assert (value >= 0).all(), word


@all_cases("name", NAMES)
def test_coordinates_are_positive_wherever_a_kernel_moves_anything(name):
    operator = examples()[name]
    passes = [operator, *(gradient for _, gradient in operator.gradients())]

    for each in passes:
        moves = each.work().moved_bytes > 0
        assert all((coordinate[moves] > 0).all() for coordinate in each.coordinates())


@all_cases("name", NAMES)
def test_both_passes_look_up_curves_of_as_many_axes(name):
    operator = examples()[name]

    axes = {len(gradient.coordinates()) for _, gradient in operator.gradients()}

    assert axes <= {len(operator.coordinates())}


@all_cases("name", NAMES)
def test_no_pass_is_priced_by_a_curve_without_a_name(name):
    operator = examples()[name]

    names = [operator.kernel, *(gradient.kernel for _, gradient in operator.gradients())]

    assert all(names)


@all_cases("name", NAMES)
def test_wider_elements_move_more_bytes_but_need_no_more_flop(name):
    works = [examples(dtype=dtype)[name].work() for dtype in ("fp8", "bf16", "fp32")]

    for narrow, wide in pairwise(works):
        assert (narrow.moved_bytes <= wide.moved_bytes).all()
        assert (2 * narrow.moved_bytes >= wide.moved_bytes).all()
        assert (narrow.flop == wide.flop).all()


@all_cases("name", NAMES)
def test_the_two_16_bit_formats_cost_the_same(name):
    half, brain = (numbers(examples(dtype=dtype)[name]) for dtype in ("fp16", "bf16"))

    assert all((half[word] == brain[word]).all() for word in half | brain)


@all_cases("name", NAMES)
def test_flop_run_on_the_engine_of_the_operands_precision(name):
    operator = examples(dtype="fp8")[name]

    assert operator.work().unit == "fp8"
    assert {gradient.work().unit for _, gradient in operator.gradients()} <= {"fp8"}


@all_cases("name", NAMES)
def test_only_matrix_products_count_flop(name):
    flop = examples()[name].work().flop

    assert (flop > 0).all() if name in MATRIX else (flop == 0).all()


@all_cases("name", MATRIX)
def test_the_backward_pass_of_a_product_needs_the_published_multiple_of_its_flop(name):
    operator = examples()[name]

    backward = sum(gradient.work().flop for _, gradient in operator.gradients())

    np.testing.assert_allclose(backward / operator.work().flop, MATRIX[name], rtol=1e-12)


@all_cases("name", NAMES)
def test_kept_tensors_are_inputs_the_output_or_a_tensor_with_a_name_of_its_own(name):
    roles = [kept.role for kept in examples()[name].saves()]

    assert len(set(roles)) == len(roles)
    for role in roles:
        word, _, place = role.partition(":")
        assert word.isidentifier()
        assert place.isdigit() if word == "input" else bool(place) == (word == "tensor")


@all_cases("name", NAMES)
def test_gradients_carry_names_that_tell_them_apart(name):
    suffixes = [suffix for suffix, _ in examples()[name].gradients()]

    assert len(set(suffixes)) == len(suffixes)
    assert all(fullmatch("(dgrad|wgrad)(_[a-z]+)?", suffix) for suffix in suffixes)


@all_cases("name", NAMES)
def test_input_gradients_come_before_weight_gradients(name):
    kinds = [suffix[:5] for suffix, _ in examples()[name].gradients()]

    assert kinds == sorted(kinds)


@all_cases("name", NAMES)
def test_operators_cannot_be_changed(name):
    operator = examples()[name]

    for field in fields(operator):
        with pytest.raises(FrozenInstanceError):
            setattr(operator, field.name, None)


@all_cases("dtype", ELEMENT_BYTES)
def test_an_element_has_the_bytes_that_its_name_says(dtype):
    bits = {"int64": 64, "bool": 8}.get(dtype) or int("".join(filter(str.isdigit, dtype)))

    assert ELEMENT_BYTES[dtype] == bits / 8
