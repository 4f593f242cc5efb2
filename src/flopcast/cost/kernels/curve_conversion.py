"""The curve of one device, converted for use on another: memory-bound kernels, attention, and serving.

Answers: which share of its bound does a kernel reach on a device without measurements of it?
Elsewhere: which device's curve is used (curve_book.py), the bound and the sustained bandwidth
(roofline.py).

A memory-bound kernel takes the time that its bytes need at the rate that memory sustains, and the time that
its multiprocessors add to it: instructions, reductions over rows, loads in flight. The first part scales
with the bandwidth of the device, the second with the number and the clock of its multiprocessors. A sum
that reaches the full bandwidth is faster on the same chip with faster memory; a norm that reaches half of
it is not.

A kernel of fused attention computes a softmax between its two products, and overlaps it with them. If the
products do not limit the kernel, it takes the same number of cycles on each multiprocessor, however fast
the matrix engines are: L40S multiplies twice as fast as RTX 4090, and attention takes about the same time
on both.

Kernels of serving are all treated in the same way. Their time in addition to the bound is mostly latency of
launches, of casts, and of loads before the first multiplication. Predictions of GEMMs in 8 bits on H100
have a median error of 8 % with the curve of H200, and of 26 % with the efficiencies of H200.

A100 and GH200 are the only devices whose memory-bound kernels one source timed (data/operators). For these
two, this method has smaller errors than keeping the share of bandwidth: tests/cost/test_lending.py compares
both for every class. The sigma of a borrowed curve (classes.py) is still the error of keeping the share,
which `calibrate score` measures.
"""

import numpy as np

from flopcast.cost.kernels.between_nodes import log_bound_at_nodes
from flopcast.cost.kernels.classes import MEMORY, class_of
from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.features import features_of
from flopcast.cost.kernels.roofline import SUSTAINED_FRACTION
from flopcast.records import Record, replace
from flopcast.spec.cluster import Device

# The largest fraction of the matrix engines' peak rate that fused attention reaches: 190.6 of 209.5 TFLOP/s
# of RTX 5090 (flash-attn in gau-nernst/learn-cuda, 07_attention).
MOST_ATTENTION_EFFICIENCY = 0.91


class Rates(Record):
    """The limits of memory-bound kernels and of attention on a device.

    Attributes
    ----------
    memory_bytes_per_s : float
        Bandwidth that its memory sustains.
    cycles_per_s : float or None
        Multiprocessors times their clock; None if the clock is not known.
    matrix_flop_per_s : float
        Peak rate of products in 16 bits.
    """

    memory_bytes_per_s: float
    cycles_per_s: float | None
    matrix_flop_per_s: float


def rates_of(device: Device) -> Rates:
    """Return the rates of a device."""
    cycles = None if device.clock_hz is None else device.multiprocessors * device.clock_hz
    return Rates(
        memory_bytes_per_s=device.memory_bytes_per_s,
        cycles_per_s=cycles,
        matrix_flop_per_s=device.peak(device.dtype_of_16_bits),
    )


def converted_curve(curve: Curve, lender: Rates, borrower: Rates) -> Curve:
    """Return the curve of the device `lender` converted for `borrower`.

    Curves of GEMMs and messages keep their efficiency (`converted_times` converts those of serving). So do
    curves of devices whose clock is not known, shapes that reach the sustained bandwidth, and attention on
    a device whose matrix engines are faster per cycle, because such a device runs other kernels.
    """
    if lender.cycles_per_s is None or borrower.cycles_per_s is None:
        return curve
    issue_ratio = borrower.cycles_per_s / lender.cycles_per_s
    if class_of(curve.name).base.is_fused_attention:
        matrix_ratio = borrower.matrix_flop_per_s / lender.matrix_flop_per_s
        gain = max(np.log(issue_ratio / matrix_ratio), 0.0)
        most = np.maximum(curve.table, np.log(MOST_ATTENTION_EFFICIENCY))
        return replace(curve, table=np.minimum(curve.table + gain, most))
    if class_of(curve.name).kind is not MEMORY:
        return curve
    bandwidth_ratio = borrower.memory_bytes_per_s / lender.memory_bytes_per_s
    at_memory = 1.0 / SUSTAINED_FRACTION
    added = np.maximum(np.exp(-curve.table) - at_memory, 0.0)  # by multiprocessors, over the bound
    carried = -np.log(at_memory + added * bandwidth_ratio / issue_ratio)
    return replace(curve, table=np.where(added > 0, carried, curve.table))


def converted_times(curve: Curve, lender: Device, borrower: Device) -> Curve:
    """Convert a curve measured on `lender` for `borrower`, if the times of its class are interpolated.

    Curves of other classes are returned unchanged.

    The time in addition to the bound (at the sustained rate of the memory) is proportional to the cycles of
    all multiprocessors. It does not change if a clock is not known. It does not change for decode attention
    either, whose shorter kernels mostly wait for launches and for their first bytes.
    """
    if features_of(curve.name).operator is None:
        return curve
    mine, theirs = rates_of(borrower).cycles_per_s, rates_of(lender).cycles_per_s
    cycles_ratio = 1.0 if mine is None or theirs is None else theirs / mine
    if class_of(curve.name).kind.lends_seconds:
        cycles_ratio = 1.0
    lender_s, borrower_s = (
        np.exp(log_bound_at_nodes(curve.axes, device, curve.name)) / SUSTAINED_FRACTION
        for device in (lender, borrower)
    )
    added_s = np.maximum(lender_s * SUSTAINED_FRACTION * np.exp(-curve.table) - lender_s, 0.0)
    carried = np.log(borrower_s * SUSTAINED_FRACTION / (borrower_s + added_s * cycles_ratio))
    return replace(curve, table=np.where(added_s > 0, carried, curve.table))
