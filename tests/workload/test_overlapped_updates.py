"""Updates on the host beside the passes (`overlaps_updates`): every byte once, and the longer work."""

import pytest
from conftest import make_job

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.spec.offload_software import OffloadSoftware
from flopcast.workload.program import WHEN

PLAN = "dp=8 mbs=1 gbs=16 zero=2 recompute=full precision=bf16 offload=optimizer:host"
PLANS = (PLAN, PLAN.replace("zero=2", "zero=3"), PLAN.replace("zero=2", "zero=3") + ",parameters:host")
ONCE = {"first": 0, "last": 2}  # the position of a micro-batch at which such items run


def report_of(overlaps=True, rate=200e9, plan=PLAN, **how):
    """A job whose host reads and writes states at `rate`, with or without overlap."""
    job = make_job(plan=plan, stack={"base": "generic", "offload": {"overlaps_updates": overlaps} | how})
    group = job.cluster.groups[0]
    memory = {"capacity_bytes": 4e12, "bytes_per_s": 4e12, "optimizer_bytes_per_s": rate}
    node = type(group.node).model_validate(group.node.model_dump() | {"memory": memory})
    cluster = job.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return predict(job.model_copy(update={"cluster": cluster}))


def moved(report, kind):
    """Bytes of a step that updates on the host, or copies to and from the host, move."""
    programs, total = report.timeline.run.priced.programs, 0.0
    items = [
        (item, float(seg.repeat.sum())) for half in programs.passes for seg in half for item in seg.items
    ]
    for item, times in [*items, *((item, 1.0) for item in programs.update)]:
        if isinstance(item.work, kind):
            size = item.work.moved_bytes if kind is HostUpdate else item.work.size_bytes
            total += (
                float(size.max()) * times * (WHEN[item.when][ONCE[item.when]] if item.when in ONCE else 1)
            )
    return total


def test_every_byte_is_updated_and_copied_once_with_and_without_overlap():
    for plan in PLANS:
        beside, after = report_of(plan=plan), report_of(overlaps=False, plan=plan)

        for kind in (HostUpdate, TierCopy):
            assert moved(after, kind) > 0
            assert moved(beside, kind) == pytest.approx(moved(after, kind))


def test_overlap_never_lengthens_a_step_and_hides_most_of_an_update():
    """Of the update's time, a step without overlap is longer by all, and one with it by a third."""
    rates = (5e9, 50e9, 500e9, 5e15)
    host_s = moved(report_of(), HostUpdate) * 8 / 500e9
    for plan in PLANS:
        beside, after = (
            [report_of(overlaps, rate, plan).clean_step_time_s for rate in rates]
            for overlaps in (True, False)
        )

        assert all(one < other for one, other in zip(beside, after, strict=True))
        assert beside == sorted(beside, reverse=True)
        assert after[2] - after[3] == pytest.approx(host_s, rel=0.01)
        assert 0 < beside[2] - beside[3] < 0.4 * host_s


def test_a_slow_host_decides_on_the_step():
    """Two thirds of its work are beside the backward pass, and one third is beside the forward pass."""
    for plan in PLANS:
        report = report_of(rate=5e9, plan=plan)
        host_s = moved(report, HostUpdate) * report.job.cluster.node.devices / 5e9

        assert host_s < report.clean_step_time_s < 1.1 * host_s


def test_updates_that_end_before_the_next_forward_pass_hide_behind_the_backward_pass_alone():
    for plan in PLANS:
        report = report_of(rate=5e9, plan=plan, backward_fraction=1)
        host_s = moved(report, HostUpdate) * report.job.cluster.node.devices / 5e9
        beside_both = report_of(rate=500e9, plan=plan).clean_step_time_s

        assert host_s < report.clean_step_time_s < 1.1 * host_s
        assert beside_both <= report_of(rate=500e9, plan=plan, backward_fraction=1).clean_step_time_s
        assert moved(report, HostUpdate) == pytest.approx(moved(report_of(plan=plan), HostUpdate))


def test_what_overlap_cannot_go_with_is_an_error():
    with pytest.raises(ValueError, match=r"set stack\.offload\.gradient_flush to overlapped"):
        OffloadSoftware(gradient_flush="before_update", overlaps_updates=True)
    with pytest.raises(SpecError, match="set zero to 2"):
        report_of(plan=PLAN.replace("zero=2", "zero=1"))
    with pytest.raises(SpecError, match="set pipeline_parallel to 1"):
        report_of(plan=PLAN.replace("dp=8", "dp=4 pp=2"))
