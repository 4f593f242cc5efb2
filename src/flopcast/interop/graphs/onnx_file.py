"""ONNX files: the graph of a model, read as data.

Answers: which operator graph does an ONNX file hold, for the sizes that a user states?
Elsewhere: the wire format (protobuf.py), the operators (onnx_operators.py), sizes with names (symbols.py).

No code runs. Values of weights are skipped, whether they stand in the file or in another one, which is
never opened. The shape of every tensor must be in the file, as exporters of PyTorch write it.
"""

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.inputs import opened
from flopcast.graph.operator_graph import FLOATS, Attribute, GraphNode, GraphTensor, OperatorGraph, checked
from flopcast.interop.graphs.limits import MOST_AXES, MOST_NODES, too_many_nodes
from flopcast.interop.graphs.onnx_operators import (
    CONSTANTS,
    DOMAINS,
    NEWEST_OPSET,
    OnnxCall,
    inputs_without_gradient,
    translate,
)
from flopcast.interop.graphs.onnx_shapes import Infer, with_onnx, without_weights
from flopcast.interop.graphs.protobuf import Message, signed
from flopcast.interop.graphs.symbols import BATCH, Symbols
from flopcast.records import dataclass, field, replace

# numbers of fields, from onnx.proto of onnx/onnx
PRODUCER, GRAPH, OPSETS = 2, 7, 8  # of a model
NODES, NAME, WEIGHTS, INPUTS, OUTPUTS, SHAPES = 1, 2, 5, 11, 12, 13  # of a graph
READS, WRITES, NODE_NAME, OPERATOR, ATTRIBUTES, DOMAIN = 1, 2, 3, 4, 5, 7  # of a node
SIZES, DTYPE, WEIGHT_NAME = 1, 2, 8  # of a weight
DTYPES = {
    **dict(enumerate(("fp32", "uint8", "int8", "uint16", "int16", "int32", "int64", "uint8", "bool"), 1)),
    **{10: "fp16", 11: "fp64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bf16"},
    **dict.fromkeys((17, 18, 19, 20), "fp8"),
    **{21: "uint4", 22: "int4", 23: "fp4"},
}
Sized = tuple[str, tuple[int | str, ...], str]  # name, axes and dtype of a tensor


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Parts:
    """The parts of a graph as the file has them."""

    name: str = "model"
    calls: list[tuple[str, OnnxCall, tuple[str, ...]]] = field(default_factory=list)  # with name, outputs
    weights: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[int | str, ...], str]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def read_onnx(
    source: Path | bytes, name: str, sizes: Mapping[str, int], infer: Infer | None = None
) -> OperatorGraph:
    """Return the graph of an ONNX file.

    Parameters
    ----------
    source : path of the file, or its bytes
    name : name of the file in errors
    sizes : sizes of axes that the file leaves open, by name
    infer : adds missing shapes to a model without weights; by default, the onnx package does

    Raises
    ------
    SpecError
        The file is damaged or too large, has an unknown opset, lacks a shape, or a size is missing.
    """
    if isinstance(source, bytes):
        return _read(memoryview(source), name, sizes, infer)
    with opened(Path(source)) as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError) as error:  # an empty file
            raise _damaged(name, str(error)) from None
        with mapped, memoryview(mapped) as buffer:
            return _read(buffer, name, sizes, infer)


def _damaged(name: str, because: str) -> SpecError:
    allowed, fix = "a whole ONNX file", "export the model again, or copy the whole file"
    return spec_error("model", name, allowed, because, fix, fault="cannot be read")


def _read(buffer: memoryview, name: str, sizes: Mapping[str, int], infer: Infer | None) -> OperatorGraph:
    model = Message(buffer=buffer, end=len(buffer))
    try:
        parts, opsets, producer = _model(model, name)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        if isinstance(error, SpecError):
            raise
        raise _damaged(name, str(error)) from None
    if problems := list(_unknown_opsets(opsets, name)):
        raise SpecError(problems)
    if (missing := _without_shape(parts)) is not None:
        given = _with_batch(parts, _given(parts), sizes)
        inferred = (infer or with_onnx(name, missing))(without_weights(model, given))
        parts, _, _ = _model(Message(buffer=memoryview(inferred), end=len(inferred)), name)
    return _graph(parts, name, sizes, producer)


def _given(parts: _Parts) -> list[str]:
    """Return the inputs of the graph that are no weights."""
    return [tensor for tensor in parts.inputs if tensor not in parts.weights]


def _without_shape(parts: _Parts) -> str | None:
    """Return the first result of an operator that has no shape, or none that follows from the inputs'."""
    names = {axis for tensor in parts.inputs for axis in parts.shapes[tensor][0] if isinstance(axis, str)}
    for _, call, outputs in parts.calls:
        for output in outputs if call.operator not in CONSTANTS else ():
            axes = parts.shapes.get(output, (("?",), ""))[0]
            unnamed = (f"{output}.{place}" for place, axis in enumerate(axes) if axis not in names)
            if output and ("?" in axes or any(name in axes for name in unnamed)):
                return output
    return None


def _model(model: Message, name: str) -> tuple[_Parts, dict[str, int], str]:
    """Return the graph of a model, the versions of its operator sets, and the program that wrote it."""
    parts, opsets, producer = None, dict[str, int](), ""
    for number, value in model.fields():
        if number == GRAPH and isinstance(value, Message):
            parts = _parts(value, name)
        elif number == OPSETS and isinstance(value, Message):
            domain, version = "", 0
            for inner, content in value.fields():
                domain = content.text() if inner == 1 and isinstance(content, Message) else domain
                version = content if inner == 2 and isinstance(content, int) else version
            opsets[domain] = version
        elif number == PRODUCER and isinstance(value, Message):
            producer = value.text()
    if parts is None or not opsets:
        missing = "graph" if parts is None else "operator set"
        raise ValueError(f"the file contains no {missing}, which every ONNX model has")
    return parts, opsets, producer


def _unknown_opsets(opsets: Mapping[str, int], name: str) -> Iterator[Problem]:
    for domain, version in opsets.items():
        if domain in ("", "ai.onnx") and not 0 < version <= NEWEST_OPSET:
            allowed = f"an opset of 1 to {NEWEST_OPSET}"
            because = "operators may have a different meaning in other versions"
            fix = f"export the model with opset_version={NEWEST_OPSET - 6}"
            yield Problem("model.opset_import", version, allowed, because, fix, name)


def _parts(graph: Message, name: str) -> _Parts:
    parts, title = _Parts(), ""
    count = sum(1 for number, _ in graph.fields() if number == NODES)
    if count > MOST_NODES:
        raise too_many_nodes(name, count)
    for number, value in graph.fields():
        if not isinstance(value, Message):
            continue
        if number == NODES:
            parts.calls.append(_call(value))
        elif number == WEIGHTS:
            weight, shape, dtype = _weight(value)
            parts.weights[weight] = (shape, dtype)
        elif number in (INPUTS, OUTPUTS, SHAPES):
            tensor, axes, dtype = _value(value)
            parts.shapes[tensor] = (axes, dtype)
            if number != SHAPES:
                (parts.inputs if number == INPUTS else parts.outputs).append(tensor)
        elif number == NAME:
            title = value.text()
    return replace(parts, name=title or Path(name).stem)


def _call(node: Message) -> tuple[str, OnnxCall, tuple[str, ...]]:
    reads, writes, name, operator, domain = list[str](), list[str](), "", "", ""
    attributes = dict[str, Attribute]()
    for number, value in node.fields():
        if not isinstance(value, Message):
            continue
        if number == READS:
            reads.append(value.text())
        elif number == WRITES:
            writes.append(value.text())
        elif number == OPERATOR:
            operator = value.text()
        elif number == ATTRIBUTES:
            attributes.update(_attribute(value))
        elif number == NODE_NAME:
            name = value.text()
        elif number == DOMAIN:
            domain = value.text()
    domain = "" if domain in DOMAINS else domain
    call = OnnxCall(operator=operator, domain=domain, inputs=tuple(reads), attributes=attributes)
    return name, call, tuple(writes)


def _attribute(attribute: Message) -> Iterator[tuple[str, Attribute]]:
    """Yield an attribute that is a whole number, a text or whole numbers; of a tensor its shape."""
    name, content = "", list[Attribute]()
    numbers = list[int]()
    for number, value in attribute.fields():
        if number == 1 and isinstance(value, Message):
            name = value.text()
        elif number == 3 and isinstance(value, int):
            content.append(signed(value))
        elif number == 4 and isinstance(value, Message) and value.end - value.start < 1000:
            content.append(value.text())
        elif number == 8:
            numbers += value.numbers() if isinstance(value, Message) else [value]
        elif number == 5 and isinstance(value, Message):
            _, shape, dtype = _weight(value)
            content.append(shape)
            yield "dtype", dtype
    if content:
        yield name, content[0]
    elif numbers:
        yield name, tuple(map(signed, numbers[:1000]))


def _weight(tensor: Message) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and dtype of a weight; its values are skipped."""
    name, shape, dtype = "", list[int](), 1
    for number, value in tensor.fields():
        if number == SIZES:
            shape += value.numbers() if isinstance(value, Message) else [value]
        elif number == DTYPE and isinstance(value, int):
            dtype = value
        elif number == WEIGHT_NAME and isinstance(value, Message):
            name = value.text()
    if len(shape) > MOST_AXES or any(signed(size) < 0 for size in shape):
        raise ValueError(f"weight {name!r} has an impossible shape")
    return name, tuple(shape), DTYPES.get(dtype, "fp32")


def _value(value: Message) -> Sized:
    """Return name, axes and dtype of a tensor; an axis without size and name is called after its place."""
    name, axes, dtype = "", list[int | str](), 1
    for number, part in value.fields():
        if not isinstance(part, Message):
            continue
        if number == 1:
            name = part.text()
            continue
        for kind, tensor in part.fields() if number == 2 else ():
            if kind != 1 or not isinstance(tensor, Message):
                continue  # a sequence or a map
            for inner, content in tensor.fields():
                if inner == 1 and isinstance(content, int):
                    dtype = content
                elif inner == 2 and isinstance(content, Message):
                    axes = [_axis(axis) for n, axis in content.fields() if n == 1]
    named = (f"{name}.{place}" if axis == "?" else axis for place, axis in enumerate(axes[:MOST_AXES]))
    return name, tuple(named), DTYPES.get(dtype, "fp32")


def _axis(axis: "int | Message") -> int | str:
    if isinstance(axis, Message):
        for number, value in axis.fields():
            if number == 1 and isinstance(value, int):
                return value
            if number == 2 and isinstance(value, Message):
                return value.text()
    return "?"


def _graph(parts: _Parts, name: str, sizes: Mapping[str, int], producer: str) -> OperatorGraph:
    given = _given(parts)
    symbols = Symbols(given=_with_batch(parts, given, sizes))
    tensors = {
        tensor: GraphTensor(name=tensor, shape=_shape(axes, symbols, tensor), dtype=dtype)
        for tensor, (axes, dtype) in parts.shapes.items()
    }
    symbols.require(name)
    frozen = {
        call.inputs[place]
        for _, call, _ in parts.calls
        for place in inputs_without_gradient(call.operator)
        if place < len(call.inputs)
    }
    for weight, (shape, dtype) in parts.weights.items():
        trained = dtype in FLOATS and bool(shape) and weight not in frozen
        tensors[weight] = GraphTensor(
            name=weight, shape=shape, dtype=dtype, is_parameter=True, is_trained=trained
        )
    nodes = tuple(_nodes(parts, tensors, name))
    first = tensors[given[0]].shape if given else ()
    samples = sizes.get(BATCH) or (first[0] if first else 1) or 1
    return checked(
        OperatorGraph(
            name=parts.name if len(parts.name) < 80 else Path(name).stem,
            tensors=tensors,
            nodes=nodes,
            inputs=tuple(given),
            outputs=tuple(tensor for tensor in parts.outputs if tensor not in parts.weights),
            samples=samples,
            notes=(f"graph: read from an ONNX file that {producer or 'an unnamed program'} wrote",),
        )
    )


def _with_batch(parts: _Parts, inputs: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes with a value for the name of the batch: the first axis of all inputs that leave it
    open.
    """
    given = dict(sizes)
    first = [parts.shapes[name][0][0] for name in inputs if parts.shapes[name][0]]
    names = {axis for axis in first if isinstance(axis, str)}
    if len(names) == 1:
        given.setdefault(names.pop(), sizes.get(BATCH, 2))
    return given


def _shape(axes: tuple[int | str, ...], symbols: Symbols, tensor: str) -> tuple[int, ...]:
    return tuple(
        axis if isinstance(axis, int) else symbols.named(axis, f"axis {place} of {tensor}")
        for place, axis in enumerate(axes)
    )


def _nodes(parts: _Parts, tensors: dict[str, GraphTensor], file: str) -> Iterator[GraphNode]:
    """Yield the operators of a graph; adds the tensors of constants to `tensors`."""
    missing = list[str]()
    for place, (name, call, outputs) in enumerate(parts.calls):
        if call.operator in CONSTANTS:
            shape = next((v for v in call.attributes.values() if isinstance(v, tuple)), ())
            dtype = str(call.attributes.get("dtype", "int64"))
            for output in outputs:
                tensors[output] = GraphTensor(name=output, shape=shape, dtype=dtype, is_parameter=True)
            continue
        missing += [output for output in outputs if output and output not in tensors]
        if missing:
            continue
        operator, inputs, attributes = translate(call)
        yield GraphNode(
            name=name or f"{call.operator}.{place}",
            operator=operator,
            inputs=inputs,
            outputs=outputs,
            attributes=attributes,
        )
    if missing:
        allowed = "an ONNX file that contains the shape of every tensor"
        because = f"the file lacks the shapes of {len(missing)} tensors, such as {missing[0]!r}"
        fix = "run onnx.shape_inference.infer_shapes_path(FILE, NEW), which is part of the onnx package"
        raise spec_error("model.value_info", missing[0], allowed, because, fix, file, "has no shape")
