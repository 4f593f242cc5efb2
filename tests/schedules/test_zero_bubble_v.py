"""ZB-V: the authors' table of bubbles and memory, and where its chunks stand."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from order_cases import input_of, number_of, rows, simulated_s, simulated_spans, stage_of

from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import along_the_model
from flopcast.workload.stages import Pile, divide

STAGES = all_cases("stages", [1, 2, 3, 4, 8])
SECONDS = st.floats(0.1, 5.0)


def longest_span(stages, micro, *seconds):
    """The longest of the stages' own spans: the period of steps that follow each other without a stop."""
    spans = simulated_spans("zb_v", 2, micro, *([each] * stages for each in seconds))
    return max(end - begin for begin, end in spans)


def held_chunks(order):
    """Chunks of micro-batches that a stage keeps, before their B or before their W, after every task."""
    alive = np.cumsum([{"F": 1, "B": 0, "W": -1}[kind] for kind, *_ in order])
    return int(alive.max())


@STAGES
@pytest.mark.parametrize("more", [0, 1, 9])
def test_with_equal_passes_no_stage_has_a_bubble(stages, more):
    micro = 2 * stages - 1 + more

    # the table of arXiv:2401.10241's authors, T_F = T_B = T_W: bubble rate 0
    assert longest_span(stages, micro, 1.0, 1.0, 1.0) == pytest.approx(3.0 * micro)


@STAGES
def test_a_stop_of_all_stages_after_a_step_costs_the_way_down_the_first_chunks(stages):
    micro = 2 * stages

    played = simulated_s("zb_v", 2, micro, *([2.0] * stages for _ in range(3)))

    assert played == pytest.approx(6.0 * micro + (stages - 1) * 1.0)  # half a forward a stage


@STAGES
def test_every_stage_holds_what_the_first_stage_of_1f1b_holds(stages):
    orders = rows("zb_v", stages, 2, 4 * stages)

    held = [held_chunks(order) for order in orders]

    # the same table: activation memory 1 times that of 1F1B, which is p micro-batches of two chunks each
    assert [chunks / 2 for chunks in held] == [stages] * stages


@settings(max_examples=60, deadline=None)
@given(
    stages=st.integers(1, 7),
    more=st.integers(0, 6),
    forward_s=SECONDS,
    longer=st.floats(1.0, 3.0),
    share=st.floats(0.05, 1.0),
)
def test_the_bubble_of_unequal_passes_is_the_closed_form(stages, more, forward_s, longer, share):
    """W no longer than F, F no longer than B: as in a block with attention."""
    backward_s, weight_s = longer * forward_s, share * forward_s
    micro = 2 * stages - 1 + more

    span = longest_span(stages, micro, forward_s, backward_s, weight_s)

    each = SCHEDULES["zb_v"].bubble_s(*(np.array([[s]]) for s in (forward_s, backward_s, weight_s)))
    bubble = span - micro * (forward_s + backward_s + weight_s)
    assert bubble == pytest.approx((stages - 1) * each.item(), abs=1e-9 * span)


@STAGES
def test_messages_are_nearly_twice_those_of_1f1b(stages):
    """The same table: communication volume 2 times. The turn at the last stage is no message."""

    def sent(name, virtual):
        inputs = [
            (stage, input_of(kind, number_of(name, stage, chunk, stages), virtual * stages, m))
            for stage, order in enumerate(rows(name, stages, virtual, 4))
            for kind, chunk, m in order
            if kind != "W"
        ]
        return sum(n is not None and stage_of(name, n[1], stages) != stage for stage, n in inputs)

    assert sent("zb_v", 2) == 2 * sent("1f1b", 1)


def test_the_first_stage_holds_both_ends_of_the_model():
    division = divide(Pile(counts=(1, 16, 1, 1), stages=4, virtual=2, folded=True), "even")

    by_stage = division.stage_counts[division.stage_class]
    # embedding, blocks, final norm, head
    assert by_stage.tolist() == [[1, 4, 1, 1], [0, 4, 0, 0], [0, 4, 0, 0], [0, 4, 0, 0]]


def test_listed_blocks_follow_the_model_down_and_up_again():
    pile = Pile(counts=(1, 21, 1, 1), stages=3, virtual=2, folded=True, listed=(1, 2, 3, 4, 5, 6))

    division = divide(pile, "listed")

    blocks = division.chunk_counts[division.chunk_class][:, :, 1]
    assert blocks.tolist() == [[1, 6], [2, 5], [3, 4]]  # chunk 0 down, chunk 1 up


@all_cases(("stages", "virtual"), [(1, 1), (4, 1), (3, 2), (4, 3), (5, 4)])
@all_cases("folded", [False, True])
def test_every_number_of_the_model_stands_on_one_stage_and_neighbours_are_near(stages, virtual, folded):
    number = along_the_model(stages, virtual, folded)

    stage = np.argsort(number, axis=None) // virtual
    assert sorted(number.ravel().tolist()) == list(range(stages * virtual))
    steps = np.abs(np.diff(stage))
    assert set(steps.tolist()) <= ({0, 1} if folded else {1, stages - 1})
