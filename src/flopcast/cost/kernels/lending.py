"""A memory-bound curve of one device on another: what of its efficiency carries over.

Answers: which share of its own bandwidth does a kernel reach on a device that it was not timed on?
Elsewhere: which device lends its curve (book.py), the bound itself and the most that a kernel sustains of
it (roofline.py).

A memory-bound kernel takes the time that its bytes need at the rate that memory sustains, and the time that
its multiprocessors add to it: instructions, rows that are reduced, loads in flight. The first part follows
the bandwidth of the device, the second its multiprocessors and their clock. A norm that reaches half of
the bandwidth is no faster on the same chip with faster memory, and a sum that reaches all of it is.

Between A100 and GH200, the only devices whose memory-bound kernels were timed by one source
(data/operators), this errs less than carrying the share of bandwidth over: tests/cost/test_lending.py
compares both on every class. The sigma of a borrowed curve (classes.py) is still that of the share, which
`calibrate score` measures.
"""

from dataclasses import dataclass, replace

import numpy as np

from flopcast.cost.kernels.classes import MEMORY, class_of
from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.roofline import SUSTAINED_FRACTION
from flopcast.spec.cluster import Device


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What limits a device's memory-bound kernels: its memory, and the cycles of all multiprocessors."""

    memory_bytes_per_s: float
    cycles_per_s: float | None  # None where the clock is not known


def rates_of(device: Device) -> Rates:
    """Return the rates of a device."""
    cycles = None if device.clock_hz is None else device.multiprocessors * device.clock_hz
    return Rates(memory_bytes_per_s=device.memory_bytes_per_s, cycles_per_s=cycles)


def lent(curve: Curve, lender: Rates, borrower: Rates) -> Curve:
    """Return a curve that was timed on `lender` as `borrower` uses it, in shares of its own bandwidth.

    Curves of products, attention and messages keep their efficiency, and so do those of devices whose clock
    is not known, and shapes that reach what memory sustains.
    """
    if lender.cycles_per_s is None or borrower.cycles_per_s is None:
        return curve
    if class_of(curve.name).kind is not MEMORY:
        return curve
    bandwidth_ratio = borrower.memory_bytes_per_s / lender.memory_bytes_per_s
    issue_ratio = borrower.cycles_per_s / lender.cycles_per_s
    at_memory = 1.0 / SUSTAINED_FRACTION
    added = np.maximum(np.exp(-curve.table) - at_memory, 0.0)  # by multiprocessors, over the bound
    carried = -np.log(at_memory + added * bandwidth_ratio / issue_ratio)
    return replace(curve, table=np.where(added > 0, carried, curve.table))
