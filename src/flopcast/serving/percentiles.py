"""The distribution of a latency over requests: mean, percentiles, and their intervals.

Answers: which latency do 99 % of requests not exceed, and how uncertain is it?
Elsewhere: the kinds of latencies (summary.py).
"""

from itertools import pairwise

import numpy as np

from flopcast.dtypes import Counts, Floats, any_of
from flopcast.records import Record
from flopcast.spec.traffic import Percentile

GROUPS = 10
STUDENT_95 = 1.833  # quantile 0.95 of Student's distribution with GROUPS - 1 degrees of freedom


class Spread(Record, eq=False):
    """Values of a latency in order of time, and how often each occurs; both of shape (values,).

    The interval of a percentile needs the order of time: neighbouring requests wait for the same work, so
    that they contain less information than independent requests.
    """

    values_s: Floats
    weights: Counts

    @property
    def mean_s(self) -> float:
        """Return the mean in seconds; not a number if there are no values."""
        total = self.weights.sum()
        return float((self.values_s * self.weights).sum() / total) if total > 0 else float("nan")

    def at_s(self, percentile: Percentile) -> float:
        """Return a percentile in seconds, interpolated between values; not a number if there are none.

        >>> spread_of(np.array([1.0, 2.0, 3.0])).at_s(50)
        2.0
        """
        return _at_s(self.values_s, self.weights, percentile)

    def interval_s(self, percentile: Percentile) -> tuple[float, float]:
        """Return the ends of the 90 % confidence interval of a percentile, in seconds.

        It follows from the percentiles of ten groups of consecutive values ("batch means"): neighbouring
        requests share queues and batches, so that single values are not independent. The interval is wide
        if the load did not reach a steady state. Both ends are not a number for fewer than twenty values.
        """
        if len(self.values_s) < 2 * GROUPS:
            return float("nan"), float("nan")
        ends = np.linspace(0, len(self.values_s), GROUPS + 1).astype(np.intp)
        groups = [slice(begin, end) for begin, end in pairwise(ends.tolist())]
        each = [_at_s(self.values_s[group], self.weights[group], percentile) for group in groups]
        middle, half = self.at_s(percentile), STUDENT_95 * float(np.std(each, ddof=1)) / GROUPS**0.5
        return max(middle - half, 0.0), middle + half


def spread_of(values_s: Floats) -> Spread:
    """Return the spread of values that each occur once."""
    return Spread(values_s=values_s, weights=np.ones_like(values_s))


def _at_s(values_s: Floats, weights: Counts, percentile: Percentile) -> float:
    """Return the percentile of values that stand in a row as often as their weights say."""
    there = weights > 0
    if not any_of(there):
        return float("nan")
    order = np.argsort(values_s[there], kind="stable")
    ordered_s, counts = values_s[there][order], weights[there][order]
    last = np.cumsum(counts) - 1  # the place of the last occurrence of each value
    places = np.stack([last - counts + 1, last], axis=1).ravel()
    return float(np.interp(percentile / 100 * last[-1], places, np.repeat(ordered_s, 2)))
