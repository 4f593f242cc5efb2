"""Small operator graphs whose counts are known."""

from flopcast.graph.operator_graph import GraphNode, GraphTensor, OperatorGraph


def tensor(name, *shape, parameter=False, dtype="fp32"):
    """A tensor; parameters are trained."""
    return GraphTensor(name=name, shape=shape, dtype=dtype, is_parameter=parameter, is_trained=parameter)


def node(operator, inputs, outputs, **attributes):
    """An operator named after its first output."""
    words = (tuple(inputs.split()), tuple(outputs.split()))
    return GraphNode(
        name=words[1][0], operator=operator, inputs=words[0], outputs=words[1], attributes=attributes
    )


def graph_of(tensors, nodes, inputs="x", outputs="y", samples=1):
    """A graph of these tensors and operators."""
    return OperatorGraph(
        name="case",
        tensors={each.name: each for each in tensors},
        nodes=tuple(nodes),
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()),
        samples=samples,
    )


def single(operator, shapes, out, parameters="", **attributes):
    """A graph of one operator that reads tensors a, b, … of these shapes and writes y."""
    names = "abcdefgh"[: len(shapes)]
    tensors = [
        tensor(name, *shape, parameter=name in parameters)
        for name, shape in zip(names, shapes, strict=True)
    ]
    return graph_of(
        [*tensors, tensor("y", *out)],
        [node(operator, " ".join(names), "y", **attributes)],
        inputs=" ".join(name for name in names if name not in parameters),
    )
