"""Models of timm and transformers, exported: counts of their graphs are those of PyTorch (oracle.py)."""

import csv
from functools import cache
from pathlib import Path

from graph_counts import forward_flop, packed_graph, saved_bytes

from flopcast.graph.model_of_graph import model_of_graph
from flopcast.library import catalog
from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

HERE = Path(__file__).with_name("exported")
with (HERE / "counts.csv").open() as table:
    COUNTS = {row["model"]: row for row in csv.DictReader(table)}
HALF = 2.0  # bytes that the plan's 16 bits take of the 32 that the oracle's tensors have


@cache
def graph(name):
    """The graph of a model."""
    return packed_graph((HERE / f"{name}.json.gz").read_bytes(), name)


@cache
def model(name):
    """The model that a graph becomes."""
    return Model.model_validate(model_of_graph(graph(name))[0])


def test_parameters_and_flop_are_those_of_an_independent_counter():
    for name, row in COUNTS.items():
        samples, flop = int(row["samples"]), float(row["forward_flop"])

        assert model(name).parameters() == int(row["parameters"]), name
        assert abs(forward_flop(graph(name)) / flop - 1) < 0.005, name
        assert abs(samples * model(name).forward_flop(1) / flop - 1) < 0.005, name


def test_activations_that_a_graph_keeps_are_those_that_autograd_saves():
    for name, row in COUNTS.items():
        assert abs(saved_bytes(graph(name)) / float(row["saved_bytes"]) - 1) < 0.03, name


def test_layers_keep_what_the_graph_keeps_in_16_bits_without_positions_of_pools():
    for name in ("mixer_b16_224", "convnext_tiny", "bert", "efficientnet_b0"):
        samples = int(COUNTS[name]["samples"])
        plan = Plan(micro_batch=samples, global_batch=samples)
        workload = lower(model(name), one_plan(plan), Batch(sequence_length=1))
        programs = realise(workload, catalog.stack("torch-fsdp2"))
        kept_bytes = sum(layer.kept_bytes.item() * layer.logical.count for layer in programs.layers)

        assert abs(HALF * kept_bytes / float(COUNTS[name]["saved_bytes"]) - 1) < 0.03, name


def test_equal_layers_of_a_transformer_are_counted_once():
    assert max(block.count for block in model("vit_small_patch16_224").blocks) >= 11
    assert max(block.count for block in model("bert").blocks) >= 11
