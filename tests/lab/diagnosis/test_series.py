"""Patterns of step times: pauses and slowing, found in series whose causes are known."""

import numpy as np
import pytest

from flopcast.lab.diagnosis.step_series import FEWEST_RECORDS, pauses_of, slowing_of

STEPS = np.arange(1.0, 301.0)


def noisy(level_s, sigma=0.01, seed=5):
    """Step times around a level."""
    return level_s * np.exp(sigma * np.random.default_rng(seed).standard_normal(len(STEPS)))


def test_a_steady_run_has_neither_pauses_nor_slowing():
    for seed in range(20):
        times_s = noisy(2.0, 0.02, seed)

        assert pauses_of(STEPS, times_s).place.size == 0
        assert slowing_of(STEPS, times_s) is None


def test_pauses_are_the_steps_that_were_made_longer():
    times_s = noisy(2.0)
    long = np.arange(24, 300, 25)
    times_s[long] += 3.0

    found = pauses_of(STEPS, times_s)

    assert found.place.tolist() == long.tolist()
    assert found.every == 25
    assert found.extra_s == pytest.approx(3.0, rel=0.05)


def test_pauses_at_uneven_distances_have_no_rhythm():
    times_s = noisy(2.0)
    times_s[[20, 33, 90, 97, 180, 251, 263]] += 3.0

    assert pauses_of(STEPS, times_s).every is None


def test_a_change_at_once_has_its_step_and_a_gradual_one_has_none():
    at_once, gradual = noisy(2.0), noisy(2.0) * np.linspace(1.0, 1.3, 300)
    at_once[200:] *= 1.3

    first, second = slowing_of(STEPS, at_once), slowing_of(STEPS, gradual)

    assert first.since_step == pytest.approx(201, abs=3)
    assert first.lost_s == pytest.approx(2.0 * 0.3 / 3, rel=0.05)
    assert second.since_step is None
    assert second.lost_s == pytest.approx(2.0 * 0.15, rel=0.1)


def test_a_run_that_gets_faster_does_not_slow_down():
    assert slowing_of(STEPS, noisy(2.0) * np.linspace(1.3, 1.0, 300)) is None


def test_few_records_have_no_pattern():
    few = FEWEST_RECORDS - 1
    times_s = noisy(2.0)[:few] * np.linspace(1.0, 3.0, few)

    assert pauses_of(STEPS[:few], times_s).place.size == 0
    assert slowing_of(STEPS[:few], times_s) is None
