"""The physical bound of a kernel on a device.

Answers: how many seconds does this work need at least?
Elsewhere: the fraction of the bound that kernels reach (curve.py), the work of an operator (operators/).
"""

import math

import numpy as np

from flopcast.dtypes import Counts, Floats, any_of
from flopcast.operators.base import Work
from flopcast.spec.cluster import Device

# The largest fraction of the data sheet's bandwidth that kernels reach: 0.93 for sums of 2 GB tensors on
# GH200 (data/operators) and on B200 (ROCm/TransformerEngine, pull request 598); 0.87 on A100.
SUSTAINED_FRACTION = 0.93


def bound_seconds(need: Work, device: Device) -> Floats:
    """Return the seconds at the device's peak rates: the longer of matrix engine and memory.

    Returns
    -------
    array
        Its shape is that of the work: (plans, 1), or (rows, 1) for measured shapes.

    References
    ----------
    Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
    """
    bound_s: Floats = np.maximum(engine_seconds(need, device), memory_seconds(need, device))
    return bound_s


def roofline(need: Work, device: Device) -> tuple[Floats, Floats, Floats]:
    """Return what `bound_seconds` and `engine_seconds` do, and the least seconds of a kernel.

    No factor reduces a kernel below its least seconds, the bound at the sustained bandwidth. If all tensors
    of a kernel fit into the last-level cache, the previous kernel may have left them there, so the bound
    uses the bandwidth of the data sheet.
    """
    engine_s = engine_seconds(need, device)
    bound_s: Floats = np.maximum(engine_s, memory_seconds(need, device))
    is_large = need.moved_bytes > device.cache_bytes
    if not any_of(is_large):
        return bound_s, engine_s, bound_s
    sustained = np.where(is_large, SUSTAINED_FRACTION, 1.0)
    least_s: Floats = np.maximum(engine_s, memory_seconds(need, device, sustained))
    return bound_s, engine_s, least_s


def engine_seconds(need: Work, device: Device) -> Floats:
    """Return the seconds that the matrix engines need for the products at their peak rate.

    Products that are narrower than a systolic array use only a part of it. This is the case for attention,
    because one side of each of its products is the size of a head.
    """
    compute_s: Floats = need.flop / device.peak(need.unit)
    if need.narrow_side is None or device.matrix_side == 1:
        return compute_s
    padded = np.ceil(need.narrow_side / device.matrix_side) * device.matrix_side
    return compute_s * (padded / need.narrow_side)


def memory_seconds(need: Work, device: Device, sustained: Counts | float = 1.0) -> Floats:
    """Return the seconds that a kernel takes to move its bytes at a fraction of the memory's peak rate."""
    cached = cached_bytes(need, device)
    if cached is None:
        return need.moved_bytes / (device.memory_bytes_per_s * sustained)
    from_memory_s: Floats = (need.moved_bytes - cached) / (device.memory_bytes_per_s * sustained)
    return from_memory_s + cached / device.cache_bytes_per_s


def cached_bytes(need: Work, device: Device) -> Floats | None:
    """Return the bytes that a kernel without products reads from and writes to the last-level cache.

    The previous kernel has just written the tensors that a kernel reads, except for those that were saved
    in the forward pass. The share that the cache still holds falls linearly to 0 for a kernel that moves
    twice the size of the cache: kernels of vLLM on RTX 4090 and RTX PRO 6000 (data/peers/llmservingsim,
    tests/cost/test_measured_rows.py). The result is None for devices whose cache has no known rate, because
    the curves of their memory-bound kernels were measured with tensors in the cache.
    """
    if not device.cache_bytes_per_s or np.any(need.flop):
        return None
    held_share = np.maximum(1.0 - need.moved_bytes / (2.0 * device.cache_bytes), 0.0)
    held_bytes: Floats = held_share * (need.moved_bytes - need.saved_bytes)
    return held_bytes


def moving_seconds(moved_bytes: Floats, device: Device) -> Floats:
    """Return the seconds in which the bytes are moved at the sustained rate of the memory."""
    moving_s: Floats = moved_bytes / (device.memory_bytes_per_s * SUSTAINED_FRACTION)
    return moving_s


def cycle_seconds(cycles: Counts, device: Device) -> Floats:
    """Return the seconds of cycles that are distributed over all multiprocessors; 0 if the clock is
    unknown.
    """
    rate = device.multiprocessors * (device.clock_hz or math.inf)
    lasting_s: Floats = cycles / rate
    return lasting_s
