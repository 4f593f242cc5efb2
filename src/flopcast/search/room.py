"""What part of its devices' memory a plan may use.

Answers: how large is the room, and what does a plan, or a stage, need over it?
Elsewhere: what is resident (memory/), limits of time and money (question.py).
"""

import numpy as np

from flopcast.dtypes import Counts, Flags, Floats
from flopcast.memory.peak import Memory, seen_bytes
from flopcast.search.exact import Exact
from flopcast.spec.cluster import Cluster
from flopcast.units import Number

BARELY_RATIO = 1.0 + 1e-9  # of what does not fit its device, however little is seen of it


def room_bytes(cluster: Cluster, headroom_fraction: Number) -> Number:
    """Bytes that may be used of each device."""
    return headroom_fraction * cluster.node.device.memory_bytes


def memory_ratio(used_bytes: Floats, fits: Flags, cluster: Cluster, headroom_fraction: Number) -> Counts:
    """What is used over what may be, in the shape of the arguments.

    Parameters
    ----------
    used_bytes, fits : arrays of one shape
        Of plans or stages: what the driver shows, and whether a device can hold it at all.

    Returns
    -------
    array of the same shape
        At most 1 where the headroom is left; above 1 wherever it does not fit.
    """
    there = room_bytes(cluster, headroom_fraction)
    return np.maximum(used_bytes / there, np.where(fits, 0.0, BARELY_RATIO))


def played_ratio(played: Exact, headroom_fraction: Number) -> float:
    """The same of a plan that was played."""
    used_bytes, fits = np.array(played.device_used_bytes), np.array(played.fits)
    return float(memory_ratio(used_bytes, fits, played.job.cluster, headroom_fraction))


def leaves_room(memory: Memory, cluster: Cluster, headroom_fraction: Number) -> Flags:
    """Whether each stage fits and leaves the headroom, (plans, stage classes)."""
    fits = memory.needed_bytes <= cluster.node.device.memory_bytes
    ratio = memory_ratio(seen_bytes(memory, cluster), fits, cluster, headroom_fraction)
    return np.asarray(ratio <= 1.0)
