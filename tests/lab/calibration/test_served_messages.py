"""All-reduces of serving engines: which rows count, and how the curves compare with NCCL's."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.placement import Group
from flopcast.lab.calibration.collective_files import WITH_LATENCY
from flopcast.lab.calibration.efficiency_table import FittedTable, Rows, with_switches
from flopcast.library import catalog
from flopcast.library.curves import load_book, load_serving_book

CLUSTERS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200")


def seconds(collective, cluster, ranks, book, sizes):
    """Seconds of messages of these sizes inside a node."""
    group = Group(inside=np.full(sizes.shape, float(ranks)), nodes=np.ones(sizes.shape))
    return message_seconds(collective, sizes, group, cluster, book).alone_s


def test_at_each_size_the_fastest_row_of_the_newest_versions_counts():
    versions = ("framework_version=1.3.0rc20", "framework_version=0.24.0", "framework_version=0.14.0")
    rows = {
        "system=h100_sxm": np.array([1.0, 1.0, 1.0, 1.0, 0.0]),
        "num_gpus": np.array([8.0, 8.0, 8.0, 2.0, 8.0]),
        "num_elements": np.full(5, 128.0),
        "latency_ms": np.array([3.0, 20.0, 1.0, 9.0, 0.5]),
        **{
            name: np.array([place == v for v in (0, 1, 2, 1, 0)], dtype=float)
            for place, name in enumerate(versions)
        },
    }

    served = [file for file in WITH_LATENCY if file.collective == "served_all_reduce"]
    of_h100 = next(file for file in served if file.fabric == "h100-nvswitch")

    assert of_h100.keep(rows).tolist() == [True, False, False, True, False]


@all_cases("name", CLUSTERS)
def test_small_messages_are_faster_than_with_nccl_and_large_ones_as_fast(name):
    cluster = catalog.cluster(name)
    sizes = 2.0 ** np.array([14.0, 16.0, 28.0])

    served = seconds("served_all_reduce", cluster, 8, load_serving_book(cluster), sizes)
    nccl = seconds("all_reduce", cluster, 8, load_book(cluster), sizes)

    assert (served[:2] < 0.6 * nccl[:2]).all()
    assert served[2] == pytest.approx(nccl[2], rel=0.1)


def test_without_a_curve_it_takes_as_long_as_an_all_reduce():
    cluster = catalog.cluster("l40-8")
    sizes = 2.0 ** np.arange(10.0, 28.0)
    book = load_serving_book(cluster)

    served, plain = (seconds(name, cluster, 8, book, sizes) for name in ("served_all_reduce", "all_reduce"))

    np.testing.assert_array_equal(served, plain)


@all_cases("name", CLUSTERS)
def test_a_larger_message_takes_no_less_time(name):
    cluster = catalog.cluster(name)
    sizes = 2.0 ** np.arange(6.0, 32.0, 0.25)

    found = seconds("served_all_reduce", cluster, 8, load_serving_book(cluster), sizes)

    assert (np.diff(found) >= -1e-12).all()


def test_an_all_reduce_that_changes_kernels_is_as_slow_as_measured_from_that_size_on():
    cluster = catalog.cluster("dgx-b200")
    sizes = 1024.0 * np.array([64, 128, 254, 256, 512, 1000, 1024])
    measured_us = np.array([8.6, 9.4, 11.1, 25.8, 26.1, 26.7, 17.2])  # vLLM 0.24; two of them are lines

    found = seconds("custom_all_reduce", cluster, 8, load_serving_book(cluster), sizes)

    np.testing.assert_allclose(found * 1e6, measured_us, rtol=0.06)


def test_a_node_before_a_switch_continues_the_line_of_the_smaller_kernel():
    axes = (np.array([16.0, 17.0, 18.0]), np.array([3.0]), np.array([0.0]))
    times = np.array([2.0, 3.0, 20.0])
    rows = Rows(
        log2=np.array([axes[0], np.full(3, 3.0), np.zeros(3)]),
        log_efficiency=np.log(2.0 ** (axes[0] - 18.0) / times),
        terms=np.zeros((3, 0)),
    )
    smooth = FittedTable(
        axes=axes,
        log_efficiency=np.full((3, 1, 1), -1.0),
        support=np.ones((3, 1, 1)),
        coefficients=np.zeros(0),
        relative_error=0.1,
    )

    made = with_switches(smooth, rows, {8: (2**18,)})

    size = 2.0 ** (np.minimum(made.axes[0], [16.0, 17.0, 18.0, 18.0]) - 18.0)
    np.testing.assert_allclose(
        size / np.exp(made.log_efficiency[:, 0, 0]), [2.0, 3.0, 5.0, 20.0], rtol=0.01
    )
