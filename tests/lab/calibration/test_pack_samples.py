"""Packs that were made up from a known device become the curves of that device."""

import numpy as np
import pytest

from flopcast.cost.kernels.curve import log_efficiency
from flopcast.lab.calibration.pack_samples import LEAST_ROWS, fit_pack, pack_samples
from flopcast.lab.measure.sample_pack import Sample
from flopcast.lab.measure.shapes import Shape
from flopcast.library import catalog

H200 = catalog.device("h200-sxm-141gb")
PEAK_FLOP_PER_S = 989.4e12  # dense bf16, NVIDIA H200 data sheet
LAUNCH_S = H200.kernel_launch_s


def measured(shape, seconds, condition="cold"):
    """A shape that takes the same time in three repetitions."""
    times_us = (seconds * 1e6,) * 3
    return Sample(device="NVIDIA H200", shape=shape, condition=condition, repetitions_us=times_us)


def product(m, n, k, efficiency, layout="forward", dtype="bf16"):
    """A dense product that reaches an efficiency of its compute bound."""
    shape = Shape(kernel="gemm", layout=layout, dtype=dtype, sizes=(("m", m), ("n", n), ("k", k)))
    peak = H200.peak_flop_per_s[dtype]
    seconds = LAUNCH_S + 2 * m * n * k / peak / efficiency
    return measured(shape, seconds)


def sizes(count=40, seed=1):
    """Large products, bound by compute; multiples of every tile."""
    return (np.random.default_rng(seed).integers(8, 33, (count, 3)) * 512).tolist()


def stream(elements, bandwidth_fraction):
    """A copy of bf16 elements."""
    seconds = LAUNCH_S + 2 * 2 * elements / H200.memory_bytes_per_s / bandwidth_fraction
    shape = Shape(kernel="copy", dtype="bf16", sizes=(("tokens", elements // 1024), ("width", 1024)))
    return measured(shape, seconds)


def test_the_catalogues_peak_is_that_of_the_data_sheet():
    assert H200.peak_flop_per_s["bf16"] == pytest.approx(PEAK_FLOP_PER_S, rel=0.002)


def test_the_efficiency_of_a_made_up_device_is_found_again():
    rows = [product(*shape, efficiency=0.7) for shape in sizes()]

    curve = fit_pack(pack_samples(rows, H200, "here"), H200)["gemm"]

    shape = tuple(np.array([float(x)]) for x in (8192, 8192, 8192))
    assert np.exp(log_efficiency(curve, shape, H200.multiprocessors)) == pytest.approx(0.7, rel=0.01)
    assert (curve.owner, curve.evidence.source, curve.evidence.rows) == ("h200-sxm-141gb", "here", 40)


@pytest.mark.parametrize(("layout", "ratio"), [("input_gradient", 0.9), ("weight_gradient", 1.2)])
def test_each_layout_gets_the_ratio_of_its_own_time(layout, ratio):
    rows = [product(*shape, efficiency=0.7) for shape in sizes()]
    rows += [product(*shape, efficiency=0.7 / ratio, layout=layout) for shape in sizes(12, seed=2)]

    curve = fit_pack(pack_samples(rows, H200, "here"), H200)["gemm"]

    assert curve.layout_ratio == {layout: pytest.approx(ratio, rel=0.02)}


def test_a_loaded_repetition_is_no_part_of_a_curve():
    cold = [product(*shape, efficiency=0.7) for shape in sizes()]
    hot = [
        Sample(device=row.device, shape=row.shape, condition="loaded", repetitions_us=(1e9,))
        for row in cold
    ]

    assert fit_pack(pack_samples([*cold, *hot], H200, "here"), H200)["gemm"].evidence.rows == 40


def test_products_of_other_precisions_are_a_class_of_their_own():
    rows = [product(*shape, efficiency=0.7) for shape in sizes(20)]
    rows += [product(*shape, efficiency=0.5, dtype="fp8") for shape in sizes(20)]

    curves = fit_pack(pack_samples(rows, H200, "here"), H200)

    assert set(curves) == {"gemm", "narrow_gemm.fp8"}


def test_a_class_with_few_rows_gets_no_curve():
    rows = [product(*shape, efficiency=0.7) for shape in sizes(LEAST_ROWS - 1)]

    assert fit_pack(pack_samples(rows, H200, "here"), H200) == {}


def test_rows_faster_than_the_device_are_rejected_and_counted():
    rows = [product(*shape, efficiency=0.7) for shape in sizes(20)]
    rows += [product(*shape, efficiency=1.3) for shape in sizes(5, seed=3)]

    found = pack_samples(rows, H200, "here")["gemm"]

    assert (len(found.measured_s), found.rejected) == (20, 5)


def test_streams_of_bytes_are_fitted_to_the_bandwidth():
    rows = [stream(2**power, 0.8) for power in range(22, 32)]

    curve = fit_pack(pack_samples(rows, H200, "here"), H200)["copy"]

    np.testing.assert_allclose(np.exp(curve.table), 0.8, rtol=0.02)
