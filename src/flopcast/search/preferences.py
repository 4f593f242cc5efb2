"""Plans of the Pareto front by preference: which plan is best if one objective matters more than another.

Answers: how much must a user care about time, compared with memory, money or energy, for this plan?
Elsewhere: the front (pareto_front.py), losses (objectives.py).

Weights are exponents, so that units do not matter: with the weight w, one percent of the first loss is
worth w / (1 − w) percent of the other. Plans of the front that no weight prefers are kept in the front.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from flopcast.records import Record
from flopcast.search.pareto_front import front
from flopcast.search.rank import Ranked
from flopcast.units import Number


class Preferred(Record, eq=False):
    """A plan of the front, and the weights of the first objective against another for which it is best."""

    plan: Ranked
    low_ratio: float
    high_ratio: float


def front_of(plans: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Return the plans of the front, ordered by the first objective."""
    if not plans:
        return ()
    here = front(np.array([[loss.value for loss in one.losses] for one in plans]))
    kept = [one for one, stays in zip(plans, here.tolist(), strict=True) if stays]
    return tuple(sorted(kept, key=lambda one: tuple(loss.value for loss in one.losses)))


def preferences_of(on_front: Sequence[Ranked]) -> tuple[tuple[Preferred, ...], ...]:
    """Return, for every objective except the first, the plans that are best for some weight of the first
    objective.

    Plans with the largest weight come first. The result is () if the front is empty.
    """
    if not on_front:
        return ()
    losses = np.array([[loss.value for loss in one.losses] for one in on_front])
    return tuple(
        tuple(
            Preferred(plan=on_front[row], low_ratio=low, high_ratio=high)
            for row, low, high in preferred(losses[:, [0, other]])
        )
        for other in range(1, losses.shape[1])
    )


def preferred(losses: np.ndarray) -> tuple[tuple[int, float, float], ...]:
    """Return which rows of two positive losses are best for which weights of the first loss.

    With the weight w, the best row has the smallest first ** w · second ** (1 − w). One percent of the
    first loss is then worth w / (1 − w) percent of the second loss, whatever their units are.

    Returns
    -------
    tuple of (row, low, high)
        A row and the range of weights for which it is best, in descending order. Together, the ranges cover
        0 to 1.

    Examples
    --------
    >>> preferred(np.array([[1.0, 8.0], [2.0, 2.0], [8.0, 1.0], [4.0, 4.0]]))
    ((0, 0.667, 1.0), (1, 0.333, 0.667), (2, 0.0, 0.333))
    """
    logs = np.log(losses)
    hull: list[int] = []
    for row in np.flatnonzero(front(losses))[np.lexsort(losses[front(losses)].T[::-1])].tolist():
        if hull and (losses[hull[-1]] == losses[row]).all():
            continue
        while len(hull) > 1 and _even_weight(logs, *hull[-2:]) <= _even_weight(logs, hull[-1], row):
            hull.pop()
        hull.append(row)
    ends = [1.0, *(_even_weight(logs, one, other) for one, other in pairwise(hull)), 0.0]
    return tuple((row, round(ends[i + 1], 3), round(ends[i], 3)) for i, row in enumerate(hull))


def _even_weight(logs: np.ndarray, one: int, other: int) -> Number:
    """Return the weight of the first loss with which two rows are equally good."""
    across, down = logs[other, 0] - logs[one, 0], logs[one, 1] - logs[other, 1]
    return float(down / (down + across))
