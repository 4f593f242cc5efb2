"""economics/checkpoint_cost.py: the interval, the lost time and the faults of a job's checkpoints."""

import math

import pytest
from all_cases import all_cases
from conftest import make_job
from saving_cases import STORE

from flopcast.economics.failures import best_interval_s
from flopcast.economics.run import phase_of
from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.spec.checkpoints import METHODS, Checkpoint
from flopcast.spec.memory_tiers import HostMemory
from flopcast.spec.operations import Reliability

OFTEN = Reliability(device_time_between_failures_s=8 * 7200.0, restart_s=600.0)


def report_of(store=STORE, reliability=OFTEN, host=None, **checkpoint):
    job = make_job(plan="dp=8 mbs=1 gbs=16 precision=fp16")
    cluster = job.cluster.model_copy(update={"file_system": store, "reliability": reliability})
    if host is not None:
        group = cluster.groups[0]
        node = group.node.model_copy(update={"memory": HostMemory(capacity_bytes=host, bytes_per_s=2e11)})
        cluster = cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    job = job.model_copy(update={"cluster": cluster, "checkpoint": Checkpoint(**checkpoint)})
    return predict(job, load_book(job.cluster))


@all_cases("method", METHODS)
def test_without_a_period_the_interval_is_that_of_daly(method):
    cost = report_of(method=method).checkpoint

    expected = max(best_interval_s(cost.times.lost_s, 7200.0), cost.times.least_work_s, cost.step_s)
    assert cost.interval_s == pytest.approx(expected)


def test_the_best_interval_loses_the_least_time():
    cost = report_of(method="synchronous").checkpoint
    steps = [cost.interval_steps * ratio for ratio in (0.5, 0.8, 1.0, 1.25, 2.0)]

    walls = []
    for number in steps:
        report = report_of(method="synchronous", every_s=number * cost.step_s)
        walls.append(report.checkpoint.lost(report.job.cluster).wall.value)

    assert min(walls) == walls[2]


def test_young_is_the_limit_of_rare_failures():
    rare = Reliability(device_time_between_failures_s=8e12, restart_s=600.0)
    cost = report_of(reliability=rare, method="synchronous").checkpoint

    assert cost.interval_s == pytest.approx(math.sqrt(2 * cost.times.lost_s * 1e12), rel=1e-3)


def test_a_run_loses_the_time_of_the_checkpoints_that_its_job_describes():
    report = report_of(method="asynchronous", every_steps=200)
    times = report.checkpoint.times
    typed = OFTEN.model_copy(
        update={
            "checkpoint_s": times.lost_s,
            "checkpoint_interval_s": 200 * report.step_time_s,
            "restart_s": 600.0 + times.restore_s + times.background_s,
        }
    )
    other = report_of(reliability=typed)
    cluster = other.job.cluster
    plain = predict(other.job.model_copy(update={"checkpoint": None}), load_book(cluster))

    described, stated = (phase_of("", 1e9, each.cost, cluster) for each in (report, plain))

    assert described.wall_s.value == pytest.approx(stated.wall_s.value)


def test_a_step_does_not_depend_on_checkpoints():
    job = report_of().job.model_copy(update={"checkpoint": None})

    assert predict(job, load_book(job.cluster)).step_time_s == report_of().step_time_s


def faults(**changes):
    with pytest.raises(SpecError) as caught:
        report_of(**changes).checkpoint  # noqa: B018 - the property raises
    return {problem.field: problem for problem in caught.value.problems}


def test_a_period_shorter_than_its_write_names_the_least_period():
    slow = STORE.model_copy(update={"write_bytes_per_s": 1e9})

    (steps,) = faults(store=slow, every_steps=1).values()
    least = int(steps.allowed.split()[0])
    (seconds,) = faults(store=slow, every_s=1e-3).values()

    assert (steps.field, steps.fix) == ("checkpoint.every_steps", f"set checkpoint.every_steps to {least}")
    assert report_of(store=slow, every_steps=least).checkpoint is not None
    assert faults(store=slow, every_steps=least - 1)
    assert seconds.field == "checkpoint.every_s"


def test_every_fault_of_room_and_time_is_reported_together():
    full = STORE.model_copy(update={"capacity_bytes": 1e9, "write_bytes_per_s": 1e9})

    found = faults(store=full, host=2e9, every_steps=1)

    assert set(found) == {"checkpoint.every_steps", "checkpoint.to", "checkpoint.method"}
    assert faults(host_bytes=1e9)["checkpoint.host_bytes"].fix.startswith("set checkpoint.method to")


def test_methods_that_write_while_they_copy_need_little_memory():
    for method in ("chunked", "lazy", "coalesced", "synchronous"):
        assert report_of(host_bytes=1e9, method=method).checkpoint is not None
