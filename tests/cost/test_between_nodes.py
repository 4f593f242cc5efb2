"""Kernels whose times are interpolated: laws over random shapes, on measured devices and on borrowers."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.between_nodes import log_bound_at_nodes
from flopcast.cost.kernels.curve_conversion import converted_times
from flopcast.cost.kernels.features import features_of
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.cost.kernels.unscaled import kernel_seconds, unscaled_times
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.operators.matmul import Matmul
from flopcast.operators.served_matmul import ServedMatmul

CURVES = [  # every curve of times
    (path.stem, name)
    for path in sorted((catalog.folder("curves") / "serving").glob("*.json"))
    for _, name in load_owner(path.stem, serving=True)
    if features_of(name).operator
]
SHAPES = 3000


def shapes_of(curve, seed=3):
    """Random coordinates of a curve's table, (rows,), a little beyond its ends too."""
    draw = np.random.default_rng(seed)
    logs = [draw.uniform(axis[0] - 2, axis[-1] + 2, SHAPES) for axis in curve.axes]
    return [2.0 ** np.maximum(log, 0.0) for log in logs]  # at least one of anything


def seconds(curve, name, device, table):
    """Seconds of the operators of a class at coordinates of its table."""
    work = features_of(name).operator(name, tuple(value[:, None] for value in table))
    coordinates = tuple(value.ravel() for value in work.coordinates())
    return kernel_seconds(
        bound_seconds(work.work(), device).ravel(), coordinates, curve, device, kernel=name
    )


@all_cases(("owner", "name"), CURVES)
def test_time_never_falls_with_more_of_anything(owner, name):
    device, curve = catalog.device(owner), load_owner(owner, serving=True)[owner, name]
    for borrower in (device, *map(catalog.device, device.relatives[:1])):
        lent = converted_times(curve, device, borrower) if borrower is not device else curve
        table = shapes_of(curve)
        before = seconds(lent, name, borrower, table)
        for number in {*range(len(table))} - {*features_of(name).free}:
            more = [value * (1.3 if place == number else 1.0) for place, value in enumerate(table)]

            assert (seconds(lent, name, borrower, more) >= before * (1 - 1e-9)).all()


@all_cases(("owner", "name"), CURVES)
def test_no_time_is_below_its_bound(owner, name):
    device, curve = catalog.device(owner), load_owner(owner, serving=True)[owner, name]
    table = shapes_of(curve, seed=4)
    work = features_of(name).operator(name, tuple(value[:, None] for value in table)).work()

    assert (seconds(curve, name, device, table) >= bound_seconds(work, device).ravel()).all()


@all_cases(("owner", "name"), CURVES)
def test_a_node_has_the_time_of_its_efficiency_or_that_of_a_node_before_it(owner, name):
    device, curve = catalog.device(owner), load_owner(owner, serving=True)[owner, name]
    nodes = [node.ravel() for node in np.meshgrid(*(2.0**axis for axis in curve.axes), indexing="ij")]
    bound_s = np.exp(log_bound_at_nodes(curve.axes, device, name)).ravel()

    found_s = seconds(curve, name, device, nodes)

    own_s = curve.launch_s + bound_s / np.exp(np.minimum(curve.table.ravel(), 0.0))
    assert (found_s >= own_s * (1 - 1e-9)).all()
    assert np.median(found_s / own_s) == pytest.approx(1.0, abs=1e-9)


@all_cases(("owner", "name"), CURVES)
def test_a_curve_converted_for_its_own_device_keeps_its_times(owner, name):
    device, curve = catalog.device(owner), load_owner(owner, serving=True)[owner, name]

    same = converted_times(curve, device, device)

    np.testing.assert_allclose(same.table, curve.table, atol=1e-9)


def test_a_curve_of_training_is_not_converted():
    h100, curve = catalog.device("h100-sxm5-80gb"), load_owner("h100-sxm5-80gb")["h100-sxm5-80gb", "gemm"]

    assert converted_times(curve, h100, catalog.device("b200-sxm-180gb")) is curve


def test_a_lower_clock_slows_few_rows_less_than_many():
    """A busy device lowers the clock of its products, but not that of its memory."""
    device = catalog.device("h200-sxm-141gb")
    curve = load_owner(device.name, serving=True)[device.name, "served_gemm"]
    few, many = (
        unscaled_times(
            [ServedMatmul(m=constant(m), n=constant(16384), k=constant(16384), dtype="bf16")], curve, device
        )
        for m in (1, 1024)
    )
    trained = unscaled_times(
        [Matmul(m=constant(1024), n=constant(16384), k=constant(16384), dtype="bf16")],
        load_owner(device.name)[device.name, "gemm"],
        device,
    )

    assert few.busy_ratio.item() == pytest.approx(1.0, abs=0.002)
    assert many.busy_ratio.item() == pytest.approx(trained.busy_ratio.item(), abs=0.02)
    assert many.busy_ratio.item() > 1.05
