"""Zero bubble schedules played: bubbles of the paper, skewed periods, reductions behind the last W."""

from itertools import pairwise

import numpy as np
import pytest
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from single_calls import step_seconds
from workbench import only, priced_job, repriced

from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT
from flopcast.timeline.pipeline import graph, play
from flopcast.timeline.step import run_step

DEPTH = {"zb_h1": 1, "zb_h2": 2}
EACH = pytest.mark.parametrize("name", DEPTH)
BLOCK = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 1.5, ("mlp.up.wgrad", "backward"): 0.5}
OVERLAPPING = {"base": "megatron-2022", "gradients": {"overlap": True}}
SECONDS = st.floats(0.1, 5.0)
SHARE = st.floats(0.05, 1.0)  # of F: W is no longer


def played(name, stages, micro, seconds, free_s):
    """Equal stages, free transfers, from the moments at which the stages are free."""
    pipeline = graph(name, stages, 1, micro, "overlapped")
    task_s = np.choose(pipeline.order.kind.ravel(), seconds)
    return play(pipeline, task_s, np.zeros(1 + 2 * stages), np.asarray(free_s))


def spans(run, micro):
    """First start and last end of every stage."""
    nodes = run.graph.node_of_task.reshape(-1, 3 * micro)
    return run.start_s[nodes[:, 0]], run.end_s[nodes[:, -1]]


def job_of(name, plan="pp=4 dp=2 gbs=24", stack="megatron-2022"):
    return make_job(stack=stack, plan=f"{plan} precision=fp16 schedule={name}")


@EACH
@settings(max_examples=20, deadline=None)
@given(stages=st.integers(1, 6), more=st.integers(0, 5), forward_s=SECONDS, backward_s=SECONDS, share=SHARE)
def test_the_played_bubble_is_that_of_the_paper_s_table(name, stages, more, forward_s, backward_s, share):
    weight_s, micro = share * forward_s, DEPTH[name] * (stages - 1) + 1 + more

    begin, end = spans(
        played(name, stages, micro, (forward_s, backward_s, weight_s), np.zeros(stages)), micro
    )

    # arXiv:2401.10241, Table 2: (p - 1)(F + B - W), (p - 1)(F + B - 2 W)
    bubble = max(end - begin) - micro * (forward_s + backward_s + weight_s)
    expected = max(0.0, (stages - 1) * (forward_s + backward_s - DEPTH[name] * weight_s))
    assert bubble == pytest.approx(expected, abs=1e-9 * end.max())


def test_steps_of_zb_h2_without_a_common_stop_repeat_after_the_longest_span_of_a_stage():
    micro, seconds = 12, (1.0, 1.3, 0.9)
    steps = [played("zb_h2", 4, micro, seconds, np.zeros(4))]
    for _ in range(3):
        steps.append(played("zb_h2", 4, micro, seconds, spans(steps[-1], micro)[1]))

    begin, end = spans(steps[0], micro)

    ends = [spans(step, micro)[1].max() for step in steps]
    assert [later - sooner for sooner, later in pairwise(ends)] == pytest.approx([max(end - begin)] * 3)


@EACH
def test_a_step_of_equal_stages_has_the_paper_s_bubble(name):
    priced = repriced(priced_job(job_of(name)), only(BLOCK))

    step_s = run_step(priced).step_time_s

    # two blocks a stage, twelve micro-batches
    assert step_s == pytest.approx(2 * (12 * 3.0 + 3 * (1.0 + 1.5 - DEPTH[name] * 0.5)))
    assert float(step_seconds(priced)[0]) == pytest.approx(step_s, rel=1e-9)


@EACH
def test_every_task_runs_once_and_weights_come_behind_their_own_backward(name):
    timeline = run_step(priced_job(job_of(name)))

    keys = list(zip(timeline.stage, timeline.micro_batch, timeline.kind, strict=True))
    end = dict(zip(keys, timeline.end_s, strict=True))
    start = dict(zip(keys, timeline.start_s, strict=True))
    assert len(end) == len(keys) == 3 * 4 * 12
    assert all(
        start[s, m, WEIGHT] >= end[s, m, BACKWARD] >= start[s, m, BACKWARD] >= end[s, m, FORWARD]
        for s, m, kind in keys
        if kind == WEIGHT
    )


@EACH
@pytest.mark.parametrize("stack", ["megatron-2022", "megatron-core", OVERLAPPING], ids=str)
def test_both_views_sum_to_the_step(name, stack):
    timeline = run_step(priced_job(job_of(name, stack=stack)))

    stage_s = sum(share.path_s for share in timeline.bottleneck_attribution) + timeline.bottleneck_waits_s
    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert stage_s == pytest.approx(timeline.step_time_s, rel=1e-9)


@EACH
@pytest.mark.parametrize("stack", ["megatron-2022", OVERLAPPING], ids=str)
def test_reductions_end_behind_the_last_weight_gradient_of_their_stage(name, stack):
    timeline = run_step(priced_job(job_of(name, stack=stack)))

    last = [timeline.end_s[(timeline.stage == s) & (timeline.kind == WEIGHT)].max() for s in range(4)]

    assert (timeline.reduce_start_s >= np.array(last)).all()


@EACH
def test_a_faster_item_shortens_a_step_by_its_share(name):
    priced = priced_job(job_of(name))
    timeline = run_step(priced)
    share_s = sum(s.path_s for s in timeline.shares if s.item and s.item.name == "mlp.up.wgrad")

    faster = run_step(
        repriced(priced, lambda i: priced.seconds(i) * (1 - 1e-4 * (i.name == "mlp.up.wgrad")))
    )
    same = run_step(repriced(priced, priced.seconds))

    assert same.step_time_s - faster.step_time_s == pytest.approx(1e-4 * share_s, rel=0.05)


@EACH
def test_a_split_step_is_shorter_than_1f1b_and_longer_than_its_work(name):
    plain, split = (run_step(priced_job(job_of(schedule))) for schedule in ("1f1b", name))

    busiest = max((split.end_s - split.start_s)[split.stage == stage].sum() for stage in range(4))

    assert busiest < split.step_time_s < plain.step_time_s


@EACH
def test_screening_a_real_job_is_within_five_percent(name):
    priced = priced_job(job_of(name, "pp=4 dp=2 mbs=4 gbs=128"))

    assert float(step_seconds(priced)[0]) == pytest.approx(run_step(priced).step_time_s, rel=0.05)
