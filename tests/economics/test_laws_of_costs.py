"""Laws that money and energy keep on any job, and intervals against factors drawn at random."""

import math
from functools import cache

import numpy as np
import pytest
from conftest import make_job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.report_json import as_json
from flopcast.spec.operations import POWER_CLASSES, Facility, Price
from flopcast.spec.site import Site, SiteFactor

LAWS = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
TP = {"cluster": "dgx-a100:2", "plan": "dp=2 tp=8 mbs=2 gbs=32 sp precision=bf16", "stack": "megatron-core"}
DRAWS = 120


KEPT = KeptResults(most=16384)  # what the software of a job runs


def report_of(job):
    return predict(job, load_book(job.cluster), KEPT)


@cache
def plain(plan="dp=8 mbs=1 gbs=16 precision=fp16"):
    return report_of(make_job(plan=plan))


def per_token(report):
    """Dollars and joules of a token."""
    cost = report.cost
    return cost.step_usd.value / cost.step_tokens, cost.energy.step_j.value / cost.step_tokens


def with_cluster(job, **changes):
    return job.model_copy(update={"cluster": job.cluster.model_copy(update=changes)})


def with_power(job, ratios):
    """The job on devices whose kinds of work draw so many times what they are said to."""
    group = job.cluster.groups[0]
    power = group.node.device.power
    drawn = {
        name: getattr(power, name).model_copy(update={"fraction": getattr(power, name).fraction * ratio})
        for name, ratio in ratios.items()
    }
    device = group.node.device.model_copy(update={"power": power.model_copy(update=drawn)})
    node = group.node.model_copy(update={"device": device})
    return with_cluster(job, groups=(group.model_copy(update={"node": node}),))


@LAWS
@given(usd=st.floats(0.01, 1000.0))
def test_money_is_in_proportion_to_the_price_and_as_sure_as_the_time(usd):
    report = plain()
    dear = report_of(with_cluster(report.job, price=Price(device_usd_per_hour=usd)))

    expected = report.step_time_s * 8 / 3600 * usd
    bounds_s = report.step_time_low_s, report.step_time_high_s

    assert dear.cost.step_usd.value == pytest.approx(expected)
    assert dear.cost.step_usd.bounds == pytest.approx(
        [expected * bound_s / report.step_time_s for bound_s in bounds_s], rel=1e-9
    )


@LAWS
@given(pue=st.floats(1.0, 2.5), overhead=st.floats(0.0, 1.5))
def test_the_building_draws_devices_and_nodes_times_its_overhead(pue, overhead):
    facility = Facility(power_usage_effectiveness_ratio=pue, node_overhead_fraction=overhead)

    energy = report_of(with_cluster(plain().job, facility=facility)).cost.energy

    device_w = plain().cost.energy.device_power_w.value
    assert energy.device_power_w.value == pytest.approx(device_w)
    assert energy.step_j.value == pytest.approx(
        pue * 8 * (device_w + overhead * 400) * plain().step_time_s, rel=1e-9
    )


def test_a_bare_building_around_devices_that_only_wait_draws_waiting_alone():
    """All kinds of work at the power of waiting: what a device does is no matter."""
    job, power = plain().job, plain().job.cluster.node.device.power
    ratios = {name: power.waiting.fraction / getattr(power, name).fraction for name in POWER_CLASSES}

    energy = report_of(with_power(job, ratios)).cost.energy

    assert energy.device_power_w.value == pytest.approx(power.waiting.fraction * 400)


def test_shares_of_what_a_device_does_sum_to_one_and_give_its_power():
    report = plain()
    power = report.job.cluster.node.device.power

    busy = report.cost.energy.busy

    assert sum(busy.values()) == pytest.approx(1)
    drawn_w = sum(share * getattr(power, name).fraction * 400 for name, share in busy.items())
    assert report.cost.energy.device_power_w.value == pytest.approx(drawn_w)
    assert as_json(report)["busy"] == pytest.approx(busy)


def test_messages_longer_than_the_kernels_beside_them_count_while_no_kernel_runs():
    """Parameters are gathered beside kernels; together they would take longer than the step."""
    slow = make_job(
        model="llama-3-8b",
        cluster="dgx-h100:8",
        stack="generic",
        batch={"seq": 2048},
        plan="dp=64 zero=3 mbs=1 gbs=64",
    )

    busy = report_of(slow).cost.energy.busy

    assert sum(busy.values()) == pytest.approx(1)
    assert min(busy.values()) >= 0.0


def test_recomputing_costs_more_money_and_energy_a_token():
    again = plain("dp=8 mbs=1 gbs=16 recompute=full precision=fp16")

    (usd, joules), (more_usd, more_joules) = per_token(plain()), per_token(again)

    assert 1 < more_usd / usd < 1.4
    assert 1 < more_joules / joules < 1.4


def test_more_replicas_on_one_more_node_cost_no_less_a_token():
    """The same work on each device, and messages over the network besides."""
    one = report_of(make_job(cluster="dgx-a100:1", plan="dp=8 mbs=1 gbs=16 precision=fp16"))
    two = report_of(make_job(cluster="dgx-a100:2", plan="dp=16 mbs=1 gbs=32 precision=fp16"))

    assert per_token(two)[0] >= per_token(one)[0]
    assert per_token(two)[1] >= per_token(one)[1]


def test_on_an_endlessly_slow_network_devices_draw_the_power_of_exchanges():
    job = make_job(**TP)
    name = next(f.name for f in report_of(job).factors if f.name.startswith("fabric"))
    slow = job.model_copy(update={"site": Site(factors=(SiteFactor(name=name, ratio=1000.0),))})

    fast_energy, slow_energy = report_of(job).cost.energy, report_of(slow).cost.energy

    exchange_w = job.cluster.node.device.power.communication.fraction * 400
    assert slow_energy.device_power_w.value == pytest.approx(exchange_w, rel=0.01)
    assert slow_energy.step_j.value > fast_energy.step_j.value


def two_sided(factor, draw):
    """A logarithm of the factor, with a normal half on each side of 0, which are equally likely."""
    above, below = factor.log_sigma_factor, factor.below_log_sigma_factor
    if below is None:
        return above * draw.standard_normal()
    size = draw.standard_normal()
    return size * (above if size > 0.0 else below)


@pytest.mark.parametrize("parts", [{}, TP], ids=["one stage", "tensor parallel"])
def test_intervals_of_money_and_energy_hold_nine_of_ten_machines(parts):
    """Predict machines anew, with each factor of their steps drawn at random, without linearising."""
    job = make_job(**parts)
    report = report_of(job)
    device, facility = job.cluster.node.device, job.cluster.facility
    draw = np.random.default_rng(11)
    inside_usd = inside_j = 0
    for _ in range(DRAWS):
        times = tuple(
            SiteFactor(name=f.name, ratio=math.exp(two_sided(f, draw)))
            for f in report.factors
            if f.scales_step
        )
        powers = {
            name: math.exp(getattr(device.power, name).log_sigma_factor * draw.standard_normal())
            for name in POWER_CLASSES
        }
        building = Facility(
            node_overhead_fraction=facility.node_overhead_fraction
            * math.exp(facility.node_overhead_log_sigma_factor * draw.standard_normal())
        )
        pue = math.exp(facility.power_usage_effectiveness_log_sigma_factor * draw.standard_normal())
        machine = with_cluster(with_power(job, powers), facility=building)
        cost = report_of(machine.model_copy(update={"site": Site(factors=times)})).cost
        low, high = report.cost.step_usd.bounds
        inside_usd += low < cost.step_usd.value < high
        low, high = report.cost.energy.step_j.bounds
        inside_j += low < cost.energy.step_j.value * pue < high

    assert 0.82 < inside_usd / DRAWS < 0.97
    assert 0.82 < inside_j / DRAWS < 0.97
