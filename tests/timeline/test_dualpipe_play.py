"""DualPipe on real programs: the halves mirror each other, pairs hide exchanges, memory of two copies."""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from single_calls import step_seconds
from workbench import only, priced_job, repriced

from flopcast.cost.placement import axis_group
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.screen import screen
from flopcast.spec.mirrored import halved
from flopcast.spec.plan import Plan, batch_plans, one_plan
from flopcast.timeline.step import run_step
from flopcast.workload.program import ALONE, FIRST, LAST, MIDDLE

EQUAL = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 1.0, ("mlp.up.wgrad", "backward"): 1.0}
EXPERTS = {
    "hidden": 1024,
    "vocabulary": 50304,
    "blocks": [
        {
            "count": 8,
            "mixer": {"heads": 16},
            "feed_forward": {"num_experts": 8, "top_k": 2, "expert_hidden": 1024},
        }
    ],
}
DUAL = "pp=4 dp=2 gbs=24 precision=fp16 schedule=dualpipe"
FOLDED = "pp=2 vpp=2 dp=4 gbs=24 precision=fp16 schedule=dualpipe_v"


def job_of(plan, **parts):
    return make_job(**({"stack": "megatron-2022", "plan": plan, "cluster": "dgx-a100:1"} | parts))


def test_a_step_is_its_work_and_the_bubble_of_the_table():
    priced = repriced(priced_job(job_of(FOLDED)), only(EQUAL))

    step_s = run_step(priced).step_time_s

    chunk_s = 2.0  # eight blocks in four chunks: F, B and W of two seconds each
    assert step_s == pytest.approx(6 * 2 * 3 * chunk_s + (2 - 1) * (5 - 3) * chunk_s)
    assert float(step_seconds(priced)[0]) == pytest.approx(step_s, rel=1e-9)


def test_dualpipe_is_dualpipe_v_on_half_the_stages_with_twice_the_replicas():
    dual, folded = (predict(job, load_book(job.cluster)) for job in map(job_of, (DUAL, FOLDED)))

    assert dual.timeline.step_time_s == pytest.approx(folded.timeline.step_time_s, rel=1e-12)
    assert dual.metrics.mfu_ratio == pytest.approx(folded.metrics.mfu_ratio, rel=1e-12)
    assert dual.memory.expected_bytes == pytest.approx(folded.memory.expected_bytes, rel=1e-12)
    assert dual.job.plan.pipeline_parallel == 4  # the report shows the plan as it was written


def test_a_rank_holds_two_copies_of_what_it_holds_under_1f1b():
    plans = (DUAL, DUAL.replace("schedule=dualpipe", "schedule=1f1b"))
    both = [priced_job(job_of(plan)).programs for plan in plans]

    dual, plain = (programs.parameters[0, programs.stages.of(0).stage_class] for programs in both)

    assert dual.tolist() == (plain + plain[::-1])[:2].tolist()  # stage s and stage P - 1 - s of four


def test_the_sum_of_gradients_joins_both_halves():
    """Each rank sums with the ranks of its own stage, and with those of the stage that mirrors it."""
    plans = one_plan(Plan(dp=4, tp=2, pp=8, gbs=64, schedule="dualpipe", zero=1))

    joined, shards = (axis_group(axis, halved(plans), 8) for axis in ("dp", "dp_shard"))
    written = axis_group("dp", plans, 8)

    assert joined.ranks.item() == shards.ranks.item() == 2 * written.ranks.item() == 8
    assert joined.nodes.item() == 2 * written.nodes.item() == 2  # a stage fills a node of eight ranks
    assert axis_group("world", halved(plans), 8).ranks.item() == 64


@all_cases("overlap", ["none", "other_micro_batch"])
def test_exchanges_are_hidden_in_pairs_alone(overlap):
    host = {"forward_item_s": "0 s", "backward_item_s": "0 s"}  # which would hide these small exchanges
    stack = {"base": "megatron-core", "experts": {"exchange_overlap": overlap}, "host": host}
    job = job_of("pp=2 vpp=2 dp=4 ep=4 gbs=64 mbs=1 schedule=dualpipe_v", stack=stack, model=EXPERTS)

    run = run_step(priced_job(job)).run

    forward, backward = run.forward.duration_s, run.backward.duration_s
    hidden = overlap != "none"
    assert (forward[MIDDLE] < forward[ALONE]).all() == hidden
    assert (backward[MIDDLE] < backward[ALONE]).all() == hidden
    assert np.array_equal(forward[ALONE], forward[FIRST])
    assert np.array_equal(backward[ALONE], backward[LAST])
    order = run.played.graph.order
    at = run.of_task.position.reshape(order.kind.shape)
    assert (at[order.paired] != ALONE).all()


def test_a_search_sees_the_memory_and_the_time_of_the_plan_that_is_written():
    """Also of batches for which stages hold less than they ever do."""
    job = job_of(DUAL)
    plans = [job.plan.model_copy(update={"global_batch": gbs}) for gbs in (16, 20, 32, 64)]
    book = load_book(job.cluster)

    found = screen(job, batch_plans(plans), book)

    alone = [predict(job.model_copy(update={"plan": plan}), book) for plan in plans]
    assert found.possible.all()
    used = [report.memory.device_used_bytes for report in alone]
    assert found.device_used_bytes.tolist() == pytest.approx(used, rel=1e-12)
    steps_s = [report.timeline.step_time_s for report in alone]
    assert found.step_time_s.tolist() == pytest.approx(steps_s, rel=0.065)  # estimates


@all_cases("plan", [DUAL, FOLDED])
def test_both_views_sum_to_the_step(plan):
    timeline = run_step(priced_job(job_of(plan)))

    stage_s = sum(share.path_s for share in timeline.bottleneck_attribution) + timeline.bottleneck_waits_s
    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert stage_s == pytest.approx(timeline.step_time_s, rel=1e-9)
