"""The step of a rank as a Chakra execution trace, which network simulators replay.

Answers: which bytes describe the nodes of a rank, and which groups do their collectives name?
Elsewhere: the nodes (rank_graph.py), the ranks of a group (cost/ranks.py).

A file is a GlobalMetadata message followed by the Node messages, each preceded by its length. The encoder
is written by hand, because only three message types are needed. `comm_size` is the input of one rank, as
ASTRA-sim counts it: for an all-gather a shard, not the gathered array.

References
----------
mlcommons/chakra, schema/protobuf/et_def.proto; attributes: astra-sim/astra-sim,
astra-sim/workload/Workload.cc and its feeder.
"""

from collections.abc import Iterator, Mapping, Sequence

from flopcast.cost.ranks import members, place_of, rank_at
from flopcast.errors import InternalError
from flopcast.interop.exports.protobuf import delimited, message, packed, text, varint
from flopcast.interop.exports.rank_graph import COLLECTIVE, COMPUTE, HOST, RECEIVE, SEND, GraphNode
from flopcast.spec.node_groups import degrees
from flopcast.spec.plan import Plan

VERSION = "0.0.4"
TYPES = {COMPUTE: 4, HOST: 4, SEND: 5, RECEIVE: 6, COLLECTIVE: 7}  # enum NodeType
COLLECTIVES = {  # enum CollectiveCommType
    **{"all_reduce": 0, "reduce": 1, "all_gather": 2, "broadcast": 5, "reduce_scatter": 7},
    **dict.fromkeys(("all_to_all", "dispatch", "combine", "hybrid_dispatch", "hybrid_combine"), 6),
}
INT32, INT64, UINT64, BOOL, STRING = 7, 9, 13, 27, 29  # fields of AttributeProto.value
Groups = Mapping[tuple[int, ...], int]


def groups_of(plan: Plan, axes: Sequence[str]) -> dict[tuple[int, ...], int]:
    """Return every group of ranks, numbered from 1, because 0 means all ranks in ASTRA-sim.

    Ranks of equal groups along two axes share one number.
    """
    groups: dict[tuple[int, ...], int] = {}
    for axis in axes:
        for rank in range(plan.devices):
            group = members(axis, plan, rank)
            if len(group) > 1:
                groups.setdefault(group, len(groups) + 1)
    return groups


def chakra(nodes: Sequence[GraphNode], plan: Plan, rank: int, groups: Groups) -> bytes:
    """Return the trace of a rank.

    Parameters
    ----------
    nodes : the nodes of the rank's stage
    groups : the numbers from `groups_of`, over every axis that the nodes name

    Returns
    -------
    bytes
        Nodes are numbered in order, beginning with 1.
    """
    metadata = delimited(text(1, VERSION))
    return metadata + b"".join(delimited(body) for body in _nodes(nodes, plan, rank, groups))


def _nodes(nodes: Sequence[GraphNode], plan: Plan, rank: int, groups: Groups) -> Iterator[bytes]:
    """Yield the node of every message: id 1, name 2, type 3, data_deps 5, duration_micros 7, attr 10."""
    mine = {node.axis: members(node.axis, plan, rank) for node in nodes if node.kind == COLLECTIVE}
    for node in nodes:
        on_host = _number("is_cpu_op", BOOL, int(node.kind == HOST))
        attributes = (on_host, *_attributes(node, plan, rank, mine, groups))
        yield b"".join(
            (
                varint(1, node.number + 1),
                text(2, node.name),
                varint(3, TYPES[node.kind]),
                packed(5, (number + 1 for number in node.waits)),
                varint(7, node.duration_micros),
                *(message(10, attribute) for attribute in attributes),
            )
        )


def _attributes(
    node: GraphNode, plan: Plan, rank: int, mine: Mapping[str, tuple[int, ...]], groups: Groups
) -> tuple[bytes, ...]:
    """Return the attributes of a node that a simulator reads, by its kind."""
    if node.kind == COMPUTE:
        return _number("num_ops", INT64, node.flop), _number("tensor_size", UINT64, node.moved_bytes)
    if node.kind == HOST:
        return ()
    if node.kind == COLLECTIVE:
        if node.collective not in COLLECTIVES:
            raise InternalError(f"no Chakra collective for {node.collective!r}")
        group = mine[node.axis]
        return (
            _number("comm_type", INT64, COLLECTIVES[node.collective]),
            _number("comm_size", INT64, input_bytes(node, len(group))),
            text(1, "pg_name") + text(STRING, str(groups[group])),
        )
    other = _other_end(node, plan, rank)
    source, target = (rank, other) if node.kind == SEND else (other, rank)
    return (
        _number("comm_size", INT64, node.message_bytes),
        _number("comm_src", INT32, source),
        _number("comm_dst", INT32, target),
        _number("comm_tag", INT32, node.tag),
    )


def input_bytes(node: GraphNode, ranks: int) -> int:
    """Return the bytes that one rank contributes to a collective; for an all-gather, its shard."""
    return round(node.message_bytes / ranks) if node.collective == "all_gather" else node.message_bytes


def _other_end(node: GraphNode, plan: Plan, rank: int) -> int:
    """Return the rank at the other end: the same place on the other stage, or the neighbour on the ring."""
    place = place_of(plan, rank)
    if node.axis == "pp":
        return rank_at(plan, place | {"pp": node.peer})
    size = degrees(plan)[node.axis]
    return rank_at(plan, place | {node.axis: (place[node.axis] + node.peer) % size})


def _number(name: str, kind: int, value: int) -> bytes:
    """Return an attribute with a number; 0 is also written, because the attribute selects the kind."""
    return text(1, name) + varint(kind, value)
