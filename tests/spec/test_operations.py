"""What can be stated of money, power and failures: numbers behind defaults, and what is refused."""

import math

import pytest
from all_cases import all_cases

from flopcast.errors import SpecError
from flopcast.spec.operations import HOUR_S, POWER_CLASSES, Draw, Facility, Power, Price, Reliability


def test_the_default_of_failures_is_the_mean_and_the_spread_of_three_fleets():
    """Llama 3 (arXiv:2407.21783, 3.3.4); RSC-1, RSC-2 (arXiv:2410.21680, failures in 1000 node-days)."""
    hours = [54 * 24 * 16_384 / 419, 1000 * 24 * 8 / 6.5, 1000 * 24 * 8 / 2.34]
    logs = [math.log(each) for each in hours]
    mean = sum(logs) / 3
    spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / 2)

    stated = Reliability()

    assert stated.device_time_between_failures_s / HOUR_S == pytest.approx(math.exp(mean), rel=0.01)
    assert stated.failures_log_sigma_factor == pytest.approx(spread, abs=0.03)


def test_a_busier_device_draws_more():
    power = Power()

    drawn = [getattr(power, name).fraction for name in (*POWER_CLASSES, "idle")]

    assert drawn == sorted(drawn, reverse=True)


def test_a_node_that_trains_draws_what_was_measured():
    """8 H100 at 86 % of 700 W: 7.8 kW in the mean (arXiv:2506.14551), at most 8.4 (arXiv:2412.08602)."""
    node_w = 8 * 700 * (0.86 + Facility().node_overhead_fraction)

    assert 7400 < node_w < 8400


@all_cases(
    "wrong",
    [
        {"device_usd_per_hour": 0},
        {"device_usd_per_hour": -1.0},
        {"device_usd_per_hour": math.inf},
        {"device_usd_per_hour": 2.0, "currency": "EUR"},
        {"device_usd_per_hour": 2.0, "terms": "gift"},
        {"device_usd_per_hour": 2.0, "log_sigma_factor": -0.1},
        {},
    ],
)
def test_a_price_that_is_none_is_refused(wrong):
    with pytest.raises(SpecError):
        Price(**wrong)


@all_cases(
    ("noun", "wrong"),
    [
        (Draw, {"fraction": 0}),
        (Draw, {"fraction": 1.1}),
        (Facility, {"power_usage_effectiveness_ratio": 0.9}),
        (Facility, {"node_overhead_fraction": -0.1}),
        (Reliability, {"device_time_between_failures_s": 0}),
        (Reliability, {"checkpoint_s": 0}),
        (Reliability, {"restart_s": -1}),
        (Reliability, {"checkpoint_interval_s": 0}),
    ],
)
def test_powers_and_failures_beyond_reason_are_refused(noun, wrong):
    with pytest.raises(SpecError):
        noun(**wrong)


def test_a_price_tells_where_it_comes_from():
    listed = Price(name="aws-p5", device_usd_per_hour=6.88, terms="on_demand", date="2026-11-09")

    assert listed.text() == "6.88 USD/h per device (aws-p5, on demand, 2026-11-09)"
    assert Price(device_usd_per_hour=2.1).text() == "2.1 USD/h per device (your own)"
