"""How sure a prediction is: sensitivities to named factors, intervals, intervals of differences.

Answers: what does the step hang on, between which bounds does it lie?
Each item's time is proportional to its factors, so along the critical path
`d log(step) / d log(factor)` is the share of the step that the factor scales. Independent log-normal
factors give the sigma of log(step); differences of two predictions share factors, which cancel.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.cost.factors import NINETY_PERCENT, Factor
from flopcast.cost.price import Priced
from flopcast.timeline.step import Timeline

# Of each of two plans beside what they share, where at least this share of their factors differs: from the
# sweeps of InternEvo, of Megatron-LM's figures and of arXiv:2509.22832 (docs/accuracy/decisions.md).
OWN_LOG_SIGMA_FACTOR, OWN_SHARE = 0.05, 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """One factor, its sigma, and the share of the step that it scales.

    `share` is `d log(step) / d log(factor)`: with 0.6, a factor one percent higher makes the step 0.6 %
    longer. `log_sigma_factor` is the standard deviation of the factor's logarithm: 0.05 is about ± 5 %.
    """

    name: str
    log_sigma_factor: float
    share: float


def sensitivities(
    timeline: Timeline, priced: Priced, whole: Mapping[str, Factor], plan: int | None = None
) -> tuple[Sensitivity, ...]:
    """Every factor of the critical path, the widest contribution first.

    Parameters
    ----------
    timeline : Timeline
        Its path shares sum to the step without jitter.
    priced : Priced
        Names the factors of every item; an item's time is proportional to each of them.
    whole : mapping of str to Factor
        What scales the whole step, by name: shares of 1.
    plan : int or None
        Which plan of the batch was played; None where there is one (its rows are kinds of micro-batches).

    Returns
    -------
    tuple of Sensitivity
        Sorted by share times sigma. Shares overlap (a GEMM hangs on its level and on the stack's
        derate), so they do not sum to 1. They hold for small changes: as long as the critical path
        stays the same.
    """
    shares: dict[str, float] = defaultdict(float)
    for share in timeline.shares:
        names = priced.of(share.item).names(plan) if share.item is not None else ("host",)
        for name in names:
            shares[name] += share.path_s / timeline.step_time_s
    found = [
        Sensitivity(name=name, log_sigma_factor=priced.factors[name].log_sigma_factor, share=share)
        for name, share in shares.items()
    ]
    found += [
        Sensitivity(name=name, log_sigma_factor=factor.log_sigma_factor, share=1.0)
        for name, factor in whole.items()
    ]
    return tuple(sorted(found, key=lambda s: (-s.share * s.log_sigma_factor, s.name)))


def log_sigma(factors: tuple[Sensitivity, ...]) -> float:
    """Sigma of log(step): independent factors add as squares.

    >>> gemm = Sensitivity(name="gemm_level", log_sigma_factor=0.03, share=1.0)
    >>> fabric = Sensitivity(name="fabric", log_sigma_factor=0.08, share=0.5)
    >>> round(log_sigma((gemm, fabric)), 6)
    0.05
    """
    return math.sqrt(sum((s.share * s.log_sigma_factor) ** 2 for s in factors))


def interval(step_time_s: float, factors: tuple[Sensitivity, ...]) -> tuple[float, float]:
    """Bounds that hold the step with 90 % probability, as far from it in ratio on both sides.

    >>> low_s, high_s = interval(10.0, (Sensitivity(name="fabric", log_sigma_factor=0.1, share=1.0),))
    >>> round(low_s, 2), round(high_s, 2)
    (8.48, 11.79)
    """
    reach = math.exp(NINETY_PERCENT * log_sigma(factors))
    return step_time_s / reach, step_time_s * reach


def difference(
    first: tuple[Sensitivity, ...], second: tuple[Sensitivity, ...], log_ratio_factor: float
) -> tuple[float, float]:
    """90 % bounds of first/second, given the logarithm of their ratio; common factors cancel.

    Two plans on one machine share its unknowns: if the GEMMs are slower than thought, both steps are
    longer, and only the difference of their shares matters. So a comparison is surer than a prediction.
    What no factor names does not cancel, as far as the two spend their time on different things (`own`).

    Parameters
    ----------
    first, second : factors of two reports, in any order
    log_ratio_factor : log(first step / second step)

    Returns
    -------
    tuple of two floats
        Low and high bound of the ratio; both 1 for a report and itself.
    """
    ours: Mapping[str, Sensitivity] = {s.name: s for s in first}
    theirs: Mapping[str, Sensitivity] = {s.name: s for s in second}
    variance, moved_share = 0.0, 0.0
    for name in sorted(ours.keys() | theirs.keys()):
        left, right = ours.get(name), theirs.get(name)
        sigma = max(s.log_sigma_factor for s in (left, right) if s is not None)
        gap = (left.share if left else 0.0) - (right.share if right else 0.0)
        variance += (gap * sigma) ** 2
        moved_share += abs(gap) / 2.0
    variance += 2.0 * own_log_sigma_factor(moved_share) ** 2
    reach = NINETY_PERCENT * math.sqrt(variance)
    return math.exp(log_ratio_factor - reach), math.exp(log_ratio_factor + reach)


def own_log_sigma_factor(moved_share: float) -> float:
    """What is unknown of each of two steps alone, of which this share is spent on different things.

    A curve is off by another amount at every shape, a message by another at every size, and factors give
    all of them one level: where two plans run the same kernels that cancels, and nowhere else.

    >>> own_log_sigma_factor(0.0), round(own_log_sigma_factor(0.04), 6), own_log_sigma_factor(0.8)
    (0.0, 0.01, 0.05)
    """
    return OWN_LOG_SIGMA_FACTOR * min(1.0, moved_share / OWN_SHARE)
