"""Seconds of items that are the same for all plans of equal split: one row for each split.

Answers: what do the items of a batch take that depend on the split alone, without prices of whole plans?
Elsewhere: prices of every item for every plan (price.py), which items are alike (deduplicate.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flopcast.cost.constant_transfer import context_of
from flopcast.cost.deduplicate import PricedOnce, priced_once
from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price_all
from flopcast.cost.pricing import Pricing
from flopcast.cost.single_groups import single_groups, to_price
from flopcast.dtypes import Floats
from flopcast.kept_results import NOTHING_KEPT
from flopcast.operators.item import Item
from flopcast.spec.cluster import Cluster
from flopcast.spec.rows import EqualRows, of_rows
from flopcast.workload.program import Programs


@dataclass(frozen=True, eq=False, slots=True)
class SplitSeconds:
    """Seconds of items in plans of equal split.

    `rows` groups the plans; `seconds` holds the items that take the same in all plans of each group, as
    often as they run in a row: (groups, 1), or (1, 1) if all groups agree.
    """

    rows: EqualRows
    seconds: Mapping[Item, Floats]


def split_seconds(
    programs: Programs, cluster: Cluster, book: CurveBook, factors: FactorBook
) -> SplitSeconds | None:
    """Return the seconds of the items of all passes, as far as they depend on the split alone.

    Returns
    -------
    SplitSeconds or None
        None if every plan has a split of its own.

    Raises
    ------
    KeyError
        As `price`.
    """
    items = tuple({item: None for run in programs.passes for segment in run for item in segment.items})
    singles = single_groups(items)
    wanted = to_price(items, singles)
    once = priced_once(wanted, programs.plans, cluster.scale_up_devices)
    if not any(once.narrowed):
        return None
    narrowed = {
        item: priced
        for item, priced, narrow in zip(wanted, once.items, once.narrowed, strict=True)
        if narrow and once.rows.holds(item.count)
    }
    context = context_of(programs.workload.model, cluster, programs.plans.structure.precision)
    state = Pricing(cluster, programs.stack, book, replace(factors, context=context), NOTHING_KEPT, None)
    price_all(PricedOnce(tuple(narrowed.values()), (True,) * len(narrowed), once.rows, once.groups), state)
    alone_s = {item: state.prices[priced].alone_s for item, priced in narrowed.items()}
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
