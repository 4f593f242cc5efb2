"""Kernels that widen their weights are no more efficient than the wider format, beyond the measured rows.

Marlin's and Triton's kernels for mxfp4 and int4 on Hopper convert weights to 16 bits and multiply with the
instructions of 16 bits, so that no number of rows makes them faster than these.
"""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.fallback_classes import WIDENED
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.cost.kernels.unscaled import unscaled_times
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.operators.fused_experts import FusedExperts
from flopcast.records import replace

H100 = catalog.cluster("dgx-h100")


def experts(rows_each, weights):
    rows = np.asarray(rows_each, float) * 32
    one = np.ones_like(rows)
    return FusedExperts(
        tokens=rows / 4, rows=rows, hidden=2880 * one, inner=2880 * one, touched=32 * one, imbalance=one,
        dtype="bf16", weights=weights,
    )  # fmt: skip


def times(rows_each, weights, *, widens=True):
    """Return the seconds that kernels take and their bounds."""
    device, work = H100.node.device, experts(rows_each, weights)
    found = load_serving_book(H100).find(device.curves or device.name, work.kernel, device.kernel_launch_s,
                                         device.relatives)  # fmt: skip
    alone = unscaled_times([work], found.curve if widens else replace(found.curve, widened=None), device)
    return alone.curve_s, bound_seconds(work.work(), device)


@all_cases("name", [name.partition(".")[2] for name in WIDENED])
def test_with_many_rows_weights_of_4_bits_are_no_faster_than_those_of_16(name):
    rows = 2.0 ** np.arange(9, 13)

    assert (times(rows, name)[0] >= 0.999 * times(rows, "")[0]).all()
    assert (times(rows, name, widens=False)[0] < times(rows, "")[0]).any()  # what was extrapolated before


@all_cases("name", [name.partition(".")[2] for name in WIDENED])
def test_measured_rows_and_their_order_stay_as_they_were(name):
    few, all_rows = np.array([1.0, 2.0, 4.0]), 2.0 ** np.arange(13)

    assert times(few, name)[0] == pytest.approx(times(few, name, widens=False)[0])
    assert (np.diff(times(all_rows, name)[0]) > 0).all()


def test_a_format_that_the_matrix_units_read_has_no_wider_curve():
    b200 = catalog.cluster("dgx-b200")
    device = b200.node.device

    found = load_serving_book(b200).find(
        device.curves or device.name, "fused_experts.mxfp4_mxfp8", device.kernel_launch_s, device.relatives
    )

    assert found.curve.widened is None
