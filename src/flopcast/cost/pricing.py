"""The prices of a batch. Equal items are priced only once, in this or in an earlier prediction.

Answers: on what does the price of an item depend, which factors and curves were used, and how do a time and
factors form the price of an item?
Elsewhere: the seconds (price.py, graph_prices.py).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from flopcast.cost.factors import EXPERT_LAUNCH, HOST, Factor, FactorBook
from flopcast.cost.graph_kernels.software import GraphSoftware
from flopcast.cost.host import graphed, launch_seconds, launches_experts
from flopcast.cost.item_prices import ItemPrice, Used
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Floats, any_of
from flopcast.kept_results import KeptResults, Same
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import Record, field, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.strict_model import cached_results

HOST_LOG_SIGMA = 0.5  # measured hosts differ by 2.5 times (NVIDIA/TransformerEngine, issue 2053)
EXPERT_LAUNCH_LOG_SIGMA = 0.7  # an estimate: one loop over experts was timed, on one host
SENT = (AbstractMessage, TierCopy, HostUpdate)  # work whose time depends on more than a node
FROM_PYTHON = ("forward", "recompute")  # phases whose kernels the interpreter launches


class PricedItem(Record, eq=False, kw_only=False):
    """The price of an item, with the factors and the curves on which it is based.

    A cache of earlier predictions stores these objects. Factors and curves are part of it because a report
    lists them even if nothing had to be priced again.
    """

    price: ItemPrice
    factors: tuple[Factor, ...] = ()
    used: tuple[Used, ...] = ()


class Pricing(Record, eq=False, kw_only=False):
    """The prices computed so far.

    Each call of `price` creates one object. Kernels, messages and host work add to its tables one after the
    other. `place` identifies everything on which the price of a message or a copy depends besides its item
    and its ranks. `node_place` identifies everything on which any other price depends besides its item.
    """

    cluster: Cluster
    stack: Stack
    book: CurveBook
    factors: FactorBook
    kept: KeptResults
    place: object
    graph: GraphSoftware | None = None  # of an exported graph
    node_place: object = None
    prices: dict[Item, ItemPrice] = field(default_factory=dict)
    used: dict[tuple[str, str], Used] = field(default_factory=dict)
    found: dict[str, Factor] = field(default_factory=dict)

    def alone(self) -> "Pricing":
        """Return the state for one group of items, without the factors that another group used."""
        return replace(self, prices={}, used={}, found={})

    def price(self, groups: Iterable["PricedGroup"]) -> None:
        """Price groups of items; items of a group without a kept price are priced together."""
        known: list[PricedItem] = []
        for items, make, ranks in groups:
            found = self.kept.of_each(self._keys(items, ranks), partial(self._made, items, make))
            self.prices.update(zip(items, [one.price for one in found], strict=True))
            known += found
        for factors in {id(one.factors): one.factors for one in known}.values():  # many items share them
            for factor in factors:
                self.ratio_of(factor)
        for curves in {id(one.used): one.used for one in known}.values():
            for used in curves:
                self._use(used)

    def _made(self, items: list[Item], make: "MakePrices", places: list[int]) -> list[PricedItem]:
        """Return the prices of items at some places of a group."""
        return make([items[place] for place in places], self.alone())

    def _keys(self, items: list[Item], ranks: Hashable) -> Sequence[Hashable]:
        """Return what the price of each item depends on, as a key; the items where nothing is kept."""
        if not self.kept:
            return items
        graphs, place, node_place = self.stack.host.graphs, self.place, self.node_place
        return [
            (
                place if isinstance(item.work, SENT) else node_place,
                item.work_content(),
                bool(graphs) and graphed(item, graphs),
                item.phase in FROM_PYTHON,
                item.is_further_chunk,
                ranks,
            )
            for item in items
        ]

    def _use(self, used: Used) -> None:
        """Take note of a curve: extrapolated once is extrapolated for good."""
        key = (used.curve.owner, used.curve.name)
        before = self.used.get(key)
        extrapolated = before is not None and before.extrapolated and not used.extrapolated
        self.used[key] = replace(used, extrapolated=True) if extrapolated else used

    def ratio_of(self, factor: Factor) -> float:
        """Record a factor and return its ratio.

        If a name occurs several times, the first ratio and the largest sigma are kept.
        """
        before = self.found.setdefault(factor.name, factor)
        if factor.log_sigma_factor > before.log_sigma_factor:
            self.found[factor.name] = replace(before, log_sigma_factor=factor.log_sigma_factor)
        return before.ratio


MakePrices = Callable[[list[Item], Pricing], list[PricedItem]]
PricedGroup = tuple[list[Item], MakePrices, Hashable]  # items, how they are priced, a key of their ranks


def place_of(
    stack: Stack,
    machine: Hashable,
    book: CurveBook,
    factors: FactorBook,
    kept: KeptResults,
    graph: GraphSoftware | None = None,
) -> object:
    """Return a key that is equal for equal stacks, machines and factors with the same curves.

    Prices do not contain how much messages slow down concurrent compute (timeline/contention.py).
    """
    context = tuple(factors.context.items()) if factors.levels else ()  # without levels, no sigma grows
    kind = graph.kind if graph else None
    numbers = Same(book.curves), Same(book.graphs), Same(factors.levels)
    key = ("place", _without_contention(stack), machine, factors.site, context, numbers, kind)
    return kept.of(key, object)  # an object is quick to hash


@cached_results(64)
def _without_contention(stack: Stack) -> Stack:
    return stack.with_part("contention", kernel_share=0.0)


def one_node(cluster: Cluster, site: Site) -> Hashable:
    """Return the node of a cluster, on which the prices of kernels depend.

    If the clocks of devices differ, the number of devices also counts, because the slowest device
    determines the time.
    """
    return cluster.node, cluster.num_devices if site.clock_spread_fraction > 0 else 0


class Partly(Record, eq=False, kw_only=False):
    """A factor that applies only to some rows: its name, its sigma, and a mask of the rows."""

    name: str
    log_sigma_factor: float
    rows: np.ndarray


def with_evidence(
    items: list[Item], prices: list[ItemPrice], used: Sequence[tuple[Used, ...]], state: Pricing
) -> list[PricedItem]:
    """Return prices with the factors that scale the items or their launches."""
    names = [(*price.names(), *_launching(item)) for item, price in zip(items, prices, strict=True)]
    factors = {each: tuple(state.found[name] for name in each) for each in set(names)}
    return [
        PricedItem(price, factors[each], curves)
        for price, each, curves in zip(prices, names, used, strict=True)
    ]


def _launching(item: Item) -> tuple[str, ...]:
    """Return the factors of the host's time to launch an item."""
    return (HOST, EXPERT_LAUNCH) if launches_experts(item) else (HOST,)


def prices_of(
    items: list[Item],
    shapes: Sequence[tuple[int, ...]],
    alone_s: Floats,
    least_s: Floats,
    names: tuple[str, ...],
    partly: tuple[Partly, ...],
    state: Pricing,
) -> list[ItemPrice]:
    """Return the prices of items whose seconds are concatenated in flat arrays.

    A factor in `partly` scales only the items and plans to which it applies, on all stage classes, and only
    their prices name it. A small message must not make a large message uncertain, and one plan must not
    make another plan uncertain. No factor makes an item faster than its `least_s`, the time that its bytes
    and FLOP need at least.
    """
    partly = tuple(one for one in partly if one.log_sigma_factor > 0 and any_of(one.rows))
    held: list[dict[str, np.ndarray]] = [{} for _ in items]
    for one in partly:
        scaled = []
        for mask, only in zip(split_flat(one.rows, shapes), held, strict=True):
            plans = np.asarray(mask.any(axis=-1, keepdims=True))
            if any_of(plans):
                only[one.name] = plans
            scaled.append(
                (plans if plans.shape == mask.shape else np.broadcast_to(plans, mask.shape)).ravel()
            )
        ratio = state.ratio_of(state.factors.get(one.name, one.log_sigma_factor))
        alone_s = np.where(np.concatenate(scaled), alone_s * ratio, alone_s)
    flat = np.maximum(alone_s, least_s), alone_s, least_s, (alone_s >= least_s).astype(np.float64)
    columns = [split_flat(column, shapes) for column in flat]
    host_ratio = state.ratio_of(state.factors.get(HOST, HOST_LOG_SIGMA))
    return [
        ItemPrice(
            alone_s=item_s,
            host_s=_launch_s(item, item_s, host_ratio, state),
            wholly=names,
            partly=only,
            moves=moved,
            free_s=free_s,
            least_s=limit_s,
        )
        for item, item_s, free_s, limit_s, moved, only in zip(items, *columns, held, strict=True)
    ]


def split_flat(flat: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> Iterator[np.ndarray]:
    """Yield the parts of a flat array, each in its own shape."""
    start = 0
    for shape in shapes:
        end = start + math.prod(shape)
        yield flat[start:end].reshape(shape)
        start = end


def _launch_s(item: Item, alone_s: Floats, host_ratio: float, state: Pricing) -> Floats:
    """Return the seconds that the host of this cluster needs for one launch.

    The speed of the host does not scale the loop over experts, because the source of its time does not
    state on which host it was measured. (If the speed scaled it, the predicted step of Qwen3 30B on GB200
    would be 43 % too long.)
    """
    launch_s = launch_seconds(item, alone_s, state.stack) * host_ratio
    if launches_experts(item):
        return launch_s * state.ratio_of(state.factors.get(EXPERT_LAUNCH, EXPERT_LAUNCH_LOG_SIGMA))
    return launch_s / state.cluster.node.host.speed_ratio
