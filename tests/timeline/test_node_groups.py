"""Groups of nodes with other devices and networks: limits, laws and an enumeration of divisions."""

import pytest
from conftest import described_model, make_job

from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.group_division import best_group_division

A100, H100 = (
    {"device": name, "devices": 8, "host": "epyc-7763"} for name in ("a100-sxm4-80gb", "h100-sxm5-80gb")
)
NVLINK = {
    "name": "nvlink",
    "devices": 8,
    "bytes_per_s": "300 GB/s",
    "latency_s": "5 us",
    "fabric": "a100-nvswitch",
}
SHAPE = {"model": described_model(hidden=4096, count=12), "stack": "megatron-core"}
STAGES = "dp=4 tp=2 pp=2 mbs=1 gbs=64 precision=fp16 sp"
REPLICAS = "dp=8 tp=2 mbs=1 gbs=96 precision=fp16 sp"


def network(gigabytes_per_s):
    """A network of this bandwidth for each device."""
    return {
        "name": f"net-{gigabytes_per_s}",
        "devices": 0,
        "bytes_per_s": f"{gigabytes_per_s} GB/s",
        "latency_s": "10 us",
    }


def on_groups(plan, *groups, joined=25):
    """A job on groups of nodes that a network of this bandwidth joins."""
    return make_job(
        **SHAPE, cluster={"groups": list(groups), "tiers": [NVLINK, network(joined)]}, plan=plan
    )


def group(node=A100, count=1, inside=None, **more):
    """A group, with a network of its own if its bandwidth is given."""
    tiers = {} if inside is None else {"tiers": [NVLINK, network(inside)]}
    return {"node": node, "count": count} | tiers | more


def report_of(job):
    """The prediction of a job."""
    return predict(job, load_book(job.cluster))


def step_s(job):
    """Its step without jitter."""
    return report_of(job).clean_step_time_s


def test_two_equal_groups_are_one_group_of_both():
    for plan in (STAGES, REPLICAS):
        one, two = on_groups(plan, group(count=2)), on_groups(plan, group(), group())

        assert step_s(two) == pytest.approx(step_s(one), rel=1e-12), plan
        assert step_s(on_groups(plan, group(inside=25), group(inside=25))) == pytest.approx(step_s(one))


def test_a_step_lies_between_those_of_equal_clusters_of_either_device():
    for plan in (STAGES, REPLICAS):
        fast, slow, mixed = (
            step_s(on_groups(plan, group(a), group(b)))
            for a, b in ((H100, H100), (A100, A100), (A100, H100))
        )

        assert fast < mixed <= slow * (1 + 1e-9), plan
        if plan == REPLICAS:
            assert mixed == pytest.approx(slow, rel=0.02)  # all wait for the slow replicas


def test_only_messages_between_groups_use_the_network_that_joins_them():
    two = "dp=16 pp=2 mbs=1 gbs=64 precision=fp16"  # each stage on a group of two nodes
    joined = {
        speed: step_s(on_groups(two, group(count=2, inside=25), group(count=2, inside=25), joined=speed))
        for speed in (25, 1)
    }
    inside = step_s(on_groups(two, group(count=2, inside=1), group(count=2, inside=25)))
    everywhere = step_s(on_groups(two, group(count=4), joined=1))

    assert joined[25] < joined[1] < everywhere  # transfers between stages alone
    assert joined[25] < inside < everywhere  # the reduction of one stage alone


def test_shares_breakdown_and_memory_of_a_mixed_job_are_those_of_its_stages():
    report = report_of(on_groups(STAGES + " stage_layers=4,8", group(), group(H100)))

    timeline = report.timeline
    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert sum(report.breakdown.values()) == pytest.approx(report.step_time_s, rel=1e-9)
    assert report.cost.energy is None  # of devices with other powers
    peaks = [node["device"] for node in (A100, H100)]
    assert report.job.cluster.machine == f"8 × {peaks[0]} + 8 × {peaks[1]}"


def test_the_smallest_device_that_holds_a_stage_limits_its_memory():
    small = A100 | {"device": {"base": "a100-sxm4-80gb", "name": "small", "memory_bytes": "8 GB"}}
    fits = {
        layers: report_of(on_groups(f"{STAGES} stage_layers={layers}", group(small), group(H100))).memory
        for layers in ("2,10", "10,2")
    }

    assert fits["2,10"].fits
    assert not fits["10,2"].fits
    assert fits["10,2"].capacity_bytes == 8e9


def test_a_division_of_blocks_is_the_best_of_all():
    job = on_groups(STAGES, group(), group(H100))

    found = best_group_division(job, load_book(job.cluster))

    steps = {
        (first, 12 - first): step_s(
            on_groups(f"{STAGES} stage_layers={first},{12 - first}", group(), group(H100))
        )
        for first in range(1, 12)
    }
    assert found.what == "blocks"
    assert found.parts == min(steps, key=steps.get)
    assert found.step_time_s == pytest.approx(min(steps.values()), rel=1e-9)
    assert found.equal_step_time_s == pytest.approx(steps[6, 6], rel=1e-9)
    assert found.parts[0] < found.parts[1]


def test_a_division_of_micro_batches_is_the_best_of_all():
    job = on_groups(REPLICAS, group(), group(H100))

    found = best_group_division(job, load_book(job.cluster))

    steps = {
        (first, 24 - first): step_s(
            on_groups(REPLICAS, group(micro_batches=first), group(H100, micro_batches=24 - first))
        )
        for first in range(1, 24)
    }
    assert found.what == "micro_batches"
    assert found.parts == min(steps, key=steps.get)
    assert found.equal_step_time_s == pytest.approx(steps[12, 12], rel=1e-9)
    assert found.speedup_ratio > 1.2


def test_a_division_over_stages_with_a_slow_device_is_the_best_of_all():
    slow = make_job(**SHAPE, cluster="dgx-a100:2", plan=STAGES, site={"slow": "device=0:0.7"})
    plans = {
        (first, 12 - first): slow.plan.model_copy(update={"stage_layers": (first, 12 - first)})
        for first in range(1, 12)
    }

    found = best_group_division(slow, load_book(slow.cluster))

    steps = {parts: step_s(slow.model_copy(update={"plan": plan})) for parts, plan in plans.items()}
    assert found.names == ("stage 0", "stage 1")
    assert found.parts == min(steps, key=steps.get)
    assert found.step_time_s == pytest.approx(min(steps.values()), rel=1e-9)
    assert found.parts[0] < 6


def test_what_cannot_be_divided_or_searched_is_refused():
    for job in (
        make_job(),
        on_groups("dp=2 tp=2 pp=4 mbs=1 gbs=64 precision=fp16 vpp=3 sp", group(), group(H100)),
    ):
        with pytest.raises(SpecError):
            best_group_division(job, load_book(job.cluster))
    cluster = {"groups": [group(), group(H100)], "tiers": [NVLINK, network(25)]}
    with pytest.raises(SpecError, match="not supported yet"):
        make_job(**SHAPE, cluster=cluster, plan="auto")
