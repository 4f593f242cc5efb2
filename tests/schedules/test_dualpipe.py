"""DualPipe and DualPipeV: DeepSeek's table of bubbles and memory, pairs, and two mirrored halves."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.memory.in_flight import depths
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT
from flopcast.timeline.pipeline import graph, play

STAGES = all_cases("stages", [1, 2, 3, 4, 8])
SECONDS = st.floats(0.1, 5.0)


def played(stages, micro, *passes_s):
    """The pipeline of equal stages with free messages; seconds of one chunk's passes."""
    pipeline = graph("dualpipe_v", stages, 2, micro, "overlapped")
    task_s = np.choose(pipeline.order.kind.ravel(), passes_s)
    return play(pipeline, task_s, np.zeros(1 + 2 * stages), np.zeros(stages))


def word(kind, chunk, micro_batch, pair):
    return f"{'(' if pair else ''}{'FBW'[kind]}{micro_batch}.{chunk}"


def bubble_s(stages, micro, *passes_s):
    return played(stages, micro, *passes_s).end_s.max() - 2 * micro * sum(passes_s)


@STAGES
@pytest.mark.parametrize("more", [0, 1, 9])
def test_with_equal_passes_the_bubble_is_that_of_the_table(stages, more):
    forward_s = backward_s = weight_s = 1.0
    whole_s, pair_s = backward_s + weight_s, forward_s + backward_s + weight_s

    found_s = bubble_s(stages, 2 * stages + more, forward_s, backward_s, weight_s)

    # the table of deepseek-ai/DualPipe, with PP = 2 · stages chunks: (PP/2 - 1) (F&B + B - 3 W)
    assert found_s == pytest.approx((stages - 1) * (pair_s + whole_s - 3 * weight_s))


@settings(max_examples=60, deadline=None)
@given(
    stages=st.integers(1, 8),
    more=st.integers(0, 6),
    forward_s=SECONDS,
    longer=st.floats(1.0, 2.0),
    share=st.floats(0.4, 1.0),
)
def test_the_bubble_of_unequal_passes_is_shorter_than_the_table_by_less_than_one_f_and_w(
    stages, more, forward_s, longer, share
):
    """A backward at least as long as the forward, its weight gradient no longer: as in a block."""
    backward_s, weight_s = longer * forward_s, share * forward_s

    found_s = bubble_s(stages, 2 * stages + more, forward_s, backward_s, weight_s)

    table_s = (stages - 1) * (forward_s + 2 * backward_s - weight_s)
    assert table_s - forward_s - weight_s - 1e-9 <= found_s <= table_s + 1e-9  # on any number of stages
    each = SCHEDULES["dualpipe_v"].bubble_s(
        *(np.array([[2 * s]]) for s in (forward_s, backward_s, weight_s))
    )
    assert (stages - 1) * each.item() == pytest.approx(table_s)


@STAGES
def test_a_stage_holds_one_chunk_more_than_the_model_has(stages):
    order = SCHEDULES["dualpipe_v"].order(stages, 2, 6 * stages)

    most = [depths(order, stage, (0, 1), 2).in_flight.sum(axis=1).max() for stage in range(stages)]

    assert most == [2 * stages + 1] * stages  # the same table: activations of PP + 1 chunks


@STAGES
def test_both_passes_of_a_pair_begin_with_both_inputs_and_end_together(stages):
    micro = 4 * stages
    run = played(stages, micro, 1.0, 1.3, 0.6)

    order, node = run.graph.order, run.graph.node_of_task.reshape(stages, -1)
    number = order.number
    end_s = {}
    for stage, place in np.ndindex(order.kind.shape):
        key = order.kind[stage, place], number[stage, order.chunk[stage, place]]
        end_s[(*key, order.micro_batch[stage, place])] = run.end_s[node[stage, place]]
    for stage, place in zip(*np.nonzero(order.paired), strict=True):
        kinds = order.kind[stage, place : place + 3].tolist()
        chunks = order.chunk[stage, place : place + 3].tolist()
        assert kinds == [FORWARD, BACKWARD, WEIGHT]
        assert chunks == [chunks[0], 1 - chunks[0], 1 - chunks[0]]
        begin_s = run.start_s[node[stage, place]]
        own = number[stage, chunks[1]]
        behind = end_s.get((BACKWARD, own + 1, order.micro_batch[stage, place + 1]), 0.0)
        assert begin_s >= behind - 1e-9  # the gradient is there before the pair begins
        leaves_s = run.end_s[node[stage, place + 2]]
        follower = (FORWARD, number[stage, chunks[0]] + 1, order.micro_batch[stage, place])
        on_stage = np.argwhere(number == follower[1])
        if len(on_stage) and on_stage[0][0] != stage:
            assert end_s[follower] >= leaves_s + 1.0 - 1e-9  # a forward of one second behind it


def test_most_passes_of_a_long_step_are_in_pairs():
    order = SCHEDULES["dualpipe_v"].order(4, 2, 100)

    alone = order.alone.sum(axis=1)
    pairs = order.paired.sum(axis=1)

    assert (alone + 2 * pairs).tolist() == [2 * 2 * 100] * 4
    assert (alone <= 4 * 2 * 4).all()  # on the way down and up, whatever the length of the step


def test_two_stages_run_this_order():
    order = SCHEDULES["dualpipe_v"].order(2, 2, 4)

    columns = (order.kind, order.chunk, order.micro_batch, order.paired)
    rows = [" ".join(map(word, *row)) for row in zip(*columns, strict=True)]
    # the steps of `DualPipeV.step` of deepseek-ai/DualPipe, by hand
    assert rows[0].startswith("F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 (F3.0 B1.1 W1.1 (F2.1 B0.0 W0.0 B2.1")
    assert rows[1].startswith("F0.0 F0.1 F1.0 F1.1 F2.0 B0.1 W0.1 (F2.1 B0.0 W0.0 (F3.0 B1.1 W1.1 (F3.1")
