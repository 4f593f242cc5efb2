"""economics/failures.py against a simulation of failures, Young's interval and limits."""

import math

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.economics.amount import Amount
from flopcast.economics.failures import lost_time
from flopcast.spec.operations import HOUR_S, Reliability

DAY_S = 24 * HOUR_S


def reliability(**changes):
    return Reliability(device_time_between_failures_s=1000 * HOUR_S, **changes)


def simulated(between_s, restart_s, checkpoint_s, interval_s, segments, seed):
    """Seconds of segments that count, of saving them, of restarts, and of everything that was in vain."""
    draw = np.random.default_rng(seed)
    seconds = {"useful": 0.0, "saving": 0.0, "restarting": 0.0, "redone": 0.0}
    left_s = draw.exponential(between_s)  # until the next failure; it never pauses
    restarting = False
    done = 0
    while done < segments:
        name, need_s = ("restarting", restart_s) if restarting else ("", interval_s + checkpoint_s)
        if left_s >= need_s:
            left_s -= need_s
            if restarting:
                seconds["restarting"] += restart_s
            else:
                seconds["useful"] += interval_s
                seconds["saving"] += checkpoint_s
                done += 1
            restarting = False
        else:
            seconds[name or "redone"] += left_s
            left_s, restarting = draw.exponential(between_s), True
    return seconds


@pytest.mark.parametrize("interval_s", [None, 600.0, 5000.0])
def test_lost_time_is_what_a_simulation_of_failures_loses(interval_s):
    """500 devices that fail every 2 h together, through restarts and checkpoints too."""
    stated = reliability(restart_s=900.0, checkpoint_s=60.0, checkpoint_interval_s=interval_s)

    lost = lost_time(stated, 500, "here")

    counted = simulated(7200.0, 900.0, 60.0, lost.interval_s, segments=60_000, seed=3)
    useful_s = counted["useful"]
    assert lost.saving.value == pytest.approx(counted["saving"] / useful_s)
    assert lost.restarting.value == pytest.approx(counted["restarting"] / useful_s, rel=0.03)
    assert lost.redone.value == pytest.approx(counted["redone"] / useful_s, rel=0.03)
    assert lost.wall.value == pytest.approx(sum(counted.values()) / useful_s, rel=0.01)


def test_without_failures_and_at_no_cost_of_saving_nothing_is_lost():
    never = Reliability(device_time_between_failures_s=1e18, checkpoint_s=1e-9)

    assert lost_time(never, 1024, "").wall.value == pytest.approx(1, abs=1e-6)


@all_cases(
    ("field", "factor"),
    [
        ("device_time_between_failures_s", "failures[x]"),
        ("restart_s", "restart[x]"),
        ("checkpoint_s", "checkpoint[x]"),
    ],
)
@all_cases("part", ["saving", "restarting", "redone", "wall"])
def test_slopes_are_those_of_finite_differences(field, factor, part):
    stated = reliability(restart_s=900.0, checkpoint_s=60.0, checkpoint_interval_s=1500.0)
    nudge = 1e-5

    def nudged(sign):
        changed = stated.model_copy(update={field: getattr(stated, field) * math.exp(sign * nudge)})
        return getattr(lost_time(changed, 500, "x"), part)

    slope = (nudged(1).value - nudged(-1).value) / (2 * nudge)
    known = nudged(0).by_factor.get(factor)
    assert (known.change if known else 0.0) == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_a_run_like_that_of_llama_3_keeps_a_little_more_than_nine_tenths_of_its_time():
    """16,384 H100, 419 unexpected interruptions in 54 days, more than 90 % effective: arXiv:2407.21783."""
    lost = lost_time(Reliability(), 16_384, "here")

    assert 54 * DAY_S / lost.time_between_failures_s == pytest.approx(419, rel=0.05)
    assert 0.90 < 1 / lost.wall.value < 0.95


def test_what_is_lost_is_stopping_and_doing_again():
    lost = lost_time(reliability(), 500, "")

    assert (lost.stopped + lost.redone + Amount(1.0)).value == pytest.approx(lost.wall.value)
