"""timeline/contention.py: how much of a message's time compute loses, by hand and by what is conserved."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from workbench import priced_job, priced_plans, repriced

from flopcast.operators.base import AbstractMessage
from flopcast.spec.plan import Plan
from flopcast.timeline.contention import lost_executions
from flopcast.timeline.program import simulate
from flopcast.timeline.step import run_step
from flopcast.workload.program import FIRST, LAST, MIDDLE, ONLY, POSITIONS, WHEN

MODEL = {
    "hidden": 256,
    "vocabulary": 512,
    "blocks": [{"count": 8, "mixer": {"heads": 4}, "feed_forward": {"ffn_hidden": 1024}}],
}
REDUCED = {"base": "megatron-2022", "gradients": {"overlap": True}}
SHARDED = {"base": "megatron-core", "gradients": {"overlap": True, "copies": []}}


def priced(stack, plan, share=1.0, **parts):
    """A small model whose messages take a part `share` of what the device's collectives take."""
    stack = stack | {"contention": {"kernel_share": share}}
    return priced_job(make_job(model=MODEL, stack=stack, plan=plan, **parts))


def beside_compute(priced):
    """Items that run beside compute, each once."""
    found = {id(i): i for segments in priced.programs.passes for s in segments for i in s.items}
    return [item for item in found.values() if item.overlapped]


def slowdown(priced):
    return priced.cluster.node.device.collective_slowdown_fraction


def test_what_waits_for_its_messages_loses_nothing_to_them():
    alone = priced({"base": "megatron-2022"}, "dp=2 tp=4 gbs=16 precision=fp16")
    messages = [
        item
        for segments in alone.programs.passes
        for segment in segments
        for item in segment.items
        if isinstance(item.work, AbstractMessage)
    ]

    assert messages
    assert all(not lost_executions(item, alone).any() for item in messages)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_message_beside_compute_costs_the_devices_fraction_times_the_share_of_its_kernels(share):
    one = priced(SHARDED, "dp=8 zero=3 gbs=32 precision=bf16", share)
    gathers = [item for item in beside_compute(one) if item.name == "parameters.gather"]

    assert gathers
    for item in gathers:
        lost = lost_executions(item, one)
        expected = slowdown(one) * share * np.array(WHEN[item.when])[:, None, None] * item.count[None]
        np.testing.assert_allclose(*np.broadcast_arrays(lost, expected))  # one position may stand for all


def test_a_reduction_on_one_stage_is_lost_where_it_runs():
    """In the last micro-batch, or the only one."""
    one = priced(REDUCED, "dp=8 gbs=32 precision=fp16")
    reductions = [item for item in beside_compute(one) if item.when == "last"]

    assert reductions
    for item in reductions:
        lost = lost_executions(item, one)[:, 0, 0]
        assert lost[[FIRST, MIDDLE]].tolist() == [0.0, 0.0]
        assert lost[[LAST, ONLY]] == pytest.approx(slowdown(one) * item.count[0, 0])


@pytest.mark.parametrize("micro_batches", [1, 4, 32])
def test_on_a_pipeline_a_stage_loses_to_its_reductions_once_and_its_programs_lose_nothing(micro_batches):
    many = priced(REDUCED, f"dp=2 pp=4 gbs={2 * micro_batches} precision=fp16")
    reduce_s = 2.0

    def seconds(item):
        of_block = item.name == "gradients.reduce" and item.work.message_bytes.item() > 0
        return {"mlp.up.dgrad": 4.0}.get(
            item.name, 0.0
        ) + reduce_s * of_block / item.count.item() ** of_block

    played = repriced(many, seconds)
    backward = simulate(played.programs.backward, played, attribute=True)
    last = LAST if micro_batches > 1 else ONLY

    assert backward.duration_s[last] == pytest.approx(backward.duration_s[MIDDLE])
    blocks = round(float(backward.duration_s[last].min()) / 4.0)
    assert backward.lost_s[last].min() == pytest.approx(slowdown(many) * blocks * reduce_s)


@all_cases("reduce_s", [0.1, 1.0, 3.0, 30.0])
@all_cases("plan", ["dp=8 gbs=8", "dp=2 pp=4 gbs=2", "dp=2 pp=4 gbs=32", "dp=2 pp=4 vpp=2 gbs=8"])
def test_reductions_beside_compute_never_take_longer_than_behind_it(plan, reduce_s):
    def step_s(overlap):
        stack = {"base": "megatron-2022", "gradients": {"overlap": overlap}}
        one = priced(stack, f"{plan} precision=fp16")
        elements = sum(weight.elements.sum() for weight in one.programs.workload.layers[1].weights)

        def seconds(item):
            if item.name == "gradients.reduce":  # as much for an element in both
                return reduce_s * float(item.work.message_bytes.max()) / 4 / float(elements)
            return {"mlp.up": 1.0, "mlp.up.dgrad": 2.0}.get(item.name, 0.0)

        return run_step(repriced(one, seconds)).step_time_s

    assert step_s(True) <= step_s(False) * (1 + 1e-9)


def test_plans_of_one_batch_lose_what_each_would_alone():
    job = make_job(model=MODEL, stack=REDUCED)
    texts = [{"dp": 8, "pp": 1}, {"dp": 4, "pp": 2}, {"dp": 2, "pp": 4}]
    plans = [Plan(gbs=32, precision="fp16", **text) for text in texts]

    together = priced_plans(job, plans)
    alone = [priced_plans(job, [plan]) for plan in plans]

    for number, one in enumerate(alone):
        for joint, single in zip(beside_compute(together), beside_compute(one), strict=True):
            in_batch = np.broadcast_to(
                lost_executions(joint, together),
                (len(POSITIONS), 3, together.programs.stages.chunk_counts.shape[1]),
            )
            assert in_batch[:, number, 0] == pytest.approx(
                np.broadcast_to(lost_executions(single, one), (len(POSITIONS), 1, 1))[:, 0, 0]
            )


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_no_step_is_shorter_for_messages_that_take_more_from_compute(share):
    plan = "dp=8 zero=3 gbs=16 precision=bf16"
    less, more = (run_step(priced(SHARDED, plan, part)).step_time_s for part in (share / 2, share))

    assert less <= more


@pytest.mark.parametrize(("compute_s", "gather_s"), [(4.0, 1.0), (4.0, 3.9), (1.0, 1.0)])
def test_messages_that_hide_under_compute_lengthen_it_by_no_more_than_their_part(compute_s, gather_s):
    """Of each block, compute takes w seconds and its gather c: between w and w + r c, or c where longer."""
    one = priced(SHARDED, "dp=8 zero=3 gbs=16 precision=bf16")
    in_block = 12 * 256**2

    def seconds(item):
        if item.name == "parameters.gather":
            of_block = item.work.message_bytes.item() * item.count.item() >= in_block
            return gather_s * of_block / max(item.count.item(), 1e-9)
        return compute_s if item.name == "mlp.up" else 0.0

    played = simulate(repriced(one, seconds).programs.forward, repriced(one, seconds), attribute=False)
    each_s = (float(played.duration_s[MIDDLE, 0, 0]) - compute_s - gather_s) / 7

    assert each_s == pytest.approx(max(compute_s + slowdown(one) * gather_s, gather_s))


def test_a_device_whose_collectives_need_nothing_of_it_loses_nothing():
    one = priced(SHARDED, "dp=8 zero=3 gbs=16 precision=bf16")
    device = one.cluster.node.device.model_copy(update={"collective_slowdown_fraction": 0.0})
    groups = tuple(
        group.model_copy(update={"node": group.node.model_copy(update={"device": device})})
        for group in one.cluster.groups
    )
    free = replace(one, cluster=one.cluster.model_copy(update={"groups": groups}))

    assert all(not lost_executions(item, free).any() for item in beside_compute(free))
    assert any(lost_executions(item, one).any() for item in beside_compute(one))
