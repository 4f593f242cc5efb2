"""The Pareto front: plans for which no other plan is better in all objectives.

Answers: which of these rows of losses are not dominated, and which few rows represent a long front?
Elsewhere: losses (objectives.py), the best plan for a preference (preferences.py), the best plans of a
stream (top_candidates.py).
"""

import numpy as np

from flopcast.dtypes import Integers, distinct


def front(losses: np.ndarray) -> np.ndarray:
    """Return the rows that no other row dominates.

    A row dominates another one if no loss is larger and at least one is smaller.

    Parameters
    ----------
    losses : array of shape (plans, objectives)
        Lower is better. Units are arbitrary, and there is no NaN.

    Returns
    -------
    array of bool, (plans,)
        The result is exact. Equal rows do not dominate each other, so either all of them are on the front,
        or none.

    Examples
    --------
    >>> front(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [1.0, 3.0]])).tolist()
    [True, True, False, True]
    """
    size, objectives = losses.shape
    order = np.lexsort(losses.T[::-1])  # by the first objective, then the next
    rows = losses[order]
    kept = _of_two(rows) if objectives <= 2 else _of_many(rows)
    found = np.zeros(size, dtype=bool)
    found[order[kept]] = True
    return found


def _of_two(rows: np.ndarray) -> Integers:
    """Return the front of sorted rows of one or two columns: the second is below all before it."""
    first, second = rows[:, 0], rows[:, -1]
    lowest = np.minimum.accumulate(second)
    before = np.concatenate([[np.inf], lowest[:-1]])
    new = second < before
    leader = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    equal = (first == first[leader]) & (second == second[leader])
    return np.flatnonzero(new | equal)


def _of_many(rows: np.ndarray) -> Integers:
    """Return the front for any number of columns, from rows sorted so that no later row dominates."""
    left = np.arange(len(rows))
    kept: list[int] = []
    while left.size:
        best, rest = rows[left[0]], rows[left]
        kept.append(int(left[0]))
        worse = (rest >= best).all(axis=1) & (rest > best).any(axis=1)
        worse[0] = True  # it has been kept itself
        left = left[~worse]
    return np.array(kept, dtype=np.intp)


def thinned(values: np.ndarray, most: int) -> Integers:
    """Return the indices of at most this many values, spread evenly by rank, including both ends.

    >>> thinned(np.array([5.0, 1.0, 2.0, 4.0, 3.0]), 3).tolist()
    [0, 1, 4]
    """
    if len(values) <= most:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    places = distinct(np.rint(np.linspace(0, len(order) - 1, most)).astype(np.intp))
    return np.sort(order[places])
