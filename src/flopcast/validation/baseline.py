"""A baseline without a model of the step: FLOP and bubble over an efficiency that other rows reached.

Answers: how far off would each run be if it ran at the efficiency of the other runs like it?
Elsewhere: the FLOP and the bubble (`published.ideal_s`), statistics (published_summary.py).

A row's efficiency is the geometric mean of the other rows with its device, precision and family; where it
has no such companions, of the other rows on its device; where it is alone there too, of all other rows. So
no row has a say in its own baseline.
"""

import math
from collections.abc import Hashable, Sequence

from flopcast.dtypes import Logs


def baseline_errors(groups: Sequence[Sequence[Hashable]], log_efficiencies: Logs) -> list[float | None]:
    """Predicted over measured less one, by the baseline; None of a row that has no companion at all.

    Parameters
    ----------
    groups : for each row the groups that it belongs to, the nearest first
    log_efficiencies : array of shape (rows,)
        log(ideal / measured) of each row.

    Examples
    --------
    >>> alike, another = ("h100 in bf16", "h100"), ("h100 in fp8", "h100")
    >>> import numpy as np
    >>> baseline_errors([alike, alike, another], np.log([0.4, 0.5, 0.3]))[:2]
    [-0.2, 0.25]
    """
    return [_error(number, groups, log_efficiencies) for number in range(len(groups))]


def _error(number: int, groups: Sequence[Sequence[Hashable]], logs: Logs) -> float | None:
    """Return the baseline of one row, from the other rows of its nearest group that has other rows."""
    for level, group in enumerate(groups[number]):
        others = [
            place for place, own in enumerate(groups) if place != number and level < len(own)
            and own[level] == group
        ]  # fmt: skip
        if others:
            return round(math.exp(float(logs[number] - logs[others].mean())) - 1.0, 12)
    return None
