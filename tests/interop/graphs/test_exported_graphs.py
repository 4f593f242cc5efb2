"""Exported files are read as data: counts are those of the model, and a bad file is one clear error."""

import io
import json
import re
import tracemalloc
import zipfile

import pytest
from onnx_cases import model, node, small, value, weight

from flopcast import job, predict
from flopcast.errors import SpecError
from flopcast.graph.canonical import flop_of
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.interop.graphs.archive import MOST_BYTES, read_archive
from flopcast.interop.graphs.limits import MOST_NODES
from flopcast.interop.graphs.onnx_file import read_onnx
from flopcast.requests.graph_models import AUTOCAST_NOTE
from flopcast.spec.model import Model

FLOP = 2 * 8 * 32 * 32 * 27 + 2 * 8 * 10  # of a sample of the small model
PARAMETERS = 8 * 27 + 8 + 10 * 8 + 10


def sizes(*numbers):
    return [{"as_int": number} for number in numbers]


def tensor(*axes, strides=None):
    """A tensor of a torch.export graph; a text is a symbol."""
    shape = [
        {"as_expr": {"expr_str": f"Symbol('{axis}')", "hint": {"as_int": 2}}}
        if isinstance(axis, str)
        else {"as_int": axis}
        for axis in axes
    ]
    return {"dtype": 7, "sizes": shape, "strides": sizes(*(strides or [1] * len(axes)))}


def call(target, outputs, **arguments):
    """A call; texts are tensors, everything else is a number."""
    kinds = {str: lambda name: {"as_tensor": {"name": name}}, int: lambda number: {"as_int": number}}
    inputs = [{"name": name, "arg": kinds[type(given)](given)} for name, given in arguments.items()]
    return {
        "target": f"torch.ops.{target}",
        "inputs": inputs,
        "outputs": [{"as_tensor": {"name": name}} for name in outputs.split()],
    }


def program(batch="s0"):
    """The same model as `small` of onnx_cases, as torch.export writes it."""
    weights = {"w": (8, 3, 3, 3), "b": (8,), "v": (10, 8), "c": (10,)}
    graph = {
        "inputs": [{"as_tensor": {"name": name}} for name in (*weights, "x")],
        "outputs": [{"as_tensor": {"name": "y"}}],
        "nodes": [
            call("aten.conv2d.default", "h", input="x", weight="w", bias="b"),
            call("aten.relu_.default", "r", self="h"),
            call("aten.mean.dim", "m", self="r"),
            call("aten.linear.default", "y", input="m", weight="v", bias="c"),
        ],
        "tensor_values": {
            **{name: tensor(*shape) for name, shape in weights.items()},
            "x": tensor(batch, 3, 32, 32),
            **dict.fromkeys("hr", tensor(batch, 8, 32, 32)),
            "m": tensor(batch, 8),
            "y": tensor(batch, 10),
        },
    }
    specs = [{"parameter": {"arg": {"name": name}, "parameter_name": name}} for name in weights]
    signature = {"input_specs": [*specs, {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]}
    return {"graph_module": {"graph": graph, "signature": signature}, "torch_version": "2.9"}


def archive(data, name="m/models/model.json"):
    """A .pt2 file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(name, data if isinstance(data, bytes) else json.dumps(data))
        packed.writestr("m/data/weights/weight_0", b"never read")
    return file.getvalue()


READERS = {
    "onnx": (lambda given: read_onnx(small(), "m.onnx", given)),
    "pt2": (lambda given: read_archive(archive(program()), "m.pt2", given)),
}


def test_both_formats_of_a_model_have_its_parameters_and_flop_for_any_batch():
    for name, read in READERS.items():
        for batch in (None, 8):
            graph = read({} if batch is None else {"batch": batch})
            found = Model.model_validate(model_of_graph(graph)[0])

            assert sum(flop_of(graph, each) for each in graph.nodes) == graph.samples * FLOP, name
            assert (found.parameters(), found.forward_flop(1)) == (PARAMETERS, FLOP), name


def test_a_file_is_predicted_like_any_model(tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(small())

    report = predict(job(path, gpus=8, cluster="dgx-a100", plan="dp=8 mbs=4 gbs=32"))
    alone = predict(job(path, gpus=8, cluster="dgx-a100", plan="dp=8 mbs=4 gbs=32", inference=True))

    assert report.metrics.model_flop == 3 * 32 * FLOP
    assert alone.metrics.model_flop == 32 * FLOP
    assert alone.step_time_s < report.step_time_s
    assert alone.memory.allocated_bytes < report.memory.allocated_bytes
    assert job(path, gpus=8, cluster="dgx-a100", plan="gbs=512").plan.micro_batch > 1


def test_a_job_file_states_the_graph_its_sizes_and_autocast_as_the_options_do(tmp_path):
    path, file = tmp_path / "small.onnx", tmp_path / "job.yaml"
    path.write_bytes(small())
    common = "cluster: dgx-a100:1\nplan: dp=8 mbs=4 gbs=32\n"
    plain, mixed = (
        job(
            path, gpus=8, cluster="dgx-a100", plan="dp=8 mbs=4 gbs=32", size={"batch": 8}, autocast=autocast
        )
        for autocast in (False, True)
    )

    for autocast, expected in (("false", plain), ("true", mixed)):
        stated = f"model:\n  graph: {path}\n  sizes: {{batch: 8}}\n  autocast: {autocast}\n"
        file.write_text(stated + common)
        found = job(file)
        assert found.model == expected.model
        assert predict(found).step_time_s == predict(expected).step_time_s
        assert (AUTOCAST_NOTE in found.assumptions) == (autocast == "true")
    assert predict(plain).step_time_s != predict(mixed).step_time_s


def test_wrong_keys_of_a_graph_in_a_job_file_have_their_line_and_what_is_allowed(tmp_path):
    file = tmp_path / "job.yaml"
    wrong = (
        ("graph: small.bin", "model.graph", "ends in .onnx, .pt2 or .sampled.yaml"),
        ("graph: small.onnx\n  autocasts: true", "model.autocasts", "autocast"),
        ("graph: small.onnx\n  autocast: 16 bits", "model.autocast", "true or false"),
        ("graph: small.onnx\n  sizes: {batch: 0}", "model.sizes.batch", "at least 1"),
        ("graph: missing.onnx", "model", "a file that exists"),
    )
    for text, field, allowed in wrong:
        file.write_text(f"model:\n  {text}\ncluster: dgx-a100:1\nplan: dp=8 mbs=4 gbs=32\n")
        with pytest.raises(SpecError) as fault:
            job(file)
        (problem,) = fault.value.problems
        assert problem.field == field
        assert allowed in str(problem)
        assert re.search(r"job\.yaml:\d+$", problem.where)


def test_open_sizes_are_asked_for_by_name_and_given_ones_are_used():
    def read(given):
        nodes = [node("Relu", "x", "y")]
        tensors = [value(name, 4, "length", 16) for name in "xy"]
        return read_onnx(model(nodes, tensors[:1], tensors[1:]), "m.onnx", given)

    with pytest.raises(SpecError, match=r"--size length") as fault:
        read({})
    assert "--size length=NUMBER" in fault.value.problems[0].fix
    assert read({"length": 7}).tensors["y"].shape == (4, 7, 16)
    with pytest.raises(SpecError, match="wide"):
        read({"length": 7, "wide": 3})


def test_sizes_without_an_exported_graph_are_refused():
    with pytest.raises(SpecError, match="only exported graphs have symbolic sizes"):
        job("llama-3-8b", gpus=8, size={"batch": 4})
    with pytest.raises(SpecError, match="remove autocast"):
        job("llama-3-8b", gpus=8, autocast=True)


def test_missing_shapes_are_inferred_from_a_copy_without_weights():
    nodes = [node("Gemm", "x w", "h", transB=1), node("Relu", "h", "y")]
    weights = [weight("w", 300, 8, values=b"\1" * 9600)]
    raw = model(nodes, [value("x", "batch", 8)], [value("y", "batch", 300)], weights)
    seen = []

    def infer(copy):
        seen.append(copy)
        shapes = [value("h", 2, 300)]
        return model(nodes, [value("x", 2, 8)], [value("y", 2, 300)], [weight("w", 300, 8)], shapes)

    graph = read_onnx(raw, "m.onnx", {}, infer)

    assert len(seen[0]) < 1000 < len(raw)
    assert graph.tensors["h"].shape == (2, 300)
    assert sum(flop_of(graph, each) for each in graph.nodes) == 2 * 2 * 300 * 8
    assert read_onnx(raw, "m.onnx", {}).tensors == graph.tensors  # as the onnx package infers them


def test_damaged_and_hostile_files_are_one_clear_error():
    whole = archive(program())
    cyclic = program()
    cyclic["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {"as_tensor": {"name": "y"}}
    bomb = archive(b" " * (MOST_BYTES + 1))
    cases = {
        "truncated archive": (read_archive, whole[: len(whole) // 2], "not a complete zip"),
        "no graph": (read_archive, archive(b"{}", "m/other.json"), "no entry"),
        "not JSON": (read_archive, archive(b"nonsense"), "not JSON"),
        "other JSON": (read_archive, archive({"graph_module": {}}), "lacks a field"),
        "zip bomb": (read_archive, bomb, "too large"),
        "cycle": (read_archive, archive(cyclic), "wait for each other"),
        "truncated ONNX": (read_onnx, small()[:-200], "ends inside"),
        "empty": (read_onnx, b"", "contains no graph"),
        "text": (read_onnx, b"#!/bin/sh\nrm -rf x\n", "cannot be read"),
        "newer opset": (read_onnx, small(opset=99), "opset"),
    }
    for name, (read, raw, message) in cases.items():
        with pytest.raises(SpecError, match=message) as fault:
            read(raw, "m", {})
        assert len(fault.value.problems) == 1, name


def test_too_many_operators_are_refused_before_any_of_them_is_kept():
    raw = model([node("Relu", "x", "y")] * (MOST_NODES + 1), [value("x", 1)], [value("y", 1)])
    tracemalloc.start()

    with pytest.raises(SpecError, match=f"at most {MOST_NODES} operators"):
        read_onnx(raw, "m.onnx", {})

    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_unknown_operators_are_listed_and_priced_by_their_bytes():
    nodes = [node("Mystery", "x", "y")]
    raw = model(nodes, [value("x", 2, 64)], [value("y", 2, 64)])

    mapping, notes = model_of_graph(read_onnx(raw, "m.onnx", {}))

    (operator,) = mapping["blocks"][0]["mixer"]["operators"]
    assert (operator["family"], operator["moved"]) == ("unknown", {"sequences": 128})
    assert any("onnx.Mystery" in note for note in notes)
