"""Sigmas of constants that are used for jobs unlike the runs that they were fitted on."""

import math

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.cost.constant_transfer import (
    DISTANCES,
    FittedLevel,
    carried,
    context_of,
    grown_log_sigma,
    scale_of,
)
from flopcast.lab.published.predictions import predict_with
from flopcast.library import catalog

DERATE = "in_training_derate[megatron-2022@2022-05]"
DOUBTS = {carried(distance): FittedLevel(ratio=1.0, log_sigma_factor=0.05) for distance in DISTANCES}


def sigma_of(seen):
    """The sigma of the derate that a small GPT on one DGX A100 is predicted with."""
    level = FittedLevel(ratio=1.1, log_sigma_factor=0.03, seen=seen)
    report = predict_with(make_job(), DOUBTS | {DERATE: level})
    return next(factor.log_sigma_factor for factor in report.factors if factor.name == DERATE)


def test_a_job_knows_its_context():
    job = make_job()

    assert context_of(job.model, job.cluster, "mxfp8") == {
        "generation": "ampere",
        "precision": "fp8",
        "family": "dense",
        "scale": "1-8",
    }


def test_a_constant_is_as_sure_as_its_fit_where_runs_were_alike():
    here = {"generation": {"ampere", "hopper"}, "precision": {"16 bits"}, "family": {"dense"}}

    assert sigma_of({name: frozenset(seen) for name, seen in here.items()}) == pytest.approx(0.03)


@all_cases("distance", DISTANCES)
def test_a_constant_is_less_sure_over_every_distance(distance):
    """One context seen, so that two values of the variance lie between it and another."""
    elsewhere = {distance: frozenset(["elsewhere"])}

    assert sigma_of(elsewhere) == pytest.approx(math.hypot(0.03, math.sqrt(2) * 0.05))


def test_doubts_of_several_distances_add_as_squares_and_fall_with_contexts_seen():
    far = {"generation": frozenset("abcd"), "family": frozenset(["experts"])}
    level = FittedLevel(ratio=1.0, log_sigma_factor=0.0, seen=far)

    found = grown_log_sigma(level, DOUBTS, {"generation": "e", "family": "dense"})

    assert found == pytest.approx(0.05 * math.sqrt(1.25 + 2.0))


def test_steps_of_scale_are_eight_times_as_many_devices():
    edges = [1, 8, 9, 64, 65, 512, 513]

    assert [scale_of(number) for number in edges] == [
        "1-8", "1-8", "9-64", "9-64", "65-512", "65-512", "513-4096"
    ]  # fmt: skip


def test_every_device_of_the_catalogue_has_a_generation():
    missing = [name for name in catalog.names("devices") if not catalog.device(name).generation]

    assert missing == []
