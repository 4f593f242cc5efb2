"""Parts of a job that run at different speeds: stages with a slow device, host or link, or other links.

Answers: how fast are the devices, the host and the links of each stage of each replica, and what do items
cost there?
Elsewhere: which parts are slow (spec/slow_parts.py), which measured pairs a message crosses
(crossed_links.py), how the stages wait for each other (timeline/step.py), other devices (node_groups.py).

A stage of a replica runs at the speed of its slowest rank, because its ranks wait for each other in every
layer. A *part* is one such set of speeds. Prices get one row for each part, as they have for kinds of
micro-batches that differ; every task then looks up the row of its stage. Replicas whose stages have the
same parts are one *pattern*, which is simulated once; the slowest pattern is the step of the job, because
all replicas reduce their gradients together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.crossed_links import node_of_ranks, speeds_of_groups, speeds_of_transfers
from flopcast.cost.item_prices import ItemPrice, LinkUse, Priced
from flopcast.cost.ranks import degrees
from flopcast.dtypes import Counts, Integers
from flopcast.kept_results import NOTHING_KEPT
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import HostWork, Item
from flopcast.operators.tier_copies import HostUpdate
from flopcast.spec.cluster import Cluster
from flopcast.spec.plan import Plan
from flopcast.spec.site import Site
from flopcast.spec.slow_parts import DEVICE, HOST, LINK
from flopcast.workload.program import Programs

NEXT, BEFORE = "next", "before"  # axes of transfers: from a stage to the next, and to the one before


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """The speed of the messages of one axis on one tier, relative to what the cluster describes.

    An empty axis stands for all; `to_all` is None for rings and exchanges with all ranks alike.
    """

    axis: str
    tier: int
    to_all: bool | None
    speed_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The speeds of one stage of one replica, relative to what the cluster describes."""

    device_fraction: float = 1.0
    host_fraction: float = 1.0
    links: tuple[LinkSpeed, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Layout:
    """The distinct parts of a job, and the part of each stage for every distinct pattern of a replica."""

    parts: tuple[Part, ...]
    patterns: tuple[tuple[int, ...], ...]


def layout_of(plan: Plan, cluster: Cluster, site: Site, axes: Iterable[str]) -> Layout | None:
    """Return the parts of a job; None if all its parts run at the speeds that the cluster describes.

    Parameters
    ----------
    axes : along which ranks send messages, beside transfers between stages
    """
    measured = [index for index, tier in enumerate(cluster.tiers) if tier.links is not None]
    if not (site.slow or measured):
        return None
    ranks = _Ranks.of(plan)
    devices, hosts = _slow(ranks, cluster, site)
    links = [_slow_links(ranks, cluster, site)]
    links += [_measured_links(ranks, plan, cluster, index, sorted(set(axes))) for index in measured]
    found: dict[Part, int] = {}
    patterns: dict[tuple[int, ...], None] = {}
    for replica in range(ranks.replicas):
        pattern = []
        for stage in range(ranks.stages):
            at = replica * ranks.stages + stage
            part = Part(
                device_fraction=float(devices[at]),
                host_fraction=float(hosts[at]),
                links=tuple(speed for each in links for speed in each[at]),
            )
            pattern.append(found.setdefault(part, len(found)))
        patterns[tuple(pattern)] = None
    return Layout(parts=tuple(found), patterns=tuple(patterns))


@dataclass(frozen=True, eq=False, slots=True)
class _Ranks:
    """All ranks of a plan by replica and stage: `place` is replica · stages + stage, (ranks,)."""

    replicas: int
    stages: int
    place: Integers

    @classmethod
    def of(cls, plan: Plan) -> "_Ranks":
        sizes, rest, digit = degrees(plan), np.arange(plan.devices), {}
        for name, size in sizes.items():
            rest, digit[name] = np.divmod(rest, size)
        stages = sizes["pp"]
        return cls(sizes["dp"], stages, digit["dp"] * stages + digit["pp"])

    @property
    def places(self) -> int:
        """Return the number of stages of all replicas."""
        return self.replicas * self.stages

    def slowest(self, speeds: Counts) -> Counts:
        """Return the lowest speed of the ranks of each place, (places,)."""
        found = np.full(self.places, np.inf)
        np.minimum.at(found, self.place, speeds)
        return found

    def neighbour(self, places: Integers, step: int) -> Integers:
        """Return the place of the stage some steps later in the same replica."""
        found: Integers = places // self.stages * self.stages + (places + step) % self.stages
        return found


def _slow(ranks: _Ranks, cluster: Cluster, site: Site) -> tuple[Counts, Counts]:
    """Return the speeds of devices and of hosts of each place, (places,)."""
    devices, hosts = np.ones(len(ranks.place)), np.ones(len(ranks.place))
    node = np.arange(len(ranks.place)) // cluster.node.devices
    for part in site.slow:
        if part.kind == DEVICE:
            devices[part.index] = min(devices[part.index], part.speed_fraction)
        elif part.kind == HOST:
            hosts = np.where(node == part.index, np.minimum(hosts, part.speed_fraction), hosts)
    return ranks.slowest(devices), ranks.slowest(hosts)


def _slow_links(ranks: _Ranks, cluster: Cluster, site: Site) -> list[tuple[LinkSpeed, ...]]:
    """Return the speeds of slow links for each place.

    The neighbours in the pipeline exchange their messages with the slow stage at its speed.
    """
    names = [tier.name for tier in cluster.tiers]
    found: list[dict[tuple[str, int], float]] = [{} for _ in range(ranks.places)]
    for part in site.slow:
        outside = range(min(1, len(names) - 1), len(names))
        tiers = outside if part.kind == LINK else [i for i, name in enumerate(names) if name == part.kind]
        own = int(ranks.place[part.index]) if part.kind not in (DEVICE, HOST) else 0
        after, before = (int(ranks.neighbour(np.array(own), step)) for step in (1, -1))
        for tier in tiers if part.kind not in (DEVICE, HOST) else ():
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


def axes_of(programs: Programs) -> set[str]:
    """Return the axes along which the items of programs send messages to groups of ranks."""
    works = (item.work for item in programs.items() if isinstance(item.work, AbstractMessage))
    return {work.axis for work in works if work.collective and work.axis not in ("pp", "pp_inside")}


def with_parts(priced: Priced, layout: Layout | None) -> Priced:
    """Return the prices of a job of one plan with one row for each part; unchanged without parts."""
    if layout is None:
        return priced
    transfers = _directions(priced.programs)
    prices = {
        item: _stacked([_on(part, item, price, transfers.get(item, ())) for part in layout.parts])
        for item, price in priced.prices.items()
    }
    return replace(priced, prices=prices, patterns=layout.patterns, equal=priced, kept=NOTHING_KEPT)


def _directions(programs: Programs) -> dict[Item, tuple[str, ...]]:
    """Return the axes of every item of a transfer; the same item may travel in both directions."""
    found: dict[Item, tuple[str, ...]] = {}
    for hop in (programs.hop_across, programs.hop_inside):
        for items, axis in ((hop.forward, NEXT), (hop.backward, BEFORE)):
            for item in items:
                found[item] = (*found.get(item, ()), axis)
    return found


def _on(part: Part, item: Item, price: ItemPrice, transfers: tuple[str, ...]) -> ItemPrice:
    """Return the price of an item on a part."""
    work = item.work
    if price.host_s.any() and part.host_fraction < 1.0:
        price = replace(price, host_s=price.host_s / part.host_fraction)
    if isinstance(work, AbstractOperator):
        slower_ratio = 1.0 / part.device_fraction
        return price if slower_ratio == 1.0 else replace(price, alone_s=price.alone_s * slower_ratio)
    if isinstance(work, HostWork | HostUpdate):
        slower_ratio = 1.0 / part.host_fraction
        return price if slower_ratio == 1.0 else replace(price, alone_s=price.alone_s * slower_ratio)
    if isinstance(work, AbstractMessage) and price.link is not None and part.links:
        axes = transfers or (work.axis,)
        to_all = work.collective in FORMULAS and FORMULAS[work.collective].to_all
        return _on_links(part.links, axes, to_all, price, price.link)
    return price


def _on_links(
    links: tuple[LinkSpeed, ...], axes: tuple[str, ...], to_all: bool, price: ItemPrice, use: LinkUse
) -> ItemPrice:
    """Return the price of a message on links of other speeds: their bytes take longer, latency does not."""
    slower = np.ones(use.tier.shape)
    for speed in links:
        if speed.axis in ("", *axes) and speed.to_all in (None, to_all):
            slower = np.where(use.tier == speed.tier, slower / speed.speed_ratio, slower)
    room = use.cards_ratio  # of what all cards could send over what reaches them inside the domain
    reached, left = np.minimum(room, 1.0), np.minimum(room / slower, 1.0)
    limited = np.divide(reached, left, out=slower.copy(), where=room > 0)
    grown = 1.0 + use.fraction * (limited - 1.0)
    link = replace(use, fraction=use.fraction * limited / grown)
    return replace(price, alone_s=price.alone_s * grown, link=link)


def _stacked(prices: Sequence[ItemPrice]) -> ItemPrice:
    """Return the prices of one item on all parts as rows of one price."""
    first = prices[0]
    if all(price is first for price in prices):
        return first
    names = dict.fromkeys(name for price in prices for name in price.partly)
    none = np.zeros((1, 1), dtype=bool)
    link = None
    if first.link is not None:
        uses = [price.link or first.link for price in prices]
        link = LinkUse(*(_rows([getattr(use, name) for use in uses]) for name in LinkUse.FIELDS))
    return replace(
        first,
        alone_s=_rows([price.alone_s for price in prices]),
        host_s=_rows([price.host_s for price in prices]),
        partly={name: _rows([price.partly.get(name, none) for price in prices]) for name in names},
        link=link,
        moves=_rows([price.moves for price in prices]),
    )


def _rows(arrays: Sequence[Counts]) -> Counts:
    """Return arrays (1, classes) as the rows of one array; a single row if all are the same array."""
    if all(array is arrays[0] for array in arrays):
        return arrays[0]
    width = max(array.shape[1] for array in arrays)
    rows: Counts = np.concatenate([np.broadcast_to(array, (1, width)) for array in arrays])
    return rows
