"""The physical bound of a kernel on a device.

Answers: how many seconds does this work need at least?
Elsewhere: what fraction of it is reached (curve.py), which work an operator is (operators/).
"""

import numpy as np

from flopcast.dtypes import Floats
from flopcast.operators.base import Work
from flopcast.spec.cluster import Device


def bound_seconds(need: Work, device: Device) -> Floats:
    """Seconds at the device's peaks: of its matrix engine, or of its memory, whichever is longer.

    Returns
    -------
    array
        Of the work's own shape: (plans, 1), or (rows, 1) for measured shapes.

    References
    ----------
    Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
    """
    compute_s = need.flop / device.peak(need.unit)
    bound_s: Floats = np.maximum(compute_s, need.moved_bytes / device.memory_bytes_per_s)
    return bound_s
