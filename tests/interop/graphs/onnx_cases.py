"""ONNX files written field by field, so that tests need no package of ONNX."""

from flopcast.interop.graphs.onnx_shapes import encoded

FLOAT, INT64 = 1, 7


def text(number, words):
    """A field with a text."""
    return encoded(number, words.encode())


def value(name, *axes, dtype=FLOAT):
    """A tensor with its shape; an axis is a number or a name."""
    dims = b"".join(
        encoded(1, encoded(1, axis) if isinstance(axis, int) else text(2, axis)) for axis in axes
    )
    return text(1, name) + encoded(2, encoded(1, encoded(1, dtype) + encoded(2, dims)))


def weight(name, *shape, values=b"", dtype=FLOAT):
    """A weight, with or without its values."""
    dims = b"".join(encoded(1, size) for size in shape)
    return dims + encoded(2, dtype) + text(8, name) + (encoded(9, values) if values else b"")


def node(operator, inputs, outputs, **attributes):
    """An operator; attributes are whole numbers or texts."""
    fields = [text(1, name) for name in inputs.split()] + [text(2, name) for name in outputs.split()]
    fields.append(text(4, operator))
    for name, content in attributes.items():
        kind = encoded(3, content) if isinstance(content, int) else text(4, content)
        fields.append(encoded(5, text(1, name) + kind))
    return b"".join(fields)


def model(nodes, inputs, outputs, weights=(), shapes=(), opset=18):
    """A whole file."""
    parts = [
        *(encoded(1, each) for each in nodes),
        text(2, "case"),
        *(encoded(5, each) for each in weights),
    ]
    parts += [encoded(11, each) for each in inputs] + [encoded(12, each) for each in outputs]
    parts += [encoded(13, each) for each in shapes]
    return encoded(1, 8) + text(2, "a test") + encoded(7, b"".join(parts)) + encoded(8, encoded(2, opset))


def small(batch="batch", opset=18):
    """A convolution, a ReLU, a mean over places and a linear layer."""
    return model(
        nodes=[
            node("Conv", "x w b", "h", group=1),
            node("Relu", "h", "r"),
            node("ReduceMean", "r axes", "m"),
            node("Gemm", "m v c", "y", transB=1),
        ],
        inputs=[value("x", batch, 3, 32, 32)],
        outputs=[value("y", batch, 10)],
        weights=[
            weight("w", 8, 3, 3, 3, values=b"\0" * 864),
            weight("b", 8),
            weight("v", 10, 8),
            weight("c", 10),
            weight("axes", 2, dtype=INT64),
        ],
        shapes=[value("h", batch, 8, 32, 32), value("r", batch, 8, 32, 32), value("m", batch, 8)],
        opset=opset,
    )
