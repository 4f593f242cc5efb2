"""The rates that a device sustains while it runs the kernels of graphs.

Answers: at which rates do matrix engines, vector units and the memory of a device work under load?
Elsewhere: data sheets (catalog/devices), the efficiency of kernels relative to these rates (efficiency.py).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.graph_kernels.efficiency import Rates
from flopcast.dtypes import ELEMENT_BYTES
from flopcast.spec.cluster import Device
from flopcast.units import Number

USUAL_W_PER_FLOP_PER_S = {"fp16": 2e-12, "fp32": 10.4e-12}
"""With this power per FLOP/s, GEMMs reach the rate of priors.py. In fp32, it is the median of the boards in
the catalogue.
"""
CLOCK_EXPONENT = 0.2


def clock_ratio(device: Device, dtype: str = "fp16") -> Number:
    """Return the rate that a board's power sustains, divided by that of a board with 2 W for each TFLOP/s.

    Boards with many matrix engines for their power lower their clock, and other boards raise their clock
    above that of the data sheet. If voltage rose with the clock, the clock would rise with the cube root of
    the power; the products of 15 devices (catalog/curves, 8192 · 4096 · 4096 in 16 bits) rise with its 5th
    root, within 13 %. The ratio is 1 if the board's power is not known, and for processors.

    >>> from flopcast.library.catalog import device
    >>> [round(clock_ratio(device(name)), 2) for name in ("rtx-3090-24gb", "rtx-pro-6000-max-q-96gb")]
    [1.2, 0.81]
    """
    if device.board_power_w is None or device.is_processor:
        return 1.0
    per_flop = device.board_power_w / device.peak(dtype)
    ratio: Number = (per_flop / USUAL_W_PER_FLOP_PER_S[dtype]) ** CLOCK_EXPONENT
    return ratio


def rates_of(devices: Sequence[tuple[Device, str]]) -> Rates:
    """Return the rates of devices under load, each with the format of its products.

    >>> from flopcast.library.catalog import device
    >>> rates = rates_of([(device("rtx-3090-24gb"), "fp16")])
    >>> (rates.bytes_per_s / 1e9).round().tolist()
    [936.0]
    """
    columns = np.array([_rates(device, dtype) for device, dtype in devices]).T
    return Rates(
        flop_per_s=columns[0], vector_flop_per_s=columns[1], bytes_per_s=columns[2], launch_s=columns[3]
    )


def _rates(device: Device, dtype: str) -> tuple[Number, Number, Number, Number]:
    is_wide = ELEMENT_BYTES[dtype] > ELEMENT_BYTES["fp16"]
    ratio = clock_ratio(device, "fp32" if is_wide else "fp16")
    peaks = (device.peak(dtype) * ratio, device.peak("fp32") * ratio)
    return *peaks, device.memory_bytes_per_s, device.kernel_launch_s
