"""States in the free memory of peer devices (`activations:peer`): what it holds, and what it costs."""

import pytest
from conftest import make_job

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.spec.memory_tiers import Storage
from flopcast.spec.plan import Plan

PLAN = "dp=8 mbs=2 gbs=32 zero=2 precision=bf16"


STATES = "optimizer:peer,parameters:peer"


def report_of(offload, rate=4e11, capacity=1e13, zero=2):
    """A job on nodes without host memory, whose peers copy at `rate` with all devices together."""
    job = make_job(plan=PLAN.replace("zero=2", f"zero={zero}"), stack="generic")
    plan = Plan.model_validate(job.plan.model_dump() | {"offload": offload})
    peer = Storage(capacity_bytes=capacity, read_bytes_per_s=rate, write_bytes_per_s=rate)
    group = job.cluster.groups[0]
    memory = None if "host" not in offload else group.node.memory
    node = group.node.model_copy(update={"peer": peer, "memory": memory})
    cluster = job.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return predict(job.model_copy(update={"cluster": cluster, "plan": plan}))


def test_peers_hold_what_the_host_would_hold_up_to_their_capacity():
    (on_peers,), (on_host,) = (report_of(f"activations:{tier}").memory.tiers for tier in ("peer", "host"))
    (full,) = report_of("activations:peer", capacity=0.9 * on_peers.expected_bytes).memory.tiers

    assert on_peers.by_category == pytest.approx(on_host.by_category)
    assert (on_peers.tier, on_peers.verdict, full.verdict) == ("peer", "fits", "does not fit")


def test_states_on_peers_leave_the_device_and_gradients_stay_for_its_update():
    kept, placed = (report_of(offload, zero=3).memory for offload in ("none", STATES))
    (on_peers,) = placed.tiers
    freed_bytes = kept.resident_bytes - placed.resident_bytes

    assert "gradients" not in on_peers.by_category
    assert 8 * freed_bytes == pytest.approx(on_peers.expected_bytes)


def test_faster_peers_are_never_slower_and_endless_ones_cost_nothing():
    for offload, zero in {"activations:peer": 2, "optimizer:peer": 2, STATES: 3}.items():
        rates = (1e10, 1e11, 1e12, 1e30)
        steps = [report_of(offload, rate, zero=zero).clean_step_time_s for rate in rates]

        assert steps == sorted(steps, reverse=True)
        assert steps[0] > 1.5 * steps[3]
        assert steps[3] == pytest.approx(report_of("none", zero=zero).clean_step_time_s)


def test_an_optimizer_on_slow_peers_takes_the_time_of_reading_and_writing_its_states():
    report = report_of("optimizer:peer", 1e9)
    (held,) = report.memory.tiers
    others_s = report_of("none").clean_step_time_s

    copies_s = 2 * held.expected_bytes / 1e9  # states are written after they are read
    assert copies_s < report.clean_step_time_s <= 1.001 * (copies_s + others_s)


def test_gradients_for_an_optimizer_on_peers_stay_on_the_device():
    with pytest.raises(SpecError, match="the optimizer reads the gradients from the memory"):
        report_of("optimizer:peer,gradients:host")


def test_slow_peers_take_the_time_of_their_copies():
    """Two thirds are written beside the forward pass, and the rest beside reading in the backward pass."""
    rate, report = 1e9, report_of("activations:peer", 1e9)
    (held,) = report.memory.tiers
    micro_batches = report.job.plan.global_batch // (8 * report.job.plan.micro_batch)
    copies_s = (2 / 3 + 1) * micro_batches * held.expected_bytes / rate

    assert report.clean_step_time_s == pytest.approx(copies_s, rel=0.01)
