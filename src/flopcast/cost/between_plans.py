"""Two plans on one machine: what their steps differ by that no factor of either names.

Answers: which sigma does each of two plans have of its own, and from when on are two of them apart at all?
Elsewhere: the interval of a ratio (timeline/uncertainty.py), the constant (calibration/pairs.py).

A factor gives every kernel of a kind one level, but a curve is off by another amount at every shape. So
what is left of the ratio of two plans grows with the share of their factors that is not common.
"""

BETWEEN_PLANS = "between_plans"
# Without a constant: what curves of products are off at single shapes (docs/accuracy/kernels.md).
OWN_LOG_SIGMA_FACTOR = 0.05
OWN_SHARE = 0.2  # of factors that differ: from here on a plan has the whole of its own sigma
# Repeats inside one release differ from their mean by 0.94 % (26 runs that InternEvo and NeMo print twice):
# a sigma of 1.2 %, and 1.7 % between two of them. Plans that are no further apart are measured as equal.
TIED_RATIO = 1.02


def own_share(moved_share: float) -> float:
    """The part of its own sigma that a plan has where this share of its factors is not the other plan's.

    >>> own_share(0.05), own_share(0.5)
    (0.25, 1.0)
    """
    return min(1.0, moved_share / OWN_SHARE)
