"""Missing shapes of an ONNX file, inferred by the onnx package from a copy without weights.

Answers: which shapes do the tensors of a graph have if the exporter did not write them, and which operators
does a file with functions run?
Elsewhere: the file itself (onnx_file.py). The package is an optional dependency; it computes shapes and
runs no operator.

The copy has small constants, which state the shapes of reshapes, but no weights, which can take
gigabytes. Operators for which the package infers no shapes are replaced by others with equal shapes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from flopcast.errors import spec_error
from flopcast.interop.exports.protobuf import delimited, raw_varint
from flopcast.interop.graphs import onnx_parts
from flopcast.interop.graphs.onnx_composites import RUNTIME
from flopcast.interop.graphs.protobuf import BYTES, VARINT, Message

Infer = Callable[[bytes], bytes]
MOST_CONSTANT_BYTES = 4096
SAME_SHAPE = (  # operators whose output has the shape of their first input
    *("GroupNormalization", "GroupNorm", "SkipGroupNorm", "RotaryEmbedding", "MultiHeadAttention"),
    *("GroupQueryAttention", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    *("SimplifiedLayerNormalization", "FastGelu", "QuickGelu", "BiasGelu"),
)


def with_onnx(file: str, missing: str) -> Infer:
    """Return the model with the shapes that the onnx package infers.

    Raises
    ------
    SpecError
        The package is not installed.
    """
    because = f"the exporter did not write the shape of {missing!r}"
    onnx, inference = _package("onnx.shape_inference", file, missing, because, "has no shape")

    def infer(model: bytes) -> bytes:
        inferred = inference.infer_shapes(onnx.load_from_string(model), data_prop=True)
        result: bytes = inferred.SerializeToString()
        return result

    return infer


def without_functions(model: Message, file: str, name: str) -> Message:
    """Return a copy of a model without weights, in which the operators of functions replace their calls.

    Raises
    ------
    SpecError
        The onnx package, which expands the functions, is not installed.
    """
    because = f"the file defines the operator {name!r} as a function of other operators"
    onnx, inliner = _package("onnx.inliner", file, name, because, "is a function")
    written_out = inliner.inline_local_functions(onnx.load_from_string(without_weights(model, {})))
    raw = memoryview(written_out.SerializeToString())
    return Message(buffer=raw, end=len(raw))


def _package(module: str, file: str, value: str, because: str, fault: str) -> tuple[Any, Any]:
    """Return the onnx package and one of its modules."""
    try:
        return import_module("onnx"), import_module(module)
    except ImportError:
        allowed = "an ONNX file that contains the shape of every tensor, or the onnx package"
        fix = "pip install 'flopcast[onnx]', or export with torch.onnx.export(..., dynamo=True)"
        raise spec_error("model.value_info", value, allowed, because, fix, file, fault) from None


def without_weights(model: Message, sizes: Mapping[str, int]) -> bytes:
    """Return a copy of a model without its weights, with sizes instead of the names of input axes."""
    return b"".join(_model(model, sizes))


def _model(model: Message, sizes: Mapping[str, int]) -> Iterator[bytes]:
    for number, value in model.fields():
        if number == onnx_parts.GRAPH and isinstance(value, Message):
            yield encoded(number, b"".join(_graph(value, sizes)))
        else:
            yield encoded(number, value)


def _graph(graph: Message, sizes: Mapping[str, int]) -> Iterator[bytes]:
    for number, value in graph.fields():
        if isinstance(value, int):
            yield encoded(number, value)
        elif number == onnx_parts.NODES:
            yield from _node(value)
        elif number == onnx_parts.SPARSE:
            weight, shape, _ = onnx_parts.sparse_weight(value)
            yield encoded(onnx_parts.WEIGHTS, _weight_of_floats(weight, shape))
        elif number == onnx_parts.WEIGHTS and value.end - value.start > MOST_CONSTANT_BYTES:
            kept = (onnx_parts.SIZES, onnx_parts.DTYPE, onnx_parts.WEIGHT_NAME)
            yield encoded(number, b"".join(encoded(n, v) for n, v in value.fields() if n in kept))
        elif number == onnx_parts.INPUTS:
            yield encoded(number, _sized(value, sizes, (2, 1, 2, 1)))
        else:
            yield encoded(number, value)


def _node(node: Message) -> Iterator[bytes]:
    """Yield a node, or nodes with equal shapes whose shapes the onnx package infers."""
    _, call, outputs = onnx_parts.call_of(node)
    if call.operator == "MatMulNBits":
        shape = [size for size in (call.attributes.get(key) for key in "KN") if isinstance(size, int)]
        yield encoded(onnx_parts.WEIGHTS, _weight_of_floats(f"{outputs[0]}.weight", shape))
        yield _call_of("MatMul", (call.inputs[0], f"{outputs[0]}.weight"), outputs[0])
    elif call.operator in SAME_SHAPE or (call.operator == "Attention" and call.domain == RUNTIME):
        also = outputs[3:4] if call.operator.startswith("Skip") else ()  # the sum before the norm
        for output in filter(None, (outputs[0], *also)):
            yield _call_of("Identity", call.inputs[:1], output)
    else:
        yield encoded(onnx_parts.NODES, node)


def _call_of(operator: str, inputs: Sequence[str], output: str) -> bytes:
    fields = (
        *((onnx_parts.READS, name) for name in inputs),
        (onnx_parts.WRITES, output),
        (onnx_parts.OPERATOR, operator),
    )
    return encoded(onnx_parts.NODES, b"".join(encoded(number, text.encode()) for number, text in fields))


def _weight_of_floats(name: str, shape: Sequence[int]) -> bytes:
    sizes = b"".join(encoded(onnx_parts.SIZES, size) for size in shape)
    return sizes + encoded(onnx_parts.DTYPE, 1) + encoded(onnx_parts.WEIGHT_NAME, name.encode())


def _sized(part: Message, sizes: Mapping[str, int], path: tuple[int, ...]) -> bytes:
    """Return a description of a tensor, found by a path of fields, with sizes for its named axes."""
    if not path:
        names = [value.text() for n, value in part.fields() if n == 2 and isinstance(value, Message)]
        known = [sizes[name] for name in names if name in sizes]
        return encoded(1, known[0]) if known else part.raw()
    return b"".join(
        encoded(number, _sized(value, sizes, path[1:]))
        if number == path[0] and isinstance(value, Message)
        else encoded(number, value)
        for number, value in part.fields()
    )


def encoded(number: int, value: int | Message | bytes) -> bytes:
    """Return a field of a message.

    >>> encoded(1, 150), encoded(2, b"ab")
    (b'\\x08\\x96\\x01', b'\\x12\\x02ab')
    """
    if isinstance(value, int):
        return raw_varint(number << 3 | VARINT) + raw_varint(value)
    raw = value if isinstance(value, bytes) else value.raw()
    if isinstance(value, Message) and value.kind != BYTES:
        return raw_varint(number << 3 | value.kind) + raw
    return raw_varint(number << 3 | BYTES) + delimited(raw)
