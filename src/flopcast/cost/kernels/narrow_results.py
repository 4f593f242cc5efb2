"""Low-precision GEMMs of experts on devices that write the 16-bit results afterwards.

Answers: how long does a GEMM in 8 or 4 bits take if the writing of its result does not overlap?
Elsewhere: their speed-up over 16-bit GEMMs (fallback_classes.py), the devices (catalog/devices), the bytes
(operators/matmul.py).

Operands of 8 or 4 bits make products faster, but not the writing of their results. On Blackwell, the times
of multiplication and of writing add up, so that products with short sums gain little. The ratio of
fallback_classes.py was measured on the layers of one dense model, so the share of writing is removed from
it. Dense products keep the ratio, because they are as wide as those layers.

The test compares the time of additional columns at equal rows and sums in the tables of
data/peers/aiconfigurator, in which casts cancel. The medians of predicted over measured time on B200, B300,
GB200 and GB300, for sums of 512 to 1024, are 0.53 to 0.57 in 8 bits and 0.41 to 0.46 in 4 bits with the
ratio alone, and 0.81 to 0.88 and 0.84 to 0.90 with results after products. For sums of 4096 to 8192, they
are 1.02 to 1.05 and 1.05 to 1.07 in 8 bits. On H100 and H200, the ratio alone is right within 10 % for
short sums, too.
"""

from flopcast.cost.kernels.classes import KernelClass
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.dtypes import Floats

# Results over 16-bit products of the layers that the ratios are from: 2.48 GB at 7.4 TB/s, 13.1 ms.
RESULT_SHARE = 0.0254


def with_results(priced: KernelClass, alone_s: Floats, result_s: Floats) -> Floats:
    """Return the seconds of kernels with their results: `alone_s`, except for experts in 8 or 4 bits.

    Parameters
    ----------
    priced : the class
    alone_s : seconds that follow from the ratio to 16-bit products
    result_s : seconds to write the results at the rate that memory sustains

    Examples
    --------
    >>> import numpy as np
    >>> from flopcast.cost.kernels.classes import class_of
    >>> experts = class_of("narrow_expert_gemm.mxfp8")
    >>> with_results(experts, np.array([1e-3]), np.array([2e-4])).round(6).tolist()
    [0.001154]
    """
    relative = FALLBACK_CLASSES.get(priced.curve)
    if relative is None or relative.speed_up_ratio is None or not priced.base.writes_results_after:
        return alone_s
    products_s: Floats = alone_s * (1.0 - RESULT_SHARE * relative.speed_up_ratio)
    return products_s + result_s
