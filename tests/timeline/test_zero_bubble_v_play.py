"""ZB-V played on real programs: no bubble where passes are equal, hops both ways, ends on one stage."""

from itertools import pairwise

import numpy as np
import pytest
from conftest import make_job
from single_calls import step_seconds
from workbench import only, priced_job, repriced

from flopcast.memory.in_flight import depths
from flopcast.memory.peak import peak_memory
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT
from flopcast.timeline.pipeline import graph, play
from flopcast.timeline.step import run_step

EQUAL = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 1.0, ("mlp.up.wgrad", "backward"): 1.0}
USUAL = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 1.5, ("mlp.up.wgrad", "backward"): 0.5}
PLAN = "pp=4 vpp=2 dp=2 gbs=24 precision=fp16 schedule=zb_v"


def job_of(stack="megatron-2022", plan=PLAN, cluster="dgx-a100:1"):
    return make_job(stack=stack, plan=plan, cluster=cluster)


def test_a_step_of_equal_passes_is_its_work_alone():
    priced = repriced(priced_job(job_of()), only(EQUAL))

    step_s = run_step(priced).step_time_s

    assert step_s == pytest.approx(2 * 12 * 3.0)  # two blocks a stage, twelve micro-batches, no bubble
    assert float(step_seconds(priced)[0]) == pytest.approx(step_s, rel=1e-9)


def test_a_step_of_unequal_passes_waits_for_the_longest_less_the_shortest():
    priced = repriced(priced_job(job_of()), only(USUAL))

    step_s = run_step(priced).step_time_s

    assert step_s == pytest.approx(2 * (12 * 3.0 + 3 * (1.5 - 0.5)))
    assert float(step_seconds(priced)[0]) == pytest.approx(step_s, rel=1e-9)


def test_steps_without_a_common_stop_repeat_after_the_longest_span_of_a_stage():
    pipeline, seconds, free_s, ends = (
        graph("zb_v", 4, 2, 12, "overlapped"),
        (1.0, 1.3, 0.9),
        np.zeros(4),
        [],
    )
    task_s = np.choose(pipeline.order.kind.ravel(), seconds)
    nodes = pipeline.node_of_task.reshape(4, -1)
    spans = []
    for _ in range(4):
        run = play(pipeline, task_s, np.zeros(9), free_s)
        free_s = run.end_s[nodes[:, -1]]
        spans.append(free_s - run.start_s[nodes[:, 0]])
        ends.append(free_s.max())

    periods = [later - sooner for sooner, later in pairwise(ends)]

    assert periods == pytest.approx([spans[0].max()] * 3)


def test_a_micro_batch_goes_down_the_stages_up_and_the_same_way_back():
    timeline = run_step(priced_job(job_of()))

    keys = zip(timeline.kind, timeline.stage, timeline.chunk, timeline.micro_batch, strict=True)
    end = dict(zip(keys, timeline.end_s, strict=True))
    way = [(stage, 0) for stage in range(4)] + [(stage, 1) for stage in reversed(range(4))]
    assert len(end) == 3 * 4 * 2 * 12
    for m in range(12):
        moments = [end[FORWARD, *place, m] for place in way]
        moments += [end[BACKWARD, *place, m] for place in reversed(way)]
        assert moments == sorted(moments)
        assert all(end[WEIGHT, *place, m] > end[BACKWARD, *place, m] for place in way)


def test_a_hop_costs_the_same_pair_of_stages_the_same_whichever_way_a_chunk_goes():
    """One micro-batch, hops alone: three down, three up, and the same for gradients."""
    pipeline = graph("zb_v", 4, 2, 1, "overlapped")
    transfer_s = np.zeros(9)
    transfer_s[1::2] = [1.0, 10.0, 100.0, 1000.0]  # activations between stages 0-1, 1-2, 2-3, and 3-0: none
    transfer_s[2::2] = [
        9000.0,
        2.0,
        20.0,
        200.0,
    ]  # gradients that stages 0 (round to 3), 1, 2 and 3 would send

    run = play(pipeline, np.zeros(pipeline.order.kind.size), transfer_s, np.zeros(4))

    assert run.end_s.max() == pytest.approx(2 * 111.0 + 2 * 222.0)


@pytest.mark.parametrize("cluster", ["dgx-a100:1", "dgx-a100:2"])
def test_both_views_sum_to_the_step(cluster):
    nodes = int(cluster[-1])
    timeline = run_step(
        priced_job(job_of(plan=PLAN.replace("dp=2", f"tp={nodes} dp=2 sp"), cluster=cluster))
    )

    stage_s = sum(share.path_s for share in timeline.bottleneck_attribution) + timeline.bottleneck_waits_s
    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert stage_s == pytest.approx(timeline.step_time_s, rel=1e-9)


def test_the_ends_of_the_model_need_memory_on_the_first_stage_alone():
    programs = priced_job(job_of()).programs

    memory = peak_memory(programs)

    classes = programs.stages.of(0).stage_class.tolist()
    assert classes[1:] == [classes[1]] * 3
    assert memory.worst() == classes[0]
    more = programs.parameters[0, classes[0]] - programs.parameters[0, classes[1]]
    assert more == 2 * 50304 * 1024 + 2 * 1024  # tables of embedding and head, final norm


def test_equal_chunks_fill_every_stage_alike():
    order = SCHEDULES["zb_v"].order(4, 2, 16)

    held = [depths(order, stage, (0, 1), 2) for stage in range(4)]

    assert [int((d.in_flight + d.waiting).sum(axis=1).max()) for d in held] == [8, 8, 8, 8]
