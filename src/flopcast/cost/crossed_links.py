"""The measured pairs of nodes that the messages of a plan cross, and the speed of the slowest pair.

Answers: how fast is the ring of each group, and the link between two stages, relative to the mean link?
Elsewhere: the measured matrix (spec/link_matrix.py), the members of groups (ranks.py), the effect of slow
links on a stage (parts.py).

A ring passes the nodes of its ranks in the order of the ranks and returns to the first node. The slowest
pair of nodes determines its speed. In an all-to-all, a rank sends to the other ranks in turn, so its speed
follows from the mean of the seconds per byte. The slowest rank determines the speed of the group. A
transfer between stages crosses one pair.
"""

from collections.abc import Iterator

import numpy as np

from flopcast.cost.placement import ranks_per_domain
from flopcast.cost.ranks import members
from flopcast.dtypes import Counts, Integers, constant
from flopcast.spec.cluster import Cluster
from flopcast.spec.link_matrix import LinkMatrix
from flopcast.spec.plan import Plan

Axis = tuple[str, bool]  # the axis of a group; whether each of its ranks sends to all others


def node_of_ranks(ranks: int, cluster: Cluster) -> Integers:
    """Return the scale-up domain of each rank, in the order in which placement.py fills domains."""
    per_node = int(ranks_per_domain(constant(ranks), cluster.scale_up_devices).item())
    nodes: Integers = np.arange(ranks) // per_node
    return nodes


def speeds_of_groups(axis: str, plan: Plan, nodes: Integers, links: LinkMatrix) -> tuple[Counts, Counts]:
    """Return the speed of each rank's group along an axis, as a ring and as an all-to-all, (ranks,).

    The speeds are relative to the mean of all pairs, and infinite for a group on one node.
    """
    relative = links.bytes_per_s / links.mean_bytes_per_s
    ring, exchange = np.full(len(nodes), np.inf), np.full(len(nodes), np.inf)
    for group in groups_along(axis, plan, len(nodes)):
        on = nodes[group]
        passed = on[np.flatnonzero(np.diff(on, prepend=-1))]
        if len(passed) < 2:
            continue
        ring[group] = relative[passed, np.roll(passed, -1)].min()
        pairs = relative[np.ix_(on, on)]
        leaving = np.isfinite(pairs)
        exchange[group] = (leaving.sum(axis=1) / np.where(leaving, 1.0 / pairs, 0.0).sum(axis=1)).min()
    return ring, exchange


def speeds_of_transfers(nodes_of_stages: Integers, links: LinkMatrix) -> tuple[Counts, Counts]:
    """Return the speeds from each stage to the next and to the one before, relative to the mean.

    Parameters
    ----------
    nodes_of_stages : (stages, ranks of a stage)
        Ranks at the same position send to each other, and the slowest pair determines the speed.

    Returns
    -------
    two arrays (stages,)
        Infinite if both stages are on the same node. The first stage follows the last stage.
    """
    relative = links.bytes_per_s / links.mean_bytes_per_s
    after, before = (np.roll(nodes_of_stages, shift, axis=0) for shift in (-1, 1))
    return relative[nodes_of_stages, after].min(axis=1), relative[nodes_of_stages, before].min(axis=1)


def groups_along(axis: str, plan: Plan, ranks: int) -> Iterator[Integers]:
    """Yield the ranks of every group along an axis; the ranks of a group belong to one peer."""
    of_peer = ranks // plan.peers
    seen = np.zeros(of_peer, dtype=bool)
    for rank in range(of_peer):
        if not seen[rank]:
            group = np.array(members(axis, plan, rank), dtype=np.intp)
            seen[group] = True
            yield from (group + peer * of_peer for peer in range(plan.peers))
