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
from flopcast.records import Record, field, replace

# numbers of fields, from onnx.proto of onnx/onnx
PRODUCER, GRAPH, OPSETS, FUNCTIONS = 2, 7, 8, 25  # of a model
NODES, NAME, WEIGHTS, INPUTS, OUTPUTS, SHAPES, SPARSE = 1, 2, 5, 11, 12, 13, 15  # of a graph
OPSET_DOMAIN, OPSET_VERSION, FUNCTION_NAME = 1, 2, 1  # of an operator set and of a function
READS, WRITES, NODE_NAME, OPERATOR, ATTRIBUTES, DOMAIN = 1, 2, 3, 4, 5, 7  # of a node
ATTRIBUTE_NAME, INTEGER, TEXT, TENSOR, INTEGERS, SUBGRAPHS = 1, 3, 4, 5, 8, (6, 11)  # of an attribute
VALUE_NAME, VALUE_TYPE, TENSOR_TYPE = 1, 2, 1  # of a value and of its type
ELEMENT_TYPE, TENSOR_SHAPE, AXES, AXIS_SIZE, AXIS_NAME = 1, 2, 1, 1, 2  # of the type of a tensor
MOST_CHARACTERS, MOST_INTEGERS = 1000, 1000  # of an attribute
SIZES, DTYPE, WEIGHT_NAME = 1, 2, 8  # of a weight
SPARSE_VALUES, SPARSE_SIZES = 1, 3  # of a sparse weight
DTYPES = {
    **dict(enumerate(("fp32", "uint8", "int8", "uint16", "int16", "int32", "int64", "uint8", "bool"), 1)),
    **{10: "fp16", 11: "fp64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bf16"},
    **dict.fromkeys((17, 18, 19, 20), "fp8"),
    **{21: "uint4", 22: "int4", 23: "fp4"},
}


PRODUCTS = ("matmul", "linear", "einsum", "convolution", "transposed_convolution", "recurrent", "attention")


class Parts(Record, eq=False):
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
    whole = model.grouped()
    graphs, opsets = whole.messages(GRAPH), [each.grouped() for each in whole.messages(OPSETS)]
    if not graphs or not opsets:
        missing = "operator set" if graphs else "graph"
        raise ValueError(f"the file contains no {missing}, which every ONNX model has")
    functions = (each.grouped().texts(FUNCTION_NAME) for each in whole.messages(FUNCTIONS))
    parts = replace(_parts(graphs[-1], name), functions={each for names in functions for each in names})
    versions = {each.text(OPSET_DOMAIN): each.integer(OPSET_VERSION, 0) for each in opsets}
    return parts, versions, whole.text(PRODUCER)


def _parts(graph: Message, name: str) -> Parts:
    count = sum(1 for number, _ in graph.fields() if number == NODES)
    if count > MOST_NODES:  # before any of them is kept
        raise too_many_nodes(name, count)
    whole = graph.grouped()
    values = {number: list(map(_value, whole.messages(number))) for number in (INPUTS, OUTPUTS, SHAPES)}
    for tensor, axes, _ in values[INPUTS]:
        if axes is None:
            raise ValueError(f"the input {tensor!r} has no shape")
    weights = [*map(_weight, whole.messages(WEIGHTS)), *map(sparse_weight, whole.messages(SPARSE))]
    return Parts(
        name=whole.text(NAME) or Path(name).stem,
        calls=list(map(call_of, whole.messages(NODES))),
        weights={weight: (shape, dtype) for weight, shape, dtype in weights},
        shapes={
            tensor: (axes, dtype)
            for listed in values.values()
            for tensor, axes, dtype in listed
            if axes is not None
        },
        inputs=[tensor for tensor, *_ in values[INPUTS]],
        outputs=[tensor for tensor, *_ in values[OUTPUTS]],
    )


def call_of(node: Message) -> tuple[str, OnnxCall, tuple[str, ...]]:
    """Return the name of a node, its operator with inputs and attributes, and its outputs."""
    parts = node.grouped()
    attributes = (entry for each in parts.messages(ATTRIBUTES) for entry in _attribute(each))
    call = OnnxCall(
        operator=parts.text(OPERATOR),
        domain=parts.text(DOMAIN),
        inputs=tuple(parts.texts(READS)),
        attributes=dict(attributes),
    )
    return parts.text(NODE_NAME), call, tuple(parts.texts(WRITES))


def _attribute(attribute: Message) -> Iterator[tuple[str, Attribute]]:
    """Yield an attribute: a tensor becomes its shape, and a subgraph its number of products."""
    parts = attribute.grouped()
    tensors = [_weight(each) for each in parts.messages(TENSOR)]
    yield from (("dtype", dtype) for _, _, dtype in tensors)
    for products in (_products(graph) for number in SUBGRAPHS for graph in parts.messages(number)):
        if products:
            yield "subgraph_products", products
    texts = [each.text() for each in parts.messages(TEXT) if each.end - each.start < MOST_CHARACTERS]
    content: list[Attribute] = [
        *map(signed, parts.numbers(INTEGER)),
        *texts,
        *(shape for _, shape, _ in tensors),
    ]
    if numbers := parts.numbers(INTEGERS)[:MOST_INTEGERS]:
        content.append(tuple(map(signed, numbers)))
    yield from ((parts.text(ATTRIBUTE_NAME), each) for each in content[:1])


def _products(graph: Message) -> int:
    """Return the number of products in a subgraph, and in the subgraphs of its operators."""
    calls = [call_of(node)[1] for node in graph.grouped().messages(NODES)]
    nested = (call.attributes.get("subgraph_products", 0) for call in calls)
    inside = sum(each for each in nested if isinstance(each, int))
    return inside + sum(canonical_name(call) in PRODUCTS for call in calls)


def sparse_weight(tensor: Message) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and dtype of a sparse weight, of which every element counts."""
    parts = tensor.grouped()
    values = [_weight(each) for each in parts.messages(SPARSE_VALUES)]
    name, _, dtype = values[-1] if values else ("", (), "fp32")
    return name, tuple(parts.numbers(SPARSE_SIZES)), dtype


def _weight(tensor: Message) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and dtype of a weight; its values are skipped."""
    parts = tensor.grouped()
    name, shape = parts.text(WEIGHT_NAME), tuple(parts.numbers(SIZES))
    if len(shape) > MOST_AXES or any(signed(size) < 0 for size in shape):
        raise ValueError(f"weight {name!r} has an impossible shape")
    return name, shape, DTYPES.get(parts.integer(DTYPE, 1), "fp32")


def _value(value: Message) -> tuple[str, tuple[int | str, ...] | None, str]:
    """Return the name, axes and dtype of a tensor; an axis without size and name is named after its
    position.

    A tensor without shape has no axes (None); a sequence or a map has the axes ().
    """
    parts = value.grouped()
    name, axes, dtype = parts.text(VALUE_NAME), None, 1
    for kind in (each.grouped() for each in parts.messages(VALUE_TYPE)):
        for tensor in (each.grouped() for each in kind.messages(TENSOR_TYPE)):
            dtype = tensor.integer(ELEMENT_TYPE, dtype)
            for shape in tensor.messages(TENSOR_SHAPE):
                axes = [_axis(axis) for axis in shape.grouped().messages(AXES)]
        if kind.values.keys() - {TENSOR_TYPE}:
            axes = []  # a sequence or a map
    dtype_name = DTYPES.get(dtype, "fp32")
    if axes is None:
        return name, None, dtype_name
    named = (f"{name}.{place}" if axis == "?" else axis for place, axis in enumerate(axes[:MOST_AXES]))
    return name, tuple(named), dtype_name


def _axis(axis: Message) -> int | str:
    parts = axis.grouped()
    names = parts.texts(AXIS_NAME)
    return parts.integer(AXIS_SIZE, -1) if AXIS_SIZE in parts.values else names[0] if names else "?"
