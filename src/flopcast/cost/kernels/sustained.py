"""Products on a device that is kept busy: how much longer they take than their curve says.

Answers: which part of a device's sustained ratio does a product of some seconds show?
Elsewhere: the ratio of a device (spec/cluster.py, catalog/devices), curves (curve.py).

Curves come from tables that time a product for a few milliseconds after an idle moment. Kernels that are
over before the limit of power acts ran at the first clock, and take longer in a step. Kernels of some
milliseconds met the limit while they were timed, so that their curve holds most of it already. Very short
ones leave the device below its limit.

The nodes are those of 2775 equal products that were timed both ways on H200 and B200 (data/power beside
data/peers/aiconfigurator): the median ratio rises from 1 at 15 us to its full value at 60 us, and falls to
a third of it, as a logarithm, from 0.7 to 2 ms.
"""

import numpy as np

from flopcast.cost.kernels.classes import KernelClass
from flopcast.dtypes import Floats
from flopcast.spec.cluster import Device

NODES_S = (15e-6, 60e-6, 0.7e-3, 2e-3)
SHARES = (0.0, 1.0, 1.0, 0.35)
SHORTEST_S = 1e-9  # keeps the logarithm of no time at all away


def busy_ratio(kind: KernelClass, kernel_s: Floats, device: Device) -> Floats:
    """Return by how much a busy device slows kernels that last so long, (rows,); 1 for all but products."""
    if not kind.is_sustained:
        return np.ones(kernel_s.shape)
    return sustained_ratio(kernel_s, device.sustained.ratio)


def sustained_ratio(alone_s: Floats, ratio: float) -> Floats:
    """What to multiply the seconds of products by; the same shape.

    >>> sustained_ratio(np.array([1e-6, 1e-4, 1.0]), 1.2).round(3).tolist()
    [1.0, 1.2, 1.066]
    """
    logs = np.log(np.maximum(alone_s, SHORTEST_S))
    busy_ratio: Floats = ratio ** np.interp(logs, np.log(NODES_S), SHARES)
    return busy_ratio
