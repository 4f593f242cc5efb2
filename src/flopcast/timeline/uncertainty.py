"""Uncertainty of a prediction: sensitivities to named factors, intervals, intervals of differences.

Answers: which factors does the step depend on, and how wide is its interval?
`d log(step) / d log(factor)` follows from the items of the critical path that the factor scales
(critical_path.py). Independent log-normal factors give the sigma of log(step). In the difference of two
predictions, shared factors cancel.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from flopcast.cost.between_plans import BETWEEN_PLANS, OWN_LOG_SIGMA_FACTOR, own_share
from flopcast.cost.factors import NINETY_PERCENT, Factor
from flopcast.cost.item_prices import Priced
from flopcast.records import Record, replace
from flopcast.spec.factor_kinds import kind_of
from flopcast.timeline.step import Timeline
from flopcast.units import Number

FASTER_RATIO = 1.1  # speed-up by which `saved_share` judges the factors that limit a step


class Sensitivity(Record):
    """One factor, its sigma, and how much the step depends on it.

    `share` is `d log(step) / d log(factor)`: with 0.6, a factor one percent higher makes the step 0.6 %
    longer. Kernels at their physical bound do not count. A kernel that just reaches its bound counts as if
    the factor increased. `log_sigma_factor` is the standard deviation of the factor's logarithm: 0.05 is
    about ± 5 %. `below_log_sigma_factor` is the standard deviation below the expected level; None means
    that both are equal.
    """

    name: str
    log_sigma_factor: float
    share: float
    below_log_sigma_factor: float | None = None

    @property
    def sigmas(self) -> tuple[float, float]:
        """Return the sigmas that the factor adds to log(step), below and above the expected step."""
        return sigmas_of(self.share, self.log_sigma_factor, self.below_log_sigma_factor)

    @property
    def scales_step(self) -> bool:
        """Return whether the factor scales steps. Only the factor of the ratio of two plans does not."""
        return self.name != BETWEEN_PLANS


def sigmas_of(share: float, log_sigma_factor: float, below_factor: float | None) -> tuple[float, float]:
    """Return the sigmas that a factor with these sigmas adds, as `Sensitivity.sigmas`."""
    high = abs(share) * log_sigma_factor
    low = high if below_factor is None else abs(share) * below_factor
    return (low, high) if share >= 0.0 else (high, low)


def sensitivities(
    timeline: Timeline, priced: Priced, whole: Mapping[str, Factor]
) -> tuple[Sensitivity, ...]:
    """Return every factor of the critical path, the largest contribution to the interval first.

    Parameters
    ----------
    timeline : timeline whose path shares sum to the step without jitter
    priced : prices with the factors of every item
    whole : factors of the whole step by name; their share is 1, or 0 for the factor of the ratio of two
        plans

    Returns
    -------
    tuple of Sensitivity
        Sorted by share times sigma. Shares overlap (a GEMM depends on its level and on the stack's derate),
        so they do not sum to 1. They hold as long as the critical path stays the same.
    """
    narrowed = min((factor.faster_side_ratio for factor in whole.values()), default=1.0)
    found = [*_of_path(timeline, priced)]
    for name, factor in whole.items():
        of_step = Sensitivity(
            name=name,
            log_sigma_factor=factor.log_sigma_factor,
            share=1.0,
            below_log_sigma_factor=factor.below_log_sigma_factor,
        )
        found.append(of_step if of_step.scales_step else replace(of_step, share=0.0))
    if narrowed != 1.0:
        found = [_narrowed(each, narrowed) for each in found]
    return tuple(sorted(found, key=lambda s: (-s.share * s.log_sigma_factor, s.name)))


@lru_cache(maxsize=1)  # a report asks for them with and without the factors of the whole step
def _of_path(timeline: Timeline, priced: Priced) -> tuple[Sensitivity, ...]:
    """Return the factors of the items on the critical path."""
    shares: dict[str, float] = defaultdict(float)
    step_time_s = timeline.step_time_s
    for share in timeline.shares:
        slope = share.slope_s / step_time_s
        for name in share.factors(priced):
            shares[name] += slope
    return tuple(
        Sensitivity(name=name, log_sigma_factor=priced.factors[name].log_sigma_factor, share=share)
        for name, share in shares.items()
    )


def _narrowed(factor: Sensitivity, ratio: float) -> Sensitivity:
    """Return a factor whose sigma below the expected step is this multiple of the one above it.

    A factor that states both sigmas is returned as it is.
    """
    if factor.below_log_sigma_factor is not None:
        return factor
    return replace(factor, below_log_sigma_factor=factor.log_sigma_factor * ratio)


def saved_share(factor: Sensitivity) -> float:
    """Return the share of a step that is saved if the items of a factor are 10 % faster on the same path.

    The critical path is assumed to stay the same. The share is 0 for factors that no faster machine
    changes.

    >>> round(saved_share(Sensitivity(name="fabric[ib]", log_sigma_factor=0.1, share=0.22)), 6)
    0.02
    """
    return factor.share * (1.0 - 1.0 / FASTER_RATIO) if kind_of(factor.name).is_lever else 0.0


def log_sigmas(factors: tuple[Sensitivity, ...]) -> tuple[float, float]:
    """Return the sigmas of log(step) below and above the expected step; factors add in quadrature.

    >>> gemm = Sensitivity(name="gemm_level", log_sigma_factor=0.03, share=1.0)
    >>> fabric = Sensitivity(name="fabric", log_sigma_factor=0.08, share=0.5, below_log_sigma_factor=0.0)
    >>> [round(sigma, 6) for sigma in log_sigmas((gemm, fabric))]
    [0.03, 0.05]
    """
    return _in_quadrature([factor.sigmas for factor in factors])


def _in_quadrature(sides: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the sigmas of a product of independent factors, given those of each factor."""
    lows, highs = zip(*sides, strict=True) if sides else ((), ())
    return math.hypot(*lows), math.hypot(*highs)


def interval(step_time_s: float, factors: tuple[Sensitivity, ...]) -> tuple[float, float]:
    """Return the bounds that contain the step with a probability of 90 %, with 5 % on either side.

    >>> low_s, high_s = interval(10.0, (Sensitivity(name="fabric", log_sigma_factor=0.1, share=1.0),))
    >>> round(low_s, 2), round(high_s, 2)
    (8.48, 11.79)
    """
    return bounds_of(step_time_s, [factor.sigmas for factor in factors])


def bounds_of(value: Number, sides: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the 90 % interval of a value, given the sigmas that each factor adds below and above it."""
    below, above = _in_quadrature(sides)
    return value / math.exp(NINETY_PERCENT * below), value * math.exp(NINETY_PERCENT * above)


def difference(
    first: tuple[Sensitivity, ...], second: tuple[Sensitivity, ...], log_ratio_factor: float
) -> tuple[float, float]:
    """Return the 90 % bounds of first/second, given the logarithm of their ratio; common factors cancel.

    Two plans on one machine have the same uncertain factors: if GEMMs are slower than assumed, both steps
    are longer, and only the difference of their fractions counts. A comparison is therefore more certain
    than a prediction. Errors without a factor do not cancel for the time that the two plans spend on
    different kernels and messages (`own`).

    Parameters
    ----------
    first, second : factors of two reports, in any order
    log_ratio_factor : log(first step / second step)

    Returns
    -------
    tuple of two floats
        Low and high bound of the ratio; both 1 for a report and itself.
    """
    ours, theirs = ({s.name: s for s in side} for side in (first, second))
    moved = []
    for name in sorted(ours.keys() | theirs.keys()):
        known = max(
            (side[name] for side in (ours, theirs) if name in side), key=lambda s: s.log_sigma_factor
        )
        moved.append(replace(known, share=_gap(ours, theirs, name)))
    own = own_log_sigma_factor(first, second)
    below, above = (NINETY_PERCENT * math.hypot(sigma, own) for sigma in log_sigmas(tuple(moved)))
    return math.exp(log_ratio_factor - below), math.exp(log_ratio_factor + above)


def holds_one(low_ratio: float, high_ratio: float) -> bool:
    """Return whether the interval of a ratio contains 1, so the order is uncertain.

    >>> holds_one(0.98, 1.01), holds_one(1.01, 1.05)
    (True, False)
    """
    return low_ratio <= 1.0 <= high_ratio


def own_log_sigma_factor(first: tuple[Sensitivity, ...], second: tuple[Sensitivity, ...]) -> float:
    """Return the sigma of the ratio of two step times that factors do not explain; 0 if all shares are
    equal.

    The error of a curve differs between shapes, and that of a message between sizes, but a factor has one
    level for all of them. These errors cancel only if two plans run the same kernels. Each step therefore
    has a separate sigma, in proportion to the share that differs, and at most the constant `between_plans`.

    >>> alone = Sensitivity(name="gemm_level", log_sigma_factor=0.03, share=0.9)
    >>> cut = Sensitivity(name="fabric", log_sigma_factor=0.1, share=0.9)
    >>> own_log_sigma_factor((alone,), (alone,)), round(own_log_sigma_factor((alone,), (cut,)), 4)
    (0.0, 0.0707)
    """
    ours, theirs = ({s.name: s for s in side} for side in (first, second))
    names = sorted(ours.keys() | theirs.keys())
    moved = sum(abs(_gap(ours, theirs, name)) for name in names) / 2.0
    known = [side[BETWEEN_PLANS].log_sigma_factor for side in (ours, theirs) if BETWEEN_PLANS in side]
    return math.sqrt(2.0) * max(known, default=OWN_LOG_SIGMA_FACTOR) * own_share(moved)


def _gap(ours: Mapping[str, Sensitivity], theirs: Mapping[str, Sensitivity], name: str) -> float:
    """Return the share of a factor in the first step minus its share in the second."""
    return sum(side[name].share * sign for side, sign in ((ours, 1), (theirs, -1)) if name in side)
