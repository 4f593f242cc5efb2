"""Kernels of exported graphs are those that were counted from the code of the same models."""

from functools import cache

import numpy as np
import pytest
from test_exported_models import graph, model

from flopcast.cost.graph_kernels.kernel_classes import GRAPH_KERNELS
from flopcast.cost.graph_kernels.operator_rows import is_described, rows_of_items
from flopcast.cost.graph_kernels.software import EAGER, PROCESSOR, TRAINING
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.graph.autocast import under_autocast
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.lab.graph_runs.facts import timm_facts
from flopcast.lab.graph_runs.kernels import Software, graph_kernels
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.records import replace
from flopcast.report.explain.graph_kernels import graph_inputs
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

SAMPLES = 64
MODELS = (
    "resnet50",
    "convnext_tiny",
    "vit_small_patch16_224",
    "efficientnet_b0",
    "vgg16",
    "resnext50_32x4d",
)
NAMES = tuple(GRAPH_KERNELS)
TRAINED = ".training"  # norms of a model that was exported for training sum over the batch


def totals(rows, counts):
    """FLOP and bytes of each class; layouts and phases of a class together."""
    found = {}
    for kernel, flop, moved, count in zip(rows.kernel, rows.flop, rows.moved_bytes, counts, strict=True):
        name = NAMES[kernel].replace(".channels_last", "")
        found[name] = found.get(name, 0.0) + count * np.array([flop, moved])
    return found


@cache
def mixed(name):
    """The model that a graph becomes under autocast."""
    return Model.model_validate(model_of_graph(under_autocast(graph(name)))[0])


def of_graph(name, trains, model_of=model):
    """FLOP and bytes of the kernels that are predicted for an exported model."""
    plan = one_plan(Plan(micro_batch=SAMPLES, global_batch=SAMPLES))
    batch = Batch(sequence_length=1, forward_only=not trains)
    layers = realise(lower(model_of(name), plan, batch), catalog.stack("torch-fsdp2")).layers
    pairs = [
        (item, layer.logical.count)
        for layer in layers
        for item in (*layer.forward, *(layer.backward if trains else ()))
        if is_described(item)
    ]
    rows, _ = rows_of_items([item for item, _ in pairs])
    return totals(rows, rows.calls * np.array([float(np.ravel(count)[0]) for _, count in pairs]))


def of_code(name, trains, precision="half"):
    """The same, counted from the code of the model (timm_facts.py)."""
    software = Software(precision=precision, trains=trains)
    rows = graph_kernels(timm_facts(), [f"{name}@224"], [SAMPLES], software)
    return totals(rows, rows.calls)


def test_forward_kernels_have_the_flop_and_bytes_that_the_code_of_the_model_shows():
    for name in MODELS:
        found, expected = of_graph(name, trains=False), of_code(name, trains=False)
        whole = sum(expected.values())
        for kernel, counted in expected.items():
            again = TRAINED if f"{kernel}{TRAINED}" in found else ""
            own = found.get(f"{kernel}{again}", np.zeros(2))
            work = counted * (1.0, 1.5) if again else counted
            errors = np.abs(own - work)[work > 0.02 * whole]
            assert errors.max(initial=0.0) <= 0.03 * work.max(), (name, kernel)


def test_kernels_of_products_gradients_have_twice_the_work_of_the_forward_pass():
    for name in MODELS:
        found, expected = of_graph(name, trains=True), of_code(name, trains=True)
        for kernel in ("convolution", "pixel_convolution", "product", "batch_norm", "layer_norm"):
            key = f"{kernel}.gradients"
            if key in expected and expected[key][1] > 0.05 * sum(expected.values())[1]:
                assert np.allclose(found[key], expected[key], rtol=0.12), (name, kernel)


def test_autocast_moves_the_bytes_that_the_code_of_the_model_shows_under_it():
    for name in ("resnet50", "vit_small_patch16_224", "convnext_tiny"):
        found = of_graph(name, trains=False, model_of=mixed)
        expected = of_code(name, trains=False, precision="amp")
        whole = sum(expected.values())[1]
        for kernel, (_, moved) in expected.items():
            if moved > 0.03 * whole and kernel != "batch_norm":
                assert abs(found[kernel][1] / moved - 1) < 0.03, (name, kernel)


def test_steps_of_a_measured_device_are_near_those_of_timm_and_constants_can_be_dropped():
    cluster = catalog.cluster("rtx-3090-8")
    plan = Plan(data_parallel=32, micro_batch=256, global_batch=32 * 1024)
    job = Job(
        model=model("resnet50"),
        cluster=cluster,
        plan=plan,
        stack=catalog.stack("torch-fsdp2"),
        batch=Batch(sequence_length=1, forward_only=True),
    )
    book = load_book(cluster)
    bare = CurveBook(curves=book.curves)

    fitted, dropped = predict(job, book), predict(job, bare)

    assert abs(fitted.step_time_s / (1024 / 3219.06) - 1) < 0.15  # pt240-cu124-rtx3090, norms not trained
    assert fitted.step_time_s != dropped.step_time_s
    assert {EAGER, TRAINING} <= set(book.graphs)
    assert any(name.startswith("graph_level") for name in fitted.priced.factors)
    items = [item for item in fitted.priced.prices if is_described(item)]
    for item in items:
        formula, inputs = graph_inputs(item, fitted.priced, book, 0, 0)
        assert inputs[-1].number == pytest.approx(fitted.priced.of(item).one_s(0)), item.name
        assert "launch" in formula


def test_a_kernel_of_a_processor_takes_a_call_beside_its_work():
    """The step without the time of calls is shorter by one call for each kernel, and explains itself."""
    cluster = catalog.cluster("raspberry-pi-4")
    job = Job(
        model=model("resnet50"),
        cluster=cluster,
        plan=Plan(data_parallel=4, micro_batch=1, global_batch=4, precision="fp32"),
        stack=catalog.stack("torch-fsdp2"),
        batch=Batch(sequence_length=1, forward_only=True),
    )
    book = load_book(cluster)
    own = book.graphs[PROCESSOR]
    free = replace(book, graphs={**book.graphs, PROCESSOR: replace(own, call_s=0.0)})

    called, uncalled = predict(job, book), predict(job, free)

    items = [item for item in called.priced.prices if is_described(item)]
    other = [item for item in uncalled.priced.prices if is_described(item)]
    for item, alone in zip(items, other, strict=True):
        rows = rows_of_items([item])[0]
        kernels = rows.calls[rows.moved_bytes > 0].sum()  # a fork runs none forward
        more_s = called.priced.of(item).one_s(0) - uncalled.priced.of(alone).one_s(0)
        assert more_s == pytest.approx(kernels * own.call_s, rel=1e-6), item.name
        inputs = graph_inputs(item, called.priced, book, 0, 0)[1]
        assert inputs[-2].number == pytest.approx(own.call_s + cluster.node.device.kernel_launch_s)
        assert inputs[-1].number == pytest.approx(called.priced.of(item).one_s(0))
