"""Canonical operators: what each operator computes, moves and keeps for the backward pass.

Answers: how many FLOP does an operator of a graph need, which bytes does it move, and which of its tensors
does autograd save?
Elsewhere: the tensors that are kept (saved.py), the graph itself (operator_graph.py), the names of
operators in files (interop/graphs/), the gradients and times of operators (operators/).

FLOP count only the multiply-adds of products, as everywhere in flopcast. The masked half of causal
attention is not subtracted. The saved tensors follow the rules of PyTorch
(tools/autograd/derivatives.yaml).
"""

from collections.abc import Callable
from math import prod
from typing import Any

from flopcast.graph.operator_graph import ELEMENT_BYTES, GraphNode, OperatorGraph
from flopcast.records import Record
from flopcast.units import Number

Role = str  # what is saved, as Canonical.saves lists it


class Canonical(Record):
    """The known properties of an operator.

    Attributes
    ----------
    family : str
        How it runs: "product", "attention", "elementwise", "reduction", "normalisation", "pooling",
        "movement" (copies), "gather", "scatter", "sort", "scan", "transform", "view" (no kernel) or
        "unknown".
    flop : callable, optional
        Its FLOP in products, given graph and node; by default 0.
    saves : tuple of str
        What autograd keeps: "first", "second" or all "inputs"; "factors" (inputs whose partners need a
        gradient; "last_factors" if a summand precedes them); the "output"; a "mask" of one byte per
        element of the output; "positions" of eight bytes per element of the output; "rows", an fp32
        number for each row of the output.
    saves_in_place : tuple of str
        What autograd keeps of an elementwise operator that writes into its input.
    passes : float
        How many passes it makes over its tensors, if one kernel does not finish in a single pass.
    is_fusible : bool
        Whether a compiler fuses it with the operators before and after it.
    has_gradient : bool
        Whether a gradient flows through it.
    passes_gradient_on : bool
        Whether the gradient of an input is the gradient of the output or a part of it, so that no kernel
        runs.
    reads_table : bool
        Whether it looks up rows of an embedding table, its first input.
    alone : str
        The parts on which it works separately, so that tensor-parallel ranks can divide it: "elements",
        "channels" of an image, "rows" along its last axis, or everything outside the "stated" axes. "" if
        ranks cannot divide it in such a way.
    """

    family: str
    flop: Callable[[OperatorGraph, GraphNode], float] | None = None
    saves: tuple[Role, ...] = ()
    saves_in_place: tuple[Role, ...] = ()
    passes: Number = 1.0
    is_fusible: bool = False
    has_gradient: bool = True
    passes_gradient_on: bool = False
    reads_table: bool = False
    alone: str = ""

    @property
    def is_view(self) -> bool:
        """Return whether no kernel runs, because the output shares the memory of the first input."""
        return self.family == "view"


def _matmul_flop(graph: OperatorGraph, node: GraphNode) -> float:
    left, out = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].elements
    terms = left[-2] if node.attributes.get("transposed_left") and len(left) > 1 else (left or (1,))[-1]
    return 2.0 * out * terms


def _convolution_flop(graph: OperatorGraph, node: GraphNode) -> float:
    weight = graph.tensors[node.inputs[1]].shape
    return 2.0 * graph.tensors[node.outputs[0]].elements * prod(weight[1:])


def _transposed_convolution_flop(graph: OperatorGraph, node: GraphNode) -> float:
    weight = graph.tensors[node.inputs[1]].shape
    return 2.0 * graph.tensors[node.inputs[0]].elements * prod(weight[1:])


def _attention_flop(graph: OperatorGraph, node: GraphNode) -> float:
    sizes = attention_sizes(graph, node)
    return 2.0 * sizes.heads * sizes.queries * sizes.keys * (sizes.head_size + sizes.value_head_size)


class AttentionSizes(Record):
    """The sizes of an attention operator; `heads` and `kv_heads` count the heads of all sequences."""

    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    value_head_size: int


def attention_sizes(graph: OperatorGraph, node: GraphNode) -> AttentionSizes:
    """Return the sizes of an attention operator.

    In ONNX, the last axis may hold all heads of a token, and even the heads of queries, keys and values
    in one tensor ("packed"). Attributes then state the number of heads. If the operator appends keys to
    earlier ones, it writes all of them to its second output.
    """
    query, key, value = (graph.tensors[name].shape for name in node.inputs[:3])
    heads, kv_heads = node.attributes.get("heads"), node.attributes.get("kv_heads")
    if isinstance(heads, int) and isinstance(kv_heads, int) and len(query) == 3:
        if node.attributes.get("packed"):
            size = query[2] // (heads + 2 * kv_heads)
            key = value = (*query[:2], kv_heads * size)
            query = (*query[:2], heads * size)
        query = (query[0] * heads, query[1], query[2] // heads)
        key, value = ((each[0] * kv_heads, each[-2], each[-1] // kv_heads) for each in (key, value))
    appends = node.attributes.get("appends") and len(node.outputs) > 1 and node.outputs[1]
    keys = graph.tensors[node.outputs[1]].shape[-2] if appends else key[-2]
    return AttentionSizes(
        heads=prod(query[:-2]),
        kv_heads=prod(key[:-2]),
        queries=query[-2],
        keys=keys,
        head_size=query[-1],
        value_head_size=value[-1],
    )


def _einsum_flop(graph: OperatorGraph, node: GraphNode) -> float:
    left, right, _ = einsum_sizes(graph, node)
    return 2.0 * prod((left | right).values()) if right else 0.0


def _recurrent_flop(graph: OperatorGraph, node: GraphNode) -> float:
    rows = prod(graph.tensors[node.inputs[0]].shape[:-1])
    weights = [tensor for tensor in graph.read(node)[1:] if tensor.is_parameter]
    axes = len(weights[0].shape) if weights else 0  # biases have fewer
    return 2.0 * rows * sum(weight.elements for weight in weights if len(weight.shape) == axes)


def _grouped_flop(graph: OperatorGraph, node: GraphNode) -> float:
    rows, weight = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[1]].shape
    return 2.0 * rows.elements * weight[-1]


def einsum_sizes(
    graph: OperatorGraph, node: GraphNode
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the sizes of the indices of both operands of an einsum, and of its output.

    >>> from flopcast.graph.operator_graph import GraphTensor
    >>> tensors = {name: GraphTensor(name=name, shape=shape) for name, shape in (
    ...     ("q", (2, 8, 16)), ("k", (2, 8, 32)), ("s", (2, 16, 32)))}
    >>> node = GraphNode(name="n", operator="einsum", inputs=("q", "k"), outputs=("s",),
    ...                  attributes={"equation": "bdi,bdj->bij"})
    >>> einsum_sizes(OperatorGraph(name="", tensors=tensors, nodes=(node,), inputs=("q", "k"),
    ...                            outputs=("s",)), node)[1]
    {'b': 2, 'd': 8, 'j': 32}
    """
    words = str(node.attributes.get("equation", "")).replace(" ", "").replace("...", "")
    operands, _, result = words.partition("->")
    sizes = [
        dict(zip(letters[::-1], tensor.shape[::-1], strict=False))
        for letters, tensor in zip(operands.split(","), graph.read(node), strict=False)
    ]
    further = [
        {f".{place}": size for place, size in enumerate(tensor.shape[: len(tensor.shape) - len(letters)])}
        for letters, tensor in zip(operands.split(","), graph.read(node), strict=False)
    ]
    left, right = ([a | b for a, b in zip(sizes, further, strict=True)] + [{}, {}])[:2]
    kept = {letter: size for letter, size in (left | right).items() if letter in result or letter[0] == "."}
    return dict(sorted(left.items())), dict(sorted(right.items())), dict(sorted(kept.items()))


def _each(names: str, family: str, **facts: Any) -> dict[str, Canonical]:  # noqa: ANN401  any field of Canonical
    """Return equal facts for operators whose names are separated by blanks."""
    return dict.fromkeys(names.split(), Canonical(family=family, **facts))


def _elementwise(names: str, saves: tuple[Role, ...] = (), **facts: Any) -> dict[str, Canonical]:  # noqa: ANN401
    """Return operators on single elements; in place, they save the same unless `facts` say otherwise."""
    usual: dict[str, Any] = {"saves_in_place": saves, "is_fusible": True, "alone": "elements"}
    return _each(names, "elementwise", saves=saves, **usual | facts)


CANONICAL: dict[str, Canonical] = {
    **_each("matmul linear", "product", flop=_matmul_flop, saves=("factors",)),
    **_each("einsum", "product", flop=_einsum_flop, saves=("factors",)),
    **_each("grouped_matmul", "product", flop=_grouped_flop, saves=("factors",)),
    **_each("convolution", "product", flop=_convolution_flop, saves=("factors",)),
    **_each("transposed_convolution", "product", flop=_transposed_convolution_flop, saves=("factors",)),
    **_each("recurrent", "product", flop=_recurrent_flop, saves=("factors", "output")),
    **_each("attention", "attention", flop=_attention_flop, saves=("inputs", "output", "rows")),
    **_elementwise("add subtract identity_copy", passes_gradient_on=True),
    **_elementwise("negate cast lerp"),
    **_elementwise("rotary", alone=""),  # such operators join elements of several columns
    **_elementwise("comparison logical round", has_gradient=False),
    **_elementwise("multiply divide", ("factors",)),
    **_elementwise("multiply_add", ("last_factors",)),
    **_elementwise("maximum minimum", ("inputs",)),
    **_elementwise("relu sigmoid tanh exp sqrt rsqrt reciprocal", ("output",)),
    **_elementwise("gelu silu mish softplus hardswish hardsigmoid clamp softsign logsigmoid", ("first",)),
    **_elementwise("abs log sin cos erf power square prelu unary atan2 where", ("first",)),
    **_elementwise("leaky_relu elu", ("first",), saves_in_place=("output",)),
    **_elementwise("glu local_response_norm", ("first",), alone=""),
    **_elementwise("dropout", ("mask",)),
    **_elementwise("masked_fill", ("second",)),
    **_each("softmax log_softmax", "normalisation", saves=("output",), is_fusible=True, alone="stated"),
    **_each("layer_norm", "normalisation", saves=("first", "rows", "rows"), is_fusible=True, alone="rows"),
    **_each("rms_norm", "normalisation", saves=("first", "rows"), is_fusible=True, alone="rows"),
    **_each("group_norm instance_norm", "normalisation", saves=("first",), passes=1.5),
    **_each("batch_norm", "normalisation", saves=("first",), passes=1.5, alone="channels"),
    **_each("batch_norm_inference", "elementwise", saves=("first",), is_fusible=True, alone="channels"),
    **_each("sum mean", "reduction", is_fusible=True, alone="stated"),
    **_each(
        "norm variance amax logsumexp product_of_elements",
        "reduction",
        saves=("first",),
        is_fusible=True,
        alone="stated",
    ),
    **_each("argmax", "reduction", has_gradient=False),
    **_each("max_pool", "pooling", saves=("first", "positions"), alone="channels"),
    **_each("average_pool adaptive_average_pool", "pooling", saves=("first",), alone="channels"),
    **_each("interpolate", "pooling", alone="channels"),
    **_each("grid_sample", "pooling", saves=("inputs",)),
    **_each("region_pool", "pooling", saves=("second",)),
    **_each("concatenate", "movement", passes_gradient_on=True, alone="stated"),
    **_each("copy", "movement", passes_gradient_on=True, alone="elements"),
    **_each("pad", "movement", alone="elements"),
    **_each("roll repeat triangle unfold", "movement"),
    **_each("constant random", "movement", has_gradient=False),
    **_each("gather", "gather", saves=("second",)),
    **_each("embedding embedding_bag", "gather", saves=("second",), reads_table=True),
    **_each("neighbour_attention", "gather", saves=("inputs",)),
    **_each("scatter segment_reduce", "scatter", saves=("second",)),
    **_each("nonzero", "sort", has_gradient=False),
    **_each("top_k", "sort", saves=("positions",), passes=2.0),
    **_each("sort", "sort", saves=("positions",), passes=4.0),
    **_each("suppress_overlaps", "sort", passes=4.0, has_gradient=False),
    **_each("cumulative_sum", "scan"),
    **_each("selective_scan linear_attention", "scan", saves=("inputs",), passes=2.0),
    **_each("fourier", "transform", passes=2.0),
    **_each("view", "view"),
    **_each("shape", "view", has_gradient=False),
}
UNKNOWN = Canonical(family="unknown", saves=("inputs", "output"))


def canonical(node: GraphNode) -> Canonical:
    """Return the known properties of an operator; an unknown operator reads and writes its tensors."""
    return CANONICAL.get(node.operator, UNKNOWN)


def flop_of(graph: OperatorGraph, node: GraphNode) -> float:
    """Return the FLOP of an operator's products, for the example batch."""
    compute = canonical(node).flop
    return 0.0 if compute is None else compute(graph, node)


def moved_bytes_of(graph: OperatorGraph, node: GraphNode) -> float:
    """Return the bytes that an operator reads and writes; each tensor counts once for each pass.

    A lookup reads only the rows that it returns; a scatter reads and writes the rows that it changes.
    """
    known = canonical(node)
    if known.is_view:
        return 0.0
    written = sum(tensor.size_bytes for tensor in graph.written(node))
    read = graph.read(node)
    if known.family == "gather" and read:
        looked_up_bytes = min(read[0].size_bytes, looked_up(graph, node) * ELEMENT_BYTES[read[0].dtype])
        return known.passes * (written + looked_up_bytes + sum(tensor.size_bytes for tensor in read[1:]))
    if known.family == "scatter" and read:
        changed = sum(tensor.size_bytes for tensor in read[1:])
        return known.passes * 2.0 * changed
    return known.passes * (written + sum(tensor.size_bytes for tensor in read))


def looked_up(graph: OperatorGraph, node: GraphNode) -> float:
    """Return the number of elements that a look-up reads from a table: the rows of all indices."""
    table, indices = graph.read(node)[0], graph.read(node)[1:]
    rows = max((tensor.elements for tensor in indices), default=1)
    out = sum(tensor.elements for tensor in graph.written(node))
    width = table.shape[-1] if table.shape else 1
    return max(out, rows * width if table.is_parameter else 0)
