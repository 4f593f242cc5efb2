"""Transfers in the closed form: what they add to a step, against the exact play of equal stages."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from conftest import described_model, make_job
from single_calls import step_seconds
from workbench import priced_job, repriced

from flopcast.schedules import SCHEDULES
from flopcast.timeline.pipeline import graph, play
from flopcast.timeline.point_to_point import waits
from flopcast.timeline.step import run_step

BLOCK_S = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 2.0}
ACROSS_S, INSIDE_S = 0.02, 0.004  # of a block's forward: so little that no other path becomes the longest
GPT = described_model(count=16)
STACKS = {
    "sequential": {"base": "gpt-neox-deepspeed", "pipeline": {"partition": "even", "host_s": "0 s"}},
    "batched": "megatron-2022",
    "overlapped": {"base": "megatron-2022", "pipeline": {"transfers": "overlapped"}},
}
WAYS = [
    ("sequential", "1f1b", 1),
    ("sequential", "gpipe", 1),
    ("batched", "1f1b", 1),
    ("batched", "gpipe", 1),
    ("batched", "interleaved_1f1b", 2),
    ("overlapped", "1f1b", 1),
    ("overlapped", "gpipe", 1),
    ("overlapped", "eager_1f1b", 1),
    ("overlapped", "interleaved_1f1b", 2),
]
EACH_WAY = all_cases(("style", "schedule", "virtual"), WAYS)
# stages, ranks of each: on nodes of eight devices, all stages share one, two do, four do, none do
PLACES = all_cases(("stages", "ranks"), [(8, 1), (2, 8), (4, 8), (8, 4), (8, 2), (8, 8)])


def seconds_of(item):
    """Blocks of a second and two, hops that take longer between two nodes; nothing else."""
    if item.name.startswith("hop.") and item.name != "hop.mask":
        return ACROSS_S if item.work.axis == "pp" else INSIDE_S
    return BLOCK_S.get((item.name, item.phase), 0.0)


def hopping(style, schedule, virtual, stages, ranks, micro):
    """Equal stages that wait for nothing but each other."""
    nodes = max(1, stages * ranks // 8)
    plan = f"dp={ranks} pp={stages} vpp={virtual} gbs={ranks * micro} precision=fp16 schedule={schedule}"
    job = make_job(model=GPT, cluster=f"dgx-a100:{nodes}", stack=STACKS[style], plan=plan)
    return repriced(priced_job(job), seconds_of)


@cache
def hopped(*place):
    """Screened and played seconds of equal stages, which two claims compare."""
    return both(hopping(*place))


def both(priced):
    return float(step_seconds(priced)[0]), run_step(priced).step_time_s


@EACH_WAY
@PLACES
def test_a_longer_step_waits_for_as_many_transfers_more_as_its_play(
    style, schedule, virtual, stages, ranks
):
    short, long = (hopped(style, schedule, virtual, stages, ranks, micro) for micro in (24, 48))

    assert long[0] - short[0] == pytest.approx(long[1] - short[1], abs=1e-9)


@EACH_WAY
@PLACES
def test_transfers_of_a_whole_step_are_those_of_its_play_to_a_fill(style, schedule, virtual, stages, ranks):
    screened, played = hopped(style, schedule, virtual, stages, ranks, 24)

    # fills overlap with gaps by less than a hop a stage, whatever the micro-batches
    assert abs(screened - played) <= stages * ACROSS_S


@all_cases("name", [name for name in SCHEDULES if not SCHEDULES[name].meets_one_neighbour])
@all_cases("stages", [2, 3, 4, 8])
def test_messages_that_hold_up_nobody_are_waited_for_as_often_as_each_schedule_says(name, stages):
    rule = SCHEDULES[name]
    virtual = {"interleaved_1f1b": 3, "zb_v": 2, "dualpipe_v": 2, "dualpipe": 2}.get(name, 1)
    transfer_s = 1e-6

    step_s = [longest_span_s(name, stages, virtual, 4 * stages, s) for s in (0.0, transfer_s)]

    waited = rule.transfers_waited(np.array([[float(stages)]]), np.array([[float(virtual)]])).item()
    assert (step_s[1] - step_s[0]) / (2 * transfer_s) == pytest.approx(waited, rel=1e-3)


def longest_span_s(name, stages, virtual, micro, transfer_s=0.0, passes_s=(1.0, 1.5, 0.75)):
    """What the stage with the longest step needs for it; of equal stages, messages holding up nobody."""
    pipeline = graph(name, stages, virtual, micro, "overlapped")
    task_s = np.choose(pipeline.order.kind.ravel(), passes_s) / virtual
    played = play(pipeline, task_s, np.append(0.0, np.full(2 * stages, transfer_s)), np.zeros(stages))
    first = pipeline.node_of_task.reshape(stages, -1)[:, 0]
    skewed = name in ("zb_h2", "zb_v")
    begin_s = played.start_s[first] if skewed else 0.0
    return (played.end_s[pipeline.last] - begin_s).max()


@all_cases("name", ["zb_h1", "zb_h2", "zb_v"])
@all_cases("stages", [1, 2, 3, 8])
@all_cases("passes_s", [(1.0, 1.0, 1.0), (1.0, 1.5, 0.75), (1.0, 1.9, 1.0), (2.0, 2.2, 0.5)])
def test_a_split_backward_of_few_micro_batches_waits_for_what_would_fill_its_bubbles(
    name, stages, passes_s
):
    rule, virtual = SCHEDULES[name], 1 + (name == "zb_v")
    forward_s, backward_s, weight_s = (np.array([[each]]) for each in passes_s)
    bubble_s = (stages - 1) * rule.bubble_s(forward_s, backward_s, weight_s)
    own_s = np.concatenate([forward_s, weight_s], axis=1)
    for micro in range(1, 2 * stages + 2):
        numbers = (np.array([[float(number)]]) for number in (stages, micro))
        unfilled_s = rule.unfilled_s(own_s, (stages - 1) * own_s, *numbers)

        expected_s = longest_span_s(name, stages, virtual, micro, passes_s=passes_s)

        assert (micro * sum(passes_s) + bubble_s + unfilled_s).item() == pytest.approx(expected_s)


@all_cases("style", STACKS)
def test_one_stage_waits_for_nobody(style):
    job = make_job(stack=STACKS[style], plan="dp=8 gbs=16 precision=fp16")

    found = waits(repriced(priced_job(job), lambda _: 1.0))

    assert [found.turn_s.max(), found.mean_s.max(), found.way_s.max()] == [0.0, 0.0, 0.0]
