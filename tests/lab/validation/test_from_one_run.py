"""Calibration with one run of a machine: the protocol against whole predictions, and published machines."""

import math
from collections import defaultdict

import pytest
from conftest import make_job
from made_up_runs import judged, run

from flopcast.api import predict
from flopcast.lab.validation.from_one_run import by_one, by_others, machines, statistics_of
from flopcast.lab.validation.from_run import Observation, site_after, update
from flopcast.spec.site import Site

PLANS = (
    "dp=8 mbs=1 gbs=16 precision=fp16",
    "dp=4 tp=2 mbs=1 gbs=16 precision=fp16",
    "dp=2 pp=4 mbs=1 gbs=16 precision=fp16",
)
FAMILIES = ("dense", "experts")


def machine(ratios, **told):
    """Compared runs of one machine, one for each plan, that took so many times their predictions."""
    stack = {
        "base": "megatron-core",
        "host": {"forward_item_s": "0 s", "backward_item_s": "0 s"},
    }  # one factor for all
    jobs = [make_job(plan=plan, stack=stack) for plan in PLANS]
    table = [
        run(name=f"run-{place}", job=job, step_time_s=ratio * predict(job).step_time_s, **told)
        for place, (job, ratio) in enumerate(zip(jobs, ratios, strict=True))
    ]
    return judged(table).rows


def test_a_guess_is_what_a_prediction_with_the_site_file_gives():
    rows = machine((1.05, 1.05, 1.05))
    for guess in by_one(rows[:2]):
        other = next(row for row in rows[:2] if row is not guess.row)
        seen = (Observation(observed_s=other.measured_step_time_s),)
        site = site_after(update(predict(other.job), seen), Site(), "here", "a test")
        exact = predict(guess.row.job.model_copy(update={"site": site}))

        found = guess.row.measured_step_time_s * math.exp(guess.after_log_factor)
        assert found == pytest.approx(exact.step_time_s, rel=0.005)
        reach = math.log(exact.step_time_high_s / exact.step_time_s) / 1.6449
        assert guess.after_log_sigma_factor == pytest.approx(reach, rel=0.1)


def test_a_machine_that_is_slower_alike_is_learnt_from_one_run_and_better_from_all_others():
    rows = machine((1.08, 1.08, 1.08))
    one, others = (statistics_of(list(guessed(rows))) for guessed in (by_one, by_others))

    assert one["mean_before"] == others["mean_before"] == pytest.approx(1 - 1 / 1.08)
    assert one["mean_after"] < one["mean_before"]
    assert others["mean_after"] < one["mean_after"]


def test_every_run_counts_once_however_many_others_calibrate_it():
    weights = defaultdict(float)
    for guess in by_one(machine((1.0, 1.1, 0.9))):
        weights[guess.row.run.id] += guess.weight_ratio

    assert weights == pytest.approx({f"run-{place}": 1.0 for place in range(3)})


def test_runs_of_one_source_and_machine_belong_together_and_two_are_too_few():
    rows = (*machine((1.0, 1.0, 1.0)), *machine((1.0, 1.0, 1.0), source="another")[:2])

    assert [(key[0], len(members)) for key, members in machines(rows).items()] == [("made-up", 3)]


@pytest.fixture(scope="module")
def found(measured):
    """Statistics of the published table by way of calibration and family, from constants left out."""
    guesses = measured.calibrated
    alike = [guess for guess in guesses["one"] if guess.moved_share < 0.1]
    return {
        (way, family): statistics_of([guess for guess in members if guess.row.family == family])
        for way, members in {**guesses, "alike": alike}.items()
        for family in FAMILIES
    }


def test_the_other_runs_of_a_machine_lower_the_error_of_a_run_by_a_third(found):
    less = {family: 1 - found["others", family]["mean_after"] / found["others", family]["mean_before"]
            for family in FAMILIES}  # fmt: skip

    assert {family: share for family, share in less.items() if share < 1 / 3} == {}


def test_one_run_lowers_the_error_of_runs_that_are_like_it_and_does_others_no_harm(found):
    """Most other runs are of other models: the mean error of all stays, or rises by less than 2 %."""
    for family in FAMILIES:
        one, alike = found["one", family], found["alike", family]
        assert alike["mean_after"] < 0.8 * alike["mean_before"], family
        assert one["mean_after"] < 1.02 * one["mean_before"], family


def test_intervals_hold_after_a_calibration(found):
    """Between 85 and 96 % of measurements are inside of 90 % intervals, which are narrower than before.

    Before the calibration, the intervals of dense runs contain 96 %.
    """
    for way in ("one", "others"):
        for family in FAMILIES:
            told = found[way, family]
            assert 0.85 <= told["inside_after"] <= 0.96, (way, family)
            assert told["width_after"] < told["width_before"], (way, family)
