"""Networks of many kinds in ONNX files: parameters and FLOP are those that their layers have by hand."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_network import BATCH, RUNTIME, Network
from onnx_networks import NETWORKS

from flopcast import job, predict
from flopcast.errors import SpecError
from flopcast.graph.canonical import canonical, flop_of
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.interop.graphs.onnx_file import read_onnx
from flopcast.spec.model import Model

PUBLISHED = {  # models of the onnx package: 10⁹ multiply-adds of one image, counted by their layers' papers
    "resnet50": (4.1, "arXiv:1512.03385, table 1, without its rounding: 3.8 to 4.1"),
    "vgg19": (19.6, "arXiv:1409.1556, configuration E"),
    "densenet121": (2.83, "arXiv:1608.06993, figure 3"),
    "squeezenet": (0.352, "arXiv:1602.07360, SqueezeNet 1.1"),
}


def built(name):
    """A network that counted itself, and its file."""
    build, opset = NETWORKS[name]
    net = Network(opset)
    outputs = build(net)
    return net, net.file(*((outputs,) if isinstance(outputs, str) else outputs))


def counts(raw):
    """Parameters and FLOP of a file's graph, and of the model that it becomes."""
    graph = read_onnx(raw, "network.onnx", {})
    model = Model.model_validate(model_of_graph(graph)[0])
    of_graph = sum(flop_of(graph, node) for node in graph.nodes)
    return model.parameters(), of_graph, graph.samples * model.forward_flop(1), graph


def test_networks_have_the_parameters_and_flop_of_their_layers():
    for name in NETWORKS:
        net, raw = built(name)
        parameters, of_graph, of_model, graph = counts(raw)

        assert parameters == net.parameters, name
        assert of_graph == pytest.approx(net.flop, rel=1e-9), name
        assert of_model == pytest.approx(net.flop, rel=1e-4), name
        assert not [node.operator for node in graph.nodes if canonical(node).family == "unknown"], name


def test_networks_are_predicted_in_training_and_in_inference(tmp_path):
    for name in NETWORKS:
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(built(name)[1])
        common = {"gpus": 1, "cluster": "dgx-a100", "plan": "mbs=2 gbs=2"}
        training, inference = (predict(job(path, inference=only, **common)) for only in (False, True))

        assert 0 < inference.step_time_s < training.step_time_s, name
        assert inference.memory.allocated_bytes <= training.memory.allocated_bytes, name


def test_models_of_the_onnx_package_have_their_published_multiply_adds():
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    for name, (giga, source) in PUBLISHED.items():
        _, of_graph, of_model, _ = counts((folder / f"light_{name}.onnx").read_bytes())

        assert of_graph == of_model
        assert of_graph / 2e9 == pytest.approx(giga, rel=0.02), source


def test_operators_whose_products_a_file_does_not_state_are_a_clear_error():
    def branch(name):
        weight = numpy_helper.from_array(np.zeros((8, 8), np.float32), f"weight.{name}")
        node = helper.make_node("MatMul", ["input.0", weight.name], [name])
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, 8])
        return helper.make_graph([node], name, [], [out], [weight])

    net = Network()
    x, flag = net.input(BATCH, 8), net.input(dtype=TensorProto.BOOL)
    chosen = net.run("If", flag, then_branch=branch("a"), else_branch=branch("b"))
    fused = Network()
    experts = fused.run("MoE", fused.input(8, 8), fused.input(8, 4), domain=RUNTIME, shape=(8, 8))

    for raw, message in (
        (
            net.file(x, chosen),
            "If decides at run time how often its subgraph runs, and the subgraph contains 1 GEMMs",
        ),
        (fused.file(experts), "cannot read the sizes of the GEMMs that the operator contains"),
    ):
        with pytest.raises(SpecError, match=message) as fault:
            read_onnx(raw, "network.onnx", {})
        assert len(fault.value.problems) == 1
