"""Jobs that share a network, against closed forms and conservation."""

from itertools import pairwise
from math import sqrt

import pytest

from flopcast.errors import SpecError
from flopcast.jobs import job as described
from flopcast.predictor import Predictor
from flopcast.report.network_use import network_seconds
from flopcast.shared_network import share_network

PREDICTOR = Predictor()
SHARDED = {"model": "llama-3-8b", "plan": "dp=16 gbs=16 zero=3", "stack": "torch-fsdp2"}
EXPOSED = {"model": "gpt3-1.3b", "plan": "dp=16 mbs=1 gbs=16 precision=fp16", "stack": "megatron-2021"}


def job(nodes=2, **options):
    return described(cluster=f"dgx-a100:{nodes}", **options)


def share(*jobs, ratio):
    return share_network(jobs, ratio, PREDICTOR.predict)


def network_s(one):
    return network_seconds(PREDICTOR.predict(one).priced, one.plan.num_micro_batches)


def on_slower_network(one, ratio):
    *tiers, last = one.cluster.tiers
    slower = last.model_copy(update={"bytes_per_s": last.bytes_per_s / ratio})
    cluster = one.cluster.model_copy(update={"tiers": (*tiers, slower)})
    return one.model_copy(update={"cluster": cluster})


def test_the_network_is_occupied_as_long_as_the_bytes_need_and_never_inside_one_node():
    one = job(**EXPOSED)

    assert network_s(on_slower_network(one, 2.0)) == pytest.approx(2 * network_s(one), rel=1e-9)
    alone = job(1, **EXPOSED | {"plan": "dp=8 mbs=1 gbs=16 precision=fp16"})
    assert network_s(alone) == 0.0


def test_without_oversubscription_nobody_is_slowed():
    for each in share(job(**SHARDED), job(**EXPOSED), ratio=1.0):
        assert each.slowdown_ratio == 1.0
        assert set(each.slowed_by) == {1.0}


def test_two_equal_jobs_whose_messages_are_exposed_solve_a_quadratic_equation():
    """The step a + c (1 + u) with the messages of c seconds alone, and u = c (1 + u) / step."""
    one = job(**EXPOSED)
    first, second = share(one, one, ratio=2.0)
    step_s, double_s = (PREDICTOR.predict(on_slower_network(one, r)).step_time_s for r in (1.0, 2.0))
    c = network_s(one)
    assert double_s - step_s == pytest.approx(c, rel=0.05), "the messages of this job are exposed"

    # u (step + c u) = c (1 + u)
    u = (-(step_s - c) + sqrt((step_s - c) ** 2 + 4 * c * c)) / (2 * c)
    assert first.busy_fraction == pytest.approx(u, rel=0.03)
    assert first.slowdown_ratio == pytest.approx((step_s + c * u) / step_s, rel=0.01)
    assert first.slowdown_ratio == second.slowdown_ratio


def test_more_oversubscription_and_more_jobs_never_make_a_step_shorter():
    jobs = job(**SHARDED), job(**EXPOSED), job(4, **SHARDED | {"plan": "dp=32 gbs=32 zero=3"})
    steps = [[each.together.step_time_s for each in share(*jobs, ratio=r)] for r in (1.0, 3.0)]
    for lower, higher in pairwise(steps):
        assert all(b >= a for a, b in zip(lower, higher, strict=True))

    for each in share(*jobs, ratio=3.0):
        assert 1.0 <= max(each.slowed_by) <= each.slowdown_ratio + 1e-6
        assert each.together.step_time_s <= each.always_s * (1 + 1e-12)


def test_jobs_on_different_networks_and_ratios_below_one_are_errors():
    other = described(cluster="dgx-h100:2", **SHARDED)
    with pytest.raises(SpecError) as error:
        share(job(**SHARDED), other, ratio=0.5)

    assert [problem.field for problem in error.value.problems] == [
        "oversubscription", "job 2: cluster.tiers"
    ]  # fmt: skip
    with pytest.raises(SpecError) as error:
        share(job(**SHARDED), ratio=2.0)
    assert error.value.problems[0].field == "jobs"
