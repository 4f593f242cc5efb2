"""A machine whose own kernels are published beside its runs: a device, a cluster and runs that use it."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.unscaled import kernel_seconds
from flopcast.lab.calibration.peer_fit import device_samples
from flopcast.lab.calibration.peer_tables import under_load
from flopcast.lab.calibration.samples import Samples
from flopcast.lab.published.known_names import cluster_of
from flopcast.lab.samples.columns import read_columns
from flopcast.lab.validation.run import Machine, Run
from flopcast.library import catalog
from flopcast.library.curves import load_owner

MACHINE, OTHERS = "b200-simumax-180gb", "b200-sxm-180gb"
TABLE = "simumax/gemm_efficiency.csv"


def run_of(source):
    return Run(id="a", source=source, machine=Machine(device="B200-SXM"), where="a:1")


def seconds(owner, m, n, k):
    device = catalog.device(owner)
    bound_s = np.array([2.0 * m * n * k / device.peak("bf16")])
    shape = tuple(np.array([float(side)]) for side in (m, n, k))
    return kernel_seconds(bound_s, shape, load_owner(owner)[owner, "gemm"], device).item()


def test_runs_of_the_machine_use_it_and_other_runs_of_the_device_do_not():
    assert cluster_of(run_of("simumax-b200")).cluster == "simumax-b200"
    assert cluster_of(run_of("megatron-bridge-b200")).cluster == "dgx-b200"


def test_the_machine_is_the_same_product_as_its_relative():
    """Its data sheet is another's; its curves are its own."""
    same = {"memory_bytes", "memory_bytes_per_s", "peak_flop_per_s", "multiprocessors", "kernel_launch_s"}
    own, other = (catalog.device(name).model_dump(include=same) for name in (MACHINE, OTHERS))

    assert own == other


@all_cases(
    ("m", "n", "k", "efficiency"),
    [  # printed rows of forward products: Llama 3 70B at tp 1, 2 and 4
        (4096, 57344, 8192, 0.486688),
        (4096, 8192, 28672, 0.484687),
        (4096, 28672, 8192, 0.494324),
        (4096, 14336, 8192, 0.493656),
    ],
)
def test_large_products_take_what_the_machine_s_own_table_says(m, n, k, efficiency):
    expected_s = 2.0 * m * n * k / (efficiency * 2250e12)

    assert seconds(MACHINE, m, n, k) == pytest.approx(expected_s, rel=0.03)


def test_no_product_is_more_efficient_than_the_long_ones(shared):
    device = catalog.device(MACHINE)
    tables = {TABLE: read_columns(shared / "data" / "peers" / TABLE).columns}

    samples = device_samples(device, tables)["gemm"]["simumax"]
    efficiency = samples.bound_s / samples.measured_s

    assert samples.measured_s.size == 144
    assert efficiency.max() == pytest.approx(0.489, abs=0.003)


def test_rows_that_are_all_short_stay_as_they_are():
    short = Samples(
        name="gemm",
        coordinates=np.ones((3, 2)),
        bound_s=np.array([1e-4, 2e-4]),
        measured_s=np.array([2e-4, 3e-4]),
        source="a",
    )

    assert under_load(short, sustained_from_s=1e-3) is short
