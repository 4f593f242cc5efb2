"""The probabilities that limits of latency are met.

Answers: how likely are requests to meet each limit, and all limits, given the uncertainty of pass times?
Elsewhere: whether the predicted latencies meet the limits (summary.py), intervals of latencies
(estimates.py).

All passes are slower or faster than predicted by the same log-normal ratio. Requests are simulated with
several such ratios, between which the logarithm of a latency is interpolated. The time to first token has
an additional log-normal uncertainty, which is independent of the uncertainty of passes.
"""

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from flopcast.dtypes import Counts
from flopcast.records import Record
from flopcast.serving.summary import Objective, ServingSummary
from flopcast.spec.iteration_cost import IterationCost
from flopcast.units import Number

NORMAL = NormalDist()
QUANTILES = np.array([NORMAL.inv_cdf((number + 0.5) / 400) for number in range(400)])
LEAST_S = 1e-12


class Chances(Record, eq=False):
    """Probabilities from 0 to 1 that each objective is met, in order, and that all objectives are met."""

    each: tuple[Number, ...]
    every: Number


def chances_of(found: Mapping[float, ServingSummary], cost: IterationCost) -> Chances | None:
    """Return the probabilities that objectives are met; None without objectives.

    Parameters
    ----------
    found : results by the deviation of the logarithm of pass times from the prediction, in standard
        deviations
    cost : the uncertainty of the time to first token in addition to that of passes
    """
    places = np.array(sorted(found))
    columns = zip(*(found[place].objectives for place in places.tolist()), strict=True)
    met = [_met(objectives, places, cost) for objectives in columns]
    if not met:
        return None
    return Chances(each=tuple(float(one.mean()) for one in met), every=float(np.prod(met, axis=0).mean()))


def _met(objectives: tuple[Objective, ...], places: Counts, cost: IterationCost) -> Counts:
    """Return the probability that an objective is met at each of `QUANTILES` of the time of passes."""
    first = objectives[0]
    logs = np.log([max(one.reached_s, LEAST_S) for one in objectives])
    room = np.log(first.limit_s) - _interpolated(places, logs)
    beyond = cost.request_log_sigma_factor if first.metric == "ttft" else 0.0
    if not beyond:
        return np.asarray(room >= 0.0, dtype=np.float64)
    return np.array([NORMAL.cdf(each / beyond) for each in room.tolist()])


def _interpolated(places: Counts, logs: Counts) -> Counts:
    """Return values at `QUANTILES`, on the lines through the outer two places beyond them."""
    inside: Counts = np.interp(QUANTILES, places, logs)
    for end, beside, beyond in ((0, 1, places[0] > QUANTILES), (-1, -2, places[-1] < QUANTILES)):
        slope = (logs[end] - logs[beside]) / (places[end] - places[beside])
        inside = np.where(beyond, logs[end] + slope * (QUANTILES - places[end]), inside)
    return inside
