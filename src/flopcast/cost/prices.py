"""What items cost: seconds of each alone, the factors that scale them, the link that a message occupies.

Answers: which numbers does the play need of every item?
Elsewhere: how they come about (price.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flopcast.cost.factors import Factor
from flopcast.cost.kernels.curve import Curve
from flopcast.dtypes import ONE, Counts, Floats, Integers
from flopcast.operators.item import Item
from flopcast.spec.cluster import Cluster
from flopcast.spec.rows import of_rows
from flopcast.spec.site import Site
from flopcast.workload.program import Programs


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Used:
    """A curve that priced something, and whether it had to extrapolate.

    `extrapolated` holds as soon as one shape of one item lies outside of the curve's range. `calibrated`
    is False for a data-sheet estimate.
    """

    curve: Curve
    extrapolated: bool
    calibrated: bool


@dataclass(frozen=True, eq=False, slots=True)
class LinkUse:
    """The link that a message occupies, and for which part of its seconds; arrays shaped like its price.

    `tier` is an index into the cluster's tiers. The rest of the seconds is latency, in which the link is
    free for other messages.
    """

    tier: np.ndarray
    fraction: Counts

    def of_rows(self, rows: Integers) -> "LinkUse":
        """The same of some plans."""
        return LinkUse(of_rows(self.tier, rows), of_rows(self.fraction, rows))


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Price:
    """One item's cost: seconds of one execution alone, broadcast over plans.

    `alone_s` has shape (plans, 1) or (plans, stage classes), with 1 for what does not vary. Factors are
    already in it and named: those of `wholly` scale it in all plans, those of `partly` in some, by masks
    (plans, 1). `moves` is `d log(alone_s) / d log(factor)` of each of them: 1, but 0 where the seconds
    stand at the physical bound, which no factor passes. Where they have just come to it, it is the
    derivative towards longer times. `host_s` is spent by the launching thread before the kernel can start,
    on top of the kernel's own launch latency, which is in `alone_s`; what takes no time (a message to
    oneself, an epilogue) is not launched. `link` is what a message occupies, None for everything else.
    """

    alone_s: Floats
    host_s: Floats  # what the host spends on launching it; shaped like `alone_s`, or (1, 1)
    wholly: tuple[str, ...]
    partly: Mapping[str, np.ndarray] = field(default_factory=dict)
    link: LinkUse | None = None
    moves: Counts = field(default_factory=lambda: ONE)

    def one_s(self, row: int) -> float:
        """Seconds of one execution in a plan; items of layers do not depend on the stage."""
        return float(self.alone_s[min(row, len(self.alone_s) - 1), 0])

    def moved(self, row: int, stage_class: int = 0) -> float:
        """`moves` in one plan, on one stage class."""
        rows, classes = self.moves.shape
        return float(self.moves[min(row, rows - 1), min(stage_class, classes - 1)])

    def of_rows(self, rows: Integers) -> "Price":
        """The price in some plans of the batch."""
        return replace(
            self,
            alone_s=of_rows(self.alone_s, rows),
            host_s=of_rows(self.host_s, rows),
            partly={name: of_rows(held, rows) for name, held in self.partly.items()},
            link=self.link.of_rows(rows) if self.link is not None else None,
            moves=of_rows(self.moves, rows),
        )

    @property
    def factors(self) -> tuple[str, ...]:
        """Every factor that scales the item in any plan."""
        return self.names()

    def names(self, plan: int | None = None) -> tuple[str, ...]:
        """Every factor that scales the item: in one plan of the batch, or in any of them."""
        held = (
            name for name, rows in self.partly.items() if plan is None or rows[min(plan, len(rows) - 1)]
        )
        return (*self.wholly, *held)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Priced:
    """Programs with prices, by the identity of each item.

    Items hold arrays, so they neither hash nor compare; `prices` is keyed by `id(item)`, which is safe
    because `programs` keeps every item alive.
    """

    programs: Programs
    cluster: Cluster
    prices: dict[int, Price]
    factors: dict[str, Factor]
    used: tuple[Used, ...]
    warnings: tuple[str, ...]
    site: Site

    def of(self, item: Item) -> Price:
        """The price of an item of the programs: the very object, not one that looks like it."""
        return self.prices[id(item)]

    def seconds(self, item: Item, plan: int = 0, stage_class: int = 0) -> float:
        """All executions of an item's entry alone, one after the other: of one plan on one stage class."""
        each = self.of(item).alone_s * item.count
        return float(each[min(plan, each.shape[0] - 1), min(stage_class, each.shape[1] - 1)])
