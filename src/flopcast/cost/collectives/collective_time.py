"""Seconds of a collective on the tiers of a cluster.

Answers: how long does one message take over this group of ranks?
A group inside one scale-up domain (a node, or all nodes on one NVLink fabric) uses the innermost tier. A
group on several domains uses the widest tier that it needs. Every rank of a domain then drives its own
share of the network cards (a multi-rail ring), so the bus bandwidth is `Formula.lanes` × the share of one
rank, but at most that of the inner tier.
"""

from collections.abc import Mapping

import numpy as np

from flopcast.cost.collectives.collisions import collision_ratio
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.curve import Curve, log_efficiency, outside
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.dtypes import Counts, Floats, any_of, distinct
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.tier import Tier

AT_ITS_TOP: Counts = np.zeros(())  # the depth of a group that no tier inside a node joins
RELATIVE_COLLECTIVES = {  # whose efficiency a collective without measurements borrows
    "served_all_reduce": "all_reduce",
    "custom_all_reduce": "served_all_reduce",
    "star_all_reduce": "send_receive",
    "all_gather": "all_reduce",
    "reduce_scatter": "all_gather",
    "broadcast": "all_gather",
    "reduce": "reduce_scatter",
    "all_to_all": "all_gather",
    "quantised_reduce_scatter": "all_to_all",
    "send_receive": "all_gather",
    "ring_pass": "send_receive",
    "dispatch": "all_to_all",
    "combine": "all_to_all",
    "hybrid_dispatch": "dispatch",
    "hybrid_combine": "combine",
}


class MessageCost(Record, eq=False):
    """Seconds of one message, the tier that it uses in each plan, and the curves that gave the seconds.

    `alone_s` and `tier` have the broadcast shape of message and group, usually (plans, stage classes) or
    flat. `curves` contains the measured curve of each tier that has one, by the index of the tier. If it is
    empty, all seconds follow from the `attained_fraction` of the tiers. `extrapolated` and `borrowed` are
    masks of the same shape. They mark messages or groups outside the measured range, and curves that belong
    to another collective. `bound_s` is the time at full bandwidth without latency. `on_link_s` is the part
    of `alone_s` in which bytes occupy the link of `tier`; the rest is latency. `cards_ratio` is that of
    `LinkUse` (item_prices.py).
    """

    alone_s: Floats
    on_link_s: Floats
    bound_s: Floats
    tier: np.ndarray  # index into the cluster's tiers, same shape
    curves: Mapping[int, Curve]
    extrapolated: np.ndarray
    borrowed: np.ndarray
    cards_ratio: Counts


class Terms(Record, eq=False):
    """The terms of the seconds of messages on one tier; arrays (rows,).

    `latency_s` is the latency of all hops, or the time of the smallest measured message. `share` of the
    message crosses the link of each rank, which reaches the fraction `efficiency` of its bus bandwidth.
    """

    latency_s: Floats
    share: Counts
    sent_bytes: Floats
    bus_bytes_per_s: Floats
    efficiency: Counts
    cards_ratio: Counts

    @property
    def bound_s(self) -> Floats:
        """Return the seconds at the full bus bandwidth, without latency."""
        found_s: Floats = self.share * self.sent_bytes / self.bus_bytes_per_s
        return found_s

    @property
    def on_link_s(self) -> Floats:
        """Return the seconds in which bytes occupy the link, without latency."""
        found_s: Floats = self.bound_s / self.efficiency
        return found_s

    @property
    def alone_s(self) -> Floats:
        """Return the seconds without concurrent work."""
        found_s: Floats = self.latency_s + self.on_link_s
        return found_s


def message_terms(
    collective: str, size_bytes: Floats, group: Group, cluster: Cluster, book: CurveBook
) -> tuple[Tier, Terms, Curve | None]:
    """Return the tier of the messages of one group, the terms of their seconds, and the curve.

    All arrays have shape (rows,), and all rows use the same tier. Messages between domains
    have other formulas in two cases: exchanges of tokens between experts that send one copy of a token to
    each domain (`one_copy_a_domain`), and exchanges that consist of two all-to-alls (`two_steps`).
    """
    index = int(tier_of(group.nodes, cluster, group.depth)[0])
    link, inner = cluster.tiers[index], _inner(index, cluster)
    curve = None if collective in link.library_fraction else _curve(collective, link, book)
    each = _uplink_bytes_per_s(collective, group.nodes, index, cluster)
    terms = _on_tier(collective, size_bytes, group.inside, group.nodes, link, each, inner, curve)
    return link, terms, curve


def message_seconds(
    collective: str,
    message_bytes: Floats,
    group: Group,
    cluster: Cluster,
    book: CurveBook,
    domain_bytes: Floats | None = None,
) -> MessageCost:
    """Return the seconds of `collective`; all arrays broadcast against each other.

    Time is `hops · latency + share · message_bytes / (bus bandwidth · efficiency)` (Hockney, Parallel
    Computing 20(3), 1994). Efficiency is looked up in the fabric's curve by size, ranks inside and nodes;
    without a curve, it is the tier's stated fraction. If small messages were measured, the launch time of
    the curve replaces the latencies of the hops.

    `domain_bytes` are the bytes of one copy for each scale-up domain, for a collective that sends only one
    copy to each domain (operators/exchanges.py). Transfers over the network and inside the domains run at
    the same time, so the collective takes as long as the longer of the two.

    Returns
    -------
    MessageCost
        Seconds are 0 if the group is a single rank, or if nothing is sent.
    """
    if FORMULAS[collective].in_two_steps:
        return _in_two_steps(message_bytes, group, cluster, book)
    shape = np.broadcast_shapes(message_bytes.shape, group.ranks.shape)
    inside, nodes, size = (np.broadcast_to(a, shape) for a in (group.inside, group.nodes, message_bytes))
    tier, curves = np.broadcast_to(tier_of(group.nodes, cluster, group.depth), shape), dict[int, Curve]()
    seconds, bound_s, on_link_s, cards_ratio = (np.zeros(shape) for _ in range(4))
    extrapolated, borrowed = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for index in distinct(tier):
        here = (tier == index) & (inside * nodes > 1) & (size > 0)
        if not any_of(here):
            continue
        link, inner = cluster.tiers[index], _inner(index, cluster)
        if inner and domain_bytes is not None and FORMULAS[collective].one_copy_a_domain:
            domain = Group(inside=inside[here], nodes=np.ones(int(here.sum())))
            within = message_seconds(collective, size[here], domain, cluster, book)
            across = np.broadcast_to(domain_bytes, shape)[here]
            sent = _over_network(collective, across, nodes[here], link)
            seconds[here] = np.maximum(sent.alone_s, within.alone_s)
            bound_s[here] = np.maximum(sent.bound_s, within.bound_s)
            on_link_s[here] = sent.on_link_s
            curves |= within.curves if (decides := within.alone_s > sent.alone_s).any() else {}
            extrapolated[here], borrowed[here] = within.extrapolated & decides, within.borrowed & decides
            continue
        curve = None if collective in link.library_fraction else _curve(collective, link, book)
        if curve is not None:
            curves[int(index)] = curve
            extrapolated[here] = outside(curve, (size[here], inside[here], nodes[here]))
            borrowed[here] = curve.name != collective
        each = _uplink_bytes_per_s(collective, nodes[here], int(index), cluster)
        terms = _on_tier(collective, size[here], inside[here], nodes[here], link, each, inner, curve)
        seconds[here], bound_s[here], on_link_s[here] = terms.alone_s, terms.bound_s, terms.on_link_s
        cards_ratio[here] = terms.cards_ratio
    masks = {"extrapolated": extrapolated, "borrowed": borrowed, "cards_ratio": cards_ratio}
    return MessageCost(
        alone_s=seconds, on_link_s=on_link_s, bound_s=bound_s, tier=tier, curves=curves, **masks
    )


def _over_network(collective: str, domain_bytes: Floats, nodes: Counts, link: Tier) -> Terms:
    """Return the seconds of one copy to each other domain, which the network card of the rank sends."""
    attained = link.library_fraction.get(collective, link.reached_fraction)
    return Terms(
        latency_s=np.full(nodes.shape, link.latency_s),
        share=(nodes - 1.0) / nodes,
        sent_bytes=domain_bytes,
        bus_bytes_per_s=np.full(nodes.shape, link.bytes_per_s),
        efficiency=np.full(nodes.shape, attained),
        cards_ratio=np.zeros(nodes.shape),
    )


def tier_of(nodes: Counts, cluster: Cluster, depth: Counts = AT_ITS_TOP) -> np.ndarray:
    """Return the index of the tier that connects a group that spans this many adjacent scale-up domains.

    The last tier connects any number of domains, regardless of its `devices`. Inside a domain, this tier is
    `depth` tiers below the tier of the domain. Domains that are not adjacent need a tier that is at least
    -`depth` tiers above it.
    """
    reach, first = nodes * cluster.scale_up_devices, cluster.inner_tiers
    tier = np.full(nodes.shape, first, dtype=np.intp)
    for index, link in enumerate(cluster.tiers[:-1]):
        tier = np.where((reach > (link.devices or np.inf)), index + 1, tier)
    apart = np.maximum(tier, min(first + 1, len(cluster.tiers) - 1))
    joining = first - depth.astype(np.intp)
    return np.where(nodes > 1, np.maximum(apart, joining), joining)


def _inner(index: int, cluster: Cluster) -> Tier | None:
    """Return the tier of the scale-up domain, for a message on a wider one."""
    return cluster.tiers[cluster.inner_tiers] if index > cluster.inner_tiers else None


def two_steps(message_bytes: Floats, group: Group) -> tuple[tuple[Floats, Group], tuple[Floats, Group]]:
    """Return bytes and ranks of the two all-to-alls of a message: inside each domain, then between domains.

    In the second step, each rank exchanges with the ranks in the same place of the other domains. Its bytes
    are those of the first step, divided by the number of ranks in a domain.
    """
    alone = np.ones_like(group.nodes)
    near = Group(inside=group.inside, nodes=alone, depth=group.depth)
    return (message_bytes, near), (message_bytes / group.inside, Group(inside=alone, nodes=group.nodes))


def _in_two_steps(message_bytes: Floats, group: Group, cluster: Cluster, book: CurveBook) -> MessageCost:
    """Return the cost of all-to-alls inside each domain and then between domains, one after the other."""
    within, across = (
        message_seconds("all_to_all", size_bytes, ranks, cluster, book)
        for size_bytes, ranks in two_steps(message_bytes, group)
    )
    leaves = np.broadcast_to(group.nodes > 1, across.alone_s.shape)
    return MessageCost(
        alone_s=within.alone_s + across.alone_s,
        on_link_s=np.where(leaves, across.on_link_s, within.on_link_s),
        bound_s=within.bound_s + across.bound_s,
        tier=np.where(leaves, across.tier, within.tier),
        curves={**within.curves, **across.curves},
        extrapolated=within.extrapolated | across.extrapolated,
        borrowed=within.borrowed | across.borrowed,
        cards_ratio=np.where(leaves, across.cards_ratio, within.cards_ratio),
    )


def _on_tier(
    collective: str,
    size_bytes: Floats,
    inside: Counts,
    nodes: Counts,
    link: Tier,
    own_bytes_per_s: Floats,
    inner: Tier | None,
    curve: Curve | None,
) -> Terms:
    """Return the cost of messages that all use `link`; flat arrays of equal length.

    `own_bytes_per_s` is a device's share of the link, (rows,); `inner` the tier inside of its domain, where
    the others' shares reach it, None where `link` is that: more network cards than it has bandwidth for do
    not help. A transfer between two ranks drives one card only.

    A curve with a launch of its own was measured down to messages of latency alone: no hops are counted
    beside it, and a smaller message takes as long as the smallest that was measured.
    """
    ranks = np.rint(inside * nodes)
    formula = FORMULAS[collective]
    latency_s = formula.hops(ranks) * link.latency_s
    if inner is not None and formula.rings:
        latency_s = (nodes - 1.0) * link.latency_s + (ranks - nodes) * inner.latency_s
    attained = link.library_fraction.get(collective, link.reached_fraction)
    efficiency = np.full(size_bytes.shape, attained)
    if curve is not None and curve.launch_s > 0:
        size_bytes = np.maximum(size_bytes, 2.0 ** curve.axes[0][0])
        latency_s = np.full(size_bytes.shape, curve.launch_s)
    bus_bytes_per_s = formula.lanes(inside, nodes) * own_bytes_per_s
    cards_ratio = np.zeros(size_bytes.shape)
    if inner is not None:
        cards_ratio = bus_bytes_per_s / inner.bytes_per_s
        bus_bytes_per_s = np.minimum(bus_bytes_per_s, inner.bytes_per_s)
    if curve is not None:
        efficiency = np.exp(log_efficiency(curve, (size_bytes, inside, nodes)))
    return Terms(
        latency_s=latency_s,
        share=formula.share(ranks),
        sent_bytes=size_bytes,
        bus_bytes_per_s=bus_bytes_per_s,
        efficiency=efficiency,
        cards_ratio=cards_ratio,
    )


def _uplink_bytes_per_s(collective: str, nodes: Counts, index: int, cluster: Cluster) -> Floats:
    """Return the bytes/s of a device on a tier while all devices of its block send; (rows,).

    A block is what the tier below joins. Its uplinks carry 1 / oversubscription of what its devices can
    send: that is too little only for as much of the traffic as leaves the block.
    """
    link = cluster.tiers[index]
    per_block = max(cluster.tiers[index - 1].devices // cluster.scale_up_devices, 1) if index else 1
    blocks = np.ceil(nodes / per_block)
    slowed_ratio = FORMULAS[collective].uplinked(nodes, blocks) * link.oversubscription_ratio
    least_ratio = 1.0 if link.paths is None else collision_ratio(link.paths)
    own_bytes_per_s: Floats = link.bytes_per_s / np.maximum(slowed_ratio, least_ratio)
    return own_bytes_per_s


def _curve(collective: str, link: Tier, book: CurveBook) -> Curve | None:
    """Return the curve of the fabric, or of the collective whose bus bandwidth it borrows."""
    name: str | None = collective
    while name is not None:
        curve = book.exact(link.fabric, name)
        if curve is not None:
            return curve
        name = RELATIVE_COLLECTIVES.get(name)
    return None
