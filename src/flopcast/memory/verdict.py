"""Whether memory fits: one rule, for one plan and for many.

Answers: how far off may a predicted peak be, and what does that say about a device of a given size?
Elsewhere: the predicted peak itself (peak.py), what a search does with tight plans (search/room.py).

A stage *fits* where the high end of what the driver may see is within the device, is *tight* where only the
expected need is, and *does not fit* where the expected need is larger than the device.
"""

import math
from typing import Literal

import numpy as np

from flopcast.dtypes import Flags, Floats

Verdict = Literal["fits", "tight", "does not fit"]

ALLOCATED_LOG_SIGMA = 0.033
"""Standard deviation of ln(measured / predicted) for what the framework allocates at its peak.

Sources: root mean squares of 0.033 for the six logged peaks of arXiv:2509.22832 (GPT-NeoX), 0.003 for ten
peaks on B200 (`flopcast validate --suite memory`) and 0.007 for 131 functional tests of Megatron-LM
(`--runs megatron_functional_8gpu.csv`). The largest of the three is taken, because a user's software is as
unlike ours as that of another group. Jobs that leave out what memory depends on are not counted here.
"""

SIGMAS = 1.6449  # half-width of a 90 % interval of a normal distribution
ALLOCATED_HIGH_RATIO = math.exp(SIGMAS * ALLOCATED_LOG_SIGMA)
ALLOCATED_LOW_RATIO = 1.0 / ALLOCATED_HIGH_RATIO


def within(size_bytes: Floats, capacity_bytes: float) -> Flags:
    """Whether every stage's bytes are within a device, (plans,) of (plans, stage classes)."""
    return np.asarray((size_bytes <= capacity_bytes).all(axis=-1))


def verdict(expected_bytes: float, high_bytes: float, capacity_bytes: float) -> Verdict:
    """What the need of the fullest stage says about a device.

    Parameters
    ----------
    expected_bytes : float
        What no cache can give back: allocated by the framework, and the driver's part.
    high_bytes : float
        High end of what the driver may see, the allocator's cache included.

    Examples
    --------
    >>> [verdict(70e9, 75e9, 80e9), verdict(78e9, 84e9, 80e9), verdict(81e9, 87e9, 80e9)]
    ['fits', 'tight', 'does not fit']
    """
    if expected_bytes > capacity_bytes:
        return "does not fit"
    return "fits" if high_bytes <= capacity_bytes else "tight"
