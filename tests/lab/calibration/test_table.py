"""Tables fitted to samples whose truth is known."""

from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.kernels.curve import Curve, CurveEvidence, log_efficiency
from flopcast.lab.calibration import efficiency_table
from flopcast.lab.calibration.normal_equations import NODE_RIDGE, RIDGE, equations

MOST_NODES = {1: (12,), 2: (10, 7), 3: (5, 4, 4)}
NO_EVIDENCE = CurveEvidence(source="made up", rows=0, rejected=0, relative_error=0.0)


def curve_of(axes, table):
    """A curve of a table."""
    return Curve(name="made_up", owner="nobody", axes=axes, table=table, launch_s=0.0, evidence=NO_EVIDENCE)


def coordinates_of(dimensions, rows=1000, seed=0):
    """Random shapes from 2^5 to 2^11, both ends among them."""
    logs = np.random.default_rng(seed).uniform(5.0, 11.0, (dimensions, rows))
    logs[:, 0], logs[:, 1] = 5.0, 11.0
    return np.exp2(logs)


def truth_of(coordinates):
    """A table that rises to saturation, as efficiencies do, on the nodes that a fit will use."""
    axes = tuple(
        efficiency_table.nodes(np.log2(column), most)
        for column, most in zip(coordinates, MOST_NODES[len(coordinates)], strict=True)
    )
    steps = np.meshgrid(*[np.arange(len(axis)) for axis in axes], indexing="ij")
    return axes, -0.1 - np.exp(-0.3 * sum(steps))


def samples_of(dimensions, noise=0.0, seed=0, rows=1000):
    """Coordinates and log-efficiencies of a known table, with relative noise."""
    coordinates = coordinates_of(dimensions, rows, seed)
    exact = log_efficiency(curve_of(*truth_of(coordinates)), tuple(coordinates))
    return coordinates, exact + noise * np.random.default_rng(seed + 1).standard_normal(rows)


def fit(coordinates, logs, terms=None):
    """A fit with at most MOST_NODES."""
    terms = np.zeros((len(logs), 0)) if terms is None else terms
    rows = efficiency_table.Rows(log2=np.log2(coordinates), log_efficiency=logs, terms=terms)
    return efficiency_table.fit_table(rows, MOST_NODES[len(coordinates)])


def predicted(table, coordinates):
    """What a fitted table says at these shapes."""
    return log_efficiency(curve_of(table.axes, table.log_efficiency), tuple(coordinates))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_table_fitted_to_its_own_values_is_found_again(dimensions):
    coordinates, logs = samples_of(dimensions)
    axes, truth = truth_of(coordinates)

    table = fit(coordinates, logs)

    for found, expected in zip(table.axes, axes, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(table.log_efficiency, truth, atol=0.02)
    assert np.abs(predicted(table, coordinates) - logs).mean() < 5e-4


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_error_told_is_that_of_the_noise(dimensions):
    """The mean of |x| of a normal distribution of sigma 0.05 is 0.05 · sqrt(2 / pi) = 0.0399."""
    table = fit(*samples_of(dimensions, noise=0.05))

    assert table.relative_error == pytest.approx(0.0399, rel=0.12)


def test_the_error_told_is_that_of_rows_which_the_fit_has_not_seen():
    """Every fifth row kept aside in turn; the rows of 2-D are few enough for a fit to follow them."""
    coordinates, logs = samples_of(2, noise=0.1, rows=120)
    errors = []
    for fold in range(efficiency_table.FOLDS):
        aside = np.arange(120) % efficiency_table.FOLDS == fold
        ends = aside & (np.arange(120) > 1)  # the first two rows span the axes
        part = fit(coordinates[:, ~ends], logs[~ends])
        errors.append(np.abs(np.expm1(logs[ends] - predicted(part, coordinates[:, ends]))))

    table = fit(coordinates, logs)

    assert table.relative_error == pytest.approx(np.concatenate(errors).mean(), rel=0.03)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_tenth_of_the_rows_ten_times_too_slow_hardly_moves_the_fit(dimensions):
    coordinates, logs = samples_of(dimensions, noise=0.01)
    broken = np.random.default_rng(5).choice(len(logs), len(logs) // 10, replace=False)
    slow = logs.copy()
    slow[broken] -= np.log(10.0)

    clean, robust = fit(coordinates, logs), fit(coordinates, slow)

    moved = np.abs(predicted(robust, coordinates) - predicted(clean, coordinates))
    assert moved.mean() < 0.01
    assert np.quantile(moved, 0.99) < 0.05


@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_order_of_rows_does_not_change_the_table(dimensions):
    coordinates, logs = samples_of(dimensions, noise=0.02)
    order = np.random.default_rng(3).permutation(len(logs))

    forth, shuffled = fit(coordinates, logs), fit(coordinates[:, order], logs[order])

    np.testing.assert_allclose(shuffled.log_efficiency, forth.log_efficiency, atol=1e-9)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_measuring_every_row_twice_changes_predictions_by_less_than_a_thousandth(dimensions):
    """Not by nothing: twice the rows weigh twice against the smoothness of the table."""
    coordinates, logs = samples_of(dimensions, noise=0.02)

    once, twice = fit(coordinates, logs), fit(np.tile(coordinates, 2), np.tile(logs, 2))

    moved = np.abs(predicted(twice, coordinates) - predicted(once, coordinates))
    assert moved.mean() < 1e-3


def test_two_fits_give_the_same_bytes():
    coordinates, logs = samples_of(2, noise=0.02)

    first, second = fit(coordinates, logs), fit(coordinates.copy(), logs.copy())

    assert first.log_efficiency.tobytes() == second.log_efficiency.tobytes()
    assert first.relative_error == second.relative_error


def test_no_predicted_efficiency_exceeds_one():
    """Tensors in a cache beat the memory's bandwidth; a prediction never does."""
    coordinates, logs = samples_of(1)

    table = fit(coordinates, logs + 0.5)

    assert predicted(table, coordinates).max() == 0.0


def test_terms_are_told_apart_from_the_table():
    """A loss of 0.3 at sizes that are no multiple of 8, on top of a smooth rise."""
    coordinates, logs = samples_of(1, noise=0.01)
    sizes = np.round(coordinates)
    term = -1.0 * (sizes % 8 != 0)

    table = fit(sizes, logs + 0.3 * term[0], term.T)

    assert table.coefficients == pytest.approx([0.3], abs=0.01)


def test_a_term_that_would_reward_what_it_punishes_is_left_out():
    coordinates, logs = samples_of(1, noise=0.01)
    term = -1.0 * (np.round(coordinates) % 8 != 0)

    table = fit(coordinates, logs - 0.3 * term[0], term.T)

    assert table.coefficients.tolist() == [0.0]


@given(seed=st.integers(0, 99), power=st.floats(0.0, 2.0))
@settings(max_examples=30, deadline=None)
def test_time_does_not_fall_along_an_axis_with_a_power(seed, power):
    """Work grows as x^power: log(time) is power · log(x) less the log-efficiency."""
    axes = (np.arange(6.0), np.array([0.0, 1.0, 3.0]))
    table = np.random.default_rng(seed).uniform(-3.0, 0.0, (6, 3))

    level = efficiency_table.monotone(table, axes, (power, None))

    log_time = power * np.log(2.0) * axes[0][:, None] - level
    assert (np.diff(log_time, axis=0) >= -1e-9).all()


def test_a_node_that_no_row_touches_moves_no_other():
    """Log-efficiency as measured at three nodes; the second holds whatever the penalty put there."""
    axes, table = (np.arange(4.0),), np.array([-1.0, 3.0, -1.0, -1.0])

    level = efficiency_table.monotone(table, axes, (1.0,), support=np.array([50.0, 0.0, 50.0, 50.0]))

    assert level[[0, 2, 3]] == pytest.approx([-1.0, -1.0, -1.0], abs=1e-3)
    assert level[1] == pytest.approx(-1.0 + np.log(2.0), abs=1e-3)


@all_cases("sizes", [(5, 6, 7), (4, 8, 5), (2, 40, 1), (3, 2, 2), (1, 8, 8)])
def test_elimination_by_places_is_the_solution_of_the_whole(sizes):
    """Second differences along three axes, some rows of unequal weights, and a border of two terms."""
    draw = np.random.default_rng(7)
    axes = tuple(np.arange(float(size)) for size in sizes)
    logs = draw.uniform(0, 1, (3, 300)) * (np.array(sizes)[:, None] - 1)
    target, terms, trust = draw.normal(size=300), -draw.random((300, 2)), draw.random(300)
    index, weight, size = efficiency_table.corners(axes, logs)
    looked_up = np.zeros((300, size))
    np.add.at(looked_up, (np.arange(300), index), weight)
    rows = np.hstack([looked_up, terms])
    whole = rows.T @ (rows * trust[:, None]) + np.diag([NODE_RIDGE] * size + [RIDGE**2] * 2)
    whole[:size, :size] += efficiency_table._penalty(axes)

    system = equations(
        index, weight, (size, size // sizes[0]), terms, target, efficiency_table._penalty(axes)
    )
    found = system.solution(trust, np.ones(2, dtype=bool), np.zeros(2))

    right = rows.T @ (trust * target)
    np.testing.assert_allclose(found, np.linalg.solve(whole, right), rtol=1e-6, atol=1e-8)


def test_terms_that_may_add_up_to_a_sum_are_held_in_proportion():
    """True coefficients 0.6 and 0.3, of which 0.6 together are allowed: 0.4 and 0.2."""
    draw = np.random.default_rng(2)
    terms = -draw.random((2000, 2))
    rows = efficiency_table.Rows(
        log2=draw.uniform(0, 8, (1, 2000)),
        log_efficiency=terms @ np.array([0.6, 0.3]) - 1,
        terms=terms,
        together=np.array([True, True]),
        most_together_ratio=0.6,
    )

    table = efficiency_table.fit_once(rows, (8,))

    assert table.coefficients == pytest.approx([0.4, 0.2], abs=0.01)


def test_a_table_whose_time_rises_already_is_left_as_it_is():
    axes, table = truth_of(coordinates_of(2))

    np.testing.assert_allclose(efficiency_table.monotone(table, axes, (1.0, None)), table, atol=1e-12)


def test_nodes_without_rows_follow_their_neighbours():
    """Log-efficiency that is linear in the logarithm, with a hole of two octaves in the middle."""
    logs = np.concatenate([np.linspace(5.0, 7.0, 300), np.linspace(9.0, 11.0, 300)])
    truth = -2.0 + 0.15 * (logs - 5.0)

    table = fit(np.exp2(logs)[None], truth)

    np.testing.assert_allclose(table.log_efficiency, -2.0 + 0.15 * (table.axes[0] - 5.0), atol=0.01)


def test_a_coordinate_that_never_varies_gets_one_node():
    logs = np.linspace(5.0, 11.0, 400)
    coordinates = np.stack([np.exp2(logs), np.full(400, 8.0)])

    table = fit(coordinates, -np.ones(400))

    assert table.log_efficiency.shape == (10, 1)
    np.testing.assert_allclose(table.log_efficiency, -1.0, atol=1e-3)


def test_few_rows_are_told_to_be_a_tenth_wrong():
    """Forty rows are too few to keep some aside."""
    table = fit(np.exp2(np.linspace(5.0, 9.0, 40))[None], -np.ones(40))

    assert table.relative_error == 0.1


def test_all_measured_sizes_count_alike():
    """A launch-bound kernel and a huge one are each fitted to the same relative error."""
    coordinates, logs = samples_of(1, noise=0.01)
    small = coordinates[0] < 2.0**8

    residual = np.abs(predicted(fit(coordinates, logs), coordinates) - logs)

    assert residual[small].mean() == pytest.approx(residual[~small].mean(), rel=0.15)


@given(low=st.floats(-3.0, 20.0), span=st.floats(0.05, 20.0), most=st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_nodes_span_many_values_evenly_and_are_as_many_as_needed(low, span, most):
    found = efficiency_table.nodes(np.linspace(low, low + span, 100), most)

    steps = np.diff(found)
    assert found[0] == pytest.approx(low, abs=1e-3)
    assert found[-1] == pytest.approx(low + span, abs=1e-3)
    np.testing.assert_allclose(steps, steps[0])
    assert 2 <= len(found) <= most
    assert steps[0] <= efficiency_table.NODE_SPACING * (1 + 1e-9) or len(found) == most


@given(
    values=st.lists(st.integers(1, 4000), min_size=1, max_size=efficiency_table.MOST_VALUES, unique=True)
)
@settings(max_examples=30, deadline=None)
def test_few_values_have_a_node_each(values):
    found = efficiency_table.nodes(np.log2(np.repeat(values, 7)), 5)

    assert np.exp2(found) == pytest.approx(sorted(values), rel=1e-3)


def test_a_single_size_has_a_single_node():
    assert efficiency_table.nodes(np.full(7, 6.0), 12).tolist() == [6.0]


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_the_weights_of_a_row_are_those_of_the_corners_of_its_cell(sizes, seed):
    """Fitting and looking up use the same interpolation: only then does a fit predict its rows."""
    draw = np.random.default_rng(seed)
    axes = tuple(np.sort(draw.uniform(0.0, 9.0, size)) for size in sizes)
    logs = draw.uniform(-2.0, 11.0, (len(sizes), 6))
    logs[0] = np.minimum(logs[0], axes[0][-1])  # beyond it, a look-up goes on
    table = draw.uniform(-3.0, 0.0, sizes)

    index, weight, size = efficiency_table.corners(axes, logs)

    assert size == table.size
    assert index.shape == weight.shape
    assert len(index) <= 2 ** len(sizes)
    assert (weight >= 0).all()
    np.testing.assert_allclose(weight.sum(axis=0), 1.0)
    looked_up = log_efficiency(curve_of(axes, table), tuple(np.exp2(logs)))
    np.testing.assert_allclose((weight * table.ravel()[index]).sum(axis=0), looked_up, atol=1e-9)


def test_a_row_on_a_node_weighs_that_node_alone():
    axes = (np.array([0.0, 1.0, 3.0]), np.array([2.0, 4.0]))
    places = np.array(list(product(*axes))).T

    index, weight, size = efficiency_table.corners(axes, places)

    matrix = np.zeros((6, size))
    np.add.at(matrix, (np.arange(6), index), weight)
    np.testing.assert_array_equal(matrix, np.eye(6))
