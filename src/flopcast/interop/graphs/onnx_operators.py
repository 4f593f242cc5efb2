"""Operators of ONNX by the canonical names of flopcast.

Answers: which canonical operator is `ConvTranspose`, and which of its inputs does it read?
Elsewhere: the names (operators.yaml), the canonical operators (graph/canonical.py), the file that holds
the nodes (onnx_file.py). An operator that this table lacks is unknown and is priced by its bytes.
"""

from collections.abc import Callable, Mapping, Sequence

from flopcast.files.package_table import meanings, read_table
from flopcast.graph.operator_graph import Attribute
from flopcast.records import Record, field

NEWEST_OPSET = 26  # of the domain "ai.onnx"; later ones may change what a name means
DOMAINS = ("", "ai.onnx", "com.microsoft", "ai.onnx.contrib", "pkg.onnxscript.torch_lib")
CONSTANTS = ("Constant",)  # their tensors are known without a kernel
_TABLE = read_table(__package__, "operators.yaml")
UNCOUNTED = frozenset(_TABLE["onnx"]["uncounted"].split())
NAMES = meanings({name: words.get("onnx", "") for name, words in _TABLE["canonical"].items()})


class OnnxCall(Record):
    """A node of an ONNX graph: its operator, its inputs, its attributes, and which inputs are weights."""

    operator: str
    domain: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


Found = tuple[str, tuple[str, ...], dict[str, Attribute]]


def translate(call: OnnxCall) -> Found:
    """Return the canonical operator of a node, the tensors that it reads, and its attributes.

    >>> translate(OnnxCall(operator="Gemm", domain="", inputs=("x", "w", "b"), attributes={"transB": 1}))
    ('linear', ('x', 'w', 'b'), {})
    """
    if call.operator in SPECIAL:
        return SPECIAL[call.operator](call)
    usual = -1 if call.operator in ("Softmax", "LogSoftmax") else None
    along = call.attributes.get("axis", call.attributes.get("axes", usual))
    attributes: dict[str, Attribute] = {} if along is None else {"along": along}
    if call.operator == "Expand":
        attributes["repeats"] = True
    data = call.inputs[: DATA_INPUTS.get(call.operator, len(call.inputs))]
    return canonical_name(call), data, attributes


def canonical_name(call: OnnxCall) -> str:
    """Return the canonical operator of a node; for an unknown operator, its own name with its domain."""
    if call.operator in ("Gemm", *ATTENTION):
        return "linear" if call.operator == "Gemm" else "attention"
    domain = "" if call.domain in DOMAINS else f"{call.domain}."
    return NAMES.get(call.operator, f"onnx.{domain}{call.operator}")


def _gemm(call: OnnxCall) -> Found:
    transposed: dict[str, Attribute] = {"transposed_left": True} if call.attributes.get("transA") else {}
    return ("linear" if call.attributes.get("transB") else "matmul"), call.inputs, transposed


def _transpose(call: OnnxCall) -> Found:
    """Return a transpose with the order of its axes; without a stated order, it reverses them."""
    order = call.attributes.get("perm")
    axes: dict[str, Attribute] = {"permutation": order} if isinstance(order, tuple) else {"scattered": True}
    return "view", call.inputs[:1], axes


def _convolution(call: OnnxCall) -> Found:
    """Return a convolution; scales, zero points, offsets and masks lie between data, weight and bias."""
    places = {"QLinearConv": (0, 3, 8), "ConvInteger": (0, 1), "DeformConv": (0, 1, 3)}
    inputs = _chosen(call, places.get(call.operator, (0, 1, 2)))
    return NAMES[call.operator], inputs, {"groups": call.attributes.get("group", 1)}


def _integer_product(call: OnnxCall) -> Found:
    return "matmul", _chosen(call, (0, 3) if call.operator == "QLinearMatMul" else (0, 1)), {}


def _chosen(call: OnnxCall, places: Sequence[int]) -> tuple[str, ...]:
    return tuple(call.inputs[place] for place in places if place < len(call.inputs))


def _einsum(call: OnnxCall) -> Found:
    return "einsum", call.inputs, {"equation": call.attributes.get("equation", "")}


def _batch_norm(call: OnnxCall) -> Found:
    """Return batch norm, which uses the statistics of the batch if it was exported for training."""
    training = call.attributes.get("training_mode")
    return ("batch_norm" if training else "batch_norm_inference"), call.inputs, {}


def _dropout(call: OnnxCall) -> Found:
    """Return dropout, which does nothing in an inference graph; a training graph sets its third input."""
    return ("dropout" if len(call.inputs) > 2 and call.inputs[2] else "view"), call.inputs[:1], {}


def _attention(call: OnnxCall) -> Found:
    """Return attention, of ONNX (opset 23) or of ONNX Runtime (ContribOperators.md of onnxruntime).

    Attributes state the number of heads if the last axis holds all of them. Queries, keys and values may
    be packed into the first input.
    """
    heads, kv_heads, causal, past = ATTENTION[call.operator]
    get = call.attributes.get
    query, *pair = (*call.inputs[:3], "", "")[:3]
    packed = not pair[0]
    attributes: dict[str, Attribute] = {
        "causal": bool(get(causal, causal == "")),
        "appends": len(call.inputs) > past and bool(call.inputs[past]),
    }
    if isinstance(get(heads), int):
        attributes |= {"heads": get(heads, 1), "kv_heads": get(kv_heads, get(heads, 1)), "packed": packed}
    bias = call.inputs[3:4] if call.operator != "GroupQueryAttention" else ()
    return "attention", (query, *((query, query) if packed else pair), *bias), attributes


ATTENTION = {  # attributes with its heads, those of keys, and the mask; place of earlier keys
    "Attention": ("q_num_heads", "kv_num_heads", "is_causal", 4),
    "MultiHeadAttention": ("num_heads", "num_heads", "unidirectional", 6),
    "GroupQueryAttention": ("num_heads", "kv_num_heads", "", 3),  # always with a causal mask
}
SPECIAL: dict[str, Callable[[OnnxCall], Found]] = {
    "Gemm": _gemm,
    "Transpose": _transpose,
    **dict.fromkeys(
        ("Conv", "FusedConv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"), _convolution
    ),
    **dict.fromkeys(
        ("MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
        _integer_product,
    ),
    "Einsum": _einsum,
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    **dict.fromkeys(ATTENTION, _attention),
}
DATA_INPUTS = {  # how many inputs hold data, for operators whose others state shapes, axes or scales
    **dict.fromkeys(_TABLE["canonical"]["view"]["onnx"].split(), 1),
    **dict.fromkeys(("Pad", "Tile", "Resize", "Upsample", "Clip", "TopK", "CumSum", "Trilu"), 1),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"), 1),
    **dict.fromkeys(("ConstantOfShape", "Range", "OneHot", "Shape", "Size", "QuantizeLinear"), 1),
    **dict.fromkeys(("Cast", "DequantizeLinear", "Split", "CumProd", "CenterCropPad"), 1),
}


def inputs_without_gradient(operator: str) -> Sequence[int]:
    """Return the places of weights that are not trained: statistics of a batch norm, tables of angles."""
    return {"BatchNormalization": (3, 4), "RotaryEmbedding": (1, 2, 3)}.get(operator, ())
