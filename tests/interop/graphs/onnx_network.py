"""ONNX graphs that are written layer by layer, with parameters and FLOP counted from the sizes of layers.

The counts follow textbook formulas and share no code with flopcast: 2 FLOP for each multiply-add of a
convolution, a GEMM or attention, and nothing for other operators.
"""

from math import prod

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RUNTIME = "com.microsoft"
BATCH = 2


class Network:
    """A graph that grows with each call; methods return the name of a tensor."""

    def __init__(self, opset=18):
        self.opset, self.parameters, self.flop = opset, 0, 0
        self.nodes, self.weights, self.inputs, self.outputs, self.shapes = [], [], [], [], []
        self.functions, self.sparse = [], []

    def input(self, *shape, dtype=TensorProto.FLOAT):
        name = f"input.{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def indices(self, *shape):
        return self.input(*shape, dtype=TensorProto.INT64)

    def constant(self, values, dtype=np.int64):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def weight(self, *shape, dtype=np.float32, counts=True):
        self.parameters += prod(shape) * counts
        return self.constant(np.zeros(shape), dtype)

    def run(self, operator, *inputs, outputs=1, domain="", shape=None, **attributes):
        """Add a node; `shape` is that of its output, which the onnx package need not infer then."""
        names = [f"t{len(self.nodes)}.{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        if shape:
            self.shapes.append(helper.make_tensor_value_info(names[0], TensorProto.FLOAT, shape))
        return names[0] if outputs == 1 else names

    def reshape(self, x, *shape):
        return self.run("Reshape", x, self.constant(shape))

    def convolution(self, x, channels, out, *, kernel=3, groups=1, transposed=False, **attributes):
        """Convolve to (if transposed, from) images of shape `out`, with channels before and after."""
        before, after = channels
        window = (kernel,) * len(out)
        sizes = (before, after // groups) if transposed else (after, before // groups)
        self.flop += 2 * BATCH * prod(out) * prod(window) * before * after // groups
        attributes.setdefault("pads", [(kernel - 1) // 2] * 2 * len(out))
        operator = "ConvTranspose" if transposed else "Conv"
        weights = self.weight(*sizes, *window), self.weight(after)
        return self.run(operator, x, *weights, kernel_shape=window, group=groups, **attributes)

    def linear(self, x, rows, columns, *, bias=True):
        self.flop += 2 * rows * prod(columns)
        product = self.run("MatMul", x, self.weight(*columns))
        return self.run("Add", product, self.weight(columns[1])) if bias else product

    def heads(self, x, tokens, width, heads):
        parts = self.reshape(x, BATCH, tokens, heads, width // heads)
        return self.run("Transpose", parts, perm=[0, 2, 1, 3])

    def attention(self, x, tokens, width, heads, context="", keys=0):
        """Self-attention, or cross-attention over `keys` tokens, with its four linear layers."""
        context, keys = context or x, keys or tokens
        lengths = ((x, tokens), (context, keys), (context, keys))
        query, key, value = (
            self.heads(self.linear(each, BATCH * length, (width, width)), length, width, heads)
            for each, length in lengths
        )
        self.flop += 4 * BATCH * tokens * keys * width
        scores = self.run("MatMul", query, self.run("Transpose", key, perm=[0, 1, 3, 2]))
        mixed = self.run("MatMul", self.run("Softmax", scores, axis=-1), value)
        joined = self.reshape(self.run("Transpose", mixed, perm=[0, 2, 1, 3]), BATCH, tokens, width)
        return self.linear(joined, BATCH * tokens, (width, width))

    def norm(self, x, width):
        return self.run("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1)

    def block(self, x, tokens, width, heads):
        """A block of a transformer."""
        x = self.run("Add", x, self.attention(self.norm(x, width), tokens, width, heads))
        wide = self.linear(self.norm(x, width), BATCH * tokens, (width, 4 * width))
        return self.run("Add", x, self.linear(self.run("Relu", wide), BATCH * tokens, (4 * width, width)))

    def file(self, *outputs):
        """The bytes of the file."""
        none = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(
            *(self.nodes, "network", self.inputs, none, self.weights),
            value_info=self.shapes,
            sparse_initializer=self.sparse,
        )
        domains = {"": self.opset, RUNTIME: 1, "local": 1}
        opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
        made = helper.make_model(graph, opset_imports=opsets, functions=self.functions, ir_version=10)
        return made.SerializeToString()
