"""ZB-H1 and ZB-H2: the bubbles and the memory of arXiv:2401.10241, and the orders that give them."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from order_cases import CHUNKED, PLAIN, rows, simulated_s, simulated_spans

from flopcast.schedules import SCHEDULES
from flopcast.spec.plan import Plan

DEPTH = {"zb_h1": 1, "zb_h2": 2}  # W that each other stage puts into the bubble of F and B
EACH_SHAPE = all_cases(("stages", "virtual", "micro"), PLAIN)
EACH_NAME = all_cases("name", DEPTH)
SECONDS = st.floats(0.1, 5.0)


def held(order):
    """(before their B, between B and W) after every task of one stage."""
    counts = [(0, 0)]
    for kind, *_ in order:
        before, waiting = counts[-1]
        counts.append((before + (kind == "F") - (kind == "B"), waiting + (kind == "B") - (kind == "W")))
    return counts


def longest_span(name, stages, micro, *seconds):
    """The longest of the stages' own spans, from their first to their last task."""
    spans = simulated_spans(name, 1, micro, *([each] * stages for each in seconds))
    return max(end - begin for begin, end in spans)


def test_zb_h1_on_four_stages_is_the_order_of_the_paper_s_figure():
    orders = rows("zb_h1", 4, 1, 8)

    drawn = [" ".join(f"{kind}{m + 1}" for kind, _, m in order) for order in orders]
    # arXiv:2401.10241, section 2.1: 1F1B, where stage i begins W once p micro-batches are held; by hand
    assert drawn[0] == "F1 F2 F3 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 F8 B5 W5 B6 W6 B7 W7 B8 W8"
    assert drawn[3] == "F1 B1 F2 B2 F3 B3 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 F8 B8 W5 W6 W7 W8"


@EACH_NAME
@EACH_SHAPE
def test_a_weight_pass_follows_its_backward_and_they_keep_the_order_of_micro_batches(
    name, stages, virtual, micro
):
    for order in rows(name, stages, virtual, micro):
        place = {task: at for at, task in enumerate(order)}
        weights = [m for kind, _, m in order if kind == "W"]

        assert weights == list(range(micro))
        assert all(place["B", 0, m] < place["W", 0, m] for m in weights)


@EACH_NAME
@settings(max_examples=60, deadline=None)
@given(
    stages=st.integers(1, 7),
    more=st.integers(0, 6),
    forward_s=SECONDS,
    backward_s=SECONDS,
    share=st.floats(0.05, 1.0),
)
def test_the_bubble_is_that_of_the_paper_s_table(name, stages, more, forward_s, backward_s, share):
    depth, weight_s = DEPTH[name], share * forward_s  # W no longer than F
    micro = depth * (stages - 1) + 1 + more

    span = longest_span(name, stages, micro, forward_s, backward_s, weight_s)

    # arXiv:2401.10241, Table 2: (p - 1)(F + B - W) and (p - 1)(F + B - 2 W), never below nothing
    bubble = span - micro * (forward_s + backward_s + weight_s)
    expected = max(0.0, (stages - 1) * (forward_s + backward_s - depth * weight_s))
    assert bubble == pytest.approx(expected, abs=1e-9 * span)


@EACH_SHAPE
def test_zb_h1_ends_everywhere_at_once_so_its_makespan_has_the_same_bubble(stages, virtual, micro):
    played = simulated_s("zb_h1", virtual, micro, *([1.0] * stages for _ in range(3)))

    expected = stages - 1 if micro >= stages else played - 3.0 * micro  # the table asks for p micro-batches
    assert played - 3.0 * micro == pytest.approx(expected)


@EACH_NAME
@EACH_SHAPE
def test_no_stage_holds_more_than_the_paper_s_bound(name, stages, virtual, micro):
    most = DEPTH[name] * (stages - 1) + 1  # arXiv:2401.10241, section 2: p, and 2 p - 1

    for order in rows(name, stages, virtual, micro):
        assert max(before + between for before, between in held(order)) <= most


@EACH_NAME
@pytest.mark.parametrize("stages", [2, 4, 7])
def test_with_enough_micro_batches_memory_is_the_paper_s_sum_of_both_kinds(name, stages):
    micro, depth = 3 * stages, DEPTH[name]

    for stage, order in enumerate(rows(name, stages, 1, micro)):
        fullest = max(held(order), key=lambda counts: (counts[0], counts[1]))

        # arXiv:2401.10241, section 2.3: (p - i + 1) M_B + (i - 1) M_W, i = stage + 1;
        # ZB-H2: (2 p - 2 i + 1) M_B + (2 i - 2) M_W
        assert fullest == (depth * (stages - 1 - stage) + 1, depth * stage)


@all_cases("name", SCHEDULES)
def test_a_plan_splits_the_backward_just_where_its_schedule_has_weight_passes(name):
    kinds = {kind for order in rows(name, 2, 2 if name in CHUNKED else 1, 4) for kind, *_ in order}

    assert Plan(schedule=name).order_rule.splits_backward == ("W" in kinds)
