"""How many tokens experts and ranks process, if routing is uniformly random or follows a power law.

Answers: how many tokens do the busiest expert and the busiest rank process, compared with the mean, and how
many experts of a rank process any token?
Elsewhere: the layer that uses the load (layers/experts.py), the cost of uneven groups
(cost/kernels/features.py).

All ratios are at least 1; arrays have shape (plans, 1) and broadcast. These ratios are lower estimates: the
choices of a trained router depend on its data, so the loads of a real batch are less even than random ones.
"""

from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import Split
from flopcast.records import Record
from flopcast.units import Number

DRAWS, SEED = 24, 1  # of a power law
MOST_LOADS = 16384  # kept; the measured tables of expert layers hold 6,000 different ones in 81,000 rows


def fullest_by_chance(experts: Counts, top_k: Counts, rows: Counts) -> Counts:
    """Return the rows of the fullest expert, divided by the mean, if every token chooses experts at random.

    With n rows per expert on average, the number of rows of an expert has a standard deviation of sqrt(n).
    The expected maximum of E such numbers is at most sqrt(2 ln E) standard deviations above the mean, and
    close to this bound. Because a token uses an expert only once, the ratio is at most E / top_k.

    Parameters
    ----------
    rows : mean number of rows of an expert, from all ranks whose tokens it processes

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
    """Return the rows of the fullest rank, divided by the mean, if each rank holds experts / ranks experts.

    The mean load of a rank is the mean of E / n loads that are drawn without replacement from E loads. Its
    standard deviation is that of a single load times sqrt((n - 1) / (E - 1)). If one rank holds all
    experts, the ratio is 1. If each rank holds one expert, the ratio is that of the experts.

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


class ExpertLoads(Record, kw_only=False):
    """The rows of experts and ranks that follow from the fields of a layer of experts (layers/experts.py).

    `fullest_ratio` is the load of the fullest expert divided by the mean load; None means random routing.
    """

    num_experts: int
    top_k: int
    capacity_factor: float
    pads_to_capacity: bool
    fullest_ratio: float | None

    def imbalance(self, split: Split) -> tuple[Counts, Counts]:
        """Return the load of the fullest rank and of its fullest expert, as ratios to the mean.

        Returns
        -------
        pair of arrays of shape (plans, 1)
            First the load of the fullest rank divided by the mean load of ranks. Then the load of its
            fullest expert divided by the mean load of this rank's experts. Each ratio is at least 1, and
            their product is the load of the fullest expert divided by the mean load of all experts. A
            capacity limits every load, and padding makes all loads equal.
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
        """Return the rows that experts process, divided by the rows that tokens choose.

        The ratio is below 1 if experts drop rows, and above 1 if they pad them. If the capacity is at least
        the mean load, the ratio ignores dropped tokens, which are at most a few per cent.
        """
        if self.pads_to_capacity:
            return self.capacity_factor
        return min(1.0, self.capacity_factor) if self.capacity_factor else 1.0

    def sent_rows(self, split: Split) -> Counts:
        """Return the rows that a rank sends: one for each expert of each token, without dropped rows."""
        return split.own_tokens * self.top_k * self.filled_ratio

    def multiplied_rows(self, split: Split) -> Counts:
        """Return the rows that the fullest rank multiplies, with those of ranks that share its experts."""
        of_rank, _ = self.imbalance(split)
        return self.sent_rows(split) * split.expert_tensor * of_rank


class RankLoad(Record, eq=False):
    """The load of the fullest rank, as fields of `FusedExperts`; arrays of the shape of the tokens.

    `rows` counts the rows of all experts of this rank. `touched` is the number of its experts that process
    at least one row. `imbalance` is the rows of its fullest expert, divided by the mean rows of the touched
    experts.
    """

    rows: Counts
    touched: Counts
    imbalance: Counts


def fullest_rank_load(
    tokens: Counts, top_k: int, experts: int, ranks: int, skew: Counts | None = None
) -> RankLoad:
    """Return the expected load of the rank with the most rows, of `ranks` that share the experts evenly.

    Parameters
    ----------
    tokens : of all ranks together
    skew : exponent of the power law that the loads of experts follow, of shape (1, 1); None if a token
        chooses all experts with equal probability. Loads are drawn from a density x^-skew between 1 and 0.8
        times the number of tokens, or between 0.01 and 2 if the tokens choose fewer rows than there are
        experts. They are then scaled to the number of chosen rows. The serving benchmarks of
        ai-dynamo/aiconfigurator draw loads in this way, with exponents of 1.01 and 1.2.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> for skew in (None, constant(1.2)):
    ...     load = fullest_rank_load(constant(64), top_k=8, experts=128, ranks=8, skew=skew)
    ...     print(*(round(each.item(), 1) for each in (load.rows, load.touched, load.imbalance)))
    74.4 15.9 2.1
    88.2 15.0 2.9
    """
    if skew is not None:
        return _drawn_load(tokens, top_k, experts, ranks, skew)
    held, mean = experts / ranks, tokens * top_k / ranks
    share = (1.0 - 1.0 / ranks) * (experts - top_k) / max(experts - 1.0, 1.0)  # of the variance of one pick
    rows = np.minimum(mean + _largest_of_normal(ranks) * np.sqrt(mean * share), tokens * min(held, top_k))
    touched = held * (1.0 - (1.0 - rows / tokens / held) ** tokens)
    each = rows / held
    most = np.minimum(each * (1.0 + np.sqrt(2.0 * np.log(max(held, 1.0)) / each)), tokens)
    return RankLoad(rows=rows, touched=touched, imbalance=np.maximum(most * touched / rows, 1.0))


def _largest_of_normal(ranks: int) -> float:
    """Return the expected largest of this many standard normal numbers.

    Blom, Statistical Estimates and Transformed Beta-Variables (1958).
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def _drawn_load(tokens: Counts, top_k: int, experts: int, ranks: int, skew: Counts) -> RankLoad:
    """Return the mean over DRAWS seeded draws of a power law; equal tokens have equal loads."""
    distinct_tokens, place = np.unique(tokens, return_inverse=True)
    exact: Number = skew.item()
    means = np.array([_drawn(each, top_k, experts, ranks, exact) for each in distinct_tokens.tolist()])
    rows, touched, most = (means[place.ravel(), part].reshape(tokens.shape) for part in range(3))
    return RankLoad(rows=rows, touched=touched, imbalance=np.maximum(most * touched / rows, 1.0))


@cache
def _uniform(experts: int) -> Counts:
    """Return the numbers between 0 and 1 that all draws start from, (DRAWS, experts)."""
    return np.random.default_rng(SEED).random((DRAWS, experts))


@lru_cache(maxsize=MOST_LOADS)
def _drawn(
    num_tokens: float, top_k: int, experts: int, ranks: int, skew: Number
) -> tuple[float, float, float]:
    """Return the rows and touched experts of the fullest rank, and the rows of its fullest expert."""
    picks = num_tokens * top_k
    low, high = (1.0, max(0.8 * num_tokens, 1.001)) if picks > experts else (0.01, 2.0)
    ends = high ** (1.0 - skew), low ** (1.0 - skew)
    drawn = ((ends[0] - ends[1]) * _uniform(experts) + ends[1]) ** (1.0 / (1.0 - skew))
    shares = picks * drawn / drawn.sum(axis=1, keepdims=True)
    rounded = np.round(shares)
    missing = picks - rounded.sum(axis=1, keepdims=True)
    order = np.argsort(np.argsort(-shares, axis=1), axis=1)  # 0 is the fullest expert of a draw
    rounded += np.maximum(np.ceil((missing - order) / experts), 0.0) + np.where(
        order == 0, np.minimum(missing, 0.0), 0.0
    )
    kept = np.minimum(rounded, num_tokens)  # a token goes to an expert once
    others = (rounded - kept).sum(axis=1) / ranks  # and the other picks to other experts
    by_rank = kept.reshape(len(kept), ranks, -1)
    fullest = by_rank[np.arange(len(kept)), by_rank.sum(axis=2).argmax(axis=1)]
    touched = np.minimum((fullest > 0).sum(axis=1) + others, fullest.shape[1])
    rows = fullest.sum(axis=1) + others
    return float(rows.mean()), float(touched.mean()), float(fullest.max(axis=1).mean())
