"""Graph networks that are trained on sampled neighbours: how many nodes and edges a batch contains.

Answers: how many different nodes does each hop reach, if each node samples some edges of each relation?
Elsewhere: the operators of the network on these nodes (relational_attention.py).

Every node samples up to `fan_out` edges of each relation that ends at it, and only new nodes sample again,
as in PyG. The degrees of nodes follow a geometric distribution, which has the most entropy of all with a
known mean. Edges reach nodes in proportion to their degrees. A reached node therefore has more edges of
this relation than a mean node, and one of them leads back. If n drawn edges begin at N nodes of mean degree
d, the birthday formula N (1 - exp(-n k / (N d))) for nodes of degree k, averaged over all degrees, gives
n / (1 + n / N) different nodes. If sources differ more in popularity, the number of edges and of different
sources in a part of the graph determine a power law instead (Heaps' law).

References
----------
Sampling: GraphSAGE, arXiv:1706.02216. Sizes of parts of a graph: IGB, arXiv:2302.13522.
"""

from collections.abc import Iterator, Mapping
from math import log, prod
from typing import Annotated, Literal

from pydantic import Field

from flopcast.records import Record
from flopcast.strict_model import StrictModel
from flopcast.units import Number

Count = Annotated[int, Field(ge=1)]


class GraphPart(StrictModel):
    """A part of a graph, from which the popularity of the sources of a relation is known.

    Attributes
    ----------
    edges : int
        Number of edges of the relation in this part.
    sources : int
        Number of different nodes at which these edges begin.
    """

    edges: Count
    sources: Count


class Relation(StrictModel):
    """Edges of one kind, along which targets receive vectors of sources.

    Attributes
    ----------
    source : str
        Type of the nodes at which the edges begin.
    target : str
        Type of the nodes at which the edges end.
    edges : int
        Number of edges in the whole graph.
    part : GraphPart or None
        A smaller part of the graph. By default, the degrees of the sources follow a geometric distribution.
    reverse_part : GraphPart or None
        The same for edges in the opposite direction, whose sources are the targets of this relation.
    """

    source: str
    target: str
    edges: Count
    part: GraphPart | None = None
    reverse_part: GraphPart | None = None


class SampledNetwork(StrictModel):
    """A relational graph attention network (R-GAT) that is trained on sampled neighbours.

    Attributes
    ----------
    name : str
        Name of the network in reports.
    nodes : mapping of str to int
        Number of nodes of each type.
    relations : tuple of Relation
        The relations. Messages also pass along every relation in the opposite direction, as a relation of
        its own unless source and target have the same type.
    seed : str
        Type of the nodes that are classified.
    fan_out : tuple of int
        Number of neighbours that each node samples per relation, from the first hop on. The network has
        as many layers.
    features : int
        Number of input features of each node.
    feature_format : str
        Number format of the features in memory. The network computes in fp16.
    hidden : int
        Number of columns of each layer's output, of all heads together.
    classes : int
        Number of classes.
    fixed_inputs : bool
        Whether features are copied to the fixed addresses that a CUDA graph reads.
    source : tuple of mappings
        Titles and addresses of the publications of these numbers.
    """

    name: str
    nodes: Mapping[str, Count]
    relations: tuple[Relation, ...] = Field(min_length=1)
    seed: str
    fan_out: tuple[Count, ...] = Field(min_length=1)
    features: Count
    feature_format: Literal["fp8", "fp16", "fp32"] = "fp16"
    hidden: Count
    classes: Count
    fixed_inputs: bool = False
    source: tuple[Mapping[str, str], ...] = ()

    @property
    def unknown_types(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the path of each field that names a type of nodes missing from `nodes`, and this type."""
        ends = (
            (("relations", number, end), getattr(each, end))
            for number, each in enumerate(self.relations)
            for end in ("source", "target")
        )
        yield from (pair for pair in ((("seed",), self.seed), *ends) if pair[1] not in self.nodes)

    @property
    def directions(self) -> tuple["Direction", ...]:
        """Return the relations in both directions; a relation within one type has twice its edges."""
        found: list[Direction] = []
        for number, each in enumerate(self.relations):
            ends = {"source": each.source, "target": each.target}
            back = {"source": each.target, "target": each.source}
            name, other, edges = f"{number}", f"{number}.reverse", each.edges
            if each.source == each.target:
                found.append(Direction(name=name, reverse=name, edges=2 * edges, part=each.part, **ends))
                continue
            found.append(Direction(name=name, reverse=other, edges=edges, part=each.part, **ends))
            found.append(Direction(name=other, reverse=name, edges=edges, part=each.reverse_part, **back))
        return tuple(found)


class Direction(Record):
    """A relation in one direction; `reverse` is the name of the opposite direction."""

    name: str
    reverse: str
    source: str
    target: str
    edges: int
    part: GraphPart | None = None

    def different(self, drawn: Number, nodes: int) -> Number:
        """Return the number of different sources among those of drawn edges.

        >>> round(Direction(name="", reverse="", source="a", target="b", edges=10**9)
        ...       .different(1000, 1000))
        500
        """
        if self.part is None:
            return drawn / (1.0 + drawn / nodes)
        growth = log(nodes / self.part.sources) / log(self.edges / self.part.edges)
        found: Number = min(drawn, nodes * (drawn / self.edges) ** growth)
        return found


class Hop(Record):
    """The nodes of each type after a hop, and the edges of each direction that the hop samples."""

    nodes: Mapping[str, Number]
    edges: Mapping[str, Number]


def sampled_edges(mean: Number, fan_out: int) -> Number:
    """Return the edges that a node samples: the mean of min(degree, fan_out).

    >>> round(sampled_edges(2.0, 1), 3), round(sampled_edges(2.0, 1000), 3)
    (0.667, 2.0)
    """
    return mean * (1.0 - (mean / (1.0 + mean)) ** fan_out)


def sampled_edges_of_reached(mean: Number, fan_out: int) -> Number:
    """Return the edges that a node samples if one of its edges was drawn to reach it.

    >>> round(sampled_edges_of_reached(2.0, 1), 3), round(sampled_edges_of_reached(2.0, 1000), 3)
    (1.0, 5.0)
    """
    ratio = mean / (1.0 + mean)
    return sum(ratio**degree * (degree + mean) / mean for degree in range(1, fan_out + 1))


def hops_of(network: SampledNetwork, seeds: Number) -> tuple[Hop, ...]:
    """Return the expected nodes and edges of a batch: first the seeds alone, then after each hop."""
    nodes = dict.fromkeys(network.nodes, 0.0) | {network.seed: float(seeds)}
    new: dict[tuple[str, str], Number] = {(network.seed, ""): float(seeds)}
    found = [Hop(nodes=dict(nodes), edges={})]
    for fan_out in network.fan_out:
        edges, reached = dict[str, Number](), dict[Direction, Number]()
        for each in network.directions:
            drawn, fresh = _drawn(each, network, new, fan_out)
            edges[each.name] = drawn
            reached[each] = each.different(fresh, network.nodes[each.source]) if fresh else 0.0
        new = {}
        for kind, total in network.nodes.items():
            parts = {each.name: count for each, count in reached.items() if each.source == kind and count}
            missed = prod(1.0 - count / total for count in parts.values())
            added = (total - nodes[kind]) * (1.0 - missed)
            new |= {(kind, name): added * count / sum(parts.values()) for name, count in parts.items()}
            nodes[kind] += added
        found.append(Hop(nodes=dict(nodes), edges=edges))
    return tuple(found)


def _drawn(
    each: Direction, network: SampledNetwork, new: Mapping[tuple[str, str], Number], fan_out: int
) -> tuple[Number, Number]:
    """Return the edges that new nodes sample in a direction, and those that do not lead back."""
    mean = each.edges / network.nodes[each.target]
    drawn = fresh = 0.0
    for (kind, way), count in new.items():
        if kind != each.target:
            continue
        if way == each.reverse:
            sampled = sampled_edges_of_reached(mean, fan_out)
            drawn += count * sampled
            fresh += count * (sampled - sampled_edges(mean, fan_out) / mean)
        else:
            drawn += count * sampled_edges(mean, fan_out)
            fresh += count * sampled_edges(mean, fan_out)
    return drawn, fresh
