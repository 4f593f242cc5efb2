"""Tensors of a graph that autograd keeps between the forward and the backward pass.

Answers: which memory does each operator keep, and which tensors have gradients or share memory?
Elsewhere: rules of operators (canonical.py), when kept memory is freed (workload/backward_memory.py).

A ReLU saves its output, a GELU saves its input, and a product saves the factors whose partners need a
gradient. Weights are in memory anyway and are never counted. A view shares the memory of another tensor,
which counts once.
"""

from collections.abc import Iterator
from math import prod

from flopcast.graph.canonical import Role, canonical
from flopcast.graph.operator_graph import GraphNode, GraphTensor, OperatorGraph
from flopcast.records import Record


class SavedTensor(Record):
    """Memory that autograd keeps: a tensor of the graph or, if `tensor` is "", memory of the operator
    itself.

    `role` names the tensor's role for its operator, as in canonical.py: "first", "output" or "mask". The
    mask of a dropout is an example of memory of the operator itself.
    """

    tensor: str
    role: Role
    size_bytes: float


def saved_tensors(
    graph: OperatorGraph, node: GraphNode, needs_gradient: frozenset[str] | None = None
) -> Iterator[SavedTensor]:
    """Yield the memory that autograd keeps for an operator; weights, which are in memory anyway, are left
    out.

    Parameters
    ----------
    needs_gradient : names of the tensors that have a gradient; by default all floating-point tensors

    Examples
    --------
    >>> tensors = {name: GraphTensor(name=name, shape=(8,)) for name in "xy"}
    >>> node = GraphNode(name="n", operator="relu", inputs=("x",), outputs=("y",))
    >>> graph = OperatorGraph(name="", tensors=tensors, nodes=(node,), inputs=("x",), outputs=("y",))
    >>> [(saved.tensor, saved.size_bytes) for saved in saved_tensors(graph, node)]
    [('y', 32.0)]
    """
    read, written = graph.read(node), graph.written(node)
    if not _has_gradient(node, read, needs_gradient):
        return
    known = canonical(node)
    in_place = bool(node.attributes.get("in_place")) and known.saves_in_place
    for role in known.saves_in_place if in_place else known.saves:
        if role == "mask":
            yield SavedTensor(tensor="", role=role, size_bytes=float(written[0].elements))
        elif role == "positions":
            yield SavedTensor(tensor="", role=role, size_bytes=8.0 * written[0].elements)
        elif role == "rows":
            rows = prod(written[0].shape[:-1])
            yield SavedTensor(tensor="", role=role, size_bytes=4.0 * rows)
        else:
            yield from _saved_by_name(role, read, written, needs_gradient)


def _has_gradient(
    node: GraphNode, read: tuple[GraphTensor, ...], needs_gradient: frozenset[str] | None
) -> bool:
    """Return whether a gradient flows back through an operator."""
    if not canonical(node).has_gradient:
        return False
    return any(tensor.is_float and _needs(tensor, needs_gradient) for tensor in read)


def _needs(tensor: GraphTensor, needs_gradient: frozenset[str] | None) -> bool:
    return needs_gradient is None or tensor.name in needs_gradient


def _saved_by_name(
    role: Role,
    read: tuple[GraphTensor, ...],
    written: tuple[GraphTensor, ...],
    needs_gradient: frozenset[str] | None,
) -> Iterator[SavedTensor]:
    """Yield tensors of the graph that an operator saves."""
    chosen: tuple[GraphTensor, ...] = {
        "first": read[:1],
        "second": read[1:],
        "inputs": read,
        "output": written[:1],
    }.get(role, ())
    if role in ("factors", "last_factors"):
        pair = read[:2] if role == "factors" else read[-2:]
        others = pair[::-1] if len(pair) > 1 else ()
        chosen = tuple(
            tensor for tensor, other in zip(pair, others, strict=False) if _needs(other, needs_gradient)
        )
    for tensor in chosen:
        if not tensor.is_parameter:
            yield SavedTensor(tensor=tensor.name, role=role, size_bytes=tensor.size_bytes)


def tensors_with_gradient(graph: OperatorGraph) -> frozenset[str]:
    """Return the names of the tensors with a gradient: trained weights, and tensors computed from them."""
    found = {name for name, tensor in graph.tensors.items() if tensor.is_trained}
    for node in graph.nodes:
        if canonical(node).has_gradient and any(name in found for name in node.inputs):
            found |= {tensor.name for tensor in graph.written(node) if tensor.is_float}
    return frozenset(found)


def view_roots(graph: OperatorGraph) -> dict[str, str]:
    """Return, for every result of a view, the tensor whose memory it shares."""
    roots = dict[str, str]()
    for node in graph.nodes:
        if canonical(node).is_view and node.inputs:
            source = roots.get(node.inputs[0], node.inputs[0])
            roots |= dict.fromkeys(node.outputs, source)
    return roots
