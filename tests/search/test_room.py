"""The room that plans may use, in closed form, and questions that make no sense."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plans import JOB, played

from flopcast.errors import SpecError
from flopcast.search.memory_limit import memory_ratio, used_memory_ratio
from flopcast.search.objectives import OBJECTIVES
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.spec.operations import Price

DEVICE_BYTES = JOB.cluster.node.device.memory_bytes
LAWS = settings(max_examples=50)
headroom = st.floats(0.5, 1.0)
used = st.lists(st.floats(1e6, 200e9), min_size=1, max_size=8)


@LAWS
@given(sizes=used, fraction=headroom)
def test_a_plan_that_fits_is_judged_by_its_bytes_over_the_headroom(sizes, fraction):
    sizes = np.array(sizes)
    room = fraction * DEVICE_BYTES

    ratio = memory_ratio(sizes, sizes, np.ones(sizes.shape, dtype=bool), DEVICE_BYTES, fraction)

    assert ratio == pytest.approx(sizes / room)
    assert ((ratio <= 1.0) == (sizes <= room)).all()


@LAWS
@given(sizes=used, fraction=headroom)
def test_a_plan_that_does_not_fit_is_over_however_little_is_seen_of_it(sizes, fraction):
    sizes = np.array(sizes)

    ratio = memory_ratio(sizes, sizes, np.zeros(sizes.shape, dtype=bool), DEVICE_BYTES, fraction)

    assert (ratio > 1.0).all()
    assert ratio == pytest.approx(np.maximum(sizes / (fraction * DEVICE_BYTES), 1.0), rel=1e-8)


@LAWS
@given(sizes=used)
def test_without_a_headroom_the_high_end_decides(sizes):
    high = np.array(sizes)

    ratio = memory_ratio(0.9 * high, high, 0.95 * high <= DEVICE_BYTES, DEVICE_BYTES, None)

    assert ((ratio <= 1.0) == (high <= DEVICE_BYTES)).all()
    assert ratio == pytest.approx(high / DEVICE_BYTES)


@LAWS
@given(sizes=used, one=headroom, other=headroom)
def test_a_smaller_headroom_never_leaves_more_room(sizes, one, other):
    sizes, flags = np.array(sizes), np.ones(len(sizes), dtype=bool)
    small, large = (memory_ratio(sizes, sizes, flags, DEVICE_BYTES, each) for each in sorted((one, other)))

    assert (small >= large).all()


@LAWS
@given(size=st.floats(1e9, 200e9), fraction=headroom | st.none())
def test_a_played_plan_is_judged_as_a_screened_one(size, fraction):
    one = played(10.0, used_bytes=size)

    sizes = (np.array([each]) for each in (size, one.high_bytes, one.fits))

    assert used_memory_ratio(one, fraction) == memory_ratio(*sizes, DEVICE_BYTES, fraction).item()


def refused(**parts):
    """Fields of the faults of a question."""
    with pytest.raises(SpecError) as error:
        Question(**({"jobs": (JOB,)} | parts))
    return {problem.field: problem for problem in error.value.problems}


@all_cases(
    ("parts", "field"),
    [
        ({"jobs": ()}, "jobs"),
        ({"objectives": ()}, "objectives"),
        ({"objectives": ("speed",)}, "objective"),
        ({"total_tokens": -1.0}, "tokens"),
        ({"objectives": ("time_to_train",)}, "tokens"),
        ({"objectives": ("run_cost",)}, "tokens"),
        ({"deadline_s": 1e6}, "tokens"),
        ({"budget_usd": 1e6}, "tokens"),
        ({"deadline_s": 0.0, "total_tokens": 1e12}, "deadline"),
        ({"budget_usd": -5.0, "total_tokens": 1e12}, "budget"),
        ({"space": Space(global_batch=(16, 32))}, "objective"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_its_field(parts, field):
    assert field in refused(**parts)


def test_all_faults_of_a_question_are_told_at_once():
    found = refused(objectives=("speed", "time_to_train"), deadline_s=-1.0, budget_usd=0.0)

    assert {"objective", "tokens", "deadline", "budget"} <= set(found)


@all_cases(
    ("wrong", "near"),
    [("step_tim", "step_time"), ("costs", "cost"), ("energi", "energy"), ("xyz", "step_time")],
)
def test_an_unknown_objective_is_answered_with_the_nearest(wrong, near):
    problem = refused(objectives=(wrong,))["objective"]

    assert problem.fix == f"write {near}"
    assert problem.allowed == ", ".join(OBJECTIVES)


@all_cases("name", [name for name, one in OBJECTIVES.items() if "price" in one.needs])
def test_dollars_are_not_asked_of_a_cluster_without_a_price(name):
    free = JOB.model_copy(update={"cluster": JOB.cluster.model_copy(update={"price": None})})

    assert "cluster.price" in refused(jobs=(free,), objectives=(name,), total_tokens=1e12)


def test_joules_are_not_asked_of_a_device_without_a_power():
    group = JOB.cluster.groups[0]
    device = group.node.device.model_copy(update={"board_power_w": None})
    node = group.node.model_copy(update={"device": device})
    cluster = JOB.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})

    found = refused(jobs=(JOB.model_copy(update={"cluster": cluster}),), objectives=("energy",))

    assert "device.board_power_w" in found


@all_cases("name", [name for name, one in OBJECTIVES.items() if not one.per_step])
def test_rates_compare_steps_of_different_batches(name):
    priced = JOB.cluster.model_copy(update={"price": Price(device_usd_per_hour=2.0)})
    job = JOB.model_copy(update={"cluster": priced})
    space = Space(global_batch=(16, 32))

    assert Question(jobs=(job,), space=space, objectives=(name,), total_tokens=1e12).first.key


@pytest.mark.parametrize("name", OBJECTIVES)
@given(loss=st.floats(1e-12, 1e12))
@LAWS
def test_what_is_shown_of_a_loss_leads_back_to_it(name, loss):
    objective = OBJECTIVES[name]

    assert objective.shown(objective.shown(loss)) == pytest.approx(loss)
    assert (objective.shown(2 * loss) > objective.shown(loss)) is not objective.inverse


def test_one_objective_has_memory_beside_it_and_several_only_themselves():
    one, two = Question(jobs=(JOB,)), Question(jobs=(JOB,), objectives=("tokens_per_s", "energy"))

    assert [asked.key for asked in one.asked] == ["step_time_s", "peak_memory_bytes"]
    assert [asked.key for asked in two.asked] == ["tokens_per_s", "energy_kwh_per_1e12_tokens"]
    assert Question(jobs=(JOB,), objectives=("memory",)).first.key == "peak_memory_bytes"
