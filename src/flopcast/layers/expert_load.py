"""Imbalance of experts and ranks if routing is uniform except for chance.

Answers: how many rows has the fullest expert, over the mean one; how many the fullest rank?
Elsewhere: the layer that asks (layers/experts.py), what uneven groups cost (cost/kernels/features.py).

All ratios are at least 1; arrays have shape (plans, 1) and broadcast. These are estimates from below: a
trained router follows its data, and what falls on an expert in one batch is less even than chance.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import Split


def fullest_by_chance(experts: Counts, top_k: Counts, rows: Counts) -> Counts:
    """Return rows of the fullest expert over the mean, if every token chooses at random.

    With n rows on each expert on average, the rows of one have a standard deviation of sqrt(n); the
    largest of E such numbers lies at most sqrt(2 ln E) of them above the mean, on average, and about as
    much. As a token goes to an expert once, the ratio is at most E / top_k.

    Parameters
    ----------
    rows : of the mean expert, from all ranks whose tokens it takes

    References
    ----------
    The bound of the largest of E normal numbers: Boucheron, Lugosi, Massart, "Concentration Inequalities",
    Oxford 2013, section 2.5.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> [fullest_by_chance(constant(e), constant(1), constant(800)).round(3).item() for e in (1, 128)]
    [1.0, 1.11]
    """
    drawn = 1.0 + np.sqrt(2.0 * np.log(experts) / rows)
    ratio: Counts = np.minimum(drawn, experts / top_k)
    return ratio


def fullest_rank(fullest: Counts, experts: Counts, ranks: Counts) -> Counts:
    """Return rows of the fullest rank over the mean, if each holds experts / ranks of them.

    A rank's mean is one of E / n numbers that are drawn without replacement: its standard deviation is that
    of one number times sqrt((n - 1) / (E - 1)). All experts on one rank are no draw; one on each rank is
    the expert's own load.

    Parameters
    ----------
    fullest : load of the fullest expert over the mean one

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> fullest, experts = constant(1.5), constant(8)
    >>> [fullest_rank(fullest, experts, constant(ranks)).round(3).item() for ranks in (1, 4, 8)]
    [1.0, 1.327, 1.5]
    """
    ratio: Counts = 1.0 + (fullest - 1.0) * np.sqrt((ranks - 1.0) / np.maximum(experts - 1.0, 1.0))
    return ratio


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """The rows that fall on experts and ranks, by the fields of a layer of experts (layers/experts.py).

    `fullest_ratio` is the load of the fullest expert over the mean one; None: what chance makes of it.
    """

    num_experts: int
    top_k: int
    capacity_factor: float
    pads_to_capacity: bool
    fullest_ratio: float | None

    def imbalance(self, split: Split) -> tuple[Counts, Counts]:
        """Load of the fullest rank over the mean rank, and of its fullest expert over that rank's mean.

        Returns
        -------
        pair of arrays of shape (plans, 1)
            Each at least 1; their product is the load of the fullest expert over the mean one. No load is
            above the capacity, if there is one; padding makes all loads equal.
        """
        if self.pads_to_capacity:
            return ONE, ONE
        experts = constant(self.num_experts)
        rows = split.own_tokens * split.expert * split.expert_tensor * self.top_k / experts
        if self.fullest_ratio is None:
            fullest = fullest_by_chance(experts, constant(self.top_k), rows)
        else:
            fullest = constant(self.fullest_ratio)
        if self.capacity_factor:
            fullest = np.clip(fullest, 1.0, max(1.0, self.capacity_factor))
        of_rank = fullest_rank(fullest, experts, split.expert)
        return of_rank, fullest / of_rank

    @property
    def filled_ratio(self) -> float:
        """Return rows of all experts over the tokens' picks: less by drops, more by padding.

        Where capacity is the mean load or more, what chance drops is left out: a few per cent at most.
        """
        if self.pads_to_capacity:
            return self.capacity_factor
        return min(1.0, self.capacity_factor) if self.capacity_factor else 1.0

    def sent_rows(self, split: Split) -> Counts:
        """Return rows that a rank sends: one for each pick of its own tokens, without dropped ones."""
        return split.own_tokens * self.top_k * self.filled_ratio

    def multiplied_rows(self, split: Split) -> Counts:
        """Return rows that the fullest rank multiplies: all that share its experts' columns."""
        of_rank, _ = self.imbalance(split)
        return self.sent_rows(split) * split.expert_tensor * of_rank
