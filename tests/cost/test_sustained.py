"""Products on a busy device, against tables that time equal shapes for milliseconds and for a second."""

from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from alone import seconds_of
from power_accuracy import DEVICES, pairs

from flopcast.cost.kernels.sustained import NODES_S, sustained_ratio
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.operators.matmul import Matmul
from flopcast.spec.cluster import Sustained

# TFLOP/s of GEMMs of busy devices, in bf16 and in FP8. MI325X: mean rate of ten shapes of DeepSeek-V3,
# "typical attained FLOP/s" (blogs of ROCm, 6 October 2026). The others: the highest rate of a sum of 32,896
# terms (MI300X: "maximum achievable FLOP/s", part 2; MI350X and MI355X:
# TraceLens/Agent/Analysis/utils/arch in AMD-AGI/TraceLens)
TYPICAL = [(m, n, k) for m in (32, 32768) for n, k in ((2112, 7168), (3072, 1536), (7168, 2048))]
TYPICAL += [(m, n, k) for m in (32, 32768) for n, k in ((4608, 7168), (7168, 256))]
HIGHEST = [(4096, 4864, 32896)]
AMD_TFLOP_PER_S = {
    "mi325x-8": (TYPICAL, 616, 1143),
    "mi300x-8": (HIGHEST, 708, 1273),
    "mi350x-8": (HIGHEST, 1445),  # its FP8 rate is above that of MI355X, so it was measured otherwise
    "mi355x-8": (HIGHEST, 1613, 2905),
}


def test_the_ratio_of_a_measured_device_is_the_median_of_its_table(shared):
    wrong = {}
    for name, device in DEVICES.items():
        cold, ratio = pairs(shared, name)
        found = float(np.median(ratio[(cold > NODES_S[1]) & (cold <= NODES_S[2])]))
        sustained = catalog.device(device).sustained
        if abs(found / sustained.ratio - 1.0) > 0.01:
            wrong[device] = found

    assert wrong == {}


def test_busy_products_take_what_the_table_of_seconds_says_by_how_long_they_last(shared):
    edges_s = (0, 15e-6, 40e-6, 0.2e-3, 0.7e-3, 2e-3, 1.0)
    wrong = {}
    for name, device in DEVICES.items():
        cold, ratio = pairs(shared, name)
        told = sustained_ratio(cold, catalog.device(device).sustained)
        for low, high in pairwise(edges_s):
            here = (cold > low) & (cold <= high)
            error = float(np.median(told[here] / ratio[here])) - 1.0
            if here.sum() >= 20 and abs(error) > 0.07:
                wrong[device, high] = error

    assert wrong == {}


@all_cases("cluster", sorted(AMD_TFLOP_PER_S))
def test_busy_products_of_amd_reach_what_amd_measured(cluster):
    shapes, *rates = AMD_TFLOP_PER_S[cluster]
    place = catalog.cluster(cluster)
    flop = sum(2.0 * m * n * k for m, n, k in shapes)
    for narrow, tflop_per_s in zip(("", "fp8"), rates, strict=False):
        found_s = 0.0
        for m, n, k in shapes:
            sizes = {"m": constant(m), "n": constant(n), "k": constant(k)}
            found_s += seconds_of(Matmul(**sizes, dtype="bf16", narrow=narrow), place).item()
        assert flop / found_s / 1e12 == pytest.approx(tflop_per_s, rel=0.15), narrow


def test_a_longer_product_is_never_done_earlier_because_its_ratio_is_lower():
    alone_s = np.geomspace(1e-7, 1.0, 2000)

    for share in (0.0, 0.35, 1.0):
        busy_s = alone_s * sustained_ratio(alone_s, Sustained(ratio=1.3, long_kernel_share=share))
        assert (np.diff(busy_s) > 0).all(), share


def test_a_long_product_keeps_the_share_of_the_ratio_that_its_device_states():
    for share in (0.0, 0.35, 1.0):
        found = sustained_ratio(np.array([1.0]), Sustained(ratio=2.0, long_kernel_share=share))
        assert found == pytest.approx(2.0**share)


def test_devices_without_the_ratio_keep_their_curves():
    assert sustained_ratio(np.array([1e-6, 1e-4, 1e-2]), Sustained()).tolist() == [1.0, 1.0, 1.0]
