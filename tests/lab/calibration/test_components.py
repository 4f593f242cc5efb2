"""How much constants differ between contexts, found again in gaps that were made with it."""

import numpy as np
import pytest

from flopcast.lab.calibration.variance_components import (
    SCALES,
    SOURCE,
    Gaps,
    component_log_sigmas,
    prior_scale,
)
from flopcast.records import replace

NOISE = 0.02


def made(sigma, seed, contexts=12, constants=6, rows=240, own_sigma=0.1):
    """Gaps of runs whose constants have another value in every generation; precisions are all alike."""
    chance = np.random.default_rng(seed)
    generation = chance.integers(0, contexts, rows)
    shares = chance.uniform(0.1, 0.9, (rows, constants))
    own = chance.normal(0.0, own_sigma, constants)
    moved = chance.normal(0.0, sigma, (contexts, constants))
    gaps = (shares * (own + moved[generation])).sum(axis=1) + chance.normal(0.0, NOISE, rows)
    kinds = {"generation": [f"g{number}" for number in generation]}
    kinds |= {"precision": ["16 bits"] * rows, "family": ["dense"] * rows, "scale": ["1-8"] * rows}
    return Gaps(
        gaps=gaps,
        shares=shares,
        prior_log_sigmas=np.full(constants, 0.1),
        noise=np.full(rows, NOISE**2),
        contexts=kinds,
    )


@pytest.mark.parametrize("sigma", [0.02, 0.035, 0.05])
def test_the_spread_between_contexts_is_found_again(sigma):
    found = [component_log_sigmas(made(sigma, seed))["generation"] for seed in range(4)]

    assert np.mean(found) == pytest.approx(sigma, rel=0.25)


def test_contexts_that_make_no_difference_are_told_apart_from_those_that_do():
    assert component_log_sigmas(made(0.0, 1))["generation"] < 0.006


def test_the_spread_between_sources_is_found_like_that_between_contexts():
    runs = made(0.035, 0)
    sources = {SOURCE: runs.contexts["generation"], "generation": ["one"] * len(runs.gaps)}
    found = component_log_sigmas(replace(runs, contexts={**runs.contexts, **sources}))

    assert found == {SOURCE: component_log_sigmas(runs)["generation"]}


def test_few_contexts_leave_the_spread_open_and_it_is_taken_to_be_larger():
    few, many = (component_log_sigmas(made(0.0, 2, contexts=n))["generation"] for n in (2, 12))

    assert few > many


def test_a_kind_that_all_runs_share_has_no_component():
    assert set(component_log_sigmas(made(0.03, 3))) == {"generation"}


@pytest.mark.parametrize("scale", [0.25, 0.5, 1.0])
def test_priors_that_are_too_wide_are_scaled_to_the_spread_of_the_constants(scale):
    found = []
    for seed in range(4):
        runs = made(0.0, seed, constants=40, own_sigma=0.1 * scale)
        found.append(prior_scale(replace(runs, contexts={SOURCE: runs.contexts["generation"]})))

    assert np.exp(np.mean(np.log(found))) == pytest.approx(scale, rel=0.2)


def test_runs_that_say_nothing_of_the_constants_give_the_mean_of_the_scales():
    runs = made(0.0, 0)
    silent = replace(runs, noise=np.full(len(runs.gaps), 1e6), contexts={SOURCE: ["one"] * len(runs.gaps)})

    assert prior_scale(silent) == pytest.approx(np.exp(np.mean(np.log(SCALES))), rel=1e-3)
