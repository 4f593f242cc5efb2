"""Slow devices, hosts and links: what a step loses to them, against closed forms and laws."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import described_model, make_job
from workbench import priced_job

from flopcast.cost.part_prices import axes_of, with_parts
from flopcast.cost.parts import layout_of
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.prediction import predict
from flopcast.timeline.step import run_step

PIPELINE = {"cluster": "dgx-a100:2", "plan": "tp=4 pp=4 dp=1 mbs=1 gbs={} precision=fp16"}


def pipeline(slow="none", micro_batches=16, **parts):
    """A job of four stages, each on half a node."""
    plan = PIPELINE["plan"].format(micro_batches)
    return make_job(**PIPELINE | {"plan": plan, "site": {"slow": slow}} | parts)


def report_of(job):
    """The prediction of a job."""
    return predict(job, load_book(job.cluster))


def with_slow(slow, **parts):
    """Priced programs of a job with slow parts, and the same without rows for these."""
    job = make_job(**parts)
    priced = priced_job(job)
    site = make_job(**parts | {"site": {"slow": slow}}).site
    return with_parts(
        (priced,), layout_of(job.plan, job.cluster, site, axes_of(priced.programs)), job.cluster
    ), priced


def test_a_single_slow_device_lengthens_its_kernels_and_nothing_else():
    one = {
        "cluster": {"base": "dgx-a100:1", "groups": {"0": {"node": {"devices": 1}}}},
        "model": described_model(hidden=8192, heads=64, count=2),  # kernels that hide their launches
        "plan": "dp=1 gbs=4",
    }
    healthy = run_step(priced_job(make_job(**one)))
    of_kernels_s = sum(
        share.path_s
        for share in healthy.shares
        if share.item is not None and isinstance(share.item.work, AbstractOperator)
    )

    slow = run_step(with_slow("device=0:0.8", **one)[0])

    assert slow.step_time_s == pytest.approx(healthy.step_time_s + of_kernels_s * (1 / 0.8 - 1), rel=1e-12)


def test_many_micro_batches_go_at_the_pace_of_the_slow_stage():
    large = {"model": described_model(hidden=8192, heads=64)}  # whose transfers are short beside its tasks
    jobs = (pipeline("device=5:0.5", count, **large) for count in (64, 128))
    few, many = (run_step(priced_with(job)) for job in jobs)
    stage = few.stage == 1
    middle = few.micro_batch == 32
    busy_s = (few.end_s - few.start_s)[stage & middle].sum()

    assert (many.step_time_s - few.step_time_s) / 64 == pytest.approx(busy_s, rel=0.02)


def priced_with(job):
    """The prices of a job with rows for its slow parts."""
    priced = priced_job(job)
    return with_parts(
        (priced,), layout_of(job.plan, job.cluster, job.site, axes_of(priced.programs)), job.cluster
    )


def test_a_part_at_full_speed_changes_nothing_and_a_slower_one_is_never_faster():
    healthy_s = report_of(pipeline()).step_time_s
    for kind in ("device", "host", "link", "nvlink", "infiniband"):
        steps = [report_of(pipeline(f"{kind}=1:{fraction}")).step_time_s for fraction in (1, 0.8, 0.4, 0.1)]

        assert steps[0] == pytest.approx(healthy_s, rel=1e-12), kind
        assert steps == sorted(steps), kind
        assert steps[-1] <= healthy_s / 0.1, kind


def test_shares_and_breakdown_of_a_step_with_slow_parts_sum_to_the_step():
    report = report_of(pipeline("device=5:0.5,host=1:0.3,link=8:0.2"))

    timeline = report.timeline
    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)


def test_all_ranks_of_a_stage_wait_for_its_slowest_device():
    steps = {report_of(pipeline(f"device={rank}:0.7")).step_time_s for rank in range(4, 8)}

    assert len(steps) == 1
    together = report_of(pipeline("device=4:0.7,device=6:0.9")).step_time_s
    assert together == pytest.approx(steps.pop(), rel=1e-12)


def test_a_slow_link_lengthens_the_bytes_of_a_message_and_not_its_latency():
    slow, healthy = with_slow("link=3:0.25", cluster="dgx-a100:2", plan="dp=16 gbs=16 precision=fp16")
    for item, price in healthy.prices.items():
        if isinstance(item.work, AbstractMessage) and price.link is not None:
            on_link_s = price.alone_s * price.link.fraction * (price.link.tier == 1)
            rows = slow.prices[item].alone_s
            expected_s = price.alone_s + 3.0 * on_link_s

            assert rows.max(axis=0) == pytest.approx(expected_s.max(axis=0), rel=1e-12)


def test_the_report_tells_what_each_slow_part_costs_alone():
    report = report_of(pipeline("device=5:0.5,link=8:0.2"))
    alone = [report_of(pipeline(each)).step_time_s for each in ("device=5:0.5", "link=8:0.2")]
    healthy_s = report_of(pipeline()).step_time_s

    found = report.stragglers
    assert found.without_s == pytest.approx(healthy_s, rel=1e-12)
    assert found.step_time_s == report.step_time_s
    assert [one.alone_s for one in found.each] == pytest.approx([each - healthy_s for each in alone])
    assert report_of(pipeline()).stragglers is None


def test_a_slow_replica_decides_the_step_whichever_it_is():
    parts = {"cluster": "dgx-a100:2", "plan": "tp=4 dp=4 gbs=16 precision=fp16"}
    healthy = run_step(with_slow("none", **parts)[0]).step_time_s
    steps = [run_step(with_slow(f"device={rank}:0.8", **parts)[0]).step_time_s for rank in (0, 5, 11, 15)]

    assert np.ptp(steps) < 1e-9 * healthy
    assert healthy < steps[0] < healthy / 0.8


def test_prices_without_parts_are_the_same_object():
    priced = priced_job(make_job())

    assert with_parts((priced,), None, make_job().cluster) is priced
    assert replace(priced, patterns=()).patterns == ()
