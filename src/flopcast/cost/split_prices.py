"""Times of items that are equal for all plans with the same split: one row for each split.

Answers: how long do the items take that depend only on the split?
Elsewhere: prices of every item for every plan (price.py), equal items (deduplicate.py).
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from flopcast.cost.constant_transfer import context_of
from flopcast.cost.deduplicate import PricedOnce, priced_once
from flopcast.cost.factors import FactorBook
from flopcast.cost.graph_prices import software_of
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price_all
from flopcast.cost.pricing import Pricing, place_of
from flopcast.cost.single_groups import single_groups, to_price
from flopcast.dtypes import Floats
from flopcast.kept_results import NOTHING_KEPT, KeptResults, digest
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.rows import EqualRows, of_rows
from flopcast.workload.program import Programs

FEW_SPLITS = 4096  # whose seconds are kept for other batches


class SplitSeconds(Record, eq=False, kw_only=False):
    """Seconds of items in plans of equal split.

    `rows` groups the plans; `seconds` contains the items that take the same time in all plans of each
    group, for all executions in sequence: (groups, 1), or (1, 1) if all groups agree.
    """

    rows: EqualRows
    seconds: Mapping[Item, Floats]


def split_seconds(
    programs: Programs,
    cluster: Cluster,
    book: CurveBook,
    factors: FactorBook,
    kept: KeptResults = NOTHING_KEPT,
) -> SplitSeconds | None:
    """Return the seconds of those items of all passes whose time depends only on the split.

    Parameters
    ----------
    kept : KeptResults
        Seconds of items in earlier batches, which are used again if the batch has few splits: batches of
        other structures have the same splits, and most of their items.

    Returns
    -------
    SplitSeconds or None
        None if every plan has a different split.

    Raises
    ------
    KeyError
        As `price`.
    """
    items = tuple({item: None for run in programs.passes for segment in run for item in segment.items})
    singles = single_groups(items)
    wanted = to_price(items, singles)
    once = priced_once(wanted, programs.plans, cluster)
    if not any(once.narrowed):
        return None
    narrowed = {
        item: priced
        for item, priced, narrow in zip(wanted, once.items, once.narrowed, strict=True)
        if narrow and once.rows.holds(item.count)
    }
    context = context_of(programs.workload.model, cluster, programs.plans.structure.precision)
    factors = replace(factors, context=context)
    graph = software_of(programs, cluster, book, factors)
    state = Pricing(cluster, programs.stack, book, factors, NOTHING_KEPT, None, graph)
    few = kept if once.rows.size <= FEW_SPLITS else NOTHING_KEPT
    place = place_of(programs.stack, cluster, book, factors, few, graph) if few else None
    each_s = _alone_seconds(replace(once, items=tuple(narrowed.values())), state, few, place)
    alone_s = dict(zip(narrowed, each_s, strict=True))
    for single in singles:
        dense_s, several_s = alone_s.pop(single.dense, None), alone_s.pop(single.item, None)
        if dense_s is None or not once.rows.holds(single.where):
            continue
        if single.where.all():
            alone_s[single.item] = dense_s
        elif several_s is not None:
            where = of_rows(single.where, once.rows.first)
            alone_s[single.item] = np.where(where, dense_s, several_s)
    first = once.rows.first
    return SplitSeconds(
        once.rows, {item: each_s * of_rows(item.count, first) for item, each_s in alone_s.items()}
    )


def _alone_seconds(
    once: PricedOnce, state: Pricing, kept: KeptResults, place: object
) -> tuple[Floats, ...]:
    """Return the seconds of items that are narrowed to splits, each (groups, 1) or (1, 1).

    They depend on `place`, on the work of the item, and on the ranks of a message.
    """
    keys: Sequence[Hashable] = once.items
    if kept:
        arrays: dict[int, bytes] = {}
        ranks = {axis: digest(group, arrays) for (axis, narrow), group in once.groups.items() if narrow}
        keys = [(place, digest(item.work, arrays), _ranks(item, ranks)) for item in once.items]

    def made(places: list[int]) -> list[Floats]:
        items = tuple(once.items[i] for i in places)
        price_all(replace(once, items=items, narrowed=(True,) * len(items)), state)
        return [state.prices[item].alone_s for item in items]

    return tuple(kept.of_each(keys, made))


def _ranks(item: Item, by_axis: Mapping[str, bytes]) -> bytes:
    """Return what the price of a message asks of its ranks; nothing for other items."""
    return by_axis[item.work.axis] if isinstance(item.work, AbstractMessage) else b""
