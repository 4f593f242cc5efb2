"""Measured rows as samples: what is impossible is left out and counted."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.lab.calibration.samples import join, operator_samples
from flopcast.library import catalog
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound

A100 = catalog.device("a100-sxm4-80gb")
PRODUCT_S = 2 * 8192**3 / 312e12  # a square of 8192 at A100's fp16 peak, from its data sheet
COPY_S = 2 * 2 * 2**30 / 2.039e12  # 2^30 elements of 2 bytes read and written


def column(*values):
    """Values as (rows, 1)."""
    return np.array(values, dtype=np.float64)[:, None]


def products(measured_s, keep=None):
    """Samples of equal square products with these seconds."""
    side = column(*[8192.0] * len(measured_s))
    work = Matmul(m=side, n=side, k=side, dtype="fp16")
    keep = np.ones(len(measured_s), dtype=bool) if keep is None else np.array(keep)
    return operator_samples(work, np.array(measured_s), keep, A100, "here")


def copies(measured_s):
    """Samples of equal copies with these seconds."""
    elements = column(*[2.0**30] * len(measured_s))
    work = MemoryBound(kind="copy", elements=elements, dtype="fp16")
    return operator_samples(work, np.array(measured_s), np.ones(len(measured_s), dtype=bool), A100, "here")


def test_a_row_faster_than_the_peak_is_rejected_and_counted():
    samples = products([1.5 * PRODUCT_S, 0.99 * PRODUCT_S, 2 * PRODUCT_S])

    assert samples.rejected == 1
    np.testing.assert_allclose(samples.measured_s, [1.5 * PRODUCT_S, 2 * PRODUCT_S])


@pytest.mark.parametrize(("bandwidth_ratio", "rejected"), [(0.9, 0), (1.4, 0), (1.6, 1)])
def test_a_cache_may_serve_half_more_than_the_memory_but_no_more(bandwidth_ratio, rejected):
    assert copies([COPY_S / bandwidth_ratio]).rejected == rejected


@all_cases("nonsense", [0.0, -1.0, np.nan, np.inf])
def test_a_time_that_is_none_is_rejected_and_counted(nonsense):
    samples = products([2 * PRODUCT_S, nonsense])

    assert (len(samples.measured_s), samples.rejected) == (1, 1)


def test_rows_that_are_known_to_be_broken_are_counted_too():
    samples = products([2 * PRODUCT_S] * 4, keep=[True, False, False, True])

    assert (len(samples.measured_s), samples.rejected) == (2, 2)


def test_a_sample_holds_the_bound_and_the_coordinates_of_its_row():
    m, n, k = column(512.0, 4096.0), column(1024.0, 4096.0), column(64.0, 8192.0)
    work = Matmul(m=m, n=n, k=k, dtype="fp16")

    samples = operator_samples(work, np.array([1.0, 2.0]), np.array([True, True]), A100, "here")

    assert samples.coordinates.tolist() == [[512.0, 4096.0], [1024.0, 4096.0], [64.0, 8192.0]]
    small_bytes = 2 * (512 * 64 + 64 * 1024 + 512 * 1024)
    np.testing.assert_allclose(samples.bound_s, [small_bytes / 2.039e12, 2 * 4096**2 * 8192 / 312e12])


def test_coordinates_that_are_the_same_for_every_row_are_repeated():
    work = MemoryBound(
        kind="softmax", elements=column(2.0**28, 2.0**30), width=column(2048.0), dtype="fp16"
    )

    samples = operator_samples(work, np.array([1.0, 2.0]), np.array([True, True]), A100, "here")

    assert samples.coordinates[1].tolist() == [2048.0, 2048.0]


@pytest.mark.parametrize(
    ("layout", "name"), [("forward", "gemm"), ("input_gradient", "gemm.input_gradient")]
)
def test_products_of_the_forward_give_the_class_its_curve(layout, name):
    work = Matmul(m=column(8.0), n=column(8.0), k=column(8.0), dtype="fp16", layout=layout)

    assert operator_samples(work, np.array([1.0]), np.array([True]), A100, "here").name == name


def test_joined_samples_hold_all_rows_in_order_and_all_rejections():
    first, second = products([2 * PRODUCT_S, 0.0]), products([3 * PRODUCT_S, 4 * PRODUCT_S, -1.0])

    both = join([first, second])

    np.testing.assert_allclose(both.measured_s, np.array([2, 3, 4]) * PRODUCT_S)
    assert both.coordinates.shape == (3, 3)
    assert both.bound_s.shape == (3,)
    assert both.rejected == 2


def test_what_is_kept_and_what_is_rejected_are_all_rows():
    measured_s = np.random.default_rng(0).uniform(0.0, 2 * PRODUCT_S, 200)

    samples = products(list(measured_s), keep=measured_s < 1.8 * PRODUCT_S)

    assert len(samples.measured_s) + samples.rejected == 200
    assert 0 < samples.rejected < 200
