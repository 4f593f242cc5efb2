"""Products and experts of serving: tables of few rows and of many as one curve, and how far it is off."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.curve_conversion import converted_times
from flopcast.lab.calibration import peer_fit
from flopcast.lab.calibration.curve_fit import predicted_s
from flopcast.lab.calibration.peer_columns import balanced_load
from flopcast.lab.calibration.peer_tables import SERVED_FILES
from flopcast.lab.calibration.samples import join
from flopcast.library import catalog
from flopcast.library.curves import load_owner

CURVES = [
    (path.stem, name)
    for path in sorted((catalog.folder("curves") / "serving").glob("*.json"))
    for _, name in load_owner(path.stem, serving=True)
    if name.startswith(("served_gemm", "fused_experts"))
]
MOST_MEDIAN = 0.08
SCATTERED = {  # whose tables scatter more, between rows of one shape, or with loads that are not printed
    ("l40s-48gb", "served_gemm"): 0.10,
    ("l40s-48gb", "fused_experts.fp8"): 0.10,
    **{(device, "fused_experts.nvfp4"): 0.10 for device in ("b200-sxm-180gb", "gb200-192gb")},
    **{(device, "fused_experts.nvfp4"): 0.10 for device in ("b300-sxm-288gb", "gb300-288gb")},
}
FEW_ROWS = 1000  # formats with fewer rows have all of them below 128 tokens
MOST_MEDIAN_OF_FEW = 0.17  # 23 rows are kept aside of the smallest
KIN = {  # devices of one generation
    **dict.fromkeys(("h100-sxm5-80gb", "h200-sxm-141gb"), "hopper"),
    **dict.fromkeys(("b200-sxm-180gb", "b300-sxm-288gb", "gb200-192gb", "gb300-288gb"), "blackwell"),
}
TWINS = ("h200-sxm-141gb", "b300-sxm-288gb", "gb300-288gb")  # fitted as others of their generation


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


@all_cases(("owner", "name"), [case for case in CURVES if case[0] not in TWINS])
def test_rows_kept_aside_are_predicted(samples, owner, name):
    device, rows = catalog.device(owner), samples[owner, name]
    aside = np.random.default_rng(5).random(rows.measured_s.size) < 0.2

    curve = peer_fit.fit_quickly(rows.part(~aside), device)

    left = rows.part(aside)
    errors = np.abs(predicted_s(curve, left, device) / left.measured_s - 1)
    scarce = len(rows.measured_s) < FEW_ROWS
    assert np.median(errors) <= (
        MOST_MEDIAN_OF_FEW if scarce else SCATTERED.get((owner, name), MOST_MEDIAN)
    )


@all_cases(("owner", "name"), [case for case in CURVES if case[1].startswith("served_gemm")])
def test_products_of_few_rows_are_predicted_as_well_as_others(samples, owner, name):
    device, rows = catalog.device(owner), samples[owner, name]
    few = rows.part(rows.coordinates[0] < 64)

    errors = np.abs(
        predicted_s(load_owner(owner, serving=True)[owner, name], few, device) / few.measured_s - 1
    )

    assert np.median(errors) <= 0.08


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

    assert np.median(errors) <= (0.15 if name.endswith("mxfp4") else 0.12)


@all_cases(("owner", "name"), [case for case in CURVES if case[1].startswith("served_gemm")])
def test_one_curve_holds_products_from_one_row_to_thousands(owner, name):
    rows = load_owner(owner, serving=True)[owner, name].axes[0]

    assert 2 ** rows[0] == 1
    assert 2 ** rows[-1] >= 4096


def test_small_weights_of_cards_with_large_caches_are_left_out_of_few_rows(samples):
    """Their times are those of the cache: up to twice as fast as memory."""
    for owner, name in (("l40s-48gb", "served_gemm"), ("rtx-pro-6000-96gb", "served_gemm")):
        m, n, k = samples[owner, name].coordinates
        least, most = 1e6, 16e6
        weights = 2 * n * k

        assert not ((m < 64) & (weights >= least) & (weights < most)).any()
        assert ((m < 64) & (weights >= most)).any()


def test_16_bit_products_of_gb200_give_no_curve(samples):
    assert samples["gb200-192gb", "served_gemm"].measured_s.size == 0
    assert ("gb200-192gb", "served_gemm") not in CURVES


def test_experts_that_are_read_grow_with_tokens_up_to_those_that_a_rank_holds():
    one = np.ones(1)
    touched = [balanced_load(t * one, 8 * one, 128 * one, 8 * one)[1].item() for t in (1, 2, 4, 8, 16, 64)]

    assert touched == [1, 2, 4, 8, 16, 16]


def test_balanced_picks_are_spread_as_the_benchmark_spreads_them():
    """Every pick of every token, counted one by one: token t picks t + i strides, for i below top_k."""
    top_k, experts, ranks = 6, 64, 8
    for tokens in (11, 16, 100):
        stride = -(-experts // top_k)
        picks = [(token + i * stride) % experts for token in range(tokens) for i in range(top_k)]
        mine = [pick for pick in picks if pick < experts // ranks]

        rows, touched, _ = balanced_load(*(np.array([float(x)]) for x in (tokens, top_k, experts, ranks)))

        assert touched.item() == len(set(mine))
        assert rows.item() == pytest.approx(len(mine), rel=0.2)
