"""The rule that decides whether memory fits, for one plan and for many.

Answers: how large may the error of a predicted peak be, and does the peak fit into a device?
Elsewhere: the predicted peak itself (peak.py), tight plans in a search (search/memory_limit.py).

A stage *fits* if the high end of its interval is within the device's memory, is *tight* if only the
expected need is, and *does not fit* if the expected need is larger than the device's memory.
"""

import math
from typing import Literal, get_args

import numpy as np

from flopcast.dtypes import Flags, Floats
from flopcast.spec.memory_software import Memory

Verdict = Literal["fits", "tight", "does not fit"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from the best to the worst

STANDING_LOG_SIGMA = 0.033
"""Standard deviation of ln(measured / predicted) for memory that stays allocated during the whole step.

Sources: root mean squares of 0.033 for the six logged peaks of arXiv:2509.22832 (GPT-NeoX), 0.003 for ten
peaks on B200 (`flopcast validate --suite memory`) and 0.007 for 131 functional tests of Megatron-LM
(`--runs megatron_functional_8gpu.csv`). The largest of the three is used, because the user's software may
differ as much from the modelled one as that of another group does.
"""

TEMPORARY_LOG_SIGMAS = {"verified": (0.13, 0.13), "compared": (0.22, 0.22), "unknown": (0.35, 0.48)}
"""Standard deviations of the same logarithm for memory that is allocated only during a part of the step.
The keys state what is known of a framework's peaks (`stack.memory`). The values are the sigmas of peaks
below and above the prediction. Most of this memory holds activations, logits, and the temporary tensors of
a layer. The sigmas are root mean squares over runs of users, each source with the same weight: 6 sources of
Megatron ("verified"), without one whose MoE models need 2.6 times as much, 6 sources of TorchTitan
("compared"), and 9 sources of other software ("unknown"). Runs are left out if they log less memory than
their states should need, because they keep states in another precision than their settings state
(docs/accuracy/overview.md#memory).
"""

SIGMAS = 1.6449  # half-width of a 90 % interval of a normal distribution


def allocated_interval(
    standing_bytes: Floats, allocated_bytes: Floats, memory: Memory
) -> tuple[Floats, Floats]:
    """Return the ends of the 90 % interval of the allocated memory, in the shape of the arguments.

    Parameters
    ----------
    standing_bytes : the part of the peak that is allocated during the whole step
    allocated_bytes : the predicted peak
    memory : the fields of the stack about memory
    """
    known = "verified" if memory.verified else "compared" if memory.compared else "unknown"
    below, above = TEMPORARY_LOG_SIGMAS[known]
    temporary_bytes = allocated_bytes - standing_bytes
    low, high = (
        standing_bytes * math.exp(SIGMAS * standing) + temporary_bytes * math.exp(SIGMAS * temporary)
        for standing, temporary in ((-STANDING_LOG_SIGMA, -below), (STANDING_LOG_SIGMA, above))
    )
    return low, high


def within(size_bytes: Floats, capacity_bytes: float) -> Flags:
    """Return whether the bytes of all stages, (plans, stage classes), fit into a device, (plans,)."""
    return np.asarray((size_bytes <= capacity_bytes).all(axis=-1))


def verdict(expected_bytes: float, high_bytes: float, capacity_bytes: float) -> Verdict:
    """Return whether the fullest stage fits a device.

    Parameters
    ----------
    expected_bytes : memory that cannot be freed: that of the framework and that of the driver
    high_bytes : high end of the memory that the driver may show, including the allocator's cache

    Examples
    --------
    >>> [verdict(70e9, 75e9, 80e9), verdict(78e9, 84e9, 80e9), verdict(81e9, 87e9, 80e9)]
    ['fits', 'tight', 'does not fit']
    """
    if expected_bytes > capacity_bytes:
        return "does not fit"
    return "fits" if high_bytes <= capacity_bytes else "tight"
