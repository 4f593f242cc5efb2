"""Looking up a curve, against a slow interpolation that walks over the corners of a cell."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from flopcast.cost.kernels.curve import MOST_RISE, Curve, CurveEvidence, log_efficiency, outside

NO_EVIDENCE = CurveEvidence(source="made up", rows=0, rejected=0, relative_error=0.0)
FEW = settings(max_examples=30, deadline=None)


def curve_of(axes, table):
    """A curve over log2 nodes."""
    return Curve(
        name="made_up",
        owner="nobody",
        axes=tuple(np.array(axis, dtype=np.float64) for axis in axes),
        table=np.array(table, dtype=np.float64),
        launch_s=0.0,
        evidence=NO_EVIDENCE,
    )


def slow_lookup(axes, table, point):
    """Multilinear interpolation of one point in plain Python, clamped to the axes."""
    choices = []
    for axis, coordinate in zip(axes, point, strict=True):
        position = min(max(float(np.log2(coordinate)), axis[0]), axis[-1])
        if len(axis) == 1:
            choices.append([(0, 1.0)])
            continue
        below = max(i for i in range(len(axis) - 1) if axis[i] <= position)
        share = (position - axis[below]) / (axis[below + 1] - axis[below])
        choices.append([(below, 1 - share), (below + 1, share)])
    total = 0.0
    for corner in product(*choices):
        weight = 1.0
        for _, part in corner:
            weight *= part
        total += weight * float(table[tuple(index for index, _ in corner)])
    return total


@st.composite
def cases(draw):
    """A table of one to three dimensions, axes of one to five nodes, and points in and around it."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axes = []
    for size in sizes:
        steps = draw(st.lists(st.floats(0.1, 3.0), min_size=size, max_size=size))
        axes.append(list(4.0 + np.cumsum(steps)))
    table = draw(arrays.arrays(np.float64, tuple(sizes), elements=st.floats(-5.0, 0.0)))
    points = draw(
        st.lists(st.tuples(*[st.floats(1.0, 2.0**22) for _ in sizes]), min_size=1, max_size=6, unique=True)
    )
    return axes, table, points


@given(cases())
@FEW
def test_the_look_up_is_multilinear_interpolation(case):
    """Up to the most work that was measured, which is the end of the first axis."""
    axes, table, points = case
    first, *others = (np.array(column) for column in zip(*points, strict=True))
    coordinates = (np.minimum(first, 2.0 ** axes[0][-1]), *others)

    found = log_efficiency(curve_of(axes, table), coordinates)

    expected = [slow_lookup(axes, table, point) for point in zip(*coordinates, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(cases())
@FEW
def test_no_look_up_leaves_the_range_of_the_table_but_for_what_more_work_may_gain(case):
    axes, table, points = case
    coordinates = tuple(np.array(column) for column in zip(*points, strict=True))

    found = log_efficiency(curve_of(axes, table), coordinates)

    assert (found >= table.min() - 1e-12).all()
    assert (found <= min(0.0, table.max() + np.log(MOST_RISE)) + 1e-12).all()


@given(latency=st.floats(0.0, 20.0), fraction=st.floats(0.05, 0.3), octaves=st.floats(0.0, 12.0))
@FEW
def test_time_of_more_work_goes_on_as_over_the_last_octave(latency, fraction, octaves):
    """A latency and a bandwidth: measured from 1 to 256, and known beyond."""
    sizes = 2.0 ** np.arange(9)
    time = latency + sizes / fraction
    curve = curve_of([np.log2(sizes)], np.log(sizes / time))
    more = np.array([256.0 * 2.0**octaves])

    found = more / np.exp(log_efficiency(curve, (more,)))

    assert found == pytest.approx(latency + more / fraction, rel=1e-6)


def test_efficiency_of_products_has_saturated_at_their_end():
    """The end of the sweep runs at the limit of power: larger products are as efficient."""
    curve = replace(curve_of([[30.0, 31.0]], [-1.0, -0.5]), name="gemm")
    ones = np.array([1.0, 8.0]) * 2.0**11

    at_end, beyond = log_efficiency(curve, (ones, ones, ones))

    assert (at_end, beyond) == (-0.5, -0.5)


def test_fewer_rows_than_a_tile_never_take_longer_than_a_tile_below_the_measured_range():
    """A product of less work than any measured one can be padded to a whole tile of 64 rows."""
    padded = {"padding_m_64": 0.9, "wave_128x128": 0.6}
    curve = replace(curve_of([[30.0, 31.0]], [-1.0, -0.5]), name="gemm", terms=padded)
    rows = np.array([1.0, 8.0, 32.0, 63.0, 64.0])
    sides = np.full(rows.shape, 1024.0)

    found = log_efficiency(curve, (rows, sides, sides), 108)

    assert found == pytest.approx(np.full(rows.shape, found[-1]))


@given(cases())
@FEW
def test_every_node_gives_back_its_own_value(case):
    axes, table, _ = case
    mesh = np.meshgrid(*[np.exp2(axis) for axis in axes], indexing="ij")

    found = log_efficiency(curve_of(axes, table), tuple(part.ravel() for part in mesh))

    np.testing.assert_allclose(found, table.ravel(), atol=1e-9)


def test_half_way_in_the_logarithm_is_the_mean_of_two_nodes():
    curve = curve_of([[4.0, 6.0]], [-1.0, -3.0])

    assert log_efficiency(curve, (np.array([32.0]),)) == pytest.approx(-2.0)


def test_outside_of_the_measured_range_the_edge_holds():
    curve = curve_of([[4.0, 6.0]], [-1.0, -3.0])

    found = log_efficiency(curve, (np.array([1e-3, 1.0, 1e12]),))

    assert found.tolist() == [-1.0, -1.0, -3.0]


def test_a_curve_of_one_node_is_the_same_everywhere():
    curve = curve_of([[10.0]], [-0.5])

    assert log_efficiency(curve, (np.array([1.0, 1e3, 1e9]),)).tolist() == [-0.5, -0.5, -0.5]


def test_coordinates_that_a_relatives_curve_does_not_know_change_nothing():
    curve = curve_of([[4.0, 6.0]], [-1.0, -3.0])
    size = np.array([20.0, 40.0])

    with_width = log_efficiency(curve, (size, np.array([1.0, 1e6])))

    np.testing.assert_array_equal(with_width, log_efficiency(curve, (size,)))


def test_looking_up_many_points_is_looking_up_each():
    curve = curve_of([[0.0, 5.0, 7.0], [1.0, 2.0]], [[-1.0, -2.0], [-0.5, -0.1], [-0.7, 0.0]])
    first, second = np.logspace(0, 3, 40), np.linspace(1.0, 6.0, 40)

    together = log_efficiency(curve, (first, second))

    alone = [log_efficiency(curve, (a[None], b[None]))[0] for a, b in zip(first, second, strict=True)]
    np.testing.assert_array_equal(together, alone)


@all_cases(
    ("smallest", "largest", "extrapolates"),
    [(16.0, 64.0, False), (15.5, 66.0, False), (15.0, 64.0, True), (16.0, 68.0, True)],
)
def test_five_per_cent_beyond_the_measured_range_is_still_measured(smallest, largest, extrapolates):
    curve = curve_of([[4.0, 6.0]], [-1.0, -3.0])

    assert bool(outside(curve, (np.array([smallest, largest]),)).any()) is extrapolates


def test_one_point_of_one_axis_is_enough_to_extrapolate():
    curve = curve_of([[4.0, 6.0], [1.0, 2.0]], np.zeros((2, 2)))

    assert outside(curve, (np.array([20.0, 20.0]), np.array([3.0, 9.0]))).any()
