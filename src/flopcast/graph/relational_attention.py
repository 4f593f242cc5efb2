"""The operators of a relational graph attention network on the nodes of a sampled batch.

Answers: which graph of operators does an R-GAT run for a batch of seeds?
Elsewhere: the nodes and edges of the batch (sampled_network.py), how operators become a model
(model_of_graph.py).

Layer l reads the nodes of all hops but the last l, and writes those of one hop less. As in PyG, it uses
the edges of all these hops. Each relation multiplies the vectors of all sources and targets by its matrix.
For each target, attention weights the products of its sampled sources. The results of all relations that
end at the same type are stacked and added (HeteroGraphConv of DGL). The input features have no gradient.

References
----------
R-GAT: arXiv:1904.05811. MLPerf's network: mlcommons/training, graph_neural_network. NVIDIA's software: DGL
with cuGraph's attention (mha_gat_n2n), whose gradients have 16 bits (CUGRAPH_SWITCHES=0010 in
run_and_time.sh of the submissions).
"""

from collections.abc import Mapping, Sequence

from flopcast.graph.operator_graph import ELEMENT_BYTES, GraphNode, GraphTensor, OperatorGraph
from flopcast.graph.sampled_network import Hop, SampledNetwork, hops_of
from flopcast.records import Record, field
from flopcast.units import Number

COMPUTED = "fp16"


def relational_attention(network: SampledNetwork, seeds: int) -> OperatorGraph:
    """Return the graph of a network for a batch of seeds; a sample is a seed."""
    made = _Made()
    hops = hops_of(network, seeds)
    vectors = _features(made, network, hops)
    layers = len(network.fan_out)
    for layer in range(layers):
        vectors = _layer(made, network, hops[: layers - layer + 1], vectors, is_last=layer == layers - 1)
    out = made.linear(vectors[network.seed], network.classes)
    out = made.run("log_softmax", (out,), *made.shape(out))
    return OperatorGraph(
        name=network.name,
        tensors={tensor.name: tensor for tensor in made.tensors},
        nodes=tuple(made.nodes),
        inputs=tuple(made.inputs),
        outputs=(out,),
        samples=seeds,
        notes=(_note(network, hops, seeds),),
        states_formats=True,
    )


def _note(network: SampledNetwork, hops: Sequence[Hop], seeds: int) -> str:
    nodes, edges = sum(hops[-1].nodes.values()), sum(sum(hop.edges.values()) for hop in hops)
    sample_kb = nodes * network.features * ELEMENT_BYTES[network.feature_format] / seeds / 1e3
    return (
        f"graph: a batch of {seeds:,} seeds contains about {nodes / 1e6:.2f} million nodes and"
        f" {edges / 1e6:.2f} million edges; with features in the memories of all devices of a node,"
        f" --loader gather={sample_kb:.0f}kB@peers predicts whether the gather limits the step"
    )


class _Made(Record, eq=False):
    """The tensors and operators made so far."""

    tensors: list[GraphTensor] = field(default_factory=list)
    nodes: list[GraphNode] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return next(tensor.shape for tensor in self.tensors if tensor.name == name)

    def tensor(self, *shape: int, dtype: str = COMPUTED, weight: bool = False) -> str:
        """Add a tensor and return its name."""
        name = f"tensor{len(self.tensors)}"
        found = GraphTensor(name=name, shape=shape, dtype=dtype, is_parameter=weight, is_trained=weight)
        self.tensors.append(found)
        return name

    def input(self, *shape: int, dtype: str) -> str:
        """Add an input of the graph and return its name."""
        name = self.tensor(*shape, dtype=dtype)
        self.inputs.append(name)
        return name

    def run(self, operator: str, inputs: tuple[str, ...], *shape: int) -> str:
        """Add an operator and return the name of its output."""
        out = self.tensor(*shape)
        self.nodes.append(GraphNode(name=out, operator=operator, inputs=inputs, outputs=(out,)))
        return out

    def linear(self, x: str, columns: int, weight: str = "") -> str:
        """Add a linear layer, by default with a weight of its own."""
        rows, terms = self.shape(x)
        weight = weight or self.tensor(columns, terms, weight=True)
        return self.run("linear", (x, weight), rows, columns)


def _rows(count: Number) -> int:
    return max(1, round(count))


def _features(made: _Made, network: SampledNetwork, hops: Sequence[Hop]) -> dict[str, str]:
    """Return the input features of the nodes of each type in the format of the computation."""
    found: dict[str, str] = {}
    for kind, count in hops[-1].nodes.items():
        shape = (_rows(count), network.features)
        if not count:
            continue
        stored = network.feature_format
        found[kind] = made.input(*shape, dtype=stored)
        if ELEMENT_BYTES[stored] != ELEMENT_BYTES[COMPUTED]:
            found[kind] = made.run("cast", (found[kind],), *shape)
        if network.fixed_inputs:
            found[kind] = made.run("copy", (found[kind],), *shape)
    return found


def _layer(
    made: _Made, network: SampledNetwork, hops: Sequence[Hop], vectors: Mapping[str, str], *, is_last: bool
) -> dict[str, str]:
    """Return the vectors of the targets of each type after one layer."""
    targets = {kind: _rows(count) for kind, count in hops[-2].nodes.items() if count and kind in vectors}
    is_first = len(hops) == len(network.fan_out) + 1
    own: dict[str, str] = {}
    for kind, rows in targets.items():
        width = made.shape(vectors[kind])[-1]
        own[kind] = made.run("view" if is_first else "copy", (vectors[kind],), rows, width)
    results: dict[str, list[str]] = {}
    for each in network.directions:
        edges = sum(hop.edges.get(each.name, 0.0) for hop in hops)
        if not edges or each.target not in targets or each.source not in vectors:
            continue
        weight = made.tensor(network.hidden, made.shape(vectors[each.source])[-1], weight=True)
        sources = made.linear(vectors[each.source], network.hidden, weight)
        target = made.linear(own[each.target], network.hidden, weight)
        picked = made.input(_rows(edges), dtype="int64")
        out = (targets[each.target], network.hidden)
        weighted = made.run("neighbour_attention", (sources, target, picked), *out)
        bias = made.tensor(network.hidden, weight=True)
        results.setdefault(each.target, []).append(made.run("add", (weighted, bias), *out))
    return {kind: _joined(made, parts, is_last=is_last) for kind, parts in results.items()}


def _joined(made: _Made, parts: Sequence[str], *, is_last: bool) -> str:
    """Return the sum of the results of several relations, activated except in the last layer."""
    shape = made.shape(parts[0])
    stacked = made.run("concatenate", tuple(parts), len(parts), *shape)
    total = made.run("sum", (stacked,), *shape)
    if is_last:
        return total
    return made.run("dropout", (made.run("leaky_relu", (total,), *shape),), *shape)
