"""Archives of `torch.export`: the graph in a .pt2 file, read as data.

Answers: which operator graph does a .pt2 file hold, for the sizes that a user states?
Elsewhere: the operators of ATen (aten.py), sizes with names (symbols.py), the insertion of subgraphs
(inlined.py).

A .pt2 file is a zip archive. Only its graph is read, which is JSON (torch/_export/serde/schema.py). No
code runs, no pickle is loaded, and the weights are never opened. The graph is limited to MOST_BYTES,
before and after it is unpacked.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from io import BytesIO
from pathlib import Path
from typing import Any

from flopcast.errors import SpecError, shown, spec_error
from flopcast.graph.operator_graph import GraphNode, GraphTensor, OperatorGraph, Shape, checked
from flopcast.interop.graphs.aten import MAY_COPY, WITHOUT_DATA, Call, translate
from flopcast.interop.graphs.copies import copied_inputs
from flopcast.interop.graphs.inlined import CallData, inlined
from flopcast.interop.graphs.limits import MOST_NODES, too_many_nodes
from flopcast.interop.graphs.strides import is_view, order_of
from flopcast.interop.graphs.symbols import BATCH, Symbols
from flopcast.records import replace

Data = Mapping[str, Any]
MOST_BYTES = 128 * 1024**2
GRAPHS = ("models/model.json", "serialized_exported_program.json")  # by the end of their path; newer first
DTYPES = {  # numbers of torch._export.serde.schema.ScalarType
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "fp16", "fp32", "fp64"), start=1)),
    **{9: "fp32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bf16", 28: "uint16"},
    **dict.fromkeys((29, 30, 31, 32), "fp8"),
}
ATTENTION = ("attention",)  # one kernel
INPUT_KINDS = {"parameter": True, "buffer": False, "tensor_constant": False}  # → whether it is trained


def read_archive(source: Path | bytes, name: str, sizes: Mapping[str, int]) -> OperatorGraph:
    """Return the graph of a .pt2 archive.

    Parameters
    ----------
    source : path of the file, or its bytes
    name : name of the file in errors
    sizes : sizes of axes that the file leaves open, by name

    Raises
    ------
    SpecError
        The archive is damaged or too large, its graph has another format, or a size is missing.
    """
    program = _program(source, name)
    try:
        return _graph(program, name, sizes)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        because = f"the graph lacks a field that flopcast needs ({type(error).__name__}: {error})"
        raise _damaged(name, because) from None


def _program(source: Path | bytes, name: str) -> Data:
    """Return the JSON document of the graph."""
    try:
        with zipfile.ZipFile(BytesIO(source) if isinstance(source, bytes) else source) as archive:
            files = archive.infolist()
            entries = [entry for end in GRAPHS for entry in files if entry.filename.endswith(end)]
            if not entries:
                raise _damaged(name, f"no entry of the archive ends with {' or '.join(GRAPHS)}")
            if entries[0].file_size > MOST_BYTES:
                raise _too_large(name, entries[0].file_size)
            with archive.open(entries[0]) as stream:
                text = stream.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        because = f"the file is not a complete zip archive: {error}"
        raise _damaged(name, because, "give a .onnx or .pt2 file, or export the model again") from None
    if len(text) > MOST_BYTES:
        raise _too_large(name, len(text))
    try:
        program = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"the graph in the file is not JSON: {error}") from None
    if not isinstance(program, dict):
        raise _damaged(name, "the graph in the file is not a JSON object")
    return program


def _damaged(name: str, because: str, fix: str = "export the model again") -> SpecError:
    allowed, fault = "an archive that torch.export.save wrote", f"{shown(name)} cannot be read"
    return spec_error("model", name, allowed, because, fix, fault=fault)


def _too_large(name: str, size_bytes: int) -> SpecError:
    allowed = f"a graph of at most {MOST_BYTES // 1024**2} MiB"
    because = f"the graph of the file has {size_bytes} bytes"
    fix = "export a single layer, if the layers of the model are equal"
    return spec_error("model", name, allowed, because, fix, fault="is too large")


def _graph(program: Data, name: str, sizes: Mapping[str, int]) -> OperatorGraph:
    module = program["graph_module"]
    if len(module["graph"]["nodes"]) > MOST_NODES:
        raise too_many_nodes(name, len(module["graph"]["nodes"]))
    values, calls, outputs = inlined(module["graph"])
    parameters = _parameters(module["signature"], values)
    given = [n for each in module["graph"]["inputs"] if (n := _name(each)) and n not in parameters]
    symbols = Symbols(given=_with_batch(values, given, sizes))
    tensors = {key: _tensor(key, value, symbols, parameters) for key, value in values.items()}
    symbols.require(name)
    views = {key: _strides(value, symbols) for key, value in values.items()}
    nodes = tuple(_nodes(calls, tensors, views))
    results = tuple(n for n in outputs if n in tensors and not tensors[n].is_parameter)
    return checked(
        OperatorGraph(
            name=Path(name).stem,
            tensors=tensors,
            nodes=nodes,
            inputs=tuple(given),
            outputs=results,
            samples=_samples(given, tensors, sizes),
            notes=(
                f"graph: read from a torch.export archive of PyTorch {program.get('torch_version', '?')}",
            ),
        )
    )


def _parameters(signature: Data, values: Data) -> dict[str, bool]:
    """Return the names of weights and buffers in the graph, and whether each is trained."""
    found: dict[str, bool] = {}
    for spec in signature["input_specs"]:
        for kind, trained in INPUT_KINDS.items():
            if kind in spec and (name := spec[kind]["arg"].get("name")):
                found[name] = trained and bool(values.get(name, {}).get("requires_grad", True))
    return found


def _name(argument: Data) -> str:
    """Return the name of a tensor argument; "" for any other."""
    tensor = argument.get("as_tensor")
    return str(tensor["name"]) if isinstance(tensor, dict) else ""


def _with_batch(values: Data, inputs: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes with a value for the batch's name: the open first axis of all inputs."""
    given = {key: number for key, number in sizes.items() if key != BATCH}
    first = [values[key]["sizes"][0] for key in inputs if key in values and values[key]["sizes"]]
    names = {each["as_expr"]["expr_str"] for each in first if "as_expr" in each}
    if len(names) == 1 and (text := names.pop()).startswith("Symbol('"):
        hint = next(each["as_expr"].get("hint") for each in first if "as_expr" in each) or {}
        given.setdefault(text.split("'")[1], sizes.get(BATCH, int(hint.get("as_int") or 2)))
    return given


def _samples(inputs: Sequence[str], tensors: Mapping[str, GraphTensor], sizes: Mapping[str, int]) -> int:
    """Return the samples in the example batch: the stated number, or the first axis of the first input."""
    shapes = [tensors[name].shape for name in inputs if name in tensors and tensors[name].shape]
    return sizes.get(BATCH) or (shapes[0][0] if shapes else 1) or 1


def _tensor(name: str, value: Data, symbols: Symbols, parameters: Mapping[str, bool]) -> GraphTensor:
    places = enumerate(value["sizes"])
    shape = tuple(_size(size, symbols, f"axis {axis} of {name}") for axis, size in places)
    return GraphTensor(
        name=name,
        shape=shape,
        dtype=DTYPES.get(value["dtype"], "fp32"),
        is_parameter=name in parameters,
        is_trained=parameters.get(name, False),
        order=order_of(shape, _strides(value, symbols)),
    )


def _size(size: Data, symbols: Symbols, where: str) -> int:
    return int(size["as_int"]) if "as_int" in size else symbols.of(str(size["as_expr"]["expr_str"]), where)


def _strides(value: Data, symbols: Symbols) -> tuple[int, ...]:
    return tuple(_size(each, symbols, "a stride") for each in value["strides"])


def _nodes(
    calls: Sequence[CallData], tensors: dict[str, GraphTensor], strides: Mapping[str, tuple[int, ...]]
) -> Iterator[GraphNode]:
    """Yield the operators of the graph, and the copies that they make of inputs.

    An attention kernel may write the heads of a token next to each other, so that they are joined without
    a copy. The strides of an export on the device "meta" do not show that.
    """
    of_attention = set[str]()
    for call in calls:
        node = _node(call, tensors, strides, of_attention)
        if node is None:
            continue
        for place, shape in _copied(node, tensors, strides, of_attention):
            copied = f"{node.name}.copy{place}"
            tensors[copied] = replace(tensors[node.inputs[place]], name=copied, shape=shape)
            yield GraphNode(name=copied, operator="copy", inputs=(node.inputs[place],), outputs=(copied,))
            inputs = (*node.inputs[:place], copied, *node.inputs[place + 1 :])
            node = replace(node, inputs=inputs)
        if _joins_heads(node, strides) or (
            node.operator == "view"
            and node.inputs[0] in of_attention
            and (_base(call) not in MAY_COPY or tensors[node.inputs[0]].shape == tensors[node.name].shape)
        ):
            of_attention.update(node.outputs)
        yield node


def _joins_heads(node: GraphNode, strides: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether attention writes the heads of a token next to each other.

    The kernel with a mask always does so. The kernel without a mask uses the memory order of the queries
    (PyTorch: empty_like of the queries).
    """
    if node.operator not in ATTENTION:
        return False
    of_query = strides.get(node.inputs[0], ())
    return len(node.inputs) > 3 or len(of_query) < 4 or of_query[-2] > of_query[-3]


def _base(call: CallData) -> str:
    """Return the name of the operator without its library and overload."""
    return call.target.removeprefix("torch.ops.").partition(".")[2].partition(".")[0]


def _is_view(
    base: str, before: GraphTensor, after: GraphTensor, strides: Mapping[str, tuple[int, ...]]
) -> bool:
    """Return whether a call can return memory of its input."""
    if base == "contiguous":
        return is_view(before.shape, strides[before.name], (before.elements,))
    return is_view(before.shape, strides[before.name], after.shape)


def _copied(
    node: GraphNode,
    tensors: Mapping[str, GraphTensor],
    strides: Mapping[str, tuple[int, ...]],
    of_attention: Set[str],
) -> list[tuple[int, Shape]]:
    """Return the inputs that an operator copies. Weights, and results of attention, are never copied."""
    names = [name for name in node.inputs[:2] if name]
    shapes, steps = [tensors[name].shape for name in names], [strides[name] for name in names]
    kept = {name for name in names if tensors[name].is_parameter or name in of_attention}
    equation = str(node.attributes.get("equation", ""))
    found = copied_inputs(node.operator, shapes, steps, equation)
    return [(place, shape) for place, shape in found if names[place] not in kept]


def _node(
    call: CallData,
    tensors: Mapping[str, GraphTensor],
    strides: Mapping[str, tuple[int, ...]],
    of_attention: Set[str],
) -> GraphNode | None:
    """Return a call as an operator of the graph, or None if it has no tensors."""
    library, base = call.target.removeprefix("torch.ops.").partition(".")[0], _base(call)
    results = tuple(tensors[name] for name in call.outputs if name in tensors)
    if not results or base in WITHOUT_DATA:
        return None
    read = tuple(tensors[name] for names in call.tensors.values() for name in names if name in tensors)
    by_strides = not read or read[0].name in of_attention or _is_view(base, read[0], results[0], strides)
    made = translate(
        Call(
            name=f"{library}.{base}",
            tensors=read,
            results=results,
            arguments=call.arguments,
            is_view_by_strides=by_strides,
        )
    )
    return GraphNode(
        name=call.outputs[0],
        operator=made.operator,
        inputs=made.inputs,
        outputs=tuple(tensor.name for tensor in results),
        attributes=made.attributes,
    )
