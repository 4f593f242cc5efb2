"""Operators of ONNX that represent several operators, or that have packed weights.

Answers: which operators of flopcast does a node of an ONNX graph run?
Elsewhere: operators with one counterpart (onnx_operators.py), the file that holds the nodes (onnx_file.py).
The operators of ONNX Runtime are described in docs/ContribOperators.md of microsoft/onnxruntime.
"""

from collections.abc import Iterator

from flopcast.graph.operator_graph import GraphNode, GraphTensor
from flopcast.interop.graphs.onnx_operators import OnnxCall, translate
from flopcast.records import replace

Tensors = dict[str, GraphTensor]
RUNTIME = "com.microsoft"  # domain of the operators of ONNX Runtime


def operators_of(
    call: OnnxCall, name: str, outputs: tuple[str, ...], tensors: Tensors
) -> Iterator[GraphNode]:
    """Yield the operators that a node runs; adds the tensors between them to `tensors`."""
    if call.domain == RUNTIME and call.operator == "Attention":
        qkv, product = _projected(call, name, tensors)
        yield product
        heads = {key: value for key, value in call.attributes.items() if key != "qkv_hidden_sizes"}
        past = ("", "", "", *call.inputs[4:5])  # where MultiHeadAttention has it
        call = replace(call, operator="MultiHeadAttention", inputs=(qkv, "", "", *past), attributes=heads)
    elif call.operator == "MatMulNBits":
        call = _unpacked(call, tensors)
    operator, inputs, attributes = translate(call)
    yield GraphNode(name=name, operator=operator, inputs=inputs, outputs=outputs, attributes=attributes)


def _projected(call: OnnxCall, name: str, tensors: Tensors) -> tuple[str, GraphNode]:
    """Return the GEMM before attention whose weight combines the weights of queries, keys and values."""
    entered, weight = (tensors[each] for each in call.inputs[:2])
    qkv = f"{name}.qkv"
    tensors[qkv] = replace(entered, name=qkv, shape=(*entered.shape[:-1], weight.shape[-1]))
    return qkv, GraphNode(name=qkv, operator="matmul", inputs=call.inputs[:3], outputs=(qkv,))


def _unpacked(call: OnnxCall, tensors: Tensors) -> OnnxCall:
    """Return a GEMM whose weight has the shape and the format of its elements instead of packed bytes."""
    n, k, bits = (call.attributes.get(key, usual) for key, usual in (("N", 0), ("K", 0), ("bits", 4)))
    packed = tensors[call.inputs[1]]
    if isinstance(n, int) and isinstance(k, int):
        dtype = "int4" if bits == 4 else "int8"
        tensors[packed.name] = replace(packed, shape=(n, k), dtype=dtype, is_trained=False)
    return replace(call, operator="Gemm", inputs=call.inputs[:2], attributes={"transB": 1})
