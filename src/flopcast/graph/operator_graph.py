"""The graph of an exported model as data: tensors, and the operators that read and write them.

Answers: of which parts does a graph consist, and in which order do its operators run?
Elsewhere: what each operator computes and keeps (canonical.py), the files that hold graphs
(interop/graphs/), the layers that a graph becomes (model_of_graph.py).

Shapes are those of one example batch. Readers translate the operators of their format to canonical names.
They leave out everything that is not part of the graph: values of weights, and subgraphs that never run.
"""

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Literal

from flopcast.errors import Problem, SpecError
from flopcast.records import Record, field, replace

Shape = tuple[int, ...]
Attribute = bool | int | float | str | tuple[int, ...]
ELEMENT_BYTES = {  # of the dtypes that exported graphs have
    **dict.fromkeys(("fp64", "int64", "uint64", "complex64"), 8.0),
    **dict.fromkeys(("fp32", "int32", "uint32"), 4.0),
    **dict.fromkeys(("fp16", "bf16", "int16", "uint16"), 2.0),
    **dict.fromkeys(("fp8", "int8", "uint8", "bool"), 1.0),
    **dict.fromkeys(("int4", "uint4", "fp4"), 0.5),
    "complex128": 16.0,
}
FLOATS = frozenset(("fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "complex64", "complex128"))


class GraphTensor(Record):
    """A tensor of a graph.

    Attributes
    ----------
    name : str
        Name in the file; unique in the graph.
    shape : tuple of int
        Sizes of its axes in the example batch.
    dtype : str
        A key of ELEMENT_BYTES.
    is_parameter : bool
        Whether the model stores it as a weight or a buffer.
    is_trained : bool
        Whether it is a parameter that has a gradient.
    order : str
        How its elements lie in memory: plane by plane ("planes"), as an image with all channels of a
        pixel next to each other ("pixels"), or otherwise ("strided").

    Examples
    --------
    >>> GraphTensor(name="x", shape=(8, 3, 224, 224), dtype="fp32").size_bytes
    4816896.0
    """

    name: str
    shape: Shape
    dtype: str = "fp32"
    is_parameter: bool = False
    is_trained: bool = False
    order: Literal["planes", "pixels", "strided"] = "planes"

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> float:
        """Return the bytes of all elements."""
        return self.elements * ELEMENT_BYTES[self.dtype]

    @property
    def is_float(self) -> bool:
        """Return whether a gradient can flow through the tensor."""
        return self.dtype in FLOATS


class GraphNode(Record):
    """An operator of a graph.

    Attributes
    ----------
    name : str
        Name in the file.
    operator : str
        A name of canonical.py, or the file's own name if flopcast does not know the operator.
    inputs : tuple of str
        Names of the tensors that it reads, in the order of the canonical operator. A missing optional
        input is "".
    outputs : tuple of str
        Names of the tensors that it writes.
    attributes : mapping
        Numbers and strings that shapes do not show, such as `causal` or `equation`.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


class OperatorGraph(Record, eq=False, slots=False):
    """An exported model: its tensors, and its operators in an order in which they can run.

    Attributes
    ----------
    name : str
        Name of the model.
    tensors : mapping
        Every tensor by its name.
    nodes : tuple of GraphNode
        The operators; `checked` sorts them, so that each operator runs after the operators on which it
        depends.
    inputs, outputs : tuple of str
        Names of the tensors that enter and leave the graph.
    samples : int
        Number of samples in the example batch.
    notes : tuple of str
        The assumptions of the reader.
    states_formats : bool
        Whether the graph runs in the formats that its tensors state. If not, all floats have the format
        of the plan.

    Examples
    --------
    >>> x, w, y = (GraphTensor(name=name, shape=(4, 4), is_parameter=name == "w") for name in "xwy")
    >>> graph = OperatorGraph(name="tiny", tensors={"x": x, "w": w, "y": y}, inputs=("x",), outputs=("y",),
    ...     nodes=(GraphNode(name="n", operator="matmul", inputs=("x", "w"), outputs=("y",)),))
    >>> [node.name for node in checked(graph).nodes], graph.tensors["y"].elements
    (['n'], 16)
    """

    name: str
    tensors: Mapping[str, GraphTensor]
    nodes: tuple[GraphNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    samples: int = 1
    notes: tuple[str, ...] = ()
    states_formats: bool = False

    def read(self, node: GraphNode) -> tuple[GraphTensor, ...]:
        """Return the tensors that an operator reads; missing optional inputs are left out."""
        return tuple(self.tensors[name] for name in node.inputs if name)

    def written(self, node: GraphNode) -> tuple[GraphTensor, ...]:
        """Return the tensors that an operator writes."""
        return tuple(self.tensors[name] for name in node.outputs if name)

    @cached_property
    def parameters(self) -> tuple[GraphTensor, ...]:
        """Return the weights and buffers that operators use, in the order of first use."""
        used = dict.fromkeys(name for node in self.nodes for name in node.inputs if name)
        return tuple(tensor for name in used if (tensor := self.tensors[name]).is_parameter)


def checked(graph: OperatorGraph) -> OperatorGraph:
    """Return the graph with its operators in an order in which they can run.

    Raises
    ------
    SpecError
        Two operators write the same tensor, an operator reads a tensor that does not exist, or operators
        wait for each other.
    """
    writer: dict[str, int] = {}
    problems = list[Problem]()
    for place, node in enumerate(graph.nodes):
        for name in filter(None, node.outputs):
            if name in writer or name in graph.inputs:
                problems.append(_written_twice(node, name))
            writer[name] = place
    given = {*graph.inputs, *(name for name, tensor in graph.tensors.items() if tensor.is_parameter)}
    for node in graph.nodes:
        missing = [name for name in node.inputs if name and name not in writer and name not in given]
        problems += [_provided_by_nothing(node, name) for name in missing]
    if problems:
        raise SpecError(problems[:10])
    order = _in_order(graph, writer)
    nodes = tuple(graph.nodes[place] for place in order)
    return replace(graph, nodes=nodes)


def _in_order(graph: OperatorGraph, writer: Mapping[str, int]) -> list[int]:
    """Return the order of the operators: each follows those on which it depends, near the file's order."""
    needs = [{writer[name] for name in node.inputs if name in writer} for node in graph.nodes]
    if all(max(need, default=-1) < place for place, need in enumerate(needs)):
        return list(range(len(needs)))
    readers: list[list[int]] = [[] for _ in needs]
    for place, need in enumerate(needs):
        for other in need:
            readers[other].append(place)
    waiting = [len(need) for need in needs]
    ready = [place for place, count in enumerate(waiting) if not count][::-1]
    order = list[int]()
    while ready:
        place = ready.pop()
        order.append(place)
        for reader in reversed(readers[place]):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(order) < len(needs):
        stuck = next(node.name for place, node in enumerate(graph.nodes) if waiting[place])
        allowed = "a graph without cycles"
        because = "the operators of a cycle would wait for each other forever"
        raise SpecError([Problem("graph.node", stuck, allowed, because, "export the model again")])
    return order


def _written_twice(node: GraphNode, name: str) -> Problem:
    allowed, because = "a tensor that only one operator writes", f"several operators write {name!r}"
    return Problem("graph.node", node.name, allowed, because, "export the model again")


def _provided_by_nothing(node: GraphNode, name: str) -> Problem:
    allowed = "inputs that are weights, inputs of the graph or results of other operators"
    because = f"nothing provides {name!r}"
    return Problem("graph.node", node.name, allowed, because, "export the model again")
