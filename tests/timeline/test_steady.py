"""timeline/steady.py: a step that is extended by its period equals the step simulated in full."""

from collections import defaultdict

import numpy as np
import pytest
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.timeline.critical_path import busy_seconds
from flopcast.timeline.step import Timeline

CASES = (  # stack, plan without its global batch; micro-batches that do not divide by the stages among them
    ("megatron-core", "pp=4 dp=2", 1024),
    ("megatron-core", "pp=4 dp=2", 5003),
    ("megatron-core", "pp=8", 1001),
    ("megatron-core", "pp=4 dp=2 vpp=2", 1024),
    ("megatron-core", "pp=4 dp=2 vpp=2 zero=1 recompute=full", 1024),
    ("megatron-core", "pp=4 dp=2 stage_layers=5,3,4,4", 1025),
    ("megatron-core", "pp=4 dp=2 schedule=zb_h1", 1027),
    ("megatron-core", "pp=4 dp=2 schedule=zb_h2", 1024),
    ("megatron-core", "pp=4 dp=2 schedule=zb_v vpp=2", 1026),
    ("megatron-core", "pp=4 dp=2 schedule=eager_1f1b", 1025),
    ("megatron-core", "dp=8", 20_000),
    ("megatron-core", "dp=8 zero=2", 5000),
    ("deepspeed-zero", "dp=8 zero=3", 5000),
    ("megatron-deepspeed", "pp=4 dp=2 zero=1", 1027),
    ("gpt-neox-deepspeed", "pp=4 dp=2 zero=1 recompute=full", 1024),
    ("megatron-core", "pp=8", 275),
    ("megatron-core", "pp=4 dp=2 vpp=2", 132),
)
COLUMNS = ("stage", "kind", "chunk", "micro_batch", "position", "row", "start_s", "end_s")


def played(stack, plan, micro_batches):
    replicas = next((int(word[3:]) for word in plan.split() if word.startswith("dp=")), 1)
    text = f"{plan} mbs=1 gbs={micro_batches * replicas}"
    job = make_job(model="llama-3.2-1b", cluster="dgx-h100:1", stack=stack, plan=text, batch={"seq": 2048})
    return predict(job, load_book(job.cluster)).timeline


def columns(timeline):
    return [getattr(timeline, name) for name in COLUMNS]


def seconds(shares):
    found = defaultdict(float)
    for share in shares:
        found[share.item] += share.slope_s
    return found


def test_an_extended_step_equals_the_whole_play_in_time_in_all_its_shares_and_in_every_task():
    wrong, whole_plays = [], []
    for case in CASES:
        timeline = played(*case)
        run = timeline.run
        if timeline.steady is None:
            whole_plays.append(case)
        whole = Timeline(play=lambda run=run: run)
        views = (
            (timeline.shares, whole.shares),
            (timeline.bottleneck_attribution, whole.bottleneck_attribution),
            (timeline.mean_attribution, whole.mean_attribution),
        )
        step_s = run.step_time_s
        right = timeline.step_time_s == pytest.approx(step_s, rel=1e-12)
        right &= timeline.reduce_start_s.tolist() == pytest.approx(run.reduce_start_s.tolist(), rel=1e-12)
        right &= timeline.bottleneck == busy_seconds(run).argmax()
        for ours, theirs in zip(columns(timeline), columns(whole), strict=True):
            right &= ours.shape == theirs.shape and np.allclose(
                ours, theirs, rtol=1e-12, atol=1e-12 * step_s
            )
        for ours, theirs in views:
            ours_s, theirs_s = seconds(ours), seconds(theirs)
            right &= all(
                ours_s[item] == pytest.approx(theirs_s[item], rel=1e-9, abs=1e-12 * step_s)
                for item in {*ours_s, *theirs_s}
            )
        wrong += [] if right else [case]

    assert wrong == []
    assert whole_plays == []


def test_a_step_of_few_tasks_or_without_a_period_is_played_whole():
    assert played("megatron-core", "pp=4 dp=2", 96).steady is None
    assert played("megatron-core", "pp=4 dp=2 schedule=gpipe", 4096).steady is None
