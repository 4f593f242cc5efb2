"""Missing shapes of an ONNX file, inferred by the onnx package from a copy without weights.

Answers: which shapes have the tensors of a graph whose exporter did not write them?
Elsewhere: the file itself (onnx_file.py). The package is an extra; it computes shapes and runs no operator.

The copy has small constants, which state the shapes of reshapes, but no weights, which may take gigabytes.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from flopcast.errors import spec_error
from flopcast.interop.graphs.protobuf import BYTES, VARINT, Message

Infer = Callable[[bytes], bytes]
MOST_CONSTANT_BYTES = 4096
GRAPH, WEIGHTS, INPUTS = 7, 5, 11  # fields of a model and of a graph (onnx_file.py)
SIZES, DTYPE, WEIGHT_NAME = 1, 2, 8  # of a weight


def with_onnx(file: str, missing: str) -> Infer:
    """Return the inference of the onnx package.

    Raises
    ------
    SpecError
        The package is not installed.
    """
    try:
        onnx = import_module("onnx")
        inference = import_module("onnx.shape_inference")
    except ImportError:
        allowed = "an ONNX file that contains the shape of every tensor, or the onnx package"
        because = f"the exporter did not write the shape of {missing!r}"
        fix = "pip install 'flopcast[onnx]', or export with torch.onnx.export(..., dynamo=True)"
        raise spec_error("model.value_info", missing, allowed, because, fix, file, "has no shape") from None

    def infer(model: bytes) -> bytes:
        result: bytes = inference.infer_shapes(
            onnx.load_from_string(model), data_prop=True
        ).SerializeToString()
        return result

    return infer


def without_weights(model: Message, sizes: Mapping[str, int]) -> bytes:
    """Return a copy of a model without its weights, with sizes in the place of the names of input axes."""
    return b"".join(_model(model, sizes))


def _model(model: Message, sizes: Mapping[str, int]) -> Iterator[bytes]:
    for number, value in model.fields():
        if number == GRAPH and isinstance(value, Message):
            yield encoded(number, b"".join(_graph(value, sizes)))
        else:
            yield encoded(number, value)


def _graph(graph: Message, sizes: Mapping[str, int]) -> Iterator[bytes]:
    for number, value in graph.fields():
        if isinstance(value, int):
            yield encoded(number, value)
        elif number == WEIGHTS and value.end - value.start > MOST_CONSTANT_BYTES:
            kept = (SIZES, DTYPE, WEIGHT_NAME)
            yield encoded(number, b"".join(encoded(n, v) for n, v in value.fields() if n in kept))
        elif number == INPUTS:
            yield encoded(number, _sized(value, sizes, (2, 1, 2, 1)))
        else:
            yield encoded(number, value)


def _sized(part: Message, sizes: Mapping[str, int], path: tuple[int, ...]) -> bytes:
    """Return a description of a tensor whose named axes, at the end of a path of fields, have sizes."""
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
        return _varint(number << 3 | VARINT) + _varint(value)
    raw = value if isinstance(value, bytes) else value.raw()
    if isinstance(value, Message) and value.kind != BYTES:
        return _varint(number << 3 | value.kind) + raw
    return _varint(number << 3 | BYTES) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes((*digits, value))
