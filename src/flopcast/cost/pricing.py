"""The prices of a batch so far; what costs the same is priced once, here or in an earlier prediction.

Answers: what does the price of an item depend on, and which factors and curves were used?
Elsewhere: the prices themselves (price.py).
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import Factor, FactorBook
from flopcast.cost.host import graphed
from flopcast.cost.item_prices import ItemPrice, Used
from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults, content
from flopcast.operators.item import Item
from flopcast.spec.cluster import Cluster
from flopcast.spec.stack import Stack


@dataclass(frozen=True, eq=False, slots=True)
class PricedItem:
    """The price of an item, with the factors and the curves that it rests on.

    It is the value that a cache of earlier predictions keeps. Factors and curves are part of it because a
    report lists them even if nothing had to be priced again.
    """

    price: ItemPrice
    factors: tuple[Factor, ...] = ()
    used: tuple[Used, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Pricing:
    """The prices computed so far.

    Belongs to one call of `price`, which fills its tables: kernels, messages and host work add to it in
    turn. `place` stands for all that a price depends on beside its item and the ranks of its message.
    """

    cluster: Cluster
    stack: Stack
    book: CurveBook
    factors: FactorBook
    kept: KeptResults
    place: object
    prices: dict[Item, ItemPrice] = field(default_factory=dict)
    used: dict[tuple[str, str], Used] = field(default_factory=dict)
    found: dict[str, Factor] = field(default_factory=dict)

    def alone(self) -> "Pricing":
        """Return the state for one group of items, which knows no factor that another group used."""
        return replace(self, prices={}, used={}, found={})

    def price(self, items: list[Item], make: "MakePrices", ranks: Hashable = ()) -> None:
        """Price a group of items, those of which nothing is kept together."""
        keys = [self._key(item, ranks) for item in items]
        known = self.kept.of_each(keys, lambda places: make([items[i] for i in places], self.alone()))
        for item, priced in zip(items, known, strict=True):
            self._add(item, priced)

    def _key(self, item: Item, ranks: Hashable) -> Hashable:
        """Return what the price of an item depends on, as a key; the item itself where nothing is kept."""
        if not self.kept:
            return item
        from_python = item.phase in ("forward", "recompute") and not item.is_further_chunk
        launch = graphed(item, self.stack.host.graphs), from_python
        return self.place, content(item.work), launch, ranks

    def _add(self, item: Item, priced: PricedItem) -> None:
        """Take note of a price, its factors and its curves: extrapolated once is extrapolated for good."""
        self.prices[item] = priced.price
        for factor in priced.factors:
            self.ratio_of(factor)
        for used in priced.used:
            key = (used.curve.owner, used.curve.name)
            before = self.used.get(key)
            extrapolated = before is not None and before.extrapolated and not used.extrapolated
            self.used[key] = replace(used, extrapolated=True) if extrapolated else used

    def ratio_of(self, factor: Factor) -> float:
        """Take note of a factor and return its ratio.

        Of equal names the first ratio and the largest sigma hold, so that the order changes no sigma.
        """
        before = self.found.setdefault(factor.name, factor)
        if factor.log_sigma_factor > before.log_sigma_factor:
            self.found[factor.name] = replace(before, log_sigma_factor=factor.log_sigma_factor)
        return before.ratio


MakePrices = Callable[[list[Item], Pricing], list[PricedItem]]


def place_of(
    stack: Stack, cluster: Cluster, book: CurveBook, factors: FactorBook, kept: KeptResults
) -> object:
    """Return an object that is the same for equal stacks, clusters and factors, and the same curves."""
    context = tuple(factors.context.items())
    key = ("place", stack, cluster, factors.site, context, id(book.curves), id(factors.levels))
    return kept.of(key, lambda: _Place(book.curves, factors.levels))


@dataclass(frozen=True, eq=False, slots=True)
class _Place:
    """What prices depend on beside items; it keeps alive what is identified by its address."""

    curves: Mapping[tuple[str, str], Curve]
    levels: Mapping[str, FittedLevel]
