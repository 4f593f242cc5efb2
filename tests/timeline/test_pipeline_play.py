"""timeline/pipeline.py against slow event simulations, closed forms and max-plus laws."""

from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_pipeline import DOWN, SIMULATIONS, UP, Pipe, Task, deepspeed_instructions, order_of

from flopcast.errors import InternalError
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import BACKWARD, FORWARD
from flopcast.spec.plan import Plan
from flopcast.timeline.chains import MESSAGE, TASK, transfer_index
from flopcast.timeline.pipeline import critical_path, graph, play

STYLES = tuple(SIMULATIONS)
INTERLEAVED_STYLES = ("overlapped", "batched")  # blocking one by one, interleaved stages wait for ever
LAWS = settings(max_examples=30, deadline=None)
LONG_LAWS = settings(max_examples=25, deadline=None)

plain_pipes = st.builds(
    Pipe, stages=st.integers(1, 7), virtual=st.just(1), micro_batches=st.integers(1, 15)
)


@st.composite
def interleaved_pipes(draw):
    """Two groups of micro-batches at least: with one, Megatron-LM's releases differ from each other."""
    stages = draw(st.integers(2, 6))
    return Pipe(stages, draw(st.integers(2, 4)), stages * draw(st.integers(2, 4)))


def schedule_of(pipe):
    return "interleaved_1f1b" if pipe.virtual > 1 else "1f1b"


def structure(pipe, style):
    return graph(schedule_of(pipe), *pipe, style)


def tasks_of(pipe):
    """Tasks in the order of flopcast's flat arrays."""
    order = SCHEDULES[schedule_of(pipe)].order(*pipe)
    columns = (order.kind.tolist(), order.chunk.tolist(), order.micro_batch.tolist())
    return [
        Task((DOWN, UP)[kind], stage, chunk, micro_batch)
        for stage, rows in enumerate(zip(*columns, strict=True))
        for kind, chunk, micro_batch in zip(*rows, strict=True)
    ]


def random_case(pipe, seed):
    """Unequal seconds of every task and hop, and unequal moments at which the stages are free."""
    rng = np.random.default_rng(seed)
    seconds = {task: rng.uniform(0.1, 2.0) for task in tasks_of(pipe)}
    transfer_s = {(kind, stage): rng.uniform(0, 0.5) for kind in (DOWN, UP) for stage in range(pipe.stages)}
    return seconds, transfer_s, rng.uniform(0, 3, pipe.stages)


def played(pipe, style, seconds, transfer_s, free_s):
    hops = np.zeros(1 + 2 * pipe.stages)
    for (kind, stage), value in transfer_s.items():
        hops[1 + 2 * stage + (kind == UP)] = value
    durations = np.array([seconds[task] for task in tasks_of(pipe)])
    return play(structure(pipe, style), durations, hops, np.asarray(free_s))


def equal_case(pipe, forward_s, backward_s):
    seconds = {task: forward_s if task.kind == DOWN else backward_s for task in tasks_of(pipe)}
    transfer_s = {(kind, stage): 0.0 for kind in (DOWN, UP) for stage in range(pipe.stages)}
    return seconds, transfer_s, np.zeros(pipe.stages)


def starts_and_ends(pipe, run):
    nodes = run.graph.node_of_task
    return (
        dict(zip(tasks_of(pipe), run.start_s[nodes], strict=True)),
        dict(zip(tasks_of(pipe), run.end_s[nodes], strict=True)),
    )


def assert_same_run(pipe, style, seed):
    case = random_case(pipe, seed)
    slow_start, slow_end = SIMULATIONS[style](pipe, *case)

    start, end = starts_and_ends(pipe, played(pipe, style, *case))

    assert start == pytest.approx(slow_start, abs=1e-9)
    assert end == pytest.approx(slow_end, abs=1e-9)


@pytest.mark.parametrize("style", STYLES)
@LAWS
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1))
def test_1f1b_plays_as_the_slow_simulation_of_its_transfer_style(style, pipe, seed):
    assert_same_run(pipe, style, seed)


@pytest.mark.parametrize("style", INTERLEAVED_STYLES)
@LONG_LAWS
@given(pipe=interleaved_pipes(), seed=st.integers(0, 2**32 - 1))
def test_interleaved_1f1b_plays_as_the_slow_simulation_of_its_transfer_style(style, pipe, seed):
    assert_same_run(pipe, style, seed)


def test_the_sequential_oracle_exchanges_in_deepspeeds_documented_order():
    # TrainSchedule.steps of a middle stage in its steady phase: a forward step sends the previous gradient,
    # receives the activation and runs; a backward step receives the gradient, sends the activation, runs
    told = deepspeed_instructions(1, Pipe(stages=3, virtual=1, micro_batches=4))

    steady = told[told.index(("run", Task(DOWN, 1, 0, 1))) :][:9]

    assert steady == [
        ("run", Task(DOWN, 1, 0, 1)),
        ("receive", Task(UP, 2, 0, 0)),
        ("send", Task(DOWN, 1, 0, 1)),
        ("run", Task(UP, 1, 0, 0)),
        ("send", Task(UP, 1, 0, 0)),
        ("receive", Task(DOWN, 0, 0, 2)),
        ("run", Task(DOWN, 1, 0, 2)),
        ("receive", Task(UP, 2, 0, 1)),
        ("send", Task(DOWN, 1, 0, 2)),
    ]


@all_cases("pipe", [Pipe(4, 1, 9), Pipe(4, 1, 2), Pipe(3, 2, 6), Pipe(4, 3, 8)])
def test_the_oracles_and_the_schedules_agree_on_the_order_of_tasks(pipe):
    oracle = [task for stage in range(pipe.stages) for task in order_of(stage, pipe)]

    assert tasks_of(pipe) == oracle


@all_cases("style", STYLES)
@all_cases("stages", range(1, 9))
def test_no_legal_1f1b_pipeline_deadlocks(style, stages):
    for micro_batches in range(1, 2 * stages + 2):
        pipe = Pipe(stages, 1, micro_batches)

        assert structure(pipe, style).node_of_task.size == 2 * stages * micro_batches


@all_cases("style", INTERLEAVED_STYLES)
@all_cases("stages", range(2, 9))
def test_no_legal_interleaved_pipeline_deadlocks(style, stages):
    for virtual in (2, 3, 4):
        for groups in (1, 2, 3):
            pipe = Pipe(stages, virtual, groups * stages)

            assert structure(pipe, style).node_of_task.size == 2 * virtual * stages * pipe.micro_batches


def test_interleaved_stages_that_block_on_each_message_are_told_to_deadlock():
    with pytest.raises(InternalError, match="the order deadlocks: 2 of 2 stages wait for each other"):
        graph("interleaved_1f1b", 2, 2, 4, "sequential")


@pytest.mark.parametrize("style", STYLES)
@given(pipe=plain_pipes, forward_s=st.floats(0.1, 5), backward_s=st.floats(0.1, 5))
@LAWS
def test_equal_stages_with_free_transfers_take_m_plus_p_minus_one_turns(style, pipe, forward_s, backward_s):
    # arXiv:2104.04473, section 2.2.1: ideal time m (f + b), bubble (p - 1)(f + b)
    run = played(pipe, style, *equal_case(pipe, forward_s, backward_s))

    turns = pipe.micro_batches + pipe.stages - 1
    assert run.end_s.max() == pytest.approx(turns * (forward_s + backward_s), rel=1e-12)


@pytest.mark.parametrize("style", INTERLEAVED_STYLES)
@given(pipe=interleaved_pipes(), forward_s=st.floats(0.1, 5), backward_s=st.floats(0.1, 5))
@LONG_LAWS
def test_chunks_divide_the_bubble_of_equal_stages_by_their_number(style, pipe, forward_s, backward_s):
    # arXiv:2104.04473, section 2.2.2: bubble (p - 1)(f + b) / v
    v = pipe.virtual
    run = played(pipe, style, *equal_case(pipe, forward_s / v, backward_s / v))

    expected = (pipe.micro_batches + (pipe.stages - 1) / v) * (forward_s + backward_s)
    assert run.end_s.max() == pytest.approx(expected, rel=1e-12)


@LAWS
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1))
def test_unequal_stages_take_between_m_and_m_plus_p_minus_one_turns_of_the_slowest(pipe, seed):
    # every stage alternates, so the period of the steady phase is the slowest stage's forward + backward
    rng = np.random.default_rng(seed)
    forward_s, backward_s = rng.uniform(0.1, 3, (2, pipe.stages))
    slowest = float((forward_s + backward_s).max())
    seconds = {t: (forward_s if t.kind == DOWN else backward_s)[t.stage] for t in tasks_of(pipe)}
    _, transfer_s, free_s = equal_case(pipe, 1.0, 1.0)

    whole = played(pipe, "overlapped", seconds, transfer_s, free_s).end_s.max()

    least = max(pipe.micro_batches * slowest, float((forward_s + backward_s).sum()))
    assert least - 1e-9 <= whole <= (pipe.micro_batches + pipe.stages - 1) * slowest + 1e-9


@pytest.mark.parametrize("style", ["batched", "sequential"])
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1))
@LAWS
def test_transfers_that_block_never_let_a_task_start_earlier(style, pipe, seed):
    case = random_case(pipe, seed)

    free, _ = starts_and_ends(pipe, played(pipe, "overlapped", *case))
    blocked, _ = starts_and_ends(pipe, played(pipe, style, *case))

    assert all(blocked[task] >= free[task] - 1e-9 for task in free)


@pytest.mark.parametrize("style", STYLES)
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1), slower=st.floats(1.0, 3.0))
@LAWS
def test_slower_links_never_make_a_task_start_earlier(style, pipe, seed, slower):
    seconds, transfer_s, free_s = random_case(pipe, seed)
    slow_hop_s = {key: value * slower for key, value in transfer_s.items()}

    before = played(pipe, style, seconds, transfer_s, free_s)
    after = played(pipe, style, seconds, slow_hop_s, free_s)

    assert (after.start_s >= before.start_s - 1e-9).all()


@pytest.mark.parametrize("style", STYLES)
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1), shift=st.floats(0, 100), scale=st.floats(0.1, 10))
@LAWS
def test_a_pipeline_knows_no_absolute_time_and_no_unit(style, pipe, seed, shift, scale):
    seconds, transfer_s, free_s = random_case(pipe, seed)
    scaled = [{key: value * scale for key, value in values.items()} for values in (seconds, transfer_s)]

    run = played(pipe, style, seconds, transfer_s, free_s)
    other = played(pipe, style, *scaled, free_s * scale + shift)

    assert other.end_s == pytest.approx(run.end_s * scale + shift, rel=1e-9)


@pytest.mark.parametrize("style", STYLES)
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1))
@LAWS
def test_a_stage_runs_one_thing_at_a_time_and_keeps_its_order(style, pipe, seed):
    run = played(pipe, style, *random_case(pipe, seed))

    for stage in range(pipe.stages):
        mine = np.flatnonzero((run.graph.stage == stage) & (run.graph.kind != MESSAGE))
        assert all(run.start_s[after] >= run.end_s[before] - 1e-12 for before, after in pairwise(mine))


@all_cases("style", STYLES)
def test_one_stage_runs_back_to_back_whatever_a_transfer_costs(style):
    pipe = Pipe(stages=1, virtual=1, micro_batches=5)
    seconds, _, _ = equal_case(pipe, 1.0, 2.0)

    run = played(pipe, style, seconds, {(DOWN, 0): 7.0, (UP, 0): 7.0}, [0.5])

    assert run.end_s.max() == pytest.approx(0.5 + 5 * 3.0)


@all_cases("style", STYLES)
def test_one_micro_batch_goes_down_and_up_once_and_pays_every_hop(style):
    pipe = Pipe(stages=4, virtual=1, micro_batches=1)
    seconds, _, free_s = equal_case(pipe, 2.0, 3.0)
    transfer_s = {(kind, stage): 1.0 for kind in (DOWN, UP) for stage in range(4)}

    run = played(pipe, style, seconds, transfer_s, free_s)

    assert run.end_s[run.graph.node_of_task].max() == pytest.approx(4 * (2.0 + 3.0) + 6 * 1.0)


def test_a_hop_holds_up_its_sender_only_where_it_blocks():
    # two stages, two micro-batches, forward 1 s, backward 1 s, hop 1 s. The sender's second forward
    # follows its first at once if transfers overlap, a hop later if they block
    pipe = Pipe(stages=2, virtual=1, micro_batches=2)
    seconds, _, free_s = equal_case(pipe, 1.0, 1.0)
    transfer_s = {(kind, stage): 1.0 for kind in (DOWN, UP) for stage in range(2)}
    second = Task(DOWN, 0, 0, 1)

    start = {
        style: starts_and_ends(pipe, played(pipe, style, seconds, transfer_s, free_s))[0]
        for style in STYLES
    }

    assert {style: float(start[style][second]) for style in STYLES} == {
        "overlapped": 1.0,
        "batched": 2.0,
        "sequential": 2.0,
    }


@pytest.mark.parametrize("style", STYLES)
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1))
@LAWS
def test_the_critical_path_adds_up_to_the_end_of_its_last_node(style, pipe, seed):
    run = played(pipe, style, *random_case(pipe, seed))
    node = int(run.graph.last[0])

    path, hops = critical_path(run, node)

    total = run.start_s[path[-1]] + run.duration_s[path].sum() + run.transfer_s[hops].sum()
    assert total == pytest.approx(run.end_s[node], rel=1e-12)
    assert path[-1] < pipe.stages  # it begins with the moment from which a stage is free


@pytest.mark.parametrize("style", STYLES)
@given(pipe=plain_pipes, seed=st.integers(0, 2**32 - 1))
@LAWS
def test_every_node_of_the_critical_path_starts_the_moment_its_forerunner_lets_it(style, pipe, seed):
    run = played(pipe, style, *random_case(pipe, seed))

    path, hops = critical_path(run, int(run.graph.last[0]))

    moments = run.end_s[path[1:]] + run.transfer_s[hops[:-1]]
    assert run.start_s[path[:-1]] == pytest.approx(moments, rel=1e-12)


def test_shortening_what_is_not_on_the_critical_path_changes_nothing():
    pipe = Pipe(stages=4, virtual=1, micro_batches=6)
    seconds, transfer_s, free_s = random_case(pipe, 7)
    run = played(pipe, "overlapped", seconds, transfer_s, free_s)
    node = int(run.graph.last[0])
    on_path = set(run.graph.task[critical_path(run, node)[0][:-1]].tolist())

    quick = {task: s * (1.0 if i in on_path else 0.5) for i, (task, s) in enumerate(seconds.items())}
    other = played(pipe, "overlapped", quick, transfer_s, free_s)

    assert len(on_path) < len(seconds)
    assert other.end_s[node] == pytest.approx(run.end_s[node], rel=1e-12)


def test_hops_are_numbered_by_sender_and_direction_and_zero_means_none():
    stages = np.arange(3)

    down, up = transfer_index(np.zeros(3, dtype=int), stages), transfer_index(np.ones(3, dtype=int), stages)

    assert sorted([*down, *up]) == [1, 2, 3, 4, 5, 6]


@all_cases("name", [name for name in SCHEDULES if SCHEDULES[name].hands_on])  # a new one is played unasked
@all_cases("style", INTERLEAVED_STYLES)
def test_every_schedule_runs_each_task_once_after_its_input(name, style):
    split = Plan(schedule=name).order_rule.splits_backward
    virtual = 2 if name in ("interleaved_1f1b", "zb_v", "dualpipe_v", "dualpipe") else 1
    style = "overlapped" if split else style
    g = graph(name, 4, virtual, 8, style)

    run = play(g, np.ones(g.order.kind.size), np.zeros(9), np.zeros(4))

    stage = np.repeat(np.arange(4), g.order.kind.shape[1])
    columns = (g.order.kind.ravel(), stage, g.order.chunk.ravel(), g.order.micro_batch.ravel())
    end = dict(zip(zip(*columns, strict=True), run.end_s[g.node_of_task], strict=True))
    assert (g.kind[g.node_of_task] == TASK).all()
    assert len(set(g.node_of_task.tolist())) == len(end) == 4 * 8 * virtual * (3 if split else 2)
    for chunk in range(virtual):
        for micro_batch in range(8):
            way = [end[FORWARD, at, chunk, micro_batch] for at in range(4)]
            back = [end[BACKWARD, at, chunk, micro_batch] for at in range(4)]
            if g.order.folded and chunk:  # back up the stages
                way, back = way[::-1], back[::-1]
            assert way == sorted(way)
            assert back == sorted(back, reverse=True)
            assert back[3] > way[3]


def test_zb_h2_would_deadlock_if_the_messages_of_a_gap_were_posted_together():
    with pytest.raises(InternalError, match="4 of 4 stages wait for each other"):
        graph("zb_h2", 4, 1, 8, "batched")


@all_cases("style", INTERLEAVED_STYLES)
def test_sixty_four_stages_of_two_chunks_run_512_micro_batches(style):
    pipe = Pipe(stages=64, virtual=2, micro_batches=512)
    g = structure(pipe, style)

    run = play(g, np.ones(g.order.kind.size), np.zeros(129), np.zeros(64))

    assert run.end_s.max() == pytest.approx(2 * (512 * 2 + 63))  # two seconds a chunk and micro-batch
