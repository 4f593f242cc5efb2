"""Properties of the tensors of a graph, used while its operators become steps.

Answers: which tensors have gradients, share memory, or grow with the batch, and how is a size written?
Elsewhere: the steps (steps.py, products.py).

A tensor that depends on an input of the graph grows with the batch, and its size is given per sample. All
other tensors have a fixed size. Sizes count elements of the activation dtype, so that a byte of another
dtype is half an element.
"""

from collections.abc import Mapping
from functools import cached_property

from flopcast.graph.canonical import canonical
from flopcast.graph.operator_graph import GraphNode, GraphTensor, OperatorGraph
from flopcast.graph.saved import tensors_with_gradient, view_roots
from flopcast.records import Record, field
from flopcast.units import Number

Fields = dict[str, object]
Kept = tuple[tuple[str, Fields | Number], ...]  # tensors that are kept, "" for a step's own, and sizes
Made = tuple[Fields, Kept]
ACTIVATION_BYTES = 2.0


def plain(value: Number) -> Number:
    """Return a whole number as an int, so that files contain no decimal point."""
    return int(value) if float(value).is_integer() else float(value)


class Lowering(Record, eq=False, slots=False):
    """Properties of the tensors of a graph, used while its operators become steps.

    Attributes
    ----------
    graph : OperatorGraph
    with_gradient : frozenset of str
        Tensors whose gradient the backward pass computes.
    roots : mapping of str
        The tensor whose memory each view shares.
    of_batch : frozenset of str
        Tensors that depend on an input of the graph, so that their size grows with the batch.
    kept : set of str
        Tensors that operators have kept so far; filled during lowering, so that each is counted once.
    """

    graph: OperatorGraph
    with_gradient: frozenset[str]
    roots: Mapping[str, str]
    of_batch: frozenset[str]
    kept: set[str] = field(default_factory=set)

    def root(self, name: str) -> str:
        """Return the tensor whose memory the named tensor uses."""
        return self.roots.get(name, name)

    def is_weight(self, name: str) -> bool:
        """Return whether a name is that of a weight, or of a view of a weight."""
        root = self.root(name)
        return root in self.graph.tensors and self.graph.tensors[root].is_parameter

    def elements(self, tensor: GraphTensor) -> float:
        """Return a tensor's size in elements of the activation dtype."""
        if self.graph.states_formats or not tensor.is_float:
            return tensor.size_bytes / ACTIVATION_BYTES
        return tensor.elements * (2 if tensor.dtype.startswith("complex") else 1)

    def size(self, elements: Number, grows: bool = True) -> Fields | Number:
        """Return a size of the example batch, per sample if it grows with the batch."""
        return {"sequences": plain(elements / self.graph.samples)} if grows else plain(elements)

    def size_of(self, name: str) -> Fields | Number:
        """Return the size of a tensor."""
        tensor = self.graph.tensors[name]
        return self.size(self.elements(tensor), name in self.of_batch)

    def grows(self, node: GraphNode) -> bool:
        """Return whether the work of an operator grows with the batch."""
        return any(name in self.of_batch for name in node.outputs)

    def reads_data(self, node: GraphNode) -> bool:
        """Return whether a product multiplies data without a gradient by a trained weight."""
        first, second = node.inputs[:2]
        return first not in self.with_gradient and second in self.with_gradient

    @cached_property
    def readers(self) -> dict[str, list[tuple[GraphNode, str]]]:
        """Return, for each tensor with memory, the operators through which its gradient flows back.

        Each entry is an operator and the name under which it reads the tensor; this can be the name of a
        view. Weights are left out, because no other operator needs their gradients.
        """
        found: dict[str, list[tuple[GraphNode, str]]] = {}
        for node in self.graph.nodes:
            known = canonical(node)
            if known.is_view or not known.has_gradient:
                continue
            if not any(name in self.with_gradient for name in node.outputs):
                continue
            for name in filter(None, node.inputs):
                if name in self.with_gradient and not self.is_weight(name):
                    found.setdefault(self.root(name), []).append((node, name))
        return found


def _repeats_for_samples(graph: OperatorGraph, node: GraphNode) -> bool:
    """Return whether an operator repeats its input for each sample of the batch, along the first axis."""
    if node.operator not in ("view", "repeat"):
        return False
    read, written = graph.read(node), graph.written(node)
    if not read or len(written) != 1 or len(written[0].shape) < 2:
        return False
    repeats = (
        bool(node.attributes.get("repeats")) or graph.samples > 1
    )  # a view of one sample repeats nothing
    is_longer = written[0].elements == graph.samples * read[0].elements
    return repeats and is_longer and written[0].shape[0] == graph.samples


def lowering(graph: OperatorGraph) -> Lowering:
    """Return the properties of the tensors of a graph.

    A tensor grows with the batch if any input of its operator does, or if its operator repeats a constant
    for each sample, as it does with the queries of a detection transformer. An operator that writes in
    place, or that flopcast does not know, may write the memory of a view. The viewed tensor then also grows
    with the batch.
    """
    roots = view_roots(graph)
    of_batch = set(graph.inputs)
    for node in graph.nodes:
        if any(name in of_batch for name in node.inputs) or _repeats_for_samples(graph, node):
            of_batch.update(node.outputs)
            if canonical(node).family == "unknown" or node.attributes.get("in_place"):
                of_batch.update(roots.get(name, name) for name in node.outputs)
    return Lowering(
        graph=graph, with_gradient=tensors_with_gradient(graph), roots=roots, of_batch=frozenset(of_batch)
    )
