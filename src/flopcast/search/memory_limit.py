"""The fraction of device memory that a plan may use in a search.

Answers: which fraction of the allowed memory does a plan or a stage need?
Elsewhere: the memory of a plan (memory/), the verdict (memory/verdict.py), limits of time and money
(question.py).

By default a search accepts plans whose verdict is "fits". If the user gives a headroom, the memory that the
driver shows must be within that part of the device; a headroom of 1 also accepts tight plans.
"""

import numpy as np

from flopcast.dtypes import Counts, Flags, Floats
from flopcast.memory.peak import FullestMoment, PeakMemory, seen_bytes
from flopcast.memory.tiers import OUTSIDE_HIGH_RATIO
from flopcast.memory.verdict import VERDICTS
from flopcast.search.exact import Exact
from flopcast.spec.cluster import Cluster
from flopcast.units import Number

BARELY_RATIO = 1.0 + 1e-9  # of what does not fit its device, however little is seen of it
WHOLE_FRACTION = 1.0  # headroom that also accepts tight plans


def memory_ratio(
    used_bytes: Floats,
    high_bytes: Floats,
    fits: Flags,
    capacity_bytes: float,
    headroom_fraction: Number | None,
) -> Counts:
    """Return the used memory divided by the allowed memory, in the shape of the arguments.

    Parameters
    ----------
    used_bytes, high_bytes, fits : arrays of one shape
        For each plan or stage: the expected memory that the driver shows, its upper bound, and whether the
        expected memory fits into the device.
    capacity_bytes : float
        Of a device.
    headroom_fraction : float or None
        Fraction of the capacity that a plan may use; None accepts plans whose verdict is "fits".

    Returns
    -------
    array of the same shape
        At most 1 if the plan is accepted; above 1 if it is not.
    """
    if headroom_fraction is None:
        taken, ratio = high_bytes <= capacity_bytes, high_bytes / capacity_bytes
    else:
        room = headroom_fraction * capacity_bytes
        taken, ratio = fits & (used_bytes <= room), used_bytes / room
    return np.maximum(ratio, np.where(taken, 0.0, BARELY_RATIO))


def with_outside(ratio: Counts, outside_ratio: Floats, headroom_fraction: Number | None) -> Counts:
    """Return the larger ratio of a device's memory and of memory outside the devices.

    Parameters
    ----------
    ratio : the result of `memory_ratio` for the device
    outside_ratio : of the fullest memory outside the devices (memory/tiers.py)
    headroom_fraction : None accepts plans whose verdict is "fits"; any other value also accepts tight plans
    """
    most = 1.0 if headroom_fraction is None else OUTSIDE_HIGH_RATIO
    return np.maximum(ratio, outside_ratio / most)


def used_memory_ratio(played: Exact, headroom_fraction: float | None) -> float:
    """Return the ratio of used to usable memory of a simulated plan, for the fullest memory."""
    own, outside = (each(played, headroom_fraction) for each in (device_memory_ratio, outside_memory_ratio))
    return max(own, outside)


def outside_memory_ratio(played: Exact, headroom_fraction: float | None) -> float:
    """Return the ratio of used to usable memory of the fullest memory outside the devices; 0 if none is
    used.
    """
    return float(with_outside(np.zeros(()), np.array(played.outside_ratio), headroom_fraction))


def device_memory_ratio(played: Exact, headroom_fraction: float | None) -> float:
    """Return the ratio of used to usable device memory of a simulated plan."""
    used, high, fits = (
        np.array(each)
        for each in (played.device_used_bytes, played.high_bytes, played.device_verdict != VERDICTS[-1])
    )
    return float(memory_ratio(used, high, fits, played.capacity_bytes, headroom_fraction))


def within_memory(
    memory: PeakMemory | FullestMoment, cluster: Cluster, headroom_fraction: float | None
) -> Flags:
    """Return whether each stage stays within the allowed memory, (plans, stage classes).

    Parameters
    ----------
    memory : PeakMemory or FullestMoment
    cluster : Cluster
    headroom_fraction : float or None
        Fraction of the device's memory that the driver may show; None accepts plans whose interval fits.
    """
    capacity_bytes = cluster.node.device.memory_bytes
    fits = memory.needed_bytes <= capacity_bytes
    used = seen_bytes(memory, cluster)
    ratio = memory_ratio(used, memory.high_bytes, fits, capacity_bytes, headroom_fraction)
    return np.asarray(ratio <= 1.0)
