"""Square products of PyTorch, which users measured and published, against the curves of the catalogue.

github.com/zzc0721/torch-performance-test-data: TFLOP/s of `a @ b` with n rows and columns, one issue for
each machine; database.md has one rate a machine. No curve was fitted on these numbers. The order of
relatives of A10G, RTX 2080 Ti and RTX 3090 and the ratio of a busy L4 were chosen with them in view.
"""

import numpy as np
import pytest
from all_cases import all_cases
from alone import seconds_of

from flopcast.library import catalog
from flopcast.operators.matmul import Matmul

SIDES = np.array([[4096.0], [8192.0], [10240.0]])
PUBLISHED = {  # cluster of the device → TFLOP/s at these sides: fp16, and bf16 where it has it; issues
    "delta-a40": ((113.51, 108.47, 119.18), (115.16, 110.64, 122.29)),  # 185
    "dgx-1": ((95.73, 97.36, 89.37),),  # 140
    "a100-pcie-40gb-8": ((241.49, 197.51, 205.66), (234.14, 215.26, 211.72)),  # 108
    "rtx-4090-8": ((168.38, 155.50, 156.88), (151.50, 160.17, 158.54)),  # 78
    "aws-g5": ((62.46, 65.67, 69.47), (62.48, 66.59, 69.47)),  # A10G, 126
    "aws-g6": ((53.02, 53.80, 52.47), (54.91, 59.40, 56.90)),  # L4, 120
    "rtx-2080-ti-8": ((50.94, 49.61, 47.96),),  # 181
    "rtx-5090-8": (  # 124, 96, 200: three machines
        *((217.99, 223.98, 220.03), (182.19, 234.66, 236.99)),
        *((181.21, 233.99, 234.63), (181.17, 234.89, 240.05)),
        *((140.24, 172.79, 179.02), (134.08, 174.68, 178.86)),
    ),
}


def predicted_flop_per_s(cluster, dtype="fp16"):
    """FLOP/s of each square product on a busy device, (sides,)."""
    work = Matmul(m=SIDES, n=SIDES, k=SIDES, dtype=dtype)
    return 2 * SIDES.ravel() ** 3 / seconds_of(work, catalog.cluster(cluster)).ravel()


@all_cases("cluster", PUBLISHED)
def test_large_square_products_are_as_fast_as_published_in_the_mean(cluster):
    measured = 1e12 * np.array(PUBLISHED[cluster])

    ratios = predicted_flop_per_s(cluster) / measured

    assert np.exp(np.log(ratios).mean()) == pytest.approx(1.0, abs=0.1)


def test_the_power_limit_leaves_a_busy_t4_the_speed_that_its_maker_explains():
    """24 TFLOP/s of 65 in a hundred products of 4096 squared, forums.developer.nvidia.com, topic 264462."""
    assert predicted_flop_per_s("aws-g4dn")[0] == pytest.approx(24e12, rel=0.05)


def test_products_of_rtx_3090_are_predicted_at_its_nominal_clock():
    """Three cards of database.md reach 75.5 to 76.7 TFLOP/s; the clock of the white paper gives 71."""
    assert predicted_flop_per_s("rtx-3090-8") == pytest.approx(76e12, rel=0.15)
