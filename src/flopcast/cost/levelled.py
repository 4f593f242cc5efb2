"""Prices with fitted levels, from prices without levels.

Answers: what is the price of each item with several sets of levels?
Elsewhere: prices without levels (price.py), levels and factors (factors.py).

A level multiplies the seconds of the items that its factor scales. So the curves are evaluated once, for
prices without levels, and the prices with any levels follow by multiplication.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import EXPERT_LAUNCH, Factor, FactorBook
from flopcast.cost.host import launches_experts
from flopcast.cost.item_prices import ItemPrice, Priced
from flopcast.dtypes import Counts
from flopcast.kept_results import Same
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import Record, replace

Levels = Mapping[str, FittedLevel]
NOT_SCALED = (TierCopy, HostUpdate)  # work whose seconds do not simply scale with the level of a factor


class _Levelled(Record, eq=False, kw_only=False):
    """A price with a row for each set of levels, and the price with each of them alone."""

    together: ItemPrice
    alone: tuple[ItemPrice, ...]


def can_be_levelled(bare: Priced) -> bool:
    """Return whether prices with levels follow from these prices, which have no levels.

    They do for one plan on equal parts, without exported graphs and copies between memories.
    """
    programs = bare.programs
    return (
        bool(bare.kept)
        and programs.plans.size == 1
        and not (programs.legs or programs.workload.rows or bare.patterns or len(bare.cluster.groups) > 1)
        and not any(isinstance(item.work, NOT_SCALED) for item in bare.prices)
        and not any(name.startswith("graph_level[") for name in bare.factors)
    )


def levelled(bare: Priced, levels: Sequence[Levels]) -> tuple[Priced, tuple[Priced, ...]]:
    """Return the prices with several sets of levels: one with a row for each set, and one for each alone.

    Parameters
    ----------
    bare : prices without levels, for which `can_be_levelled` is true
    levels : sets of levels; an empty set is none

    Returns
    -------
    tuple
        The shapes of seconds are (sets, stage classes) in the first result, (1, stage classes) in the
        others.
    """
    books = [FactorBook(bare.site, each, bare.context) for each in levels]
    factors = [_factors_with(book, bare) for book in books]
    ratios: dict[str, Counts] = {}
    for name, factor in bare.factors.items():
        ratio = np.array([found[name].ratio for found in factors]) / factor.ratio
        if (ratio != 1.0).any():
            ratios[name] = ratio
    found = _levelled_prices(bare, tuple(levels), ratios)
    of_item = {item: found[price] for item, price in bare.prices.items()}
    each = tuple(
        replace(
            bare,
            prices={item: one.alone[number] for item, one in of_item.items()},
            factors=factors[number],
            levels=levels[number],
        )
        for number in range(len(levels))
    )
    return replace(bare, prices={item: one.together for item, one in of_item.items()}), each


def _factors_with(book: FactorBook, bare: Priced) -> dict[str, Factor]:
    """Return the factors of a job with the levels of a book."""
    stack = bare.programs.stack
    found = {name: book.with_level(factor, stack) for name, factor in bare.factors.items()}
    return found | {factor.name: factor for factor in book.of_whole_steps(stack, bare.cluster)}


def _levelled_prices(
    bare: Priced, levels: tuple[Levels, ...], ratios: Mapping[str, Counts]
) -> dict[ItemPrice, _Levelled]:
    """Return the prices with each set of levels, by the price without levels."""
    sets = tuple(map(Same, levels))
    found: dict[ItemPrice, _Levelled] = {}
    missing: list[tuple[Item, ItemPrice]] = []
    for item, price in bare.prices.items():
        if price in found:
            continue
        known = bare.kept.get(("levelled", price, sets))
        if isinstance(known, _Levelled):
            found[price] = known
        else:
            found[price] = _Levelled(together=price, alone=(price,) * len(levels))
            missing.append((item, price))
    names = [tuple(name for name in price.names(0) if name in ratios) for _, price in missing]
    scaled = [number for number, each in enumerate(names) if each]
    for number, one in zip(scaled, _scaled(missing, names, scaled, ratios, levels), strict=True):
        found[missing[number][1]] = one
    if EXPERT_LAUNCH in ratios:
        for item, price in missing:
            if launches_experts(item):
                found[price] = _launched(price, found[price], ratios[EXPERT_LAUNCH])
    for _, price in missing:
        bare.kept.put(("levelled", price, sets), found[price])
    return found


def _scaled(
    missing: Sequence[tuple[Item, ItemPrice]],
    names: Sequence[tuple[str, ...]],
    scaled: Sequence[int],
    ratios: Mapping[str, Counts],
    levels: tuple[Levels, ...],
) -> list[_Levelled]:
    """Return the prices of items that levels scale, all in one calculation."""
    if not scaled:
        return []
    prices = [missing[number][1] for number in scaled]
    free_parts = [price.alone_s if price.free_s is None else price.free_s for price in prices]
    least_parts = [
        np.zeros(each_s.shape) if price.least_s is None else price.least_s
        for price, each_s in zip(prices, free_parts, strict=True)
    ]
    sizes = [one.size for one in free_parts]
    of_names = {each: np.prod([ratios[name] for name in each], axis=0) for each in set(names) if each}
    each = np.stack([of_names[names[number]] for number in scaled], axis=1)
    free_s = np.concatenate([one.ravel() for one in free_parts]) * np.repeat(each, sizes, axis=1)
    least_s = np.concatenate([one.ravel() for one in least_parts])
    alone_s, moves = np.maximum(free_s, least_s), (free_s >= least_s).astype(np.float64)
    found, start = [], 0
    for price, size in zip(prices, sizes, strict=True):
        here = slice(start, start + size)
        start += size
        together = replace(price, alone_s=alone_s[:, here], moves=moves[:, here])
        alone = tuple(
            replace(price, alone_s=alone_s[row : row + 1, here], moves=moves[row : row + 1, here])
            for row in range(len(levels))
        )
        found.append(_Levelled(together=together if len(levels) > 1 else alone[0], alone=alone))
    return found


def _launched(bare: ItemPrice, one: _Levelled, ratio: Counts) -> _Levelled:
    """Return the price of an item whose launches take longer with each set of levels."""
    host_s = bare.host_s
    alone = tuple(
        replace(price, host_s=host_s * each) for price, each in zip(one.alone, ratio.tolist(), strict=True)
    )
    return replace(one, together=replace(one.together, host_s=host_s * ratio[:, None]), alone=alone)
