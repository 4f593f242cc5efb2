"""Graphs run in an order in which every operator finds its inputs, and operators count by closed forms."""

import pytest
from graph_cases import graph_of, node, single, tensor

from flopcast.errors import SpecError
from flopcast.graph.canonical import flop_of, moved_bytes_of
from flopcast.graph.operator_graph import checked
from flopcast.graph.saved import saved_tensors, tensors_with_gradient


def test_operators_are_sorted_so_that_each_follows_what_it_reads():
    tensors = [tensor(name, 4) for name in "xabcy"]
    nodes = [
        node("add", "b c", "y"),
        node("relu", "a", "b"),
        node("relu", "x", "a"),
        node("relu", "a", "c"),
    ]

    order = [each.name for each in checked(graph_of(tensors, nodes)).nodes]

    assert sorted(order) == ["a", "b", "c", "y"]
    assert (order[0], order[-1]) == ("a", "y")


def test_cycles_missing_tensors_and_two_writers_are_errors_that_name_the_operator():
    tensors = [tensor(name, 4) for name in "xaby"]
    cases = {
        "wait for each other": [node("add", "x b", "a"), node("relu", "a", "b"), node("relu", "b", "y")],
        "nothing provides 'b'": [node("add", "x b", "y")],
        "several operators write": [node("relu", "x", "y"), node("gelu", "x", "y")],
    }
    for text, nodes in cases.items():
        with pytest.raises(SpecError, match=text) as fault:
            checked(graph_of(tensors, nodes))
        assert fault.value.problems[0].field == "graph.node"


def test_products_count_two_flop_for_each_multiply_add():
    cases = {
        2 * 10 * 7 * 5: single("matmul", [(10, 5), (5, 7)], (10, 7)),
        2 * 3 * 4 * 6 * 8: single("matmul", [(3, 4, 8), (3, 8, 6)], (3, 4, 6)),
        2 * 10 * 7 * 6: single("linear", [(10, 6), (7, 6)], (10, 7), "b"),
        # 8 channels of 3×3×3 filters at 16×16 places of two images
        2 * (2 * 8 * 16 * 16) * (3 * 3 * 3): single(
            "convolution", [(2, 3, 16, 16), (8, 3, 3, 3)], (2, 8, 16, 16), "b"
        ),
        # depthwise: one channel in each group
        2 * (2 * 8 * 16 * 16) * (1 * 3 * 3): single(
            "convolution", [(2, 8, 16, 16), (8, 1, 3, 3)], (2, 8, 16, 16), "b"
        ),
        # each input element meets every output channel and place of the filter
        2 * (2 * 8 * 4 * 4) * (3 * 2 * 2): single(
            "transposed_convolution", [(2, 8, 4, 4), (8, 3, 2, 2)], (2, 3, 8, 8), "b"
        ),
        # queries with keys, and their weights with values: two products for each of 2 · 4 heads
        2 * 2 * (2 * 4) * 9 * 5 * 16: single(
            "attention", [(2, 4, 9, 16), (2, 4, 5, 16), (2, 4, 5, 16)], (2, 4, 9, 16)
        ),
        2 * 2 * 3 * 4 * 5: single("einsum", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), equation="bij,bjk->bik"),
        2 * 6 * 4 * 5: single("einsum", [(2, 3, 4), (4, 5)], (2, 3, 5), equation="...j,jk->...k"),
        0: single("gelu", [(8,)], (8,)),
    }
    for expected, graph in cases.items():
        assert flop_of(graph, graph.nodes[0]) == expected


def test_a_lookup_reads_its_rows_and_not_the_table():
    table = single("embedding", [(1_000_000, 64), (32,)], (32, 64), "a")

    moved = moved_bytes_of(table, table.nodes[0])

    assert moved == 32 * 64 * 4 * 2 + 32 * 4


def test_a_product_with_a_weight_keeps_its_input_only_if_the_weight_is_trained():
    trained = single("linear", [(10, 6), (7, 6)], (10, 7), "b")
    frozen = graph_of(
        [tensor("a", 10, 6), tensor("b", 7, 6), tensor("y", 10, 7)], trained.nodes, inputs="a b"
    )

    kept = [
        [each.tensor for each in saved_tensors(graph, graph.nodes[0], tensors_with_gradient(graph))]
        for graph in (trained, frozen)
    ]

    assert kept == [["a"], []]
