"""What two plans on one machine differ by, found again in ratios that were made with it."""

import numpy as np
import pytest

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.constant_transfer import FittedLevel
from flopcast.lab.calibration.observations import ObservedStep, Prior
from flopcast.lab.calibration.plan_pairs import FEWEST_PAIRS, between_plans

PRIORS = {"gemm_level[a]": Prior(log_sigma_factor=0.1), "fabric[b]": Prior(log_sigma_factor=0.1)}
SURE = {name: FittedLevel(ratio=1.0, log_sigma_factor=1e-6) for name in PRIORS}


def plans(sigma, source="one", number=40, seed=0, sweep="sweep"):
    """Plans of one sweep that spend their time on wholly different things, each off by its own amount."""
    chance = np.random.default_rng(seed)
    return [
        ObservedStep(
            id=f"{source}-{place}",
            source=source,
            configuration=place,
            log_gap_factor=float(chance.normal(0.0, sigma)),
            shares={"gemm_level[a]": place / number, "fabric[b]": 1.0 - place / number},
            context={"family": "dense"},
            sweep=sweep,
        )
        for place in range(number)
    ]


@pytest.mark.parametrize("sigma", [0.05, 0.1])
def test_the_sigma_of_plans_is_found_again(sigma):
    (found,) = between_plans(plans(sigma), PRIORS, SURE)

    assert found.name == BETWEEN_PLANS
    assert found.log_sigma_factor == pytest.approx(sigma, rel=0.35)


def test_a_level_that_moves_all_plans_of_a_machine_alike_is_no_difference():
    moved = {"gemm_level[a]": FittedLevel(ratio=1.3, log_sigma_factor=0.1)} | {
        "fabric[b]": SURE["fabric[b]"]
    }
    exact = [
        ObservedStep(
            **{name: getattr(one, name) for name in ("id", "source", "configuration", "shares", "context")},
            sweep=one.sweep,
            log_gap_factor=float(np.log(1.3)) * one.shares["gemm_level[a]"],
        )
        for one in plans(0.0)
    ]

    (found,) = between_plans(exact, PRIORS, moved)

    assert found.log_sigma_factor < 0.005


def test_sources_count_alike_however_many_plans_they_have():
    few, many = plans(0.1, "few", 12, seed=1, sweep="few"), plans(0.02, "many", 60, seed=2, sweep="many")

    (together,) = between_plans([*few, *many], PRIORS, SURE)
    (alone,) = between_plans(many, PRIORS, SURE)

    assert together.log_sigma_factor > 1.5 * alone.log_sigma_factor


def test_runs_of_no_sweep_say_nothing():
    assert between_plans(plans(0.1, sweep=None), PRIORS, SURE) == []
    assert between_plans(plans(0.1, number=FEWEST_PAIRS // 4), PRIORS, SURE) == []
