"""Pairs of plans: how far ratios of two steps are off that share a machine, beyond what factors explain.

Answers: which sigma of its own must a plan have so that the interval of a ratio holds nine in ten?
Elsewhere: the interval (timeline/uncertainty.py), which plans are compared (validation/decisions.py).

A factor gives every kernel of a kind one level. A curve is off by another amount at every shape, so what is
left of two plans differs as far as they spend their time on different things: each plan has a sigma of
its own, in proportion to the share of factors that moved between the two (`own_share`).
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

import numpy as np

from flopcast.calibration.fitted import Constant, Observed, Prior
from flopcast.cost.between_plans import BETWEEN_PLANS, OWN_LOG_SIGMA_FACTOR, TIED_RATIO, own_share
from flopcast.cost.carried import Level
from flopcast.cost.factors import NINETY_PERCENT

INSIDE = 0.9
MOST = 0.5  # of a plan's own sigma
FEWEST_PAIRS = 20


def between_plans(
    observed: Sequence[Observed], priors: Mapping[str, Prior], levels: Mapping[str, Level]
) -> list[Constant]:
    """The constant of what two plans differ by; none where runs hold too few pairs of plans."""
    sigma = between_plans_log_sigma(observed, priors, levels)
    if sigma is None:
        return []
    swept = [one for one in observed if one.sweep is not None]
    return [
        Constant(
            name=BETWEEN_PLANS,
            ratio=1.0,
            log_sigma_factor=round(sigma, 3),
            prior_log_sigma_factor=OWN_LOG_SIGMA_FACTOR,
            rows=len(swept),
            sources=tuple(sorted({one.source for one in swept})),
        )
    ]


def between_plans_log_sigma(
    observed: Sequence[Observed], priors: Mapping[str, Prior], levels: Mapping[str, Level]
) -> float | None:
    """The sigma of a plan's own with which intervals hold 90 % of the measured ratios.

    Every source counts alike, however many plans it has. None where there are too few pairs.

    Parameters
    ----------
    observed : runs with their gaps where all levels are 1
    priors, levels : sigmas of factors before and after the fit
    """
    groups: dict[Hashable, list[Observed]] = defaultdict(list)
    for one in observed:
        groups[one.sweep].append(one)
    pairs = [
        pair for group, members in groups.items() if group is not None for pair in combinations(members, 2)
    ]
    if len(pairs) < FEWEST_PAIRS:
        return None
    found = np.array([_parts(one, other, priors, levels) for one, other in pairs])
    by_source: dict[str, int] = defaultdict(int)
    for one, _ in pairs:
        by_source[one.source] += 1
    weights = np.array([1.0 / by_source[one.source] for one, _ in pairs])
    left, variance, own = found.T
    low, high = 0.0, MOST
    while high - low > 1e-4:
        middle = (low + high) / 2.0
        reach = NINETY_PERCENT * np.sqrt(variance + 2.0 * (middle * own) ** 2) + np.log(TIED_RATIO)
        enough = float(np.average(np.abs(left) <= reach, weights=weights)) >= INSIDE
        low, high = (low, middle) if enough else (middle, high)
    return high


def _parts(
    one: Observed, other: Observed, priors: Mapping[str, Prior], levels: Mapping[str, Level]
) -> tuple[float, float, float]:
    """What is left of a ratio, the variance that factors give it, and the share of a plan's own sigma."""
    left, variance, moved = one.log_gap_factor - other.log_gap_factor, 0.0, 0.0
    for name in one.shares.keys() | other.shares.keys():
        gap = one.shares.get(name, 0.0) - other.shares.get(name, 0.0)
        level = levels.get(name)
        sigma = (
            level.log_sigma_factor if level else priors[name].log_sigma_factor if name in priors else 0.0
        )
        left -= gap * float(np.log(level.ratio)) if level else 0.0
        variance += (gap * sigma) ** 2
        moved += abs(gap) / 2.0
    return left, variance, own_share(moved)
