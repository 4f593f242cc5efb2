"""Prices of items on the parts of a job that run at different speeds: one row of prices for each part.

Answers: how long does each item take on each part?
Elsewhere: the parts (parts.py), prices on equal parts (price.py), the row of each task
(timeline/task_times.py).

Prices have one row for each part, as for different kinds of micro-batches. Speeds of devices scale kernels,
speeds of hosts the host's work, and speeds of links the seconds in which the bytes of a message occupy a
link; only parts on different groups of nodes have separate prices.
"""

from collections.abc import Callable, Sequence

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.item_prices import ItemPrice, LinkUse, Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.parts import BEFORE, NEXT, Layout, LinkSpeed, Part
from flopcast.dtypes import Counts
from flopcast.kept_results import NOTHING_KEPT
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import HostWork, Item
from flopcast.operators.tier_copies import HostUpdate
from flopcast.records import replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.node_groups import as_cluster
from flopcast.workload.program import Programs

PriceOn = Callable[[Cluster, CurveBook], Priced]


def axes_of(programs: Programs) -> set[str]:
    """Return the axes along which the items of programs send messages to groups of ranks."""
    works = (item.work for item in programs.items() if isinstance(item.work, AbstractMessage))
    return {work.axis for work in works if work.collective and work.axis not in ("pp", "pp_inside")}


def priced_in_groups(cluster: Cluster, book: CurveBook, price_on: PriceOn) -> tuple[Priced, ...]:
    """Return the prices on each group of nodes: those inside the group, then those of messages to others.

    The result has two prices for each group, in the order of the groups, or a single price for a cluster of
    equal nodes.
    """
    if len(cluster.groups) == 1:
        return (price_on(cluster, book),)
    found: list[Priced] = []
    for group, own in zip(cluster.groups, book.groups or (book,) * len(cluster.groups), strict=True):
        inside = price_on(as_cluster(cluster, group), own)
        across = price_on(as_cluster(cluster, group, inside=False), own) if group.tiers else inside
        found += [inside, across]
    return tuple(found)


def with_parts(equal: tuple[Priced, ...], layout: Layout | None, cluster: Cluster) -> Priced:
    """Return the prices of a job of one plan with one row for each part; the same prices without parts.

    Parameters
    ----------
    equal : the result of `priced_in_groups`
    """
    first, pairs = equal[0], list(zip(equal[::2], equal[1::2] or equal, strict=True))
    if layout is None:
        return first
    transfers = _directions(first.programs)

    def on_part(part: Part, item: Item) -> ItemPrice:
        axes = transfers.get(item) or ((item.work.axis,) if isinstance(item.work, AbstractMessage) else ())
        inside, across = pairs[part.group]
        here = across if part.outside.intersection(axes) else inside
        return _on(part, item, here.prices[item], axes)

    return replace(
        first,
        cluster=cluster,
        prices={item: _stacked([on_part(part, item) for part in layout.parts]) for item in first.prices},
        factors={name: factor for each in equal for name, factor in each.factors.items()},
        used=tuple({(u.curve.owner, u.curve.name): u for each in equal for u in each.used}.values()),
        warnings=tuple(dict.fromkeys(text for each in equal for text in each.warnings)),
        patterns=layout.patterns,
        equal=equal,
        kept=NOTHING_KEPT,
    )


def _directions(programs: Programs) -> dict[Item, tuple[str, ...]]:
    """Return the axes of every item of a transfer; the same item may travel in both directions."""
    found: dict[Item, tuple[str, ...]] = {}
    for hop in (programs.hop_across, programs.hop_inside):
        for items, axis in ((hop.forward, NEXT), (hop.backward, BEFORE)):
            for item in items:
                found[item] = (*found.get(item, ()), axis)
    return found


def _on(part: Part, item: Item, price: ItemPrice, axes: tuple[str, ...]) -> ItemPrice:
    """Return the price of an item on a part, with messages along these axes."""
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
