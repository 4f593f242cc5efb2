"""Pairs of plans on one machine: the error in the ratio of their steps that factors do not explain.

Answers: which sigma must each plan have so that the intervals contain 90 % of the measured ratios?
Elsewhere: the interval (timeline/uncertainty.py), the plans that are compared
(lab/validation/decisions.py).

A factor gives all kernels of one kind the same level, but the error of a curve differs between shapes.
The more the kernels of two plans differ, the less their errors cancel. Each plan therefore has a sigma in
proportion to the share of factors that differs between the two (`own_share`).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np

from flopcast.cost.between_plans import BETWEEN_PLANS, OWN_LOG_SIGMA_FACTOR, TIED_RATIO, own_share
from flopcast.cost.constants import Constant
from flopcast.cost.factors import NINETY_PERCENT
from flopcast.dtypes import Counts, Logs
from flopcast.lab.calibration.observations import Levels, ObservedStep, Priors, constant_of, least_log_sigma

MOST = 0.5  # upper limit of the sigma
FEWEST_PAIRS = 20


def between_plans(observed: Sequence[ObservedStep], priors: Priors, levels: Levels) -> list[Constant]:
    """Return a list with the constant `between_plans`, empty if there are too few pairs of plans."""
    sigma = between_plans_log_sigma(observed, priors, levels)
    swept = [one for one in observed if one.sweep is not None]
    if sigma is None:
        return []
    return [constant_of(BETWEEN_PLANS, swept, sigma, prior_log_sigma_factor=OWN_LOG_SIGMA_FACTOR)]


def between_plans_log_sigma(
    observed: Sequence[ObservedStep], priors: Priors, levels: Levels
) -> float | None:
    """Return the sigma with which the intervals contain 90 % of the measured ratios.

    Every source counts equally, however many plans it has. The result is None if there are too few pairs.
    The gaps of `observed` are those with all levels at 1; `priors` and `levels` give the sigmas of
    factors before and after the fit.
    """
    groups: dict[Hashable, list[ObservedStep]] = defaultdict(list)
    for one in observed:
        groups[one.sweep].append(one)
    pairs = [
        pair for group, members in groups.items() if group is not None for pair in combinations(members, 2)
    ]
    if len(pairs) < FEWEST_PAIRS:
        return None
    by_source = Counter(one.source for one, _ in pairs)
    weights = np.array([1.0 / by_source[one.source] for one, _ in pairs])
    left, variance, own = _parts(pairs, priors, levels)

    def inside_share(log_sigma_factor: float) -> float:
        sigma = np.sqrt(variance + 2.0 * (log_sigma_factor * own) ** 2)
        reach = NINETY_PERCENT * sigma + np.log(TIED_RATIO)
        return float(np.average(np.abs(left) <= reach, weights=weights))

    return least_log_sigma(inside_share, MOST)


def _parts(
    pairs: Sequence[tuple[ObservedStep, ObservedStep]], priors: Priors, levels: Levels
) -> tuple[Logs, Logs, Counts]:
    """Return the error of each ratio after the fit, its variance by factors, and the share of the sigma."""
    runs = dict.fromkeys(one for pair in pairs for one in pair)
    names = dict.fromkeys(name for one in runs for name in one.shares)
    shares = {one: np.array([one.shares.get(name, 0.0) for name in names]) for one in runs}
    apart = np.array([shares[one] - shares[other] for one, other in pairs])
    known = [levels.get(name) or priors.get(name) for name in names]
    sigmas = np.array([each.log_sigma_factor if each else 0.0 for each in known])
    logs = np.log([levels[name].ratio if name in levels else 1.0 for name in names])
    gaps = np.array([one.log_gap_factor - other.log_gap_factor for one, other in pairs])
    moved = np.abs(apart).sum(axis=1) / 2.0
    own = np.array([own_share(float(share)) for share in moved])
    return gaps - apart @ logs, ((apart * sigmas) ** 2).sum(axis=1), own
