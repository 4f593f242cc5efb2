"""Micro-batches that differ, played: each as in a step of its kind, in the order of slow simulations."""

from itertools import permutations

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_pipeline import DOWN, SIMULATIONS, UP, Pipe, Task
from workbench import priced_job

from flopcast.schedules import SCHEDULES
from flopcast.timeline.pipeline import critical_path, graph, of_kinds, play
from flopcast.timeline.serial import serial_seconds
from flopcast.timeline.step import run_step

LAWS = settings(max_examples=20, deadline=None)
LENGTHS = (512, 2048, 1024)
ORDERS = ([0, 1, 2, 0, 0, 1, 1, 2], [1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 2, 1])
PARTS = {
    "one device": {"plan": "dp=8 gbs={} precision=fp16"},
    "batched": {"cluster": "dgx-a100:2", "plan": "tp=4 pp=2 dp=2 gbs={} sp recompute=selective"},
    "batched, interleaved": {"cluster": "dgx-a100:2", "plan": "tp=4 pp=2 vpp=2 dp=2 gbs={}"},
    "sequential": {
        "cluster": "perlmutter:4",
        "stack": "gpt-neox-deepspeed",
        "plan": "tp=2 pp=4 dp=2 gbs={} zero=1 recompute=full precision=fp16",
    },
    "overlapped, reduced under the last backward": {
        "cluster": "dgx-a100:2",
        "stack": {
            "base": "megatron-2022",
            "gradients": {"overlap": True},
            "pipeline": {"transfers": "overlapped"},
        },
        "plan": "tp=2 pp=4 dp=2 gbs={} precision=fp16",
    },
    "zero bubble": {
        "cluster": "dgx-a100:2",
        "stack": "megatron-core",
        "plan": "pp=4 dp=4 gbs={} schedule=zb_h1",
    },
}
EACH = pytest.mark.parametrize("name", PARTS)


def job_of(name, batch, micro=8):
    parts = PARTS[name]
    data = next(int(word[3:]) for word in parts["plan"].split() if word.startswith("dp="))
    return make_job(**parts | {"plan": parts["plan"].format(data * micro), "batch": batch})


def listed(order):
    return {"seq": max(LENGTHS), "micro_batches": [{"seq": LENGTHS[kind]} for kind in order]}


def tasks_of(timeline):
    """The columns of a timeline, each task by name."""
    columns = (timeline.kind, timeline.stage, timeline.chunk, timeline.micro_batch)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@EACH
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_task_takes_what_it_takes_in_a_step_of_its_own_kind_alone(name, order):
    mixed = run_step(priced_job(job_of(name, listed(order))))
    alone = [run_step(priced_job(job_of(name, {"seq": length}))) for length in LENGTHS]

    seconds = [dict(zip(tasks_of(one), one.end_s - one.start_s, strict=True)) for one in alone]
    expected = [seconds[order[task[3]]][task] for task in tasks_of(mixed)]
    assert mixed.end_s - mixed.start_s == pytest.approx(expected, rel=1e-9)


@EACH
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_both_views_of_a_mixed_step_sum_to_it(name, order):
    timeline = run_step(priced_job(job_of(name, listed(order))))

    on_path = sum(share.path_s for share in timeline.shares)
    on_stage = sum(share.path_s for share in timeline.bottleneck_attribution) + timeline.bottleneck_waits_s
    assert on_path == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert on_stage == pytest.approx(timeline.step_time_s, rel=1e-9)


@all_cases("order", ORDERS)
def test_without_stages_a_step_is_the_sum_of_its_micro_batches_and_what_is_done_once(order):
    priced = priced_job(job_of("one device", listed(order)))
    alone = [run_step(priced_job(job_of("one device", {"seq": length}))) for length in LENGTHS]

    timeline = run_step(priced)

    passes_s = 0.0
    for place, kind in enumerate(order):
        mine = alone[kind].micro_batch == place
        passes_s += (alone[kind].end_s - alone[kind].start_s)[mine].sum()
    programs = priced.programs
    ends = (programs.update, programs.reduce, programs.synchronise)
    once_s = sum(serial_seconds(items, priced).item() for items in ends)
    assert timeline.step_time_s == pytest.approx(passes_s + once_s, rel=1e-12)


def test_without_stages_the_order_of_the_middle_ones_changes_nothing():
    steps = {
        run_step(priced_job(job_of("one device", listed([0, *middle, 0]), micro=5))).step_time_s
        for middle in permutations([0, 1, 2])
    }

    assert max(steps) == pytest.approx(min(steps), rel=1e-12)


def by_hand(first, second, backward_first):
    """1F1B or GPipe on two stages with free transfers: (F, B) seconds by micro-batch of each stage."""
    number = len(first)
    orders = {
        "1f1b": (
            [
                ("F", 0),
                *(t for m in range(number - 1) for t in (("F", m + 1), ("B", m))),
                ("B", number - 1),
            ],
            [t for m in range(number) for t in (("F", m), ("B", m))],
        ),
        "gpipe": ([*(("F", m) for m in range(number)), *(("B", m) for m in reversed(range(number)))],) * 2,
    }[backward_first]
    clock, ended, todo = [0.0, 0.0], {}, [list(order) for order in orders]
    while any(todo):
        for stage, seconds in enumerate((first, second)):
            if not todo[stage]:
                continue
            kind, m = todo[stage][0]
            needs = {"F": (("F", m, 0) if stage else None), "B": (("B", m, 1) if not stage else None)}[kind]
            if needs is not None and needs not in ended:
                continue
            start = max(clock[stage], ended.get(needs, 0.0))
            ended[kind, m, stage] = clock[stage] = start + seconds[m]["FB".index(kind)]
            todo[stage].pop(0)
    return ended


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_two_stages_with_known_times_end_when_a_walk_by_hand_says(schedule):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        seconds = rng.uniform(0.1, 2.0, (2, 6, 2))  # stage, micro-batch, forward or backward
        order = SCHEDULES[schedule].order(2, 1, 6)
        stage = np.repeat([[0], [1]], order.kind.shape[1], axis=1)
        task_s = seconds[stage, order.micro_batch, order.kind].ravel()

        run = play(graph(schedule, 2, 1, 6, "overlapped"), task_s, np.zeros(5), np.zeros(2))

        ended = by_hand(*seconds, schedule)
        names = zip(order.kind.ravel(), order.micro_batch.ravel(), stage.ravel(), strict=True)
        expected = [ended["FB"[kind], int(m), int(s)] for kind, m, s in names]
        assert run.end_s[run.graph.node_of_task] == pytest.approx(expected, abs=1e-12)


@st.composite
def mixed_pipes(draw, virtual):
    stages = draw(st.integers(2, 5))
    micro = stages * draw(st.integers(2, 3)) if virtual > 1 else draw(st.integers(1, 10))
    rows = draw(st.lists(st.integers(0, 2), min_size=micro, max_size=micro))
    return Pipe(stages, virtual, micro), rows, draw(st.integers(0, 2**32 - 1))


def assert_plays_as_the_oracle(style, case):
    pipe, rows, seed = case
    rng = np.random.default_rng(seed)
    schedule = "interleaved_1f1b" if pipe.virtual > 1 else "1f1b"
    structure = graph(schedule, *pipe, style)
    order = structure.order
    stage = np.repeat(np.arange(pipe.stages)[:, None], order.kind.shape[1], axis=1)
    row = np.array(rows)[order.micro_batch].ravel()
    task_s = rng.uniform(0.1, 2.0, order.kind.size)
    transfer_s = rng.uniform(0, 0.5, (3, 1 + 2 * pipe.stages))
    transfer_s[:, 0] = 0.0
    free_s = rng.uniform(0, 3, pipe.stages)
    columns = (order.kind, stage, order.chunk, order.micro_batch)
    tasks = [
        Task((DOWN, UP)[kind], s, chunk, m)
        for kind, s, chunk, m in zip(*(column.ravel().tolist() for column in columns), strict=True)
    ]
    hops = {
        (kind, s, m): transfer_s[rows[m], 1 + 2 * s + (kind == UP)]
        for kind in (DOWN, UP)
        for s in range(pipe.stages)
        for m in range(pipe.micro_batches)
    }

    run = play(of_kinds(structure, row), task_s, transfer_s.ravel(), free_s)

    _, ended = SIMULATIONS[style](pipe, dict(zip(tasks, task_s, strict=True)), hops, free_s)
    assert run.end_s[run.graph.node_of_task] == pytest.approx([ended[task] for task in tasks], abs=1e-9)
    path, lags = critical_path(run, int(run.graph.last[0]))
    total = run.start_s[path[-1]] + run.duration_s[path].sum() + run.transfer_s[lags].sum()
    assert total == pytest.approx(run.end_s[run.graph.last[0]])


@pytest.mark.parametrize("style", SIMULATIONS)
@LAWS
@given(case=mixed_pipes(virtual=1))
def test_1f1b_with_hops_of_their_own_plays_as_the_slow_simulation(style, case):
    assert_plays_as_the_oracle(style, case)


@pytest.mark.parametrize("style", ["overlapped", "batched"])
@LAWS
@given(case=mixed_pipes(virtual=2))
def test_interleaved_1f1b_with_hops_of_their_own_plays_as_the_slow_simulation(style, case):
    assert_plays_as_the_oracle(style, case)


@all_cases("order", ORDERS)
@all_cases("name", ["batched", "batched, interleaved", "sequential"])
def test_a_mixed_step_is_the_slow_simulation_of_the_times_of_steps_of_one_kind(name, order):
    priced = priced_job(job_of(name, listed(order)))
    alone = [priced_job(job_of(name, {"seq": length})) for length in LENGTHS]

    timeline = run_step(priced)

    steps = [run_step(one) for one in alone]
    seconds = [dict(zip(tasks_of(one), one.end_s - one.start_s, strict=True)) for one in steps]
    stages, chunks = int(timeline.stage.max()) + 1, int(timeline.chunk.max()) + 1
    names = {task: Task((DOWN, UP)[task[0]], *task[1:]) for task in tasks_of(timeline)}
    task_s = {named: seconds[order[task[3]]][task] for task, named in names.items()}
    hops = {
        (kind, s, m): sum(
            alone[order[m]].seconds(item)
            for item in getattr(alone[order[m]].programs.hop_across, ("forward", "backward")[kind == UP])
        )
        for kind in (DOWN, UP)
        for s in range(stages)
        for m in range(len(order))
    }
    style = priced.programs.transfers(interleaved=chunks > 1)
    _, ended = SIMULATIONS[style](Pipe(stages, chunks, len(order)), task_s, hops, timeline.update_s)
    expected = [ended[names[task]] for task in tasks_of(timeline)]
    assert timeline.end_s == pytest.approx(expected, rel=1e-9)


def test_ranks_that_differ_end_with_the_slowest():
    orders = ([0, 0, 2, 2], [1, 0, 0, 1], [2, 1, 0, 0])
    ranks = [
        {"count": 2, "micro_batches": listed(order)["micro_batches"]} for order in (*orders, orders[0])
    ]
    apart = [run_step(priced_job(job_of("one device", listed(order), micro=4))) for order in orders]

    together = run_step(priced_job(job_of("one device", {"seq": max(LENGTHS), "ranks": ranks}, micro=4)))

    assert together.step_time_s == pytest.approx(max(one.step_time_s for one in apart), rel=1e-12)
    assert together.rank_class == 1
    assert together.end_s == pytest.approx(apart[1].end_s, rel=1e-12)


def test_a_long_last_micro_batch_hides_more_of_the_reductions_under_its_backward():
    name = "overlapped, reduced under the last backward"
    late, early = (
        run_step(priced_job(job_of(name, listed(order), micro=4))) for order in ([0, 0, 0, 1], [1, 0, 0, 0])
    )

    exposed_s = [
        one.reduce_start_s - [one.end_s[one.stage == stage].max() for stage in range(4)]
        for one in (late, early)
    ]
    assert (exposed_s[0] <= exposed_s[1]).all()
    assert exposed_s[0].sum() < exposed_s[1].sum()
