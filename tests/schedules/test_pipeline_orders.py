"""Orders: laws of every schedule, and the warm-ups that the papers and Megatron-LM state."""

from itertools import takewhile

import numpy as np
import pytest
from all_cases import all_cases
from order_cases import CASES, INTERLEAVED, PLAIN, SPLIT, input_of, number_of, rows, simulated_s, stage_of

from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import BACKWARD, FORWARD, alternate
from flopcast.spec.plan import Plan

EACH_CASE = all_cases(("name", "stages", "virtual", "micro"), CASES)


def warm_up(tasks):
    """Forwards before the first backward."""
    return len(list(takewhile(lambda task: task[0] == "F", tasks)))


def test_every_schedule_has_cases():
    assert {name for name, *_ in CASES} == set(SCHEDULES)


@EACH_CASE
def test_every_stage_runs_each_task_exactly_once(name, stages, virtual, micro):
    kinds = "FBW" if name in SPLIT else "FB"
    tasks = {(kind, c, m) for kind in kinds for c in range(virtual) for m in range(micro)}

    for order in rows(name, stages, virtual, micro):
        assert len(order) == len(tasks)
        assert set(order) == tasks


@EACH_CASE
def test_a_micro_batch_goes_forward_before_it_goes_back(name, stages, virtual, micro):
    for order in rows(name, stages, virtual, micro):
        place = {task: at for at, task in enumerate(order)}
        assert all(place["F", c, m] < place["B", c, m] for kind, c, m in order if kind == "B")


@EACH_CASE
def test_on_one_stage_chunks_go_forward_in_order_and_back_in_reverse(name, stages, virtual, micro):
    for order in rows(name, stages, virtual, micro):
        place = {task: at for at, task in enumerate(order)}
        for m in range(micro):
            forward = [place["F", c, m] for c in range(virtual)]
            backward = [place["B", c, m] for c in range(virtual)]
            assert forward == sorted(forward)
            assert backward == sorted(backward, reverse=True)


@EACH_CASE
def test_each_chunk_takes_micro_batches_first_come_first_served(name, stages, virtual, micro):
    for order in rows(name, stages, virtual, micro):
        for kind in "FB":
            for chunk in range(virtual):
                served = [m for k, c, m in order if (k, c) == (kind, chunk)]
                backwards = name == "gpipe" and kind == "B"  # arXiv:1811.06965, figure 2c
                assert served == sorted(range(micro), reverse=backwards)


@EACH_CASE
def test_no_order_deadlocks(name, stages, virtual, micro):
    step_s = simulated_s(name, virtual, micro, [1.0] * stages, [2.0] * stages)

    assert step_s >= 3.0 * micro  # every stage works on every micro-batch


@EACH_CASE
def test_neighbours_send_to_each_other_in_the_order_in_which_they_receive(name, stages, virtual, micro):
    """Messages between two ranks are matched in order: no tag tells one from another."""
    orders = rows(name, stages, virtual, micro)
    inputs = [
        [input_of(kind, number_of(name, stage, c, stages), stages * virtual, m) for kind, c, m in order]
        for stage, order in enumerate(orders)
    ]

    for receiver, needed in enumerate(inputs):
        for sender in {(receiver - 1) % stages, (receiver + 1) % stages} - {receiver}:
            for kind in "FB":
                wanted = [
                    n for n in needed if n and n[0] == kind and stage_of(name, n[1], stages) == sender
                ]
                sent = [(k, number_of(name, sender, c, stages), m) for k, c, m in orders[sender]]
                assert [task for task in sent if task in set(wanted)] == wanted


@all_cases(("stages", "virtual", "micro"), PLAIN)
def test_1f1b_warms_up_with_the_stages_that_follow(stages, virtual, micro):
    for stage, order in enumerate(rows("1f1b", stages, virtual, micro)):
        # arXiv:2104.04473, section 2.2.1: p - s - 1 forwards, then one more before its first backward
        assert warm_up(order) == min(stages - stage, micro)


@all_cases(("stages", "virtual", "micro"), PLAIN)
def test_after_its_warm_up_1f1b_alternates(stages, virtual, micro):
    for stage, order in enumerate(rows("1f1b", stages, virtual, micro)):
        first = min(stages - 1 - stage, micro)
        steady = [kind for kind, *_ in order][first : first + 2 * (micro - first)]
        assert steady == ["F", "B"] * (micro - first)


def test_1f1b_on_four_stages_is_the_order_of_the_paper_s_figure():
    orders = rows("1f1b", 4, 1, 8)

    drawn = [" ".join(f"{kind}{m + 1}" for kind, _, m in order) for order in orders]
    # arXiv:2104.04473, figure 4, top
    assert drawn == [
        "F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8",
        "F1 F2 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6 B7 B8",
        "F1 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 F8 B7 B8",
        "F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8",
    ]


def test_gpipe_on_four_stages_is_the_order_of_the_paper_s_figure():
    orders = rows("gpipe", 4, 1, 4)

    drawn = {" ".join(f"{kind}{m}" for kind, _, m in order) for order in orders}
    # arXiv:1811.06965, figure 2c: the same row of tasks for every stage
    assert drawn == {"F0 F1 F2 F3 B3 B2 B1 B0"}


@EACH_CASE
def test_turns_count_the_tasks_of_one_kind_and_chunk_from_0(name, stages, virtual, micro):
    turns = SCHEDULES[name].order(stages, virtual, micro).turn.tolist()

    for order, turn in zip(rows(name, stages, virtual, micro), turns, strict=True):
        ran = []
        for (kind, chunk, _), number in zip(order, turn, strict=True):
            assert number == ran.count((kind, chunk))
            ran.append((kind, chunk))


@all_cases(("stages", "virtual", "micro"), INTERLEAVED)
def test_interleaved_stages_warm_up_as_megatron_does(stages, virtual, micro):
    for stage, order in enumerate(rows("interleaved_1f1b", stages, virtual, micro)):
        # Megatron-LM, megatron/schedules.py: num_warmup_microbatches; then a forward comes first
        warm = min((stages - stage - 1) * 2 + (virtual - 1) * stages, micro * virtual)
        assert warm_up(order) == min(warm + 1, micro * virtual)


@all_cases(("stages", "virtual", "micro"), INTERLEAVED)
def test_interleaved_micro_batches_go_through_chunks_in_groups_of_the_stages(stages, virtual, micro):
    for order in rows("interleaved_1f1b", stages, virtual, micro):
        forward = [(c, m) for kind, c, m in order if kind == "F"]
        # Megatron-LM, `get_model_chunk_id`: p micro-batches of one chunk, then p of the next
        expected = [
            (c, first + m)
            for first in range(0, micro, stages)
            for c in range(virtual)
            for m in range(stages)
        ]
        assert forward == expected


def test_interleaved_on_two_stages_is_this_order():
    first, last = rows("interleaved_1f1b", 2, 2, 4)

    drawn = [" ".join(f"{kind}{'ab'[c]}{m + 1}" for kind, c, m in order) for order in (first, last)]
    # by hand: 2 · 1 + 2 = 4 warm-up forwards on stage 0, 2 on stage 1
    assert drawn == [
        "Fa1 Fa2 Fb1 Fb2 Fa3 Bb1 Fa4 Bb2 Fb3 Ba1 Fb4 Ba2 Bb3 Bb4 Ba3 Ba4",
        "Fa1 Fa2 Fb1 Bb1 Fb2 Bb2 Fa3 Ba1 Fa4 Ba2 Fb3 Bb3 Fb4 Bb4 Ba3 Ba4",
    ]


def test_with_one_chunk_interleaving_still_runs_each_task_once():
    """Twice the warm-up of plain 1F1B, as Megatron-LM's formula says: a plan never asks for it."""
    orders = rows("interleaved_1f1b", 4, 1, 8)

    assert [warm_up(order) for order in orders] == [7, 5, 3, 1]


@pytest.mark.parametrize(
    ("warm", "expected"), [(0, "F0 B0 F1 B1 F2 B2"), (1, "F0 F1 B0 F2 B1 B2"), (3, "F0 F1 F2 B0 B1 B2")]
)
def test_alternation_starts_after_the_warm_up_and_drains_at_the_end(warm, expected):
    kind, index = alternate(warm, np.arange(3), np.arange(3))

    words = [f"{'F' if k == FORWARD else 'B'}{i}" for k, i in zip(kind, index, strict=True)]
    assert " ".join(words) == expected


def test_forward_and_backward_may_come_in_orders_of_their_own():
    kind, index = alternate(1, np.array([5, 7]), np.array([9, 8]))

    assert kind.tolist() == [FORWARD, FORWARD, BACKWARD, BACKWARD]
    assert index.tolist() == [5, 7, 9, 8]


def test_every_schedule_that_a_plan_may_name_is_built():
    names = Plan.model_json_schema()["properties"]["schedule"]["anyOf"][0]["enum"]

    assert set(names) - {"auto"} == set(SCHEDULES)
