"""Parts of a job that run at different speeds: stages with a slow device, host or link, or with other
links.

Answers: on which group of nodes is each stage of each replica, and how fast are its devices, host and
links?
Elsewhere: prices of items on these parts (part_prices.py), slow parts (spec/slow_parts.py), groups of
unequal nodes (spec/node_groups.py), measured pairs of nodes (crossed_links.py), how stages wait for each
other (timeline/step.py).

A stage of a replica runs at the speed of its slowest rank, because its ranks wait for each other in every
layer. A stage on another group of nodes has the prices of that group's devices, hosts and tiers; messages
to other groups have those of the tier that joins the groups. A *part* is one such set of speeds. Replicas
whose stages have the same parts are one *pattern*, which is simulated once; the slowest pattern is the step
of the job, because all replicas reduce their gradients together.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from flopcast.cost.item_prices import Pattern
from flopcast.dtypes import Counts, Integers
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.node_groups import group_of_ranks, place_of_ranks
from flopcast.spec.plan import Plan
from flopcast.spec.site import Site
from flopcast.spec.slow_parts import DEVICE, HOST, LINK, PEER

NEXT, BEFORE = "next", "before"  # axes of transfers: from a stage to the next, and to the one before


class LinkSpeed(Record, kw_only=False):
    """The speed of the messages of one axis on one tier, relative to the description of the cluster.

    An empty axis means all axes; `to_all` is None if the speed is the same for rings and for all-to-alls.
    """

    axis: str
    tier: int
    to_all: bool | None
    speed_ratio: float


class Part(Record):
    """The group of one stage of one replica, and its speeds relative to the description of the cluster.

    `outside` are the axes along which the stage sends messages to other groups of nodes.
    """

    group: int = 0
    outside: frozenset[str] = frozenset()
    device_fraction: float = 1.0
    host_fraction: float = 1.0
    links: tuple[LinkSpeed, ...] = ()


class Layout(Record, eq=False):
    """The distinct parts of a job, and the part of each stage for every distinct pattern of a replica.

    `of_replicas` contains the number of the pattern of every replica, one peer after the other.
    """

    parts: tuple[Part, ...]
    patterns: tuple[Pattern, ...]
    of_replicas: tuple[int, ...]


def layout_of(plan: Plan, cluster: Cluster, site: Site, axes: Iterable[str]) -> Layout | None:
    """Return the parts of a job; None if all its parts run at the speeds that the cluster describes.

    Parameters
    ----------
    axes : axes along which ranks send messages, in addition to transfers between stages
    """
    measured = [index for index, tier in enumerate(cluster.tiers) if tier.links is not None]
    if not (site.slow or measured or len(cluster.groups) > 1):
        return None
    ranks = _Ranks.of(plan)
    groups, outside = _groups(ranks, plan, cluster, sorted(set(axes)))
    devices, hosts = _slow(ranks, cluster, site, plan.peers)
    links = [_slow_links(ranks, cluster, site)]
    links += [_measured_links(ranks, plan, cluster, index, sorted(set(axes))) for index in measured]
    found: dict[Part, int] = {}
    patterns: dict[Pattern, int] = {}
    of_replicas = []
    for replica in range(ranks.replicas):
        pattern = []
        for stage in range(ranks.stages):
            at = replica * ranks.stages + stage
            part = Part(
                group=int(groups[at]),
                outside=frozenset(outside[at]),
                device_fraction=float(devices[at]),
                host_fraction=float(hosts[at]),
                links=tuple(speed for each in links for speed in each[at]),
            )
            pattern.append(found.setdefault(part, len(found)))
        group = cluster.groups[int(groups[replica * ranks.stages])]
        own = Pattern(tuple(pattern), group.micro_batches)
        of_replicas.append(patterns.setdefault(own, len(patterns)))
    return Layout(parts=tuple(found), patterns=tuple(patterns), of_replicas=tuple(of_replicas))


class _Ranks(Record, eq=False, kw_only=False):
    """All ranks of a plan by replica and stage: `place` is replica · stages + stage, (ranks,).

    The replicas are those of all peers.
    """

    replicas: int
    stages: int
    place: Integers

    @classmethod
    def of(cls, plan: Plan) -> "_Ranks":
        replicas = plan.peers * plan.data_parallel
        return cls(replicas, plan.pipeline_parallel, place_of_ranks(plan))

    @property
    def places(self) -> int:
        """Return the number of stages of all replicas."""
        return self.replicas * self.stages

    def slowest(self, speeds: Counts) -> Counts:
        """Return the lowest speed of the ranks at each place, (places,)."""
        found = np.full(self.places, np.inf)
        np.minimum.at(found, self.place, speeds)
        return found

    def neighbour(self, places: Integers, step: int) -> Integers:
        """Return the place of the stage some steps later in the same replica."""
        found: Integers = places // self.stages * self.stages + (places + step) % self.stages
        return found


def _groups(
    ranks: _Ranks, plan: Plan, cluster: Cluster, axes: Sequence[str]
) -> tuple[Integers, list[set[str]]]:
    """Return the group of nodes of each place, (places,), and the axes along which it leaves this group."""
    of_rank, places = group_of_ranks(plan.devices, cluster), np.arange(ranks.places)
    outside: list[set[str]] = [set() for _ in places]
    of_place = np.zeros(ranks.places, dtype=np.intp)
    of_place[ranks.place] = of_rank
    if len(cluster.groups) == 1:
        return of_place, outside
    from flopcast.cost.crossed_links import groups_along

    for axis in axes:
        for group in groups_along(axis, plan, plan.devices):
            if len(set(of_rank[group].tolist())) > 1:
                for place in set(ranks.place[group].tolist()):
                    outside[place].add(axis)
    for axis, step in ((NEXT, 1), (BEFORE, -1)):
        for place in np.flatnonzero(of_place != of_place[ranks.neighbour(places, step)]):
            outside[place].add(axis)
    return of_place, outside


def _slow(ranks: _Ranks, cluster: Cluster, site: Site, peers: int) -> tuple[Counts, Counts]:
    """Return the speeds of devices and of hosts of each place, (places,)."""
    devices, hosts = np.ones(len(ranks.place)), np.ones(len(ranks.place))
    numbers = np.arange(len(ranks.place))
    units = {DEVICE: numbers, HOST: numbers // cluster.node.devices, PEER: numbers * peers // len(numbers)}
    for part in site.slow:
        for speeds, kinds in ((devices, (DEVICE, PEER)), (hosts, (HOST, PEER))):
            if part.kind in kinds:
                own = units[part.kind] == part.index
                speeds[own] = np.minimum(speeds[own], part.speed_fraction)
    return ranks.slowest(devices), ranks.slowest(hosts)


def _slow_links(ranks: _Ranks, cluster: Cluster, site: Site) -> list[tuple[LinkSpeed, ...]]:
    """Return the speeds of slow links for each place.

    The neighbours in the pipeline exchange their messages with the slow stage at its speed.
    """
    names = [tier.name for tier in cluster.tiers]
    found: list[dict[tuple[str, int], float]] = [{} for _ in range(ranks.places)]
    for part in site.slow:
        outside = range(min(cluster.inner_tiers + 1, len(names) - 1), len(names))
        tiers = outside if part.kind == LINK else [i for i, name in enumerate(names) if name == part.kind]
        own = int(ranks.place[part.index]) if part.is_link else 0
        after, before = (int(ranks.neighbour(np.array(own), step)) for step in (1, -1))
        for tier in tiers if part.is_link else ():
            for place, axis in ((own, ""), (after, BEFORE), (before, NEXT)):
                if place != own or not axis:
                    known = found[place].get((axis, tier), 1.0)
                    found[place][axis, tier] = min(known, part.speed_fraction)
    return [
        tuple(LinkSpeed(axis, tier, None, speed) for (axis, tier), speed in sorted(each.items()))
        for each in found
    ]


def _measured_links(
    ranks: _Ranks, plan: Plan, cluster: Cluster, tier: int, axes: Sequence[str]
) -> list[tuple[LinkSpeed, ...]]:
    """Return the speeds of each place on a tier whose links are measured."""
    links = cluster.tiers[tier].links
    if links is None:
        return [()] * ranks.places
    from flopcast.cost.crossed_links import node_of_ranks, speeds_of_groups, speeds_of_transfers

    nodes = node_of_ranks(len(ranks.place), cluster)
    columns: dict[tuple[str, bool | None], Counts] = {}
    for axis in axes:
        ring, exchange = speeds_of_groups(axis, plan, nodes, links)
        columns[axis, False], columns[axis, True] = ranks.slowest(ring), ranks.slowest(exchange)
    each = np.argsort(ranks.place, kind="stable").reshape(ranks.replicas, ranks.stages, -1)
    after, before = zip(*(speeds_of_transfers(nodes[of], links) for of in each), strict=True)
    columns[NEXT, None], columns[BEFORE, None] = np.concatenate(after), np.concatenate(before)
    return [
        tuple(
            LinkSpeed(axis, tier, to_all, float(speed[place]))
            for (axis, to_all), speed in columns.items()
            if np.isfinite(speed[place])
        )
        for place in range(ranks.places)
    ]
