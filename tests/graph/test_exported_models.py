"""Models of timm and transformers, exported: counts of their graphs are those of PyTorch (oracle.py)."""

import csv
import gzip
import io
import zipfile
from functools import cache
from pathlib import Path

from flopcast.graph.canonical import flop_of
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.graph.saved import saved_tensors, tensors_with_gradient, view_roots
from flopcast.interop.graphs.archive import read_archive
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
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/models/model.json", gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))
    return read_archive(file.getvalue(), name, {})


@cache
def model(name):
    """The model that a graph becomes."""
    return Model.model_validate(model_of_graph(graph(name))[0])


def test_parameters_and_flop_are_those_of_an_independent_counter():
    for name, row in COUNTS.items():
        samples, flop = int(row["samples"]), float(row["forward_flop"])
        found = graph(name)

        assert model(name).parameters() == int(row["parameters"]), name
        assert abs(sum(flop_of(found, node) for node in found.nodes) / flop - 1) < 0.005, name
        assert abs(samples * model(name).forward_flop(1) / flop - 1) < 0.005, name


def test_activations_that_a_graph_keeps_are_those_that_autograd_saves():
    for name, row in COUNTS.items():
        found = graph(name)
        trained, roots, kept = tensors_with_gradient(found), view_roots(found), {}
        for node in found.nodes:
            for saved in saved_tensors(found, node, trained):
                root = roots.get(saved.tensor, saved.tensor)
                if not saved.tensor:
                    kept[node.name, saved.role] = saved.size_bytes
                elif not found.tensors[root].is_parameter:
                    kept[root] = found.tensors[root].size_bytes

        assert abs(sum(kept.values()) / float(row["saved_bytes"]) - 1) < 0.03, name


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
