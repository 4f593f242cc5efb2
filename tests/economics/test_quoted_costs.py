"""Costs as they are quoted: dollars and kilowatt-hours of 1e12 tokens, clusters that stand, own prices."""

import math
from functools import cache

import pytest
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.economics.failures import best_interval_s, lost_time
from flopcast.errors import InfeasibleError
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.spec.operations import Facility, Price, Reliability
from flopcast.spec.site import Site

FEW = settings(max_examples=30)
BOARD_W = 400.0  # NVIDIA A100 SXM4 80 GB data sheet
DEVICES = 8


def cost_of(facility=None, price=None, site=None, **device):
    """The cost of one step of the small GPT on eight A100."""
    job = make_job()
    group = job.cluster.groups[0]
    node = group.node.model_copy(update={"device": group.node.device.model_copy(update=device)})
    changes = {"groups": (group.model_copy(update={"node": node}),), "price": price}
    cluster = job.cluster.model_copy(update=changes | ({"facility": facility} if facility else {}))
    job = job.model_copy(update={"cluster": cluster, "site": site or job.site})
    return predict(job, load_book(cluster)).cost


@cache
def dear():
    return cost_of(price=Price(device_usd_per_hour=1.8))


def drawn(fraction_of, name):
    return getattr(make_job().cluster.node.device.power, name).fraction * fraction_of


def test_tokens_by_the_trillion_cost_the_steps_that_they_take():
    """Counted forward: so many steps, each so many seconds of eight devices at 1.80 USD an hour."""
    cost = dear()

    steps = 1e12 / (16 * 1024)  # sixteen sequences of 1024 tokens a step
    hours = steps * cost.step_s.value / 3600
    assert cost.many_tokens_usd.value == pytest.approx(hours * DEVICES * 1.8)
    assert cost.many_tokens_kwh.value == pytest.approx(steps * cost.energy.step_j.value / 1000 / 3600)


def test_kilowatt_hours_are_the_mean_power_of_the_building_times_the_hours():
    energy = cost_of(facility=Facility(node_overhead_fraction=0.25, power_usage_effectiveness_ratio=1.5))

    steps = 1e12 / (16 * 1024)
    building_kw = 1.5 * DEVICES * (energy.energy.device_power_w.value + 0.25 * BOARD_W) / 1000
    assert energy.many_tokens_kwh.value == pytest.approx(building_kw * steps * energy.step_s.value / 3600)


@pytest.mark.parametrize("name", ["many_tokens_usd", "many_tokens_kwh"])
def test_a_quote_is_as_sure_as_the_step_that_it_is_made_of(name):
    cost = dear()
    of_step = {"many_tokens_usd": cost.step_usd, "many_tokens_kwh": cost.energy.step_j}[name]

    quote = getattr(cost, name)

    spread = [bound / of_step.value for bound in of_step.bounds]
    assert [bound / quote.value for bound in quote.bounds] == pytest.approx(spread)


def test_what_nobody_stated_is_quoted_by_nobody():
    unpriced, unrated = cost_of(), cost_of(price=Price(device_usd_per_hour=2.0), board_power_w=None)

    assert (unpriced.many_tokens_usd, unrated.many_tokens_kwh) == (None, None)
    assert unpriced.many_tokens_kwh.value > 0
    assert unrated.many_tokens_usd.value > 0


@FEW
@given(st.floats(1.0, 2.5), st.floats(0.0, 1.5))
def test_a_cluster_that_stands_draws_idle_devices_their_nodes_and_the_building(pue, overhead):
    facility = Facility(power_usage_effectiveness_ratio=pue, node_overhead_fraction=overhead)

    stopped = cost_of(facility=facility).energy.stopped_w

    idle_w = drawn(BOARD_W, "idle")
    assert stopped.value == pytest.approx(pue * DEVICES * (idle_w + overhead * BOARD_W))
    share = {f.name: f.share for f in stopped.factors}
    assert share["power_idle[a100-sxm4-80gb]"] == pytest.approx(idle_w / (idle_w + overhead * BOARD_W))
    assert share["pue[dgx-a100]"] == pytest.approx(1.0)


@pytest.mark.parametrize("limit_w", [120.0, 400.0, 10_000.0])
def test_no_idle_device_draws_more_than_its_site_allows(limit_w):
    facility = Facility(power_usage_effectiveness_ratio=1.0, node_overhead_fraction=0.0)

    stopped = cost_of(facility=facility, site=Site(name="limited", power_limit_w=limit_w)).energy.stopped_w

    assert stopped.value == pytest.approx(DEVICES * min(limit_w, drawn(BOARD_W, "idle")))


@pytest.mark.parametrize(
    ("price", "factor"),
    [
        (Price(device_usd_per_hour=2.0, log_sigma_factor=0.2), "price[dgx-a100]"),
        (
            Price(name="aws-p4d", terms="reserved", device_usd_per_hour=2.0, log_sigma_factor=0.2),
            "price[aws-p4d]",
        ),
    ],
    ids=["of one's own", "of a list"],
)
def test_a_list_price_is_the_same_doubt_on_every_cluster_and_an_own_one_is_not(price, factor):
    hourly = cost_of(price=price).price_usd_per_hour

    (only,) = hourly.factors
    assert (only.name, only.share, only.log_sigma_factor) == (factor, 1.0, 0.2)
    assert hourly.bounds[1] / hourly.value == pytest.approx(math.exp(1.6448536 * 0.2), rel=1e-5)


@FEW
@given(st.floats(-9.0, -0.3))
def test_newton_finds_the_best_interval_however_long_a_checkpoint_takes(magnitude):
    """By bisection of Daly's equation, from a billionth of the time between failures to half of it."""
    checkpoint = 10.0**magnitude
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        too_short = 1 - middle > math.exp(-(middle + checkpoint))
        low, high = (middle, high) if too_short else (low, middle)

    assert best_interval_s(checkpoint * 5e4, 5e4) == pytest.approx(5e4 * low, rel=1e-6)
    assert low <= math.sqrt(2 * checkpoint)  # Young's, which it nears where failures are rare


def failing(restart_s, checkpoint_s, **more):
    return Reliability(
        device_time_between_failures_s=1e4, restart_s=restart_s, checkpoint_s=checkpoint_s, **more
    )


def test_a_job_that_starts_and_saves_just_as_long_as_it_runs_is_refused():
    assert lost_time(failing(800.0, 199.0), 10, "c").wall.value > 2

    with pytest.raises(InfeasibleError, match=r"fails every 16\.7 min"):
        lost_time(failing(800.0, 200.0), 10, "c")


def test_an_interval_is_refused_where_e_to_the_hundredth_tries_would_be_needed():
    assert math.isfinite(lost_time(failing(0.0, 1.0, checkpoint_interval_s=9.9e4), 10, "c").wall.value)

    with pytest.raises(InfeasibleError, match="rarely reach the next checkpoint"):
        lost_time(failing(0.0, 1.0, checkpoint_interval_s=1.0001e5), 10, "c")


def test_a_stated_interval_is_kept_and_without_one_the_best_is_taken():
    stated, found = (
        lost_time(failing(60.0, 5.0, **words), 4, "c").interval_s
        for words in ({"checkpoint_interval_s": 777.0}, {})
    )

    assert stated == 777.0
    assert found == best_interval_s(5.0, 2500.0)
