"""The seconds of a step that one item takes, and the part of them that its factors scale.

Answers: how does the step change with a factor of an item?
Elsewhere: the items of the critical path and of a stage (critical_path.py).
"""

from typing import NamedTuple

from flopcast.cost.factors import EXPERT_LAUNCH, HOST
from flopcast.cost.item_prices import Priced
from flopcast.operators.item import Item


class TimeAttribution(NamedTuple):
    """Seconds of the step for one item or, without an item, for the launches of the host.

    `path_s` contains all executions in the view: on the critical path, or on one stage. It is negative if a
    skewed step omits earlier executions. `row` is the row of prices that applies to the item: the plan, or
    the kind of micro-batch. `moves_ratio` is `moves` of its price (cost/item_prices.py): 0 if the item
    takes its least time, which its factors cannot change. `shift_s` is the part of the derivative in
    addition to `path_s` if messages share a link (shared_links.py). `of_experts` marks launches of the
    separate GEMMs of experts.
    """

    item: Item | None
    path_s: float
    row: int
    moves_ratio: float = 1.0
    shift_s: float = 0.0
    of_experts: bool = False

    @property
    def scaled_s(self) -> float:
        """Return the part of `path_s` that the item's factors scale."""
        return self.path_s * self.moves_ratio

    @property
    def slope_s(self) -> float:
        """Return `d step / d log(factor)` of each factor that scales the item."""
        return (self.path_s + self.shift_s) * self.moves_ratio

    def factors(self, priced: Priced) -> tuple[str, ...]:
        """Return the names of the factors that scale these seconds."""
        if self.item is not None:
            return priced.of(self.item).names(self.row)
        return (HOST, EXPERT_LAUNCH) if self.of_experts else (HOST,)

    def times(self, part_ratio: float) -> "TimeAttribution":
        """Return the share of a part of these executions.

        Parameters
        ----------
        part_ratio : float
            Fraction of the executions, at least 0. It scales seconds and slopes alike.
        """
        item, path_s, row, moves_ratio, shift_s, of_experts = self  # faster than `_replace`
        return TimeAttribution(
            item, path_s * part_ratio, row, moves_ratio, shift_s * part_ratio, of_experts
        )
