"""A baseline without a model of the step: FLOP and bubble over the efficiency of other rows.

Answers: how large is the error of each run if it is predicted with the efficiency of similar runs?
Elsewhere: the FLOP and the bubble (`published.ideal_s`), statistics (published_statistics.py).

The efficiency of a row is the geometric mean over the other rows with its device, precision and family. If
there are none, it is the mean over the other rows on its device, and otherwise over all other rows. So no
row affects its own baseline.
"""

import math
from collections.abc import Hashable, Sequence

from flopcast.dtypes import Logs


def baseline_errors(groups: Sequence[Sequence[Hashable]], log_efficiencies: Logs) -> list[float | None]:
    """Return the relative error of the baseline for each row, None for a row without any other.

    `groups` are for each row the groups that it belongs to, the nearest first; `log_efficiencies`, (rows,),
    are log(ideal / measured).

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
