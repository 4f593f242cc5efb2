"""Tensor parallelism of exported graphs: what ranks hold, compute, move and send.

The oracles: sums over ranks are those of one device; graphs of transformers send what native models send;
what cannot be divided stays whole, with its reason.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from graph_cases import graph_of, node, tensor
from graph_counts import packed_graph

from flopcast import SpecError, job, predict
from flopcast.dtypes import constant
from flopcast.graph.division import divide, uses_of_weights
from flopcast.graph.lowering import lowering
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.graph.operator_graph import OperatorGraph
from flopcast.layers.base import Split
from flopcast.operators.messages import AllReduce, Replicate
from flopcast.spec.model import Model

HERE = Path(__file__).with_name("exported")
GRAPHS = (
    "bert",
    "clip",
    "timm.vit_base_patch16_224",
    "efficientnet_b0",
    "resnext50_32x4d",
    "transformers.t5",
)


@cache
def model(name):
    """The model of an exported graph."""
    return Model.model_validate(
        model_of_graph(packed_graph((HERE / f"{name}.json.gz").read_bytes(), name))[0]
    )


def split(ranks, tokens=1, samples=1):
    return Split(
        sequences=constant(samples),
        length=constant(tokens),
        tensor=constant(ranks),
        sequence_parallel=False,
        dtype="bf16",
    )


def items(block, ranks, samples=1):
    return block.mixer.forward(1, split(ranks, samples=samples))


def messages(found, kind):
    """The bytes of the messages of one kind, in order."""
    return [item.work.message_bytes.item() for item in found if isinstance(item.work, kind)]


def test_ranks_together_hold_and_compute_what_one_device_does():
    """FLOP, kept tensors, outputs and weights of divided operators; all others are on every rank."""
    for name in GRAPHS:
        for block in model(name).blocks:
            if block.mixer.units == 1:
                continue
            ranks = 2 if block.mixer.units % 2 == 0 else block.mixer.units
            for operator in block.mixer.operators:
                one, part = operator.work(split(1)), operator.work(split(ranks))
                times = 1 if operator.division == "whole" else ranks
                assert part.work().flop.item() * times == pytest.approx(one.work().flop.item()), (
                    operator.name
                )
                if operator.division == "within" and not getattr(operator, "shared", ()):
                    assert part.work().moved_bytes.item() * ranks == pytest.approx(
                        one.work().moved_bytes.item()
                    )
                if operator.division == "whole":
                    assert part.work().moved_bytes.item() == one.work().moved_bytes.item()
            for one, part, weight in zip(
                block.mixer.weights(1, split(1)),
                block.mixer.weights(1, split(ranks)),
                block.mixer.weights_of_block,
                strict=True,
            ):
                times = ranks if weight.divided else 1
                assert part.elements.item() * times == pytest.approx(one.elements.item())


def test_memory_for_the_backward_pass_is_divided_between_column_and_row():
    """A block of BERT keeps whole what it reads, and its attention and MLP in parts."""
    block = max(model("bert").blocks, key=lambda each: each.count)

    def kept_bytes(ranks):
        return {name: size.item() for each in items(block, ranks) for name, size in each.saved()}

    one, two = kept_bytes(1), kept_bytes(2)
    hidden = two["x"]
    assert one["x"] == hidden
    halved = [name for name in one if two[name] == one[name] / 2]
    assert (
        sum(one[name] for name in halved) >= (3 + 1 + 4) * hidden
    )  # q, k, v, their result, inside the MLP
    assert all(two[name] in (one[name], one[name] / 2) for name in one)


def test_graphs_of_transformers_send_what_native_models_send():
    """Two sums forward and two backward for each block, of all tokens and the whole width."""
    for name, hidden, heads, tokens in (
        ("timm.vit_base_patch16_224", 768, 12, 197),
        ("bert", 768, 12, 256),
    ):
        graph_block = max(model(name).blocks, key=lambda each: each.count)
        entry = {
            "mixer": {"heads": heads, "qkv_bias": True, "out_bias": True, "causal": False},
            "feed_forward": {"ffn_hidden": 4 * hidden, "bias": True},
        }
        native = Model.model_validate(
            {"name": "native", "hidden": hidden, "vocabulary": 2, "blocks": [{"count": 12, **entry}]}
        ).blocks[0]

        for ranks in (2, 4):
            found = items(graph_block, ranks)
            expected = native.forward(hidden, split(ranks, tokens=tokens))
            for kind in (AllReduce, Replicate):
                assert messages(found, kind) == messages(expected, kind), (name, kind)
            own, other = (
                sum(weight.elements.item() for weight in layer.weights(hidden, split(ranks)))
                for layer in (graph_block.mixer, native)
            )
            assert own == other, name


def test_the_bias_of_relative_positions_is_whole_and_its_gradients_are_summed():
    """T5 computes a bias for each head from a table; ranks use the part of their heads."""
    blocks = [block for block in model("transformers.t5").blocks if block.mixer.units == 8]
    entering = [
        (operator.kind, len(operator.enters)) for block in blocks for operator in block.mixer.operators
    ]

    assert any(kind != "matmul" and count for kind, count in entering)
    assert any(operator.division == "within" for block in blocks for operator in block.mixer.operators)


WIDTH, HEADS, ROWS = 32, 4, 6


def block_of(middle, inner, *more, weights=()):
    """A linear layer to `inner` columns, the operators `middle`, and a linear layer that reads "t"."""
    tensors = [
        tensor("x", 1, ROWS, WIDTH),
        tensor("w", inner, WIDTH, parameter=True),
        tensor("a", 1, ROWS, inner),
        *more,
        tensor("v", WIDTH, inner, parameter=True),
        tensor("y", 1, ROWS, WIDTH),
    ]
    nodes = [node("linear", "x w", "a"), *middle, node("linear", "t v", "y")]
    return graph_of([*tensors, *weights], nodes)


def division(graph: OperatorGraph):
    return divide(lowering(graph), graph.nodes, {"y"}, uses_of_weights(lowering(graph)))


def test_operators_between_column_and_row_keep_the_division_only_on_each_head_or_column():
    wide, last = tensor("t", 1, ROWS, WIDTH), {"along": -1}
    cases = {
        "gelu": ([node("gelu", "a", "t")], "column within row"),
        "softmax": ([node("softmax", "a", "t", **last)], ""),
        "softmax over rows": ([node("softmax", "a", "t", along=1)], "column within row"),
        "layer norm": ([node("layer_norm", "a", "t")], ""),
        "cumulative sum": ([node("cumulative_sum", "a", "t", **last)], ""),
        "the input": ([node("add", "a x", "t")], ""),
        "a weight for each column": ([node("multiply", "a c", "t")], "column within row"),
    }
    for name, (middle, kinds) in cases.items():
        graph = block_of(middle, WIDTH, wide, weights=[tensor("c", WIDTH, parameter=True)])
        found = division(graph)

        assert " ".join(found.kinds.values()) == kinds, name
        assert found.units == (WIDTH if kinds else 1), name
        assert bool(found.whole) == (not kinds), name


def test_heads_are_found_through_views_of_joined_queries_keys_and_values():
    """One product for all three, in both orders of its columns; grouped heads; halves of a gated MLP."""
    size = WIDTH // HEADS
    joined = [
        tensor("b", 1, ROWS, 3, HEADS, size),
        tensor("c", 3, 1, HEADS, ROWS, size),
        *(tensor(name, 1, HEADS, ROWS, size) for name in "qkzo"),
        tensor("p", 1, ROWS, HEADS, size),
        tensor("t", 1, ROWS, WIDTH),
    ]
    middle = [
        node("view", "a", "b"),
        node("view", "b", "c", permutation=(2, 0, 3, 1, 4)),
        node("view", "c", "q k z", taken=0),
        node("attention", "q k z", "o"),
        node("view", "o", "p", permutation=(0, 2, 1, 3)),
        node("copy", "p", "t"),
    ]
    found = division(block_of(middle, 3 * WIDTH, *joined))
    assert (found.units, set(found.kinds.values())) == (HEADS, {"column", "within", "row"})
    lost = [replace(each, attributes={}) if each.attributes.get("permutation") else each for each in middle]
    assert division(block_of(lost, 3 * WIDTH, *joined)).units == 1

    halves = [tensor(name, 1, ROWS, WIDTH) for name in ("g", "u", "s", "t")]
    gated = [node("view", "a", "g u"), node("silu", "g", "s"), node("multiply", "s u", "t")]
    assert division(block_of(gated, 2 * WIDTH, *halves)).units == WIDTH


def test_weights_of_several_operators_and_outputs_for_other_blocks_stay_whole():
    wide = tensor("t", 1, ROWS, WIDTH)
    graph = block_of([node("gelu", "a", "t")], WIDTH, wide)
    known = lowering(graph)

    shared = divide(known, graph.nodes, {"y"}, {"w": 2, "v": 1})
    assert shared.whole == {"w": "more than one operator uses the weight", "v": shared.whole["v"]}
    assert divide(known, graph.nodes, {"y", "t"}, uses_of_weights(known)).kinds == {}


def test_convolutions_divide_channels_and_groups():
    """A depthwise convolution between two others keeps its channels; four groups allow four ranks."""
    for groups, units in ((WIDTH, WIDTH), (4, 4)):
        image = (1, WIDTH, 8, 8)
        tensors = [tensor(name, *image) for name in "xabcy"]
        weights = [
            tensor("u", WIDTH, WIDTH, 1, 1, parameter=True),
            tensor("v", WIDTH, WIDTH // groups, 3, 3, parameter=True),
            tensor("w", WIDTH, WIDTH, 1, 1, parameter=True),
            tensor("n", WIDTH, parameter=True),
        ]
        nodes = [
            node("convolution", "x u", "a"),
            node("batch_norm", "a n", "b"),
            node("convolution", "b v", "c", groups=groups),
            node("convolution", "c w", "y"),
        ]
        found = division(graph_of([*tensors, *weights], nodes))

        assert list(found.kinds.values()) == ["column", "within", "within", "row"]
        assert found.units == units
        assert found.tensors >= {"u", "v", "w", "n"}


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A model file of an exported graph; YAML contains JSON."""
    name = "timm.vit_base_patch16_224"
    path = tmp_path_factory.mktemp("graphs") / "vit.yaml"
    data = model_of_graph(packed_graph((HERE / f"{name}.json.gz").read_bytes(), name))[0]
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_report_says_what_tensor_parallelism_divides(vit):
    reports = [
        predict(
            job(model=str(vit), cluster="dgx-h100:1", plan=f"dp={8 // ranks} tp={ranks} mbs=64 gbs=512")
        )
        for ranks in (1, 2)
    ]
    notes = [
        [text for text in report.assumptions if "tensor parallelism divides" in text] for report in reports
    ]

    assert notes[0] == []
    assert "99." in notes[1][0]
    assert "p_head_weight" in notes[1][0] or "patch_embed" in notes[1][0]
    assert reports[1].breakdown["tp_communication"] > 0
    held = [report.memory.by_category["parameters"] for report in reports]
    assert 0.5 < held[1] / held[0] < 0.52


def test_degrees_that_do_not_divide_the_heads_are_an_error(vit):
    with pytest.raises(SpecError, match="a divisor of 12: 1, 2, 3, 4, 6, 12"):
        job(model=str(vit), cluster="dgx-h100:1", plan="dp=1 tp=8 mbs=8 gbs=8")
