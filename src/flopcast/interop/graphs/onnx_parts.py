"""The parts of an ONNX file: operators, weights and shapes.

Answers: which nodes, weights, inputs and outputs does the graph of a file have?
Elsewhere: the wire format (protobuf.py), the operator graph that the parts form (onnx_file.py).

Values of weights are skipped. The whole numbers of small constants are kept, because they state sizes.
"""

from collections.abc import Iterator
from pathlib import Path

from flopcast.graph.operator_graph import Attribute
from flopcast.interop.graphs.limits import MOST_AXES, MOST_NODES, too_many_nodes
from flopcast.interop.graphs.onnx_operators import OnnxCall, canonical_name
from flopcast.interop.graphs.protobuf import Message, signed
from flopcast.records import dataclass, field, replace

# numbers of fields, from onnx.proto of onnx/onnx
PRODUCER, GRAPH, OPSETS, FUNCTIONS = 2, 7, 8, 25  # of a model
NODES, NAME, WEIGHTS, INPUTS, OUTPUTS, SHAPES, SPARSE = 1, 2, 5, 11, 12, 13, 15  # of a graph
FUNCTION_NAME = 1  # of a function
READS, WRITES, NODE_NAME, OPERATOR, ATTRIBUTES, DOMAIN = 1, 2, 3, 4, 5, 7  # of a node
SUBGRAPHS = (6, 11)  # of an attribute
SIZES, DTYPE, WEIGHT_NAME = 1, 2, 8  # of a weight
SPARSE_VALUES, SPARSE_SIZES = 1, 3  # of a sparse weight
DTYPES = {
    **dict(enumerate(("fp32", "uint8", "int8", "uint16", "int16", "int32", "int64", "uint8", "bool"), 1)),
    **{10: "fp16", 11: "fp64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bf16"},
    **dict.fromkeys((17, 18, 19, 20), "fp8"),
    **{21: "uint4", 22: "int4", 23: "fp4"},
}


PRODUCTS = ("matmul", "linear", "einsum", "convolution", "transposed_convolution", "recurrent", "attention")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Parts:
    """The parts of a graph as the file states them."""

    name: str = "model"
    calls: list[tuple[str, OnnxCall, tuple[str, ...]]] = field(default_factory=list)  # with name, outputs
    functions: set[str] = field(default_factory=set)  # names of operators that the file itself defines
    weights: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[int | str, ...], str]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def parts_of(model: Message, name: str) -> tuple[Parts, dict[str, int], str]:
    """Return the graph of a model, the versions of its operator sets, and the program that wrote it."""
    parts, opsets, producer, functions = None, dict[str, int](), "", set[str]()
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
        elif number == FUNCTIONS and isinstance(value, Message):
            names = (content for n, content in value.fields() if n == FUNCTION_NAME)
            functions |= {content.text() for content in names if isinstance(content, Message)}
    if parts is None or not opsets:
        missing = "graph" if parts is None else "operator set"
        raise ValueError(f"the file contains no {missing}, which every ONNX model has")
    return replace(parts, functions=functions), opsets, producer


def _parts(graph: Message, name: str) -> Parts:
    parts, title = Parts(), ""
    count = sum(1 for number, _ in graph.fields() if number == NODES)
    if count > MOST_NODES:
        raise too_many_nodes(name, count)
    for number, value in graph.fields():
        if not isinstance(value, Message):
            continue
        if number == NODES:
            parts.calls.append(call_of(value))
        elif number == WEIGHTS:
            weight, shape, dtype = _weight(value)
            parts.weights[weight] = (shape, dtype)
        elif number in (INPUTS, OUTPUTS, SHAPES):
            tensor, axes, dtype = _value(value)
            if axes is not None:
                parts.shapes[tensor] = (axes, dtype)
            elif number == INPUTS:
                raise ValueError(f"the input {tensor!r} has no shape")
            if number != SHAPES:
                (parts.inputs if number == INPUTS else parts.outputs).append(tensor)
        elif number == SPARSE:
            weight, shape, dtype = sparse_weight(value)
            parts.weights[weight] = (shape, dtype)
        elif number == NAME:
            title = value.text()
    return replace(parts, name=title or Path(name).stem)


def call_of(node: Message) -> tuple[str, OnnxCall, tuple[str, ...]]:
    """Return the name of a node, its operator with inputs and attributes, and its outputs."""
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
    call = OnnxCall(operator=operator, domain=domain, inputs=tuple(reads), attributes=attributes)
    return name, call, tuple(writes)


def _attribute(attribute: Message) -> Iterator[tuple[str, Attribute]]:
    """Yield an attribute: a tensor becomes its shape, and a subgraph its number of products."""
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
        elif number in SUBGRAPHS and isinstance(value, Message) and (products := _products(value)):
            yield "subgraph_products", products
    if content:
        yield name, content[0]
    elif numbers:
        yield name, tuple(map(signed, numbers[:1000]))


def _products(graph: Message) -> int:
    """Return the number of products in a subgraph, and in the subgraphs of its operators."""
    count = 0
    for number, value in graph.fields():
        if number == NODES and isinstance(value, Message):
            _, call, _ = call_of(value)
            count += canonical_name(call) in PRODUCTS
            nested = call.attributes.get("subgraph_products", 0)
            count += nested if isinstance(nested, int) else 0
    return count


def sparse_weight(tensor: Message) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and dtype of a sparse weight, of which every element counts."""
    name, dtype, shape = "", "fp32", list[int]()
    for number, value in tensor.fields():
        if number == SPARSE_VALUES and isinstance(value, Message):
            name, _, dtype = _weight(value)
        elif number == SPARSE_SIZES:
            shape += value.numbers() if isinstance(value, Message) else [value]
    return name, tuple(shape), dtype


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


def _value(value: Message) -> tuple[str, tuple[int | str, ...] | None, str]:
    """Return the name, axes and dtype of a tensor; an axis without size and name is named after its
    position.

    A tensor without shape has no axes (None); a sequence or a map has the axes ().
    """
    name, axes, dtype = "", None, 1
    for number, part in value.fields():
        if not isinstance(part, Message):
            continue
        if number == 1:
            name = part.text()
            continue
        for kind, tensor in part.fields() if number == 2 else ():
            if kind != 1 or not isinstance(tensor, Message):
                axes = []  # a sequence or a map
                continue
            for inner, content in tensor.fields():
                if inner == 1 and isinstance(content, int):
                    dtype = content
                elif inner == 2 and isinstance(content, Message):
                    axes = [_axis(axis) for n, axis in content.fields() if n == 1]
    dtype_name = DTYPES.get(dtype, "fp32")
    if axes is None:
        return name, None, dtype_name
    named = (f"{name}.{place}" if axis == "?" else axis for place, axis in enumerate(axes[:MOST_AXES]))
    return name, tuple(named), dtype_name


def _axis(axis: "int | Message") -> int | str:
    if isinstance(axis, Message):
        for number, value in axis.fields():
            if number == 1 and isinstance(value, int):
                return value
            if number == 2 and isinstance(value, Message):
                return value.text()
    return "?"
