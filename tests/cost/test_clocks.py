"""Limits of power, set clocks and clocks that differ: closed forms, measured epochs, and whole steps."""

import statistics
from collections import defaultdict
from functools import cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from power_accuracy import BOARDS_W, errors_of_epochs, errors_of_epochs_left_out

from flopcast.api import predict
from flopcast.cost.kernels.clocks import slowed_fraction, slowest_ratio, stretch_ratio
from flopcast.spec.site import CLOCK_SPREAD_FRACTION, Site

LEVELS = ("gemm_level", "attention_level", "memory_level")


@all_cases("device", BOARDS_W)
def test_epochs_under_a_limit_are_as_long_as_measured(shared, device):
    off = [abs(error) for error in errors_of_epochs(shared, device)]

    assert len(off) > 150
    assert statistics.median(off) <= 0.025
    assert np.quantile(off, 0.9) <= 0.075


@all_cases("device", BOARDS_W)
def test_constants_of_the_other_devices_predict_a_devices_epochs(shared, device):
    off = [abs(error) for error in errors_of_epochs_left_out(shared, device)]

    assert statistics.median(off) <= 0.025
    assert np.quantile(off, 0.9) <= 0.07


def test_work_takes_longer_and_draws_less_the_lower_the_limit():
    limits = np.linspace(1.0, 0.3, 15)
    ratios = [stretch_ratio(limit) for limit in limits]
    draws = [slowed_fraction(0.98, ratio) for ratio in ratios]

    assert ratios[0] == 1.0
    assert all(later > before for before, later in pairwise(ratios))
    assert draws[0] == pytest.approx(0.98)
    assert all(later < before for before, later in pairwise(draws))
    assert all(draw <= 1.05 * limit for draw, limit in zip(draws, limits, strict=True))


def test_the_slowest_of_many_is_that_of_random_numbers():
    draw = np.random.default_rng(5)
    for devices in (2, 8, 64, 512):
        slowest = draw.standard_normal((4000, devices)).max(axis=1).mean()

        assert slowest_ratio(devices, 0.03) == pytest.approx(1 + 0.03 * slowest, abs=0.002)


@cache
def report(**site):
    job = make_job(
        model="llama-2-7b",
        cluster="dgx-h100:1",
        stack="megatron-core",
        batch={"sequence_length": 4096},
        plan="dp=4 tp=2 sp mbs=1 gbs=16 zero=1 precision=bf16",
    )
    return predict(job.model_copy(update={"site": Site(**site)}))


def ratios_by_family(**site):
    """All ratios of times on a site to those of equal devices, of kernels by family and of messages."""
    plain = report(clock_spread_fraction=0.0)
    there = report(**{"clock_spread_fraction": 0.0, **site})
    found = defaultdict(set)
    for one, other in zip(plain.priced.programs.items(), there.priced.programs.items(), strict=True):
        before_s, after_s = plain.priced.of(one).alone_s, there.priced.of(other).alone_s
        names = plain.priced.of(one).factors
        family = next((level for level in LEVELS if level in str(names)), "")
        if before_s.max() > 0:
            found[family] |= set(np.round(after_s / before_s, 9).ravel().tolist())
    return found


def test_a_limit_of_power_stretches_products_and_attention_alone():
    stretch = round(stretch_ratio(500 / 700), 9)

    found = ratios_by_family(power_limit_w=500.0)

    assert found["gemm_level"] == found["attention_level"] == {stretch}
    assert found["memory_level"] == found[""] == {1.0}


def test_a_set_clock_slows_products_only_below_the_clock_of_a_busy_device():
    highest_hz, busy_ratio = 1.98e9, 1.17
    slow, fast = ratios_by_family(clock_hz=1.2e9), ratios_by_family(clock_hz=1.8e9)

    assert slow["attention_level"] == {round(highest_hz / 1.2e9, 9)}
    assert slow["gemm_level"] == {round(highest_hz / 1.2e9 / busy_ratio, 9)}
    assert fast["attention_level"] == {1.1}
    assert fast["gemm_level"] == fast["memory_level"] == {1.0}
    assert any("untested" in warning for warning in report(clock_hz=1.2e9).warnings)


def test_a_limit_that_binds_less_than_a_set_clock_adds_nothing_to_it():
    both = report(clock_hz=0.9e9, power_limit_w=650.0)

    assert both.step_time_s == pytest.approx(report(clock_hz=0.9e9).step_time_s, rel=1e-3)


def test_devices_whose_clocks_differ_wait_for_the_slowest():
    found = ratios_by_family(clock_spread_fraction=0.02)

    assert found["gemm_level"] == found["attention_level"] == {round(slowest_ratio(8, 0.02), 9)}
    assert found["memory_level"] == {1.0}


def test_the_default_spread_is_what_five_clusters_measured():
    """Kernel times differ by 8 % (arXiv:2208.11035), taken as between the whiskers of a box plot."""
    lower, upper = NormalDist().inv_cdf(0.25), NormalDist().inv_cdf(0.75)
    between_whiskers = (upper - lower) * (1.0 + 2.0 * 1.5)  # quartiles, and 1.5 times their distance beyond

    found = ratios_by_family(clock_spread_fraction=Site().clock_spread_fraction)

    assert 0.08 / between_whiskers == pytest.approx(CLOCK_SPREAD_FRACTION, abs=0.0005)
    assert found["gemm_level"] == {round(slowest_ratio(8, CLOCK_SPREAD_FRACTION), 9)}


def test_a_limit_below_half_of_the_board_is_warned_about_and_less_sure():
    half, most = report(power_limit_w=300.0), report(power_limit_w=650.0)
    sigmas = [
        {f.name: f.log_sigma_factor for f in of.factors}["power_limit[h100-sxm5-80gb]"]
        for of in (half, most)
    ]

    assert any("less than half of the board power" in warning for warning in half.warnings)
    assert not any("board power" in warning for warning in most.warnings)
    assert sigmas == [0.2, 0.05]


def test_a_limit_saves_joules_of_the_device_until_the_rest_of_the_node_costs_more():
    """On V100 a limit of 60 % took 19 % less energy than none; a node draws power beside its devices."""
    shares = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
    energies = [report(power_limit_w=700.0 * share).cost.energy for share in shares]
    steps_s = [report(power_limit_w=700.0 * share).step_time_s for share in shares]
    device_j = [of.device_power_w.value * step_s for of, step_s in zip(energies, steps_s, strict=True)]
    whole_j = [of.step_j.value for of in energies]

    assert 0.8 < device_j[4] / device_j[0] < 0.92
    assert 0 < whole_j.index(min(whole_j)) < len(shares) - 1
    assert whole_j[-1] > whole_j[0]
