"""FLOP of torch's operators by their shapes, worked out by hand."""

import pytest
from all_cases import all_cases

from flopcast.interop.tracing.products import FUSED_ATTENTION, RULES, flop_of

HEADS = (2, 4, 128, 64)  # sequences, heads, tokens, elements


@all_cases(
    ("name", "shapes", "flop"),
    [
        ("mm", [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
        ("addmm", [(7,), (3, 5), (5, 7)], 2 * 3 * 5 * 7),
        ("bmm", [(11, 3, 5), (11, 5, 7)], 2 * 11 * 3 * 5 * 7),
        ("baddbmm", [(11, 3, 7), (11, 3, 5), (11, 5, 7)], 2 * 11 * 3 * 5 * 7),
        ("_grouped_mm", [(30, 5), (4, 5, 7), (4,)], 2 * 30 * 5 * 7),  # each row meets one of four
        ("_grouped_mm", [(5, 30), (30, 7), (4,)], 2 * 5 * 30 * 7),  # a weight gradient: rows are summed
        ("convolution", [(2, 3, 100), (8, 3, 4)], 2 * 2 * 8 * 100 * 3 * 4),
    ],
)
def test_a_product_needs_a_multiply_and_an_add_for_each_term(name, shapes, flop):
    assert flop_of(name, shapes) == flop


@pytest.mark.parametrize("name", [*FUSED_ATTENTION, "fused_attention"])
def test_fused_attention_counts_the_two_products_that_eager_attention_runs(name):
    sequences, heads, tokens, size = HEADS
    scores = flop_of("bmm", [(sequences * heads, tokens, size), (sequences * heads, size, tokens)])

    assert flop_of(name, [HEADS, HEADS, HEADS]) == 2 * scores


@pytest.mark.parametrize("name", [*FUSED_ATTENTION, "fused_attention"])
def test_its_backward_runs_five_products_instead_of_two(name):
    forward = flop_of(name, [HEADS, HEADS, HEADS])

    assert flop_of(f"{name}_backward", [HEADS, HEADS, HEADS, HEADS]) == 2.5 * forward


def test_grouped_heads_are_multiplied_as_often_as_there_are_queries():
    grouped = (2, 1, 128, 64)

    assert flop_of("fused_attention", [HEADS, grouped, grouped]) == flop_of("fused_attention", [HEADS] * 3)


def test_values_narrower_than_keys_make_the_second_product_cheaper():
    narrow = (2, 4, 128, 32)

    assert flop_of("fused_attention", [HEADS, HEADS, narrow]) == 0.75 * flop_of(
        "fused_attention", [HEADS] * 3
    )


@all_cases("name", ["add", "mul", "native_layer_norm", "_softmax", "embedding", "_to_copy"])
def test_a_pass_over_tensors_has_no_flop(name):
    assert name not in RULES
    assert flop_of(name, [HEADS, HEADS]) == 0.0
