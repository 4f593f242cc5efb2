"""GEMMs on a busy device: how much longer they take than in a short benchmark.

Answers: by how much does a busy device slow a GEMM of a given duration?
Elsewhere: the ratio of a device (spec/cluster.py, catalog/devices), curves (curve.py).

Curves come from benchmarks that time a GEMM for a few milliseconds on an idle device. Kernels that end
before the power limit lowers the clock run at the full clock there, and take longer in a training step.
Kernels of several milliseconds reach the limit while they are timed, so their curves contain most of the
effect. Very short kernels keep the device below its power limit.

The nodes come from 2775 GEMMs that were timed both ways on H200 and B200 (data/power against
data/peers/aiconfigurator). The median ratio rises from 1 at 15 us to its full value at 60 us; its logarithm
falls to a third between 0.7 and 2 ms. A device without measured curves states another share for long
kernels (`Sustained.long_kernel_share`).
"""

import numpy as np

from flopcast.cost.kernels.classes import KernelClass
from flopcast.dtypes import Floats
from flopcast.spec.cluster import Device, Sustained

NODES_S = (15e-6, 60e-6, 0.7e-3, 2e-3)
SHARES = (0.0, 1.0, 1.0)  # of the logarithm; at the last node, the device's own
SHORTEST_S = 1e-9  # avoids the logarithm of 0


def busy_ratio(kind: KernelClass, kernel_s: Floats, device: Device) -> Floats:
    """Return the slowdown, (rows,), of GEMMs of this duration on a busy device; 1 for other kernels."""
    if not kind.kind.is_product:
        return np.ones(kernel_s.shape)
    return sustained_ratio(kernel_s, device.sustained)


def sustained_ratio(alone_s: Floats, sustained: Sustained) -> Floats:
    """Return the ratio by which GEMMs take longer on a busy device, in the shape of `alone_s`.

    >>> sustained_ratio(np.array([1e-6, 1e-4, 1.0]), Sustained(ratio=1.2)).round(3).tolist()
    [1.0, 1.2, 1.066]
    """
    logs = np.log(np.maximum(alone_s, SHORTEST_S))
    shares = (*SHARES, sustained.long_kernel_share)
    busy_ratio: Floats = sustained.ratio ** np.interp(logs, np.log(NODES_S), shares)
    return busy_ratio
