"""Memory-bound curves that a device lends: against rows of the other device, and against limits by hand."""

from itertools import product

import numpy as np
import pytest

from flopcast.cost.kernels.classes import MEMORY, class_of
from flopcast.cost.kernels.curve import Curve, CurveEvidence, log_efficiency
from flopcast.cost.kernels.curve_conversion import converted_curve, rates_of
from flopcast.cost.kernels.roofline import SUSTAINED_FRACTION, bound_seconds, least_seconds
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.operators.memory_bound import MemoryBound

A100, GH200 = catalog.device("a100-sxm4-80gb"), catalog.device("gh200-96gb")
BEYOND_CACHES_LOG2 = 26.3  # 83 MB
EVIDENCE = CurveEvidence(source="by hand", rows=0, rejected=0, relative_error=0.0)


def flat(efficiency, name="layernorm"):
    """A curve of one efficiency."""
    table = np.array([np.log(efficiency)])
    return Curve(
        name=name, owner="any", axes=(np.array([20.0]),), table=table, launch_s=0.0, evidence=EVIDENCE
    )


def changed(device, **fields):
    return device.model_copy(update=fields)


def share(curve, lender, borrower):
    """Of the borrower's bandwidth."""
    return float(np.exp(converted_curve(curve, rates_of(lender), rates_of(borrower)).table[0]))


def test_a_kernel_that_multiprocessors_limit_keeps_its_seconds_but_for_those_of_its_bytes():
    """1 / rate = 1 / (0.93 · bandwidth) + what multiprocessors add: A100 with half the bandwidth."""
    slow = changed(A100, memory_bytes_per_s=A100.memory_bytes_per_s / 2)
    for efficiency in (0.05, 0.3, 0.6, 0.9):
        full = A100.memory_bytes_per_s
        added_s = 1 / (efficiency * full) - 1 / (SUSTAINED_FRACTION * full)
        seconds = 1 / (SUSTAINED_FRACTION * full / 2) + added_s

        assert share(flat(efficiency), A100, slow) == pytest.approx(1 / seconds / (full / 2)), efficiency


def test_a_kernel_at_the_limit_of_memory_stays_there_whoever_borrows_it():
    for efficiency in (SUSTAINED_FRACTION, 1.0, 1.5):
        assert share(flat(efficiency), A100, GH200) == pytest.approx(efficiency)


def test_twice_the_multiprocessors_and_twice_the_memory_are_twice_as_fast():
    twice = changed(A100, memory_bytes_per_s=2 * A100.memory_bytes_per_s, multiprocessors=216)

    assert share(flat(0.4), A100, twice) == pytest.approx(0.4)


def test_more_bandwidth_never_slows_a_borrowed_kernel():
    for efficiency in (0.05, 0.5, 0.92):
        rates = [
            size * share(flat(efficiency), A100, changed(GH200, memory_bytes_per_s=size))
            for size in (1e12, 2e12, 4e12, 8e12)
        ]
        assert rates == sorted(rates), efficiency


def test_products_and_devices_of_unknown_clock_keep_their_efficiency():
    unknown = changed(GH200, clock_hz=None)

    assert share(flat(0.4), A100, unknown) == pytest.approx(0.4)
    assert share(flat(0.4, name="gemm"), A100, GH200) == pytest.approx(0.4)


def test_lending_errs_less_than_the_share_of_bandwidth_between_the_two_measured_devices():
    """Every memory-bound class that both have, beyond their caches, in both directions."""
    kept, carried = [], []
    for lender, borrower in ((A100, GH200), (GH200, A100)):
        lenders, borrowers = load_owner(lender.name), load_owner(borrower.name)
        for _, name in sorted(borrowers):
            own, other = borrowers[borrower.name, name], lenders.get((lender.name, name))
            if other is None or class_of(name).kind is not MEMORY or name.startswith("embedding"):
                continue
            nodes = [2.0**axis for axis in own.axes]
            nodes[0] = nodes[0][(own.axes[0] > BEYOND_CACHES_LOG2) & (own.axes[0] < other.axes[0][-1])]
            shapes = tuple(np.array(column) for column in zip(*product(*nodes), strict=True))
            measured = log_efficiency(own, shapes)
            kept.append(np.abs(log_efficiency(other, shapes) - measured).mean())
            carried.append(
                np.abs(
                    log_efficiency(converted_curve(other, rates_of(lender), rates_of(borrower)), shapes)
                    - measured
                ).mean()
            )

    assert len(kept) >= 30
    assert np.mean(carried) < 0.95 * np.mean(kept)
    assert np.median(carried) < np.median(kept)


def test_no_factor_takes_a_kernel_below_what_memory_sustains_beyond_the_cache():
    for elements, fraction in ((1e6, 1.0), (1e9, SUSTAINED_FRACTION)):
        need = MemoryBound(kind="residual_add", elements=constant(elements), dtype="bf16").work()

        assert least_seconds(need, A100) == pytest.approx(bound_seconds(need, A100) / fraction), elements
