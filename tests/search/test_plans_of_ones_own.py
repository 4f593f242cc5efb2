"""render/search_reasons.py on plans that a user has, that lack room, or that break a rule: numbers to be
checked."""

import re

import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plans import JOB, factor, played

from flopcast.errors import Problem, SpecError
from flopcast.quantities import parse_quantity
from flopcast.render.search_reasons import broken_rules, gap_to_best, reason_slower
from flopcast.search.question import Question
from flopcast.search.rank import against, losses_of, ranked
from flopcast.search.space import Space

FEW = settings(max_examples=30)
QUESTION = Question(jobs=(JOB,))
GEMM = factor("gemm_level[a100]", 0.05, 0.6)
FABRIC = factor("fabric[hdr]", 0.2, 0.4)
THERE_BYTES = JOB.cluster.node.device.memory_bytes


def beside(best, *others, question=QUESTION):
    """The plans in order, each beside the best."""
    first = losses_of(question, best)[0]
    return [against(first, one, losses_of(question, one)) for one in (best, *others)]


def percent(sentence):
    """The first percentage of a sentence, as a share."""
    return float(re.search(r"(-?\d+\.\d+)%", sentence)[1]) / 100


@FEW
@given(st.floats(5.0, 9.9))
def test_a_plan_of_ones_own_that_is_faster_than_the_space_says_by_how_much(step_s):
    first, own = beside(played(10.0, GEMM), played(step_s, FABRIC, tp=2, dp=4))

    told = gap_to_best(own, first, QUESTION)

    assert percent(told) == pytest.approx(1 - step_s / 10.0, abs=6e-4)
    assert "faster than the best plan of the search space" in told


@FEW
@given(st.floats(10.5, 30.0))
def test_one_that_is_slower_is_told_as_any_plan_behind_the_first(step_s):
    first, own = beside(played(10.0, GEMM), played(step_s, GEMM, tp=2, dp=4))

    told = gap_to_best(own, first, QUESTION)

    assert told == reason_slower(own, first, QUESTION)
    assert percent(told) == pytest.approx(step_s / 10.0 - 1, abs=6e-4)


@FEW
@given(st.floats(0.91, 1.5))
def test_one_that_lacks_room_says_how_many_bytes_and_where_it_would_stand(share):
    used_bytes = share * THERE_BYTES
    first, own = beside(played(10.0, GEMM), played(12.0, GEMM, tp=2, dp=4, used_bytes=used_bytes))

    told = gap_to_best(own, first, QUESTION)

    if own.played.verdict != "fits":
        over_bytes = used_bytes if share > 1 else own.played.high_bytes
        number, unit = re.search(r"it needs (\S+) (\S+) more", told).groups()
        lacked_bytes = parse_quantity(f"{number} {unit}", ("B",))
        assert lacked_bytes == pytest.approx(over_bytes - THERE_BYTES, rel=0.01)
    else:
        assert "it needs" not in told


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_rule_that_is_broken_is_told_with_what_would_pass(count):
    problems = [
        Problem(field=f"plan.field_{n}", value=n, allowed=f"{n + 1}", because=f"reason {n}", fix="")
        for n in range(count)
    ]

    told = broken_rules(problems)

    parts = told.split("; ")
    assert len(parts) == count
    for n, part in enumerate(parts):
        assert part == f"plan.field_{n} = {n}: reason {n} (allowed: {n + 1})"


@FEW
@given(st.lists(st.floats(5.0, 50.0), min_size=1, max_size=6, unique=True), st.randoms())
def test_in_which_order_plans_were_played_changes_nothing_that_is_told(steps_s, chance):
    plans = [played(step_s, GEMM, FABRIC) for step_s in steps_s]

    mixed = ranked(QUESTION, chance.sample(plans, len(plans)))

    assert [one.played for one in mixed] == [one.played for one in ranked(QUESTION, plans)]


def test_plans_on_another_cluster_are_behind_by_what_their_own_devices_take():
    """Devices alone: the same step on twice the nodes is half the rate of each device."""
    wide = make_job(cluster="dgx-a100:2", plan="dp=16 gbs=16 precision=fp16")
    rates = Question(jobs=(JOB, wide), objectives=("tokens_per_s_per_device",))

    first, other = beside(played(10.0, GEMM), played(10.0, GEMM, job=wide, dp=16), question=rates)

    assert other.ratio == pytest.approx(2.0)
    assert percent(reason_slower(other, first, rates)) == pytest.approx(1.0)


@all_cases(
    ("twice", "once"),
    [
        ({"tp": "2,1..4"}, {"tp": "2,1,4"}),
        ({"tp": [1, 1], "gbs": "64,32..64"}, {"tp": 1, "gbs": "64,32"}),
        ({"recompute": "none none full"}, {"recompute": "none full"}),
    ],
)
def test_a_value_that_is_named_twice_is_one(twice, once):
    assert Space(**twice) == Space(**once)
    assert len(Space(**twice).structures(JOB)) == len(set(Space(**twice).structures(JOB)))


def test_a_number_that_a_text_lists_twice_is_refused_because_it_may_be_a_slip():
    for field, text, right in [("mbs", "1,1,1", "micro_batch=1"), ("zero", "1,1", "zero=1")]:
        with pytest.raises(SpecError) as told:
            Space(**{field: text})

        (problem,) = told.value.problems
        assert (problem.because, problem.fix) == ("the list contains 1 twice", f"write {right}")
