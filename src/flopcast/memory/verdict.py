"""The rule that decides whether memory fits, for one plan and for many.

Answers: how far off may a predicted peak be, and does it fit a device of a given size?
Elsewhere: the predicted peak itself (peak.py), what a search does with tight plans
(search/memory_limit.py).

A stage *fits* if the high end of its interval is within the device's memory, is *tight* if only the
expected need is, and *does not fit* if the expected need is larger than the device's memory.
"""

import math
from typing import Literal, get_args

import numpy as np

from flopcast.dtypes import Flags, Floats

Verdict = Literal["fits", "tight", "does not fit"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from the best to the worst

ALLOCATED_LOG_SIGMA = 0.033
"""Standard deviation of ln(measured / predicted) for what the framework allocates at its peak.

Sources: root mean squares of 0.033 for the six logged peaks of arXiv:2509.22832 (GPT-NeoX), 0.003 for ten
peaks on B200 (`flopcast validate --suite memory`) and 0.007 for 131 functional tests of Megatron-LM
(`--runs megatron_functional_8gpu.csv`). The largest of the three is used, because the user's software may
differ as much from the modelled one as that of another group does. Jobs that do not state everything that
memory depends on are not counted here.
"""

SIGMAS = 1.6449  # half-width of a 90 % interval of a normal distribution
ALLOCATED_HIGH_RATIO = math.exp(SIGMAS * ALLOCATED_LOG_SIGMA)
ALLOCATED_LOW_RATIO = 1.0 / ALLOCATED_HIGH_RATIO


def within(size_bytes: Floats, capacity_bytes: float) -> Flags:
    """Return whether the bytes of all stages are within a device; (plans,) from (plans, stage classes)."""
    return np.asarray((size_bytes <= capacity_bytes).all(axis=-1))


def verdict(expected_bytes: float, high_bytes: float, capacity_bytes: float) -> Verdict:
    """Return whether the fullest stage fits a device.

    Parameters
    ----------
    expected_bytes : memory that cannot be freed: allocated by the framework, and the driver's own
    high_bytes : high end of the memory that the driver may show, including the allocator's cache

    Examples
    --------
    >>> [verdict(70e9, 75e9, 80e9), verdict(78e9, 84e9, 80e9), verdict(81e9, 87e9, 80e9)]
    ['fits', 'tight', 'does not fit']
    """
    if expected_bytes > capacity_bytes:
        return "does not fit"
    return "fits" if high_bytes <= capacity_bytes else "tight"
