"""Constants fitted on many runs: known levels are found again, and only as far as runs insist.

The oracle is the linear Gaussian model itself: runs are made up from levels, so that a fit must find them;
where one factor explains one kind of run, its posterior is that of a conjugate normal (Bishop, Pattern
Recognition and Machine Learning, 2006, section 2.3.3).
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import SHARED_DERATE
from flopcast.lab.calibration.constant_fit import fit
from flopcast.lab.calibration.observations import LEAST_MEMORY_LEVEL, ObservedStep, Prior
from flopcast.library.constants import meaning_of, shipped

PRODUCTS, FABRIC, HOST = "gemm_level[a100]", "fabric[ib]", "host"
PRIORS = {PRODUCTS: Prior(log_sigma_factor=0.2), FABRIC: Prior(log_sigma_factor=0.2)}


def runs(levels, rows=40, source="one", noise=0.01, seed=0, family="dense"):
    """Runs whose shares of products and of the fabric vary, measured under known levels."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(rows):
        products = random.uniform(0.2, 0.8)
        shares = {PRODUCTS: products, FABRIC: 0.9 - products}
        gap = sum(share * math.log(levels.get(name, 1.0)) for name, share in shares.items())
        made.append(
            ObservedStep(
                id=f"{source}-{number}",
                source=source,
                configuration=(source, number),
                context={"family": family},
                log_gap_factor=gap + random.normal(0.0, noise),
                shares=shares,
            )
        )
    return made


def ratio(fitted, name):
    """The level that was found; 1 where none was told."""
    return {one.name: one.ratio for one in fitted.constants}.get(name, 1.0)


@pytest.mark.parametrize("levels", [{PRODUCTS: 1.2, FABRIC: 0.8}, {PRODUCTS: 0.9, FABRIC: 1.3}, {}])
def test_levels_that_made_the_runs_are_found_again(levels):
    found = fit(runs(levels), PRIORS, {})

    assert ratio(found, PRODUCTS) == pytest.approx(levels.get(PRODUCTS, 1.0), abs=0.03)
    assert ratio(found, FABRIC) == pytest.approx(levels.get(FABRIC, 1.0), abs=0.03)


@pytest.mark.parametrize("at", [{}, {PRODUCTS: FittedLevel(ratio=1.1, log_sigma_factor=0.1)}])
def test_a_fit_does_not_depend_on_the_levels_that_runs_were_predicted_with(at):
    truth = {PRODUCTS: 1.2}
    shifted = [
        one
        if not at
        else ObservedStep(
            **{name: getattr(one, name) for name in ("id", "source", "configuration", "context", "shares")},
            log_gap_factor=one.log_gap_factor - one.shares[PRODUCTS] * math.log(at[PRODUCTS].ratio),
        )
        for one in runs(truth)
    ]

    assert ratio(fit(shifted, PRIORS, at), PRODUCTS) == ratio(fit(runs(truth), PRIORS, {}), PRODUCTS)


@pytest.mark.parametrize("sigma", [0.01, 0.03, 0.1])
def test_a_surer_prior_holds_a_level_back(sigma):
    few = runs({PRODUCTS: 1.3}, rows=10, noise=0.02)
    priors = PRIORS | {PRODUCTS: Prior(log_sigma_factor=sigma)}
    free = ratio(fit(few, PRIORS, {}), PRODUCTS)

    assert 1.0 <= ratio(fit(few, priors, {}), PRODUCTS) < free


def test_without_noise_one_factor_moves_as_a_conjugate_normal_would():
    rows = [
        ObservedStep(
            id=str(n),
            source="one",
            configuration=n,
            context={"family": "dense"},
            log_gap_factor=0.1,
            shares={PRODUCTS: 1.0},
        )
        for n in range(10)
    ]
    found = fit(rows, {PRODUCTS: Prior(log_sigma_factor=0.1)}, {})
    noise = found.noise_log_sigmas["dense"]
    pull = 10 / noise**2
    least, most = 0.1 * pull / (pull + 100), 0.1 * 1.25 * pull / (1.25 * pull + 100)  # of weights 1 and 5/4

    assert least - 0.0011 <= math.log(ratio(found, PRODUCTS)) <= most + 0.0011


def test_one_wrong_run_does_not_bend_a_level():
    rows = runs({PRODUCTS: 1.2})
    wrong = ObservedStep(
        id="wrong",
        source="one",
        configuration="wrong",
        context={"family": "dense"},
        log_gap_factor=1.5,
        shares={PRODUCTS: 0.8},
    )

    assert ratio(fit([*rows, wrong], PRIORS, {}), PRODUCTS) == pytest.approx(
        ratio(fit(rows, PRIORS, {}), PRODUCTS), abs=0.01
    )


def test_repeats_of_a_configuration_count_once_together():
    first, *others = runs({PRODUCTS: 1.2}, rows=12)

    for name in PRIORS:
        once = ratio(fit([first, *others], PRIORS, {}), name)
        assert ratio(fit([first] * 5 + others, PRIORS, {}), name) == pytest.approx(once, abs=0.002)


def test_many_runs_of_one_source_weigh_little_more_than_few():
    """A source whose steps all are a tenth longer is one sample of sources, however many runs it has."""
    usual = [run for number in range(6) for run in runs({}, rows=12, source=f"s{number}", seed=number)]
    means = []
    for rows in (12, 120):
        longer = [
            replace(run, log_gap_factor=run.log_gap_factor + 0.1)
            for run in runs({}, rows=rows, source="long", seed=9)
        ]
        found = fit([*usual, *longer], PRIORS, {})
        means.append(0.5 * math.log(ratio(found, PRODUCTS)) + 0.4 * math.log(ratio(found, FABRIC)))

    assert means[1] == pytest.approx(means[0], abs=0.006)  # their mean in the runs grows by 0.05
    assert means[1] < 0.1 * 2 / 7


def derated(stack, level, rows=16, sources=()):
    """Runs of one stack, by some sources in turn, whose products take `level` times as long."""
    name = f"{SHARED_DERATE}[{stack}]"
    return [
        ObservedStep(
            id=f"{stack}-{n}",
            source=sources[n % len(sources)] if sources else stack,
            configuration=(stack, n),
            context={"family": "dense"},
            log_gap_factor=0.7 * math.log(level),
            shares={name: 0.7},
        )
        for n in range(rows)
    ]


def test_stacks_share_a_level_which_one_without_runs_gets():
    stacks = {"a": 1.15, "b": 1.2, "c": 1.25}
    priors = {
        f"{SHARED_DERATE}[{name}]": Prior(log_sigma_factor=0.07, shared=True) for name in (*stacks, "d")
    }
    found = fit(
        [run for name, level in stacks.items() for run in derated(name, level, sources=("one", "other"))],
        priors,
        {},
    )

    assert ratio(found, SHARED_DERATE) == pytest.approx(1.18, abs=0.03)
    for name, level in stacks.items():
        assert ratio(found, f"{SHARED_DERATE}[{name}]") == pytest.approx(level, abs=0.02)
    assert all(f"[{'d'}]" not in one.name for one in found.constants)


def test_a_stack_with_a_derate_of_its_own_neither_gives_nor_gets_the_shared_one():
    own = f"{SHARED_DERATE}[mine]"
    found = fit(derated("mine", 1.2), {own: Prior(log_sigma_factor=0.05)}, {})

    assert ratio(found, SHARED_DERATE) == 1.0
    assert ratio(found, own) > 1.05


def test_a_factor_of_one_source_is_told_as_a_sites():
    found = fit(
        [*runs({PRODUCTS: 1.2}), *derated("b", 1.2)], PRIORS | {f"{SHARED_DERATE}[b]": PRIORS[FABRIC]}, {}
    )

    assert {one.name: one.of_one_source for one in found.constants if one.ratio > 1.05} == {
        PRODUCTS: True,
        f"{SHARED_DERATE}[b]": True,
    }
    both = fit([*runs({PRODUCTS: 1.2}), *runs({PRODUCTS: 1.2}, source="two", seed=1)], PRIORS, {})
    assert next(one for one in both.constants if one.name == PRODUCTS).sources == ("one", "two")


def test_factors_without_a_prior_are_no_constants():
    rows = [
        ObservedStep(
            id=str(n),
            source="a",
            configuration=n,
            context={"family": "dense"},
            log_gap_factor=0.2,
            shares={"jitter": 1.0},
        )
        for n in range(10)
    ]

    assert [one.name for one in fit(rows, {}, {}).constants] == ["unexplained[dense]"]


@pytest.mark.parametrize("noise", [0.03, 0.08])
def test_what_nothing_explains_is_as_wide_as_runs_lie_apart(noise):
    found = fit(runs({PRODUCTS: 1.1}, rows=400, noise=noise), PRIORS, {})
    left = {one.name: one.log_sigma_factor for one in found.constants}

    assert left["unexplained[dense]"] == pytest.approx(noise, rel=0.25)


def test_families_have_noise_of_their_own():
    both = [*runs({}, noise=0.02), *runs({}, noise=0.2, seed=1, source="two", family="experts")]
    noise = fit(both, PRIORS, {}).noise_log_sigmas

    assert noise["experts"] > 4 * noise["dense"]


def test_every_constant_has_a_meaning():
    for one in fit([*runs({PRODUCTS: 1.2, FABRIC: 0.9}), *derated("b", 1.1)], PRIORS, {}).constants:
        assert meaning_of(one.name) != ""


def test_no_constant_scales_sizes_outside_the_measured_range():
    """Published runs have nothing in common that would describe all sizes without measurements."""
    assert not [one.name for one in shipped().constants if one.name.startswith("extrapolated")]


def test_no_level_of_memory_bound_kernels_falls_below_what_memory_sustains():
    """Runs ask for half of the time of memory-bound kernels."""
    name = "uncalibrated[a: memory-bound]"
    named = {PRODUCTS: name, FABRIC: FABRIC}
    asking = [
        replace(one, shares={named[key]: share for key, share in one.shares.items()})
        for one in runs({PRODUCTS: 0.5})
    ]

    found = fit(asking, PRIORS | {name: Prior(log_sigma_factor=0.28)}, {}).levels()

    assert found[name].ratio == pytest.approx(LEAST_MEMORY_LEVEL, abs=0.002)
    assert found[name].log_sigma_factor > 0.0
