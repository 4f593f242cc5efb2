"""Graphs under PyTorch's automatic mixed precision: the tensors in 16 bits and those in 32 bits.

Answers: how does `torch.autocast` change a graph that was exported without it?
Elsewhere: what operators compute and keep (canonical.py), the option (requests/graph_models.py).

Products and attention run in 16 bits. Operators that are inexact in 16 bits run in fp32 (PyTorch,
"Automatic Mixed Precision package", reference of operators). The inputs of every other operator take the
widest format among them. Weights stay in fp32. The casts of weights, which run once per step, are left out,
because they move a thousandth of the bytes.
"""

from flopcast.graph.canonical import canonical
from flopcast.graph.operator_graph import ELEMENT_BYTES, GraphNode, GraphTensor, OperatorGraph
from flopcast.records import replace

NARROW_FAMILIES = ("product", "attention")
WIDE = frozenset(
    (
        *("layer_norm", "group_norm", "softmax", "log_softmax", "exp", "power", "sum", "norm", "log"),
        *("logsumexp", "reciprocal", "rsqrt", "softplus", "cumulative_sum", "product_of_elements"),
    )
)
PROMOTING_FAMILIES = ("elementwise", "movement")  # all inputs count; elsewhere the first alone
NORMS = ("batch_norm_inference",)  # keep the format of their images, whatever that of their weights
HALF, SINGLE = "fp16", "fp32"


def under_autocast(graph: OperatorGraph) -> OperatorGraph:
    """Return the graph with the casts that autocast inserts, and with the format of each tensor.

    >>> x = GraphTensor(name="x", shape=(2, 8))
    >>> w = GraphTensor(name="w", shape=(8, 8), is_parameter=True, is_trained=True)
    >>> y = GraphTensor(name="y", shape=(2, 8))
    >>> node = GraphNode(name="y", operator="linear", inputs=("x", "w"), outputs=("y",))
    >>> found = under_autocast(OperatorGraph(name="", tensors={"x": x, "w": w, "y": y}, nodes=(node,),
    ...                                      inputs=("x",), outputs=("y",)))
    >>> [node.operator for node in found.nodes], found.tensors["y"].dtype
    (['cast', 'linear'], 'fp16')
    """
    tensors, nodes = dict(graph.tensors), list[GraphNode]()
    for exported in graph.nodes:
        wanted = _wanted(exported)
        node = _with_casts(exported, wanted, tensors, nodes) if wanted else exported
        found = wanted or _widest(node, tensors)
        for name in node.outputs:
            if tensors[name].is_float:
                tensors[name] = replace(tensors[name], dtype=found)
        nodes.append(node)
    return replace(graph, tensors=tensors, nodes=tuple(nodes), states_formats=True)


def _wanted(node: GraphNode) -> str:
    """Return the format that autocast requires for an operator's inputs; "" if it does not change them."""
    if canonical(node).family in NARROW_FAMILIES:
        return HALF
    return SINGLE if node.operator in WIDE else ""


def _with_casts(
    node: GraphNode, wanted: str, tensors: dict[str, GraphTensor], nodes: list[GraphNode]
) -> GraphNode:
    """Return the operator with inputs in the required format. Casts of activations are added before it."""
    inputs = []
    for place, name in enumerate(node.inputs):
        tensor = tensors.get(name)
        if tensor is None or not tensor.is_float or tensor.is_parameter or tensor.dtype == wanted:
            inputs.append(name)
            continue
        cast = f"{node.name}.cast{place}"
        order = tensor.order if tensor.order != "strided" else "planes"
        tensors[cast] = replace(tensor, name=cast, dtype=wanted, order=order)
        nodes.append(GraphNode(name=cast, operator="cast", inputs=(name,), outputs=(cast,)))
        inputs.append(cast)
    return replace(node, inputs=tuple(inputs))


def _widest(node: GraphNode, tensors: dict[str, GraphTensor]) -> str:
    """Return the format of an operator's result: the widest of its inputs, scalars excepted."""
    read = [tensors[name] for name in node.inputs if name in tensors and tensors[name].is_float]
    counted = [tensor for tensor in read if tensor.elements > 1] or read
    if node.operator in NORMS or canonical(node).family not in PROMOTING_FAMILIES:
        counted = counted[:1]
    widest = max((ELEMENT_BYTES[tensor.dtype] for tensor in counted), default=ELEMENT_BYTES[SINGLE])
    return HALF if widest <= ELEMENT_BYTES[HALF] else SINGLE
