"""Prices of items: the seconds of each item if nothing else runs, the factors that scale these seconds, and
the link of a message.

Answers: which numbers does the simulation need for each item?
Elsewhere: how prices are computed (price.py).
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from flopcast.cost.constant_transfer import Context, FittedLevel
from flopcast.cost.factors import Factor
from flopcast.cost.kernels.curve import Curve
from flopcast.dtypes import ONE, Counts, Floats, Integers
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.operators.item import Item
from flopcast.records import Record, field, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.rows import of_rows
from flopcast.spec.site import Site
from flopcast.workload.program import Programs


class Used(Record, eq=False):
    """A curve that was used for a price, and whether the curve was extrapolated.

    `extrapolated` is true if any shape of any item is outside the curve's range. `calibrated` is False for
    an estimate from the data sheet.
    """

    curve: Curve
    extrapolated: bool
    calibrated: bool


class LinkUse(Record, eq=False, kw_only=False):
    """The link that a message occupies, and for which fraction of its seconds; arrays have the shape of its
    price.

    `tier` is an index into the cluster's tiers. The remaining seconds are latency, in which the link is
    free for other messages. `cards_ratio` is the bandwidth of all network cards that carry the message,
    divided by that of the tier inside the domain, which limits them; it is 0 inside a domain, where there
    is no such limit.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("tier", "fraction", "cards_ratio")

    tier: np.ndarray
    fraction: Counts
    cards_ratio: Counts

    def of_rows(self, rows: Integers) -> "LinkUse":
        """Return the use of the link in some plans."""
        return LinkUse(*(of_rows(getattr(self, name), rows) for name in self.FIELDS))


class ItemPrice(Record, eq=False):
    """The price of one item: the seconds of one execution if nothing else runs, broadcast over plans.

    `alone_s` has shape (plans, 1) or (plans, stage classes). A dimension along which it does not vary has
    size 1. The seconds include all factors: those of `wholly` scale them in all plans, and those of
    `partly` in some plans, given by masks (plans, 1). `moves` is `d log(alone_s) / d log(factor)` for each
    factor: 1, or 0 if the seconds have their least value, below which no factor can reduce them. Exactly at
    that value it is the derivative towards longer times. `host_s` is spent by the launching thread before
    the kernel can start, in addition to the kernel's launch latency, which `alone_s` contains; items that
    take no time (a message to the same rank, an epilogue) are not launched. `link` is the link of a
    message; None for all other items. `free_s` are the seconds that the factors give without a least value,
    and `least_s` is this value; both are None if there is none.
    """

    alone_s: Floats
    host_s: Floats  # time of the host to launch it; shaped like `alone_s`, or (1, 1)
    wholly: tuple[str, ...]
    partly: Mapping[str, np.ndarray] = field(default_factory=dict)
    link: LinkUse | None = None
    moves: Counts = field(default_factory=lambda: ONE)
    free_s: Floats | None = None
    least_s: Floats | None = None

    def one_s(self, row: int) -> float:
        """Return the seconds of one execution in a plan; items of layers do not depend on the stage."""
        seconds = self.alone_s
        return float(seconds.item() if seconds.size == 1 else seconds[min(row, len(seconds) - 1), 0])

    def moved(self, row: int, stage_class: int = 0) -> float:
        """Return `moves` in one plan, on one stage class."""
        if self.moves.size == 1:
            return float(self.moves.item())
        rows, classes = self.moves.shape
        return float(self.moves[min(row, rows - 1), min(stage_class, classes - 1)])

    def of_rows(self, rows: Integers) -> "ItemPrice":
        """Return the price in some plans of the batch.

        Parameters
        ----------
        rows : array of int
            Positions of the plans. Arrays with a single row apply to all plans and do not change.
        """
        return replace(
            self,
            alone_s=of_rows(self.alone_s, rows),
            host_s=of_rows(self.host_s, rows),
            partly={name: of_rows(held, rows) for name, held in self.partly.items()},
            link=self.link.of_rows(rows) if self.link is not None else None,
            moves=of_rows(self.moves, rows),
            free_s=None if self.free_s is None else of_rows(self.free_s, rows),
            least_s=None if self.least_s is None else of_rows(self.least_s, rows),
        )

    @property
    def factors(self) -> tuple[str, ...]:
        """Return every factor that scales the item in any plan."""
        return self.names()

    def names(self, plan: int | None = None) -> tuple[str, ...]:
        """Return every factor that scales the item, in one plan or in any plan of the batch."""
        if not self.partly:
            return self.wholly
        held = (
            name for name, rows in self.partly.items() if plan is None or rows[min(plan, len(rows) - 1)]
        )
        return (*self.wholly, *held)


class Pattern(Record, kw_only=False):
    """The price row of each stage of a kind of replica, and its number of micro-batches; None: that of the
    plan.

    Replicas of one pattern have the same prices on every stage, so that one simulation serves all of them
    (cost/parts.py).
    """

    rows: tuple[int, ...]
    micro_batches: int | None = None


class Priced(Record, eq=False):
    """Programs with a price for each item; items contain arrays, so they are compared by identity."""

    programs: Programs
    cluster: Cluster
    prices: dict[Item, ItemPrice]
    factors: dict[str, Factor]
    used: tuple[Used, ...]
    warnings: tuple[str, ...]
    site: Site
    levels: Mapping[str, FittedLevel] = field(default_factory=dict)  # all that were known
    context: Context = field(default_factory=dict)  # of the job, on which the sigmas of levels depend
    kept: KeptResults = NOTHING_KEPT  # of earlier predictions with the same items and prices
    patterns: tuple[Pattern, ...] = ()  # of the kinds of replicas, where parts of the job differ
    equal: tuple["Priced", ...] = ()  # the prices without rows for parts of other speeds (part_prices.py)

    def of(self, item: Item) -> ItemPrice:
        """Return the price of an item, which must be the object in the programs and not a copy."""
        return self.prices[item]

    def seconds(self, item: Item, plan: int = 0, stage_class: int = 0) -> float:
        """Return the seconds of all executions of an item, without concurrent work, in one plan on one
        stage class.
        """
        each = self.of(item).alone_s * item.count
        if each.size == 1:
            return float(each.item())
        return float(each[min(plan, each.shape[0] - 1), min(stage_class, each.shape[1] - 1)])
