"""Bubbles: the closed form, the papers' ratios, and an event simulation that knows neither."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from order_cases import APART, CASES, CHUNKED, FOLDED, SPLIT, simulated_s

from flopcast.schedules import SCHEDULES

WHOLE = [case for case in CASES if case[0] not in (*SPLIT, *APART)]  # test_zero_bubble.py has the others
EACH_CASE = all_cases(("name", "stages", "virtual", "micro"), WHOLE)
STAGES_S = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=6)


def closed_form_s(virtual, micro, each_s):
    """arXiv:2104.04473, section 2.2, where stages need `each_s` for a forward and a backward."""
    return micro * max(each_s) + (sum(each_s) - max(each_s)) / virtual


@EACH_CASE
def test_equal_stages_take_exactly_the_closed_form(name, stages, virtual, micro):
    played = simulated_s(name, virtual, micro, [1.0] * stages, [2.0] * stages)

    assert played == pytest.approx(closed_form_s(virtual, micro, [3.0] * stages), rel=1e-12)


@all_cases("name", SCHEDULES)
def test_one_stage_has_no_bubble(name):
    assert simulated_s(name, 2 if name in FOLDED else 1, 7, [1.0], [2.0]) == 21.0


@settings(max_examples=60, deadline=None)
@given(forward=STAGES_S, ratio=st.floats(0.1, 10.0), micro=st.integers(1, 12))
def test_1f1b_never_takes_longer_than_its_closed_form_if_one_ratio_holds_for_all_stages(
    forward, ratio, micro
):
    """Of backward to forward. A stage's wait for its neighbours can hide in another's slack."""
    backward = [ratio * each for each in forward]

    played = simulated_s("1f1b", 1, micro, forward, backward)

    each = [f + b for f, b in zip(forward, backward, strict=True)]
    assert played <= closed_form_s(1, micro, each) * (1 + 1e-9)


def test_a_slow_first_stage_hides_its_neighbour_so_the_closed_form_is_no_lower_bound():
    played = simulated_s("1f1b", 1, 8, [1.0, 0.1], [1.0, 0.1])

    assert played == pytest.approx(16.0)  # by hand: the first stage never waits
    assert closed_form_s(1, 8, [2.0, 0.2]) == pytest.approx(16.2)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    stages=st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.01, 10.0)), min_size=2, max_size=5),
    groups=st.integers(1, 3),
    chunks=st.integers(2, 3),
)
def test_a_step_is_never_shorter_than_the_busiest_stage_s_own_work(name, stages, groups, chunks):
    micro, virtual = groups * len(stages), 2 if name in FOLDED else chunks if name in CHUNKED else 1
    forward, backward = zip(*stages, strict=True)

    played = simulated_s(name, virtual, micro, forward, backward)

    busiest = max(f + b for f, b in stages)
    assert played >= micro * busiest * (1 - 1e-12)
