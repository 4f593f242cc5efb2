"""Which constants a fit of runs keeps, in which order, how rounded, and what is left unexplained.

The oracle is the model that the fit states: gaps are shares times logarithms of levels, and noise.
"""

import math

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.constant_transfer import FittedLevel, carried
from flopcast.cost.factors import NINETY_PERCENT, SHARED_DERATE, unexplained
from flopcast.lab.calibration.constant_fit import (
    EXPECTED_NOISE,
    FEWEST_ROWS,
    LEAST_SHARE,
    SHARED_LOG_SIGMA,
    SURER,
    fit,
)
from flopcast.lab.calibration.observations import INSIDE, ObservedStep, Prior
from flopcast.lab.calibration.variance_components import SOURCE

NAME, OTHER = "gemm_level[a]", "fabric[b]"
WIDE = {NAME: Prior(log_sigma_factor=0.2), OTHER: Prior(log_sigma_factor=0.2)}
LAWS = settings(max_examples=25)


def run(number, gap, shares, source="one", family="dense"):
    return ObservedStep(
        id=f"{source}-{number}",
        source=source,
        configuration=(source, number),
        context={"family": family},
        log_gap_factor=gap,
        shares=shares,
    )


def exact(levels, shares=(0.3, 0.8), rows=40, **fields):
    """Runs without any noise; the first factor's share goes from one end to the other."""
    low, high = shares
    made = []
    for number, part in enumerate(np.linspace(low, high, rows)):
        told = {name: part if name == NAME else 0.5 for name in levels}
        gap = sum(told[name] * math.log(level) for name, level in levels.items())
        made.append(run(number, gap, told, **fields))
    return made


def named(found, name):
    """The constant of that name, or None."""
    return next((one for one in found.constants if one.name == name), None)


@all_cases("level", [0.8, 0.95, 1.05, 1.3])
def test_a_level_that_many_exact_runs_show_is_found(level):
    found = named(fit(exact({NAME: level}), WIDE, {}), NAME)

    assert found.ratio == pytest.approx(level, abs=0.01)
    assert found.log_sigma_factor < 0.1 * 0.2
    assert (found.prior_log_sigma_factor, found.rows, found.sources) == (0.2, 40, ("one",))


@LAWS
@given(st.floats(0.85, 1.2), st.floats(0.85, 1.2))
def test_constants_are_told_in_thousandths_those_that_moved_furthest_first(one, two):
    found = fit(exact({NAME: one, OTHER: two}), WIDE, {}).constants
    levels = [c for c in found if c.name in WIDE]

    for constant in found:
        assert constant.ratio == round(constant.ratio, 3)
        assert constant.log_sigma_factor == round(constant.log_sigma_factor, 3)
    moves = [abs(math.log(c.ratio)) for c in levels]
    assert moves == sorted(moves, reverse=True)


@pytest.mark.parametrize(("share", "kept"), [(LEAST_SHARE * 0.9, False), (LEAST_SHARE * 1.1, True)])
def test_runs_in_which_a_factor_is_less_than_two_percent_of_the_step_support_no_constant(share, kept):
    runs = exact({NAME: 1.5}, shares=(share, share), rows=400)

    assert (named(fit(runs, WIDE, {}), NAME) is not None) is kept


def test_only_runs_in_which_a_factor_counts_are_counted_as_its_support():
    often = exact({NAME: 1.2}, rows=30)
    rarely = [run(n, 0.0, {NAME: 0.001}, source="two") for n in range(20)]

    found = named(fit([*often, *rarely], WIDE, {}), NAME)

    assert (found.rows, found.sources) == (30, ("one",))


def test_a_level_that_stayed_is_kept_where_runs_made_it_surer_and_dropped_where_not():
    still = [run(number, 0.0, {NAME: 0.9}) for number in range(60)]
    sure, unsure = ({NAME: Prior(log_sigma_factor=sigma)} for sigma in (0.2, 0.0003))

    kept, dropped = (named(fit(still, priors, {}), NAME) for priors in (sure, unsure))

    assert (kept.ratio, dropped) == (1.0, None)
    assert kept.log_sigma_factor < SURER * kept.prior_log_sigma_factor


@pytest.mark.parametrize("level", [1.001, 1.3])
def test_a_factor_that_runs_know_no_better_than_before_is_no_constant_however_far_it_would_move(level):
    prior = {NAME: Prior(log_sigma_factor=0.003)}

    assert named(fit(exact({NAME: level}, rows=10), prior, {}), NAME) is None


@pytest.mark.parametrize("rows", [FEWEST_ROWS - 1, FEWEST_ROWS])
def test_a_source_of_few_runs_has_no_say(rows):
    large, small = exact({NAME: 1.2}, rows=30), exact({NAME: 0.5}, rows=rows, source="small")
    alone, both = fit(large, WIDE, {}), fit([*large, *small], WIDE, {})

    assert (named(both, NAME).ratio == named(alone, NAME).ratio) is (rows < FEWEST_ROWS)


@LAWS
@given(st.floats(0.7, 1.4), st.floats(0.01, 0.3))
def test_a_level_moves_towards_what_runs_say_and_never_beyond(level, sigma):
    found = named(fit(exact({NAME: level}, rows=10), {NAME: Prior(log_sigma_factor=sigma)}, {}), NAME)

    moved = math.log(found.ratio) if found else 0.0
    assert moved * math.log(level) >= 0
    assert abs(moved) <= abs(math.log(level)) + 0.0006


@LAWS
@given(st.integers(8, 20))
def test_more_runs_that_agree_make_a_level_surer(rows):
    few, many = (
        named(fit([run(n, 0.2, {NAME: 0.9}) for n in range(number)], WIDE, {}), NAME)
        for number in (rows, 4 * rows)
    )

    assert many.log_sigma_factor < few.log_sigma_factor
    assert abs(math.log(many.ratio) - 0.2 / 0.9) <= abs(math.log(few.ratio) - 0.2 / 0.9) + 0.0006


def test_runs_that_hang_on_no_factor_tell_of_noise_alone():
    found = fit([run(n, 0.0, {}) for n in range(8)], {}, {})

    assert [one.name for one in found.constants] == [unexplained("dense")]
    assert found.noise_log_sigmas["dense"] < EXPECTED_NOISE  # exact runs, and the prior's five


def test_each_family_says_which_of_its_own_runs_it_was_left_unexplained_in():
    dense = exact({NAME: 1.1}, rows=12)
    experts = exact({NAME: 1.1}, rows=9, source="two", family="experts")

    found = fit([*dense, *experts], WIDE, {})

    told = {one.name: (one.rows, one.sources, one.ratio) for one in found.constants if one.name not in WIDE}
    assert told == {
        carried(SOURCE): (21, ("one", "two"), 1.0),
        unexplained("dense"): (12, ("one",), 1.0),
        unexplained("experts"): (9, ("two",), 1.0),
    }
    assert list(found.noise_log_sigmas) == ["dense", "experts"]


@pytest.mark.parametrize("seed", [1, 2])
def test_intervals_with_what_is_left_unexplained_hold_nine_in_ten_runs(seed):
    """The claim of the sigma itself: gaps of normal noise beside factors that are known exactly."""
    noise = np.random.default_rng(seed).normal(0.0, 0.06, 500)
    found = fit([run(n, each, {NAME: 0.001}) for n, each in enumerate(noise)], {}, {})

    sigma = named(found, unexplained("dense")).log_sigma_factor

    inside = (np.abs(noise) <= NINETY_PERCENT * sigma).mean()
    assert inside == pytest.approx(INSIDE, abs=0.01)


def derates(*names):
    return {f"{SHARED_DERATE}[{name}]": Prior(log_sigma_factor=0.05, shared=True) for name in names}


def test_what_derates_share_stands_first_and_is_no_surer_than_two_stacks_make_it():
    """Each of them lies around it by its own sigma, which a stack that nobody ran adds again."""
    priors = derates("a", "b")
    runs = [run(n, 0.7 * math.log(1.2), {name: 0.7}) for name in priors for n in range(20)]

    found = fit(runs, priors, {}).constants[0]

    assert found.name == SHARED_DERATE
    assert found.prior_log_sigma_factor == SHARED_LOG_SIGMA
    assert 0.05 / math.sqrt(2) * 0.8 < found.log_sigma_factor < SHARED_LOG_SIGMA
    assert found.rows == len(runs)


@pytest.mark.parametrize("own", [True, False])
def test_predictions_made_with_the_shared_level_ask_for_as_much_as_those_made_without(own):
    """A prediction that stood at 1.1 already is off by 1.1 less; the level asked for is the same."""
    priors, level = derates("a"), 1.25
    (name,) = priors
    at = {name if own else SHARED_DERATE: FittedLevel(ratio=1.1, log_sigma_factor=0.1)}
    gaps = 0.6 * math.log(level), 0.6 * math.log(level / 1.1)

    without, stood = (
        fit([run(n, gap, {name: 0.6}) for n in range(30)], priors, levels)
        for gap, levels in zip(gaps, ({}, at), strict=True)
    )

    assert [(c.name, c.ratio) for c in stood.constants] == [(c.name, c.ratio) for c in without.constants]


def test_a_devices_level_and_what_stacks_share_are_told_apart():
    """Products of every run hang on both; the device's runs differ in their share of it."""
    priors = derates("a", "b") | {NAME: Prior(log_sigma_factor=0.2)}
    levels = {f"{SHARED_DERATE}[a]": 1.15, f"{SHARED_DERATE}[b]": 1.15, NAME: 1.3}
    runs = []
    for number, part in enumerate(np.linspace(0.1, 0.9, 60)):
        shares = {f"{SHARED_DERATE}[{'ab'[number % 2]}]": 0.6, NAME: float(part)}
        runs.append(run(number, sum(share * math.log(levels[n]) for n, share in shares.items()), shares))

    found = fit(runs, priors, {})

    assert named(found, NAME).ratio == pytest.approx(1.3, abs=0.02)
    assert 1.05 < named(found, SHARED_DERATE).ratio <= 1.15
    assert named(found, f"{SHARED_DERATE}[a]").ratio == pytest.approx(1.15, abs=0.02)
    assert [c.name for c in found.constants].count(SHARED_DERATE) == 1


def test_a_level_of_no_stacks_own_takes_no_part_in_what_stacks_share():
    """The same device beside stacks that nobody slowed: what they share stays at 1."""
    priors = derates("a", "b") | {NAME: Prior(log_sigma_factor=0.2)}
    runs = [
        run(n, share * math.log(1.3), {NAME: share, f"{SHARED_DERATE}[{'ab'[n % 2]}]": 0.6})
        for n, share in enumerate(np.linspace(0.05, 0.95, 60).tolist())
    ]

    found = fit(runs, priors, {})

    assert named(found, SHARED_DERATE).ratio == pytest.approx(1.0, abs=0.02)
    assert named(found, NAME).ratio == pytest.approx(1.3, abs=0.02)
