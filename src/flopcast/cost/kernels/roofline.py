"""The physical bound of a kernel on a device.

Answers: how many seconds does this work need at least, and how many where its bytes come from memory?
Elsewhere: what fraction of it is reached (curve.py), which work an operator is (operators/).
"""

import numpy as np

from flopcast.dtypes import Floats
from flopcast.operators.base import Work
from flopcast.spec.cluster import Device

# Of the data sheet's bandwidth, the most that memory sustains: a sum of tensors of 2 GB on GH200 reaches
# 0.93 (data/operators), one on B200 as well (ROCm/TransformerEngine, pull request 598), one on A100 0.87.
SUSTAINED_FRACTION = 0.93


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


def least_seconds(need: Work, device: Device) -> Floats:
    """Return the seconds that no factor takes a kernel below; of the work's own shape.

    That is the bound, but for bytes that come from memory at the rate which memory sustains. A kernel
    whose tensors all fit into the last cache may find there what the kernel before it wrote, so that the
    data sheet's bandwidth stays its bound.
    """
    compute_s = need.flop / device.peak(need.unit)
    sustained = np.where(need.moved_bytes > device.cache_bytes, SUSTAINED_FRACTION, 1.0)
    least_s: Floats = np.maximum(compute_s, need.moved_bytes / (device.memory_bytes_per_s * sustained))
    return least_s
