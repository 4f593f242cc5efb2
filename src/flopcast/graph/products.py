"""Products of a graph as operators of a traced block: GEMMs, batched products, convolutions and attention.

Answers: which rows, columns and terms does the product of a node have, and which of them grow with the
batch?
Elsewhere: memory-bound operators (steps.py), the classes with these fields (layers/graph_operators.py).
"""

from collections.abc import Callable
from math import prod

from flopcast.graph.canonical import attention_sizes, einsum_sizes, flop_of
from flopcast.graph.lowering import Fields, Lowering, Made, plain
from flopcast.graph.operator_graph import GraphNode
from flopcast.units import Number


def _linear(known: Lowering, node: GraphNode) -> Made:
    """Return a GEMM with a weight, products of several weights, or batched products of activations."""
    graph = known.graph
    right = graph.tensors[node.inputs[1]]
    out = graph.tensors[node.outputs[0]]
    terms = flop_of(graph, node) / (2.0 * out.elements)
    if known.is_weight(node.inputs[0]) and not known.is_weight(node.inputs[1]):
        left = graph.tensors[node.inputs[0]].shape  # the product of a weight and data, such as token mixing
        n = left[-1 if node.attributes.get("transposed_left") else -2] if len(left) > 1 else 1
        if len(left) < 3:
            return _product(known, node, n, terms), ()
        return _grouped(known, prod(left[:-2]), out.elements / n, n, terms)
    if not known.is_weight(node.inputs[1]):
        return _batched(known, node, out.shape, terms)
    if len(right.shape) > 2:
        groups = prod(right.shape[:-2])
        return _grouped(known, groups, out.elements / right.shape[-1], right.shape[-1], terms)
    rows, columns = (*right.shape, 1, 1)[:2]
    return _product(known, node, rows if node.operator == "linear" else columns, terms), ()


def _product(known: Lowering, node: GraphNode, n: int, terms: Number) -> Fields:
    """Return the fields of a GEMM with `n` columns."""
    rows = known.graph.tensors[node.outputs[0]].elements / n
    fields: Fields = {"kind": "matmul", "m": known.size(rows, known.grows(node)), "n": n, "k": plain(terms)}
    if known.reads_data(node):
        fields["reads_data"] = True
    return fields


def _batched(known: Lowering, node: GraphNode, shape: tuple[int, ...], terms: Number) -> Made:
    m, n = (1, 1, *shape)[-2:]
    batch = known.size(prod(shape) / (m * n), known.grows(node))
    k = plain(terms)
    fields: Fields = {"kind": "batched_matmul", "batch": batch, "m": m, "n": n, "k": k, "scores": n >= k}
    return fields, ()


def _grouped(known: Lowering, groups: int, rows: Number, n: int, terms: Number) -> Made:
    size = known.size(rows)
    return {"kind": "grouped_matmul", "groups": groups, "rows": size, "n": n, "k": plain(terms)}, ()


def _einsum(known: Lowering, node: GraphNode) -> Made:
    """Return an einsum as the products that its indices describe."""
    graph = known.graph
    left, right, kept = einsum_sizes(graph, node)
    out = graph.tensors[node.outputs[0]].elements
    terms = flop_of(graph, node) / (2.0 * out)
    n = prod(size for letter, size in kept.items() if letter in right and letter not in left)
    if known.is_weight(node.inputs[1]):
        return _product(known, node, n, terms), ()
    m = prod(size for letter, size in kept.items() if letter in left and letter not in right)
    return _batched(known, node, (round(out / (m * n)), m, n), terms)


def _grouped_matmul(known: Lowering, node: GraphNode) -> Made:
    weight = known.graph.tensors[node.inputs[1]].shape
    rows = known.graph.tensors[node.inputs[0]].elements / weight[-2]
    return _grouped(known, weight[0], rows, weight[-1], weight[-2])


def _recurrent(known: Lowering, node: GraphNode) -> Made:
    """Return the products of a recurrent network as one product of all its rows."""
    rows = prod(known.graph.tensors[node.inputs[0]].shape[:-1])
    width = known.graph.tensors[node.inputs[0]].shape[-1]
    columns = flop_of(known.graph, node) / (2.0 * rows * width)
    return {"kind": "matmul", "m": known.size(rows), "n": plain(columns), "k": width}, ()


def _convolution(known: Lowering, node: GraphNode) -> Made:
    graph = known.graph
    entered, weight = (graph.tensors[name] for name in node.inputs[:2])
    out = graph.tensors[node.outputs[0]]
    transposed = node.operator == "transposed_convolution"
    of_rows, other = (entered, out) if transposed else (out, entered)
    columns = weight.shape[0]
    groups = node.attributes.get("groups", 1)
    root = known.root(node.inputs[0])
    window = prod(weight.shape[2:])
    fields: Fields = {
        "kind": "convolution",
        "rows": known.size(of_rows.elements / columns, known.grows(node)),
        "columns": columns,
        "terms": prod(weight.shape[1:]),
        "read": known.size(other.elements, known.grows(node)),
        "groups": groups,
        "window": window,
        "places": prod(of_rows.shape[2:]),
        "stride": _stride(entered.shape, out.shape),
    }
    flags = {
        "channels_last": (entered.order == "pixels", False),
        "transposed": (transposed, False),
        "trained": (weight.is_trained, True),
        "input_gradient": (node.inputs[0] in known.with_gradient, True),
        "keeps_input": (root not in known.kept, True),
    }
    fields |= {name: value for name, (value, usual) in flags.items() if value != usual}
    return fields, ()


def _stride(entered: tuple[int, ...], out: tuple[int, ...]) -> int:
    """Return the ratio of the side lengths of two images, the larger divided by the smaller."""
    long, short = max(entered[-1], out[-1]), max(1, min(entered[-1], out[-1]))
    return max(1, round(long / short))


def _attention(known: Lowering, node: GraphNode) -> Made:
    sizes = attention_sizes(known.graph, node)
    fields: Fields = {
        "kind": "graph_attention",
        "heads": known.size(sizes.heads, known.grows(node)),
        "kv_heads": known.size(sizes.kv_heads, known.grows(node)),
        "queries": sizes.queries,
        "keys": sizes.keys,
        "head_size": sizes.head_size,
    }
    if sizes.value_head_size != sizes.head_size:
        fields["value_head_size"] = sizes.value_head_size
    if node.attributes.get("causal"):
        fields["causal"] = True
    return fields, ()


COLUMNS = {"linear": 0, "matmul": 0, "convolution": 1}  # products with a weight that ranks can divide: the
# axis of the output that consists of columns is this one or, for 0, the last
CONVOLUTIONS = ("convolution", "transposed_convolution")
PRODUCTS: dict[str, Callable[[Lowering, GraphNode], Made]] = {
    "linear": _linear,
    "matmul": _linear,
    "einsum": _einsum,
    "grouped_matmul": _grouped_matmul,
    "recurrent": _recurrent,
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    "attention": _attention,
}
