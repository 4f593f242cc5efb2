"""A graph becomes blocks: equal ones are counted once, and weights, FLOP and kept tensors stay the same."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from graph_builder import Builder
from graph_cases import graph_of, node, tensor

from flopcast import predict
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.graph.segments import repeated_runs
from flopcast.requests.job_files import job_of
from flopcast.requests.sources import Document
from flopcast.spec.model import WHOLE, Model

WIDTH, ROWS = 64, 4


def residual_blocks(count, shared=False):
    """Equal blocks of two linear layers, a GELU between them, and a sum with the block's input."""
    tensors, nodes = [tensor("x0", ROWS, WIDTH)], []
    for place in range(count):
        own = 0 if shared else place
        names = [f"{word}{place}" for word in ("h", "g", "o")] + [f"x{place + 1}"]
        shapes = [(ROWS, 4 * WIDTH), (ROWS, 4 * WIDTH), (ROWS, WIDTH), (ROWS, WIDTH)]
        tensors += [tensor(name, *shape) for name, shape in zip(names, shapes, strict=True)]
        tensors += [
            tensor(f"u{own}", 4 * WIDTH, WIDTH, parameter=True),
            tensor(f"d{own}", WIDTH, 4 * WIDTH, parameter=True),
        ]
        nodes += [
            node("linear", f"x{place} u{own}", names[0]),
            node("gelu", names[0], names[1]),
            node("linear", f"{names[1]} d{own}", names[2]),
            node("add", f"{names[2]} x{place}", names[3]),
        ]
    return graph_of(tensors, nodes, inputs="x0", outputs=f"x{count}", samples=ROWS)


def test_equal_layers_are_found_and_counted_once():
    mapping, _ = model_of_graph(residual_blocks(12))

    model = Model.model_validate(mapping)

    counts = [block.count for block in model.blocks]
    assert max(counts) >= 10
    assert len(counts) <= 3
    assert model.parameters() == 12 * 2 * 4 * WIDTH * WIDTH
    assert model.forward_flop(1) == 12 * 2 * 2 * 4 * WIDTH * WIDTH


def test_weights_that_layers_share_count_once_and_their_flop_every_time():
    mapping, _ = model_of_graph(residual_blocks(12, shared=True))

    model = Model.model_validate(mapping)

    assert model.parameters() == 2 * 4 * WIDTH * WIDTH
    assert model.forward_flop(1) == 12 * 2 * 2 * 4 * WIDTH * WIDTH


def test_frozen_weights_take_memory_and_are_no_parameters():
    graph = residual_blocks(3)
    tensors = {
        name: replace(each, is_trained=each.is_trained and not name.startswith("u"))
        for name, each in graph.tensors.items()
    }
    model = Model.model_validate(model_of_graph(replace(graph, tensors=tensors))[0])

    weights = [
        (count, weight)
        for layer, count in model.sequence()
        for weight in layer.weights(model.hidden, WHOLE)
    ]
    one = 4 * WIDTH * WIDTH
    assert sum(count * weight.elements.item() for count, weight in weights) == 3 * 2 * one
    assert sum(count * weight.elements.item() for count, weight in weights if weight.trained) == 3 * one
    assert model.parameters() == 3 * one


def test_runs_are_found_at_every_phase_and_do_not_overlap():
    unit = [3, 1, 4, 1, 5, 9, 2, 6]
    numbers = np.array([7, 7, *unit * 5, 8, *[20, 21, 22, 23, 24] * 4])

    runs = repeated_runs(numbers, np.ones(len(numbers) + 1))

    assert [(run.period, run.count) for run in runs] == [(8, 5), (5, 4)]
    assert all(first.end <= second.start for first, second in pairwise(runs))


def test_runs_inside_of_equal_parts_are_found_in_every_part():
    layer, other = [3, 1, 4, 1, 5, 9, 2, 6, 8], [20, 21, 22, 23, 24]
    numbers = np.array([7, *([*layer * 3, *other] * 4)])

    runs = repeated_runs(numbers, np.ones(len(numbers) + 1))

    assert [(run.start, run.period, run.count) for run in runs] == [(1 + 32 * n, 9, 3) for n in range(4)]


def windowed(windows):
    """A product, attention with one kernel for each window, and the outputs joined."""
    whole, part = (ROWS, 2, 16 * windows, 8), (ROWS, 2, 16, 8)
    built = Builder()
    x = built.run("linear", f"{built.input('x', *whole)} {built.weight(8, 8)}", *whole)
    parts = [
        built.run("attention", " ".join(built.run("view", x, *part) for _ in "qkv"), *part)
        for _ in range(windows)
    ]
    return built.graph(built.run("concatenate", " ".join(parts), *whole), ROWS)


def test_kernels_of_windows_are_one_operator_and_take_as_long_as_all_of_them():
    """The oracle is the same model with an operator for each window."""
    mapping, _ = model_of_graph(windowed(5))
    found, one_by_one = [], []
    for block in mapping["blocks"]:
        operators = block["mixer"]["operators"]
        found += [each.get("pieces", 1) for each in operators]
        separate = [one for each in operators for one in _one_by_one(each)]
        one_by_one.append(block | {"mixer": block["mixer"] | {"operators": separate}})

    assert sorted(found) == [1] * (len(found) - 1) + [5]
    assert Model.model_validate(mapping).forward_flop(1) == 2 * 160 * 8 * 8 + 5 * 2 * 2 * 2 * 16 * 16 * 8
    times_s = [_step_s(each) for each in (mapping, mapping | {"blocks": one_by_one})]
    assert times_s[0] == pytest.approx(times_s[1], rel=1e-9)


def _one_by_one(operator):
    """The operators that run the pieces of one; each has 2 heads."""
    own = {"heads": {"sequences": 2}, "kv_heads": {"sequences": 2}, "pieces": 1}
    for place in range(operator.get("pieces", 1)):
        yield operator | own | {"name": f"piece.{place}"} if "pieces" in operator else operator


def _step_s(model):
    parts = {
        "model": model,
        "cluster": "dgx-h100:1",
        "stack": "pytorch-ddp",
        "batch": {"sequence_length": 1},
        "plan": "dp=8 mbs=4 gbs=32",
    }
    return predict(job_of(Document("test", parts, {}))).step_time_s


def test_a_complex_number_counts_as_two_elements():
    def moved(dtype, *shape):
        tensors = [tensor("x", *shape, dtype=dtype), tensor("y", *shape, dtype=dtype)]
        model, _ = model_of_graph(graph_of(tensors, [node("fourier", "x", "y")], samples=4))
        return model["blocks"][0]["mixer"]["operators"][0]["moved"]

    assert moved("complex64", 4, 16) == moved("fp32", 4, 32) == {"sequences": 2 * 2 * 32}
