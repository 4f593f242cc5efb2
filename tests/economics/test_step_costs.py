"""economics/energy.py and step.py: energy is power over time, money is devices' time, slopes are exact."""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.economics.energy import drawn_w, power_class
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.report.events import events
from flopcast.spec.operations import POWER_CLASSES, Price
from flopcast.spec.site import Site, SiteFactor

NUDGE = 1e-4
ONE_STAGE = {}
PIPELINE = {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 sp gbs=16 recompute=selective precision=fp16"}
LIMITED = Site(name="limited", power_limit_w=300.0)


def reported(job):
    """By kernels alone: what nothing explains has no level of its own."""
    return predict(job, replace(load_book(job.cluster), levels={}))


@cache
def report_of(kind):
    return reported(make_job(**{"one stage": ONE_STAGE, "pipeline": PIPELINE}[kind]))


def changed(job, cluster=None, device=None):
    """The job with other fields of its cluster, or of its device."""
    here = job.cluster
    if device:
        group = here.groups[0]
        node = group.node.model_copy(update={"device": group.node.device.model_copy(update=device)})
        here = here.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return job.model_copy(update={"cluster": here.model_copy(update=cluster or {})})


def integrated_j(report):
    """Power of the only stage over the moments of its events: compute before messages before nothing."""
    device, site = report.job.cluster.node.device, report.job.site
    lasting = [item for item in report.priced.programs.items() if report.priced.of(item).alone_s.max() > 0]
    kind = {item.name: power_class(item) for item in lasting}
    rows = [e for e in events(report) if e.stream != "tasks"]
    moments = sorted({0.0, report.timeline.step_time_s} | {t for e in rows for t in (e.start_s, e.end_s)})
    joules = 0.0
    for begin, end in pairwise(moments):
        running = [kind[e.operator] for e in rows if e.start_s <= begin and e.end_s >= end]
        name = min(running, key=POWER_CLASSES.index, default="waiting")
        joules += (end - begin) * drawn_w(name, device, site)
    return joules * report.step_time_s / report.timeline.step_time_s


def test_energy_is_the_integral_of_power_over_the_step():
    report = report_of("one stage")

    energy, devices = report.cost.energy, report.job.cluster.num_devices

    device_j = energy.device_power_w.value * report.step_time_s
    assert device_j == pytest.approx(integrated_j(report), rel=1e-6)
    beside_w = 0.5 * 400
    assert energy.step_j.value == pytest.approx(1.2 * devices * (device_j + beside_w * report.step_time_s))


def test_stages_that_wait_for_others_draw_less_than_one_that_never_waits():
    report = report_of("pipeline")
    stage_s = report.timeline.step_time_s

    waited = report.timeline.bottleneck_waits_s / stage_s
    device = report.job.cluster.node.device
    most_w = max(drawn_w(name, device, Site()) for name in POWER_CLASSES)
    wait_w = drawn_w("waiting", device, Site())
    assert waited > 0.1
    assert wait_w < report.cost.energy.device_power_w.value < (1 - waited) * most_w + waited * wait_w


@all_cases("kind", ["one stage", "pipeline"])
@all_cases("family", ["gemm_level", "memory_level", "fabric", "jitter"])
def test_slopes_of_energy_and_money_by_times_are_those_of_finite_differences(kind, family):
    """A site that makes a factor's items slower, against the slopes without it."""
    report = report_of(kind)
    name = next(f.name for f in report.factors if f.name.startswith(family))
    slow = Site(factors=(SiteFactor(name=name, ratio=math.exp(NUDGE)),))
    priced = {"price": Price(device_usd_per_hour=2.0)}

    plain = reported(changed(report.job, cluster=priced)).cost
    nudged = reported(changed(report.job, cluster=priced).model_copy(update={"site": slow})).cost

    for before, after in (
        (plain.energy.step_j, nudged.energy.step_j),
        (plain.energy.device_power_w, nudged.energy.device_power_w),
        (plain.step_usd, nudged.step_usd),
    ):
        share = {f.name: f.share for f in before.factors}.get(name, 0.0)
        assert share == pytest.approx(math.log(after.value / before.value) / NUDGE, abs=2e-3)


MIXTURE = {
    "hidden": 1024,
    "vocabulary": 32000,
    "blocks": [
        {
            "count": 8,
            "mixer": {"heads": 16},
            "feed_forward": {"num_experts": 8, "top_k": 2, "expert_hidden": 4096},
        }
    ],
}
HIDING = {
    "base": "megatron-core",
    "gradients": {"overlap": True},
    "host": {
        "forward_item_s": "0 s",
        "backward_item_s": "0 s",
    },  # so that exchanges of small layers are exposed
}


@all_cases("plan", ["dp=64 ep=8 gbs=64 precision=bf16", "dp=32 pp=2 ep=8 gbs=64 precision=bf16"])
@all_cases("family", ["gemm_level", "memory_level", "fabric[infiniband]", "exchange"])
def test_where_reductions_stick_out_slopes_of_energy_miss_no_more_than_what_hides_the_rest(plan, family):
    """Slower kernels hide more of a reduction, which a slope of what sticks out does not know."""
    job = make_job(model=MIXTURE, cluster="dgx-a100:8", stack=HIDING, plan=plan)
    report = reported(job)
    name = next(f.name for f in report.factors if f.name.startswith(family))
    slow = Site(factors=(SiteFactor(name=name, ratio=math.exp(NUDGE)),))

    nudged = reported(job.model_copy(update={"site": slow}))

    step_j = report.cost.energy.step_j
    share = {f.name: f.share for f in step_j.factors}[name]
    true = math.log(nudged.cost.energy.step_j.value / step_j.value) / NUDGE
    reductions = sum(
        share.path_s
        for share in report.timeline.mean_attribution
        if share.item and share.item.stream == "dp"
    )
    device = job.cluster.node.device
    extra_w = drawn_w("communication", device, Site()) - drawn_w("waiting", device, Site())
    drawn_share = reductions * extra_w / (report.step_time_s * report.cost.energy.device_power_w.value)
    assert reductions > 0
    assert share == pytest.approx(true, abs=drawn_share)
    assert (share - true) * (1 if family.startswith("fabric") else -1) <= 1e-4


@all_cases("kind", POWER_CLASSES)
def test_slopes_of_energy_by_powers_are_those_of_finite_differences(kind):
    report = report_of("pipeline")
    device = report.job.cluster.node.device
    draw = getattr(device.power, kind)
    higher = draw.model_copy(update={"fraction": draw.fraction * math.exp(NUDGE)})
    power = device.power.model_copy(update={kind: higher})

    nudged = reported(changed(report.job, device={"power": power}))

    before, after = report.cost.energy.step_j, nudged.cost.energy.step_j
    share = {f.name: f.share for f in before.factors}.get(f"power_{kind}[{device.name}]", 0.0)
    assert share == pytest.approx(math.log(after.value / before.value) / NUDGE, abs=1e-4)
    assert nudged.step_time_s == report.step_time_s


def test_money_is_paid_for_every_device_and_second():
    job = changed(report_of("one stage").job, cluster={"price": Price(device_usd_per_hour=3.6)})

    report = reported(job)

    assert report.cost.step_usd.value == pytest.approx(report.step_time_s * 8 * 0.001)
    many = report.cost.per_many_tokens(report.cost.step_usd)
    assert many.value == pytest.approx(1e12 / report.metrics.tokens_per_s * 8 * 0.001)
    relative = (report.step_time_low_s / report.step_time_s, report.step_time_high_s / report.step_time_s)
    assert [bound / many.value for bound in many.bounds] == pytest.approx(relative)


def test_a_price_is_uncertain_only_where_that_is_stated():
    job = report_of("one stage").job
    certain, guess = (
        reported(changed(job, cluster={"price": Price(device_usd_per_hour=3.6, log_sigma_factor=sigma)}))
        for sigma in (0.0, 0.5)
    )

    assert not any(f.name.startswith("price") for f in certain.cost.step_usd.factors)
    assert guess.cost.step_usd.factors[0].name == "price[dgx-a100]"
    assert guess.cost.step_usd.bounds[1] > certain.cost.step_usd.bounds[1]
    assert guess.step_time_high_s == certain.step_time_high_s


def test_a_limit_of_power_lowers_what_is_above_it_alone():
    job = report_of("one stage").job

    limited = reported(job.model_copy(update={"site": LIMITED}))

    device = job.cluster.node.device
    assert 0.97 * 300 < drawn_w("products", device, LIMITED) <= 300
    assert drawn_w("waiting", device, LIMITED) == pytest.approx(0.35 * 400)
    assert (
        limited.cost.energy.device_power_w.value < report_of("one stage").cost.energy.device_power_w.value
    )


def test_without_a_price_or_a_board_power_there_is_no_cost():
    job = report_of("one stage").job

    bare = reported(changed(job, cluster={"price": None}, device={"board_power_w": None})).cost

    assert (bare.step_usd, bare.energy) == (None, None)


@all_cases("name", catalog.names("jobs"))
def test_a_device_draws_more_than_idle_and_no_more_than_its_board(name):
    from flopcast.requests.job_files import load_catalog_job

    report = reported(load_catalog_job(name))

    device, energy = report.job.cluster.node.device, report.cost.energy
    assert 0.15 * device.board_power_w < energy.device_power_w.value < device.board_power_w
