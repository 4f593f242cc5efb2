"""A run and its failures: laws that hold at any rate of failures, any size, in any unit."""

import math

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.economics.amount import Amount
from flopcast.economics.failures import lost_time
from flopcast.economics.run import TrainingRun, phase_of
from flopcast.economics.step import Energy, StepCost
from flopcast.library import catalog
from flopcast.quantities import parse_tokens
from flopcast.spec.operations import HOUR_S, Reliability

FEW = settings(max_examples=40)
CLUSTER = catalog.cluster("dgx-h100", 4)
MEAN_S = st.floats(3e7, 3e9)  # of one device, between failures
SAVE_S = st.floats(0.5, 60.0)
START_S = st.floats(0.0, 1200.0)
TOKENS = st.floats(1e9, 1e13)


def reliability(mean_s=1e8, save_s=10.0, start_s=300.0, **stated):
    return Reliability(
        device_time_between_failures_s=mean_s, checkpoint_s=save_s, restart_s=start_s, **stated
    )


def step(step_s=2.0, usd=3.0, num_devices=32, step_tokens=4e6):
    """A step on so many devices, each for so many dollars an hour, at 1 kW, half of it at rest."""
    seconds, hourly = Amount(step_s).hanging_on("jitter", 0.05), Amount(usd)
    return StepCost(
        step_s=seconds,
        step_tokens=step_tokens,
        num_devices=num_devices,
        price=None,
        price_usd_per_hour=hourly,
        step_usd=seconds * hourly * (num_devices / HOUR_S),
        energy=Energy(
            step_j=seconds * (1000.0 * num_devices),
            device_power_w=Amount(1000.0),
            stopped_w=Amount(500.0 * num_devices),
            busy={"products": 1.0},
        ),
    )


def run(*tokens, cost=None, **failing):
    cluster = CLUSTER.model_copy(update={"reliability": reliability(**failing)})
    return TrainingRun(phases=tuple(phase_of("", each, cost or step(), cluster) for each in tokens))


@FEW
@given(MEAN_S, SAVE_S, START_S, st.floats(1.1, 5.0))
def test_whatever_takes_longer_or_fails_more_often_never_loses_less(mean_s, save_s, start_s, more):
    usual = lost_time(reliability(mean_s, save_s, start_s), 16, "c").wall.value

    worse = (
        reliability(mean_s / more, save_s, start_s),
        reliability(mean_s, save_s * more, start_s),
        reliability(mean_s, save_s, start_s * more + 1.0),
    )
    assert all(lost_time(other, 16, "c").wall.value >= usual for other in worse)


@FEW
@given(MEAN_S, SAVE_S, START_S)
def test_time_on_the_clock_is_dalys_expectation(mean_s, save_s, start_s):
    """Daly 2006, equation 13: M · exp(R / M) · (exp((t + C) / M) − 1) for each t of work."""
    lost = lost_time(reliability(mean_s, save_s, start_s), 8, "c")

    m_s, t_s = mean_s / 8, lost.interval_s
    expected_s = m_s * math.exp(start_s / m_s) * math.expm1((t_s + save_s) / m_s)
    assert lost.wall.value == pytest.approx(expected_s / t_s)


@FEW
@given(MEAN_S, SAVE_S, st.floats(0.2, 5.0))
def test_no_stated_interval_loses_less_than_the_best(mean_s, save_s, ratio):
    best = lost_time(reliability(mean_s, save_s), 32, "c")

    other = lost_time(reliability(mean_s, save_s, checkpoint_interval_s=best.interval_s * ratio), 32, "c")

    assert other.wall.value >= best.wall.value * (1 - 1e-12)


@FEW
@given(st.lists(TOKENS, min_size=1, max_size=5), st.randoms())
def test_phases_in_any_order_take_the_same_time_money_and_energy(tokens, chance):
    mixed = chance.sample(tokens, len(tokens))

    one, other = run(*tokens), run(*mixed)

    for name in ("useful_s", "wall_s", "usd", "joules"):
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value)
        assert getattr(one, name).bounds == pytest.approx(getattr(other, name).bounds)


@FEW
@given(TOKENS, st.floats(0.1, 10.0))
def test_a_run_of_more_tokens_takes_more_of_everything_in_proportion(tokens, times):
    short, long = run(tokens), run(times * tokens)

    for name in ("useful_s", "wall_s", "usd", "joules"):
        assert getattr(long, name).value == pytest.approx(times * getattr(short, name).value)
    assert long.num_failures == pytest.approx(times * short.num_failures)
    assert long.goodput == pytest.approx(short.goodput)


@FEW
@given(TOKENS, st.floats(0.1, 50.0))
def test_devices_are_paid_for_every_hour_on_the_clock(tokens, usd):
    found = run(tokens, cost=step(usd=usd))

    assert found.usd.value == pytest.approx(found.wall_s.value / HOUR_S * 32 * usd)


@FEW
@given(TOKENS)
def test_energy_lies_between_standing_still_and_working_all_the_time(tokens):
    found = run(tokens)

    drawn_w = found.joules.value / found.wall_s.value / 32
    assert 500.0 < drawn_w < 1000.0


@FEW
@given(TOKENS, MEAN_S)
def test_as_many_failures_are_expected_as_fit_on_the_clock(tokens, mean_s):
    found = run(tokens, mean_s=mean_s)

    assert found.num_failures * mean_s / 32 == pytest.approx(found.wall_s.value)


@FEW
@given(TOKENS, MEAN_S)
def test_goodput_is_useful_over_wall_and_inside_its_interval(tokens, mean_s):
    found = run(tokens, mean_s=mean_s)

    share, low, high = found.goodput
    assert share == pytest.approx(found.useful_s.value / found.wall_s.value)
    assert 0 < low <= share <= high < 1


@all_cases("tokens", [1e-200, 1.0, 1e200, 1e290])
def test_no_run_is_too_short_or_too_long_to_be_counted(tokens):
    """The share of the time that counts is that of any other run."""
    assert run(tokens).goodput == pytest.approx(run(1e12).goodput)


@pytest.mark.parametrize("text", ["1e400", "-1e999T", "1e308B"])
def test_more_tokens_than_there_are_numbers_are_none(text):
    with pytest.raises(ValueError, match="a number of tokens"):
        parse_tokens(text)
