"""Two plans on one machine: the uncertainty of the ratio of their steps that no factor covers.

Answers: which sigma does each plan add to the ratio, and how large must the ratio be to be significant?
Elsewhere: the interval of a ratio (timeline/uncertainty.py), the constant (lab/calibration/plan_pairs.py).

A factor gives all kernels of one kind the same level, but the error of a curve differs from shape to shape.
The uncertainty of a ratio therefore grows with the share of factors that the two plans do not have in
common.
"""

BETWEEN_PLANS = "between_plans"
# Used without the constant: the error of GEMM curves at single shapes (docs/accuracy/kernels.md).
OWN_LOG_SIGMA_FACTOR = 0.05
OWN_SHARE = 0.2  # share of factors that differ from which on a plan adds its full sigma
# Repeats inside one release differ from their mean by 0.94 % (26 runs that InternEvo and NeMo print twice):
# a sigma of 1.2 %, and 1.7 % between two of them. Plans within this ratio count as equally fast.
TIED_RATIO = 1.02


def own_share(moved_share: float) -> float:
    """Return the fraction of its sigma that a plan adds to a ratio if this share of its factors differs.

    >>> own_share(0.05), own_share(0.5)
    (0.25, 1.0)
    """
    return min(1.0, moved_share / OWN_SHARE)
