"""Products of serving engines: tables of few rows and of many as one curve, and how far it is off."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.curve_conversion import converted_times
from flopcast.lab.calibration import peer_fit
from flopcast.lab.calibration.curve_fit import predicted_s
from flopcast.lab.calibration.peer_serving import CACHED, CACHED_BYTES, SERVED_FILES
from flopcast.lab.calibration.samples import join
from flopcast.library import catalog
from flopcast.library.curves import load_owner

CURVES = [
    (path.stem, name)
    for path in sorted((catalog.folder("curves") / "serving").glob("*.json"))
    for _, name in load_owner(path.stem, serving=True)
    if name.startswith(("served_gemm", "fused_experts"))
]
ASIDE = {("l40s-48gb", "served_gemm"): 0.10}  # median; its large products scatter by a tenth
KIN = {  # devices of one generation
    **dict.fromkeys(("h100-sxm5-80gb", "h200-sxm-141gb"), "hopper"),
    **dict.fromkeys(("b200-sxm-180gb", "b300-sxm-288gb", "gb200-192gb", "gb300-288gb"), "blackwell"),
}


@pytest.fixture(scope="module")
def samples(measurements):
    """All rows of a class by device and class."""
    return {
        (device, name): join(list(by_source.values()))
        for device in dict.fromkeys(owner for owner, _ in CURVES)
        for name, by_source in peer_fit.device_samples(
            catalog.device(device), measurements.served, SERVED_FILES
        ).items()
    }


@all_cases(("owner", "name"), CURVES)
def test_rows_kept_aside_are_predicted(samples, owner, name):
    device, rows = catalog.device(owner), samples[owner, name]
    aside = np.random.default_rng(5).random(rows.measured_s.size) < 0.2

    curve = peer_fit.fit_quickly(rows.part(~aside), device)

    left = rows.part(aside)
    errors = np.abs(predicted_s(curve, left, device) / left.measured_s - 1)
    few = left.coordinates[0] < 64
    assert np.median(errors) <= ASIDE.get((owner, name), 0.08)
    assert np.median(errors[few]) <= 0.08


@all_cases(("owner", "name"), [case for case in CURVES if case[0] in KIN])
def test_a_device_left_out_is_predicted_by_another_of_its_generation(samples, owner, name):
    device, rows = catalog.device(owner), samples[owner, name]
    lender = next(
        other
        for other, kernel in CURVES
        if kernel == name and KIN.get(other) == KIN[owner] and other != owner
    )
    lent = converted_times(load_owner(lender, serving=True)[lender, name], catalog.device(lender), device)

    errors = np.abs(predicted_s(lent, rows, device) / rows.measured_s - 1)

    assert np.median(errors) <= 0.12


@all_cases(("owner", "name"), [case for case in CURVES if case[1].startswith("served_gemm")])
def test_one_curve_holds_products_from_one_row_to_thousands(owner, name):
    rows = load_owner(owner, serving=True)[owner, name].axes[0]

    assert 2 ** rows[0] == 1
    assert 2 ** rows[-1] >= 4096


def test_small_weights_of_cards_with_large_caches_are_left_out_of_few_rows(samples):
    """Their times are those of the cache: up to twice as fast as memory."""
    for owner, name in (("l40s-48gb", "served_gemm"), ("rtx-pro-6000-96gb", "served_gemm")):
        m, n, k = samples[owner, name].coordinates
        least, most = CACHED_BYTES
        weights = 2 * n * k

        assert not ((m < 64) & (weights >= least) & (weights < most)).any()
        assert ((m < 64) & (weights >= most)).any()
        assert f"system={owner.partition('-')[0]}" in CACHED or owner.startswith("rtx")


def test_16_bit_products_of_gb200_give_no_curve(samples):
    assert samples["gb200-192gb", "served_gemm"].measured_s.size == 0
    assert ("gb200-192gb", "served_gemm") not in CURVES
