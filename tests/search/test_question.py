"""What a search may be asked: faults of a question, all at once, each with an edit that mends it."""

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.errors import SpecError
from flopcast.search.objectives import OBJECTIVES
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.spec.operations import Price

JOB = make_job()
NOBODYS = JOB.cluster.node.device.model_copy(update={"board_power_w": None})
NODE = JOB.cluster.node.model_copy(update={"device": NOBODYS})
UNKNOWN = JOB.model_copy(
    update={
        "cluster": JOB.cluster.model_copy(
            update={"price": None, "groups": (JOB.cluster.groups[0].model_copy(update={"node": NODE}),)}
        )
    }
)
LISTED = make_job(
    batch={"seq": 1024, "micro_batches": [{"seq": 512, "count": 1}, {"seq": 1024, "count": 1}]}
)


def faults_of(**parts):
    with pytest.raises(SpecError) as raised:
        Question(**({"jobs": (JOB,)} | parts))
    return [problem.field for problem in raised.value.problems]


def test_what_is_left_out_is_called_missing_and_not_a_value_that_the_user_wrote():
    with pytest.raises(SpecError) as raised:
        Question(jobs=(UNKNOWN,), deadline_s=1e6, budget_usd=3e6, objectives=("energy",))

    tokens, price, power = raised.value.problems
    assert tokens.because == "a deadline and a budget need the number of tokens of the run"
    assert price.because.startswith("a budget needs a price")
    assert power.because == "the objective energy needs it"
    for problem in (tokens, price, power):
        assert problem.message == f"{problem.field} is missing"


@all_cases(
    ("parts", "fields"),
    [
        ({"jobs": ()}, ["jobs"]),
        ({"objectives": ()}, ["objectives"]),
        ({"objectives": ("stepp_time",)}, ["objective"]),
        ({"objectives": ("time_to_train",)}, ["tokens"]),
        ({"deadline_s": 1e6}, ["tokens"]),
        ({"budget_usd": 0.0}, ["budget", "tokens"]),
        ({"jobs": (UNKNOWN,), "objectives": ("cost", "energy")}, ["cluster.price", "device.board_power_w"]),
        ({"deadline_s": -1.0, "total_tokens": 1e12}, ["deadline"]),
        ({"total_tokens": -1.0}, ["tokens"]),
        ({"space": Space(gbs="16,32")}, ["objective"]),
        ({"space": Space(gpus="12")}, ["gpus"]),
        ({"jobs": (LISTED,)}, ["batch.micro_batches"]),
        ({"objectives": ("speed", "price"), "total_tokens": -1.0}, ["objective", "objective", "tokens"]),
    ],
)
def test_a_question_without_sense_is_refused_with_every_fault(parts, fields):
    assert faults_of(**parts) == fields


def test_a_near_name_is_suggested():
    for wrong, near in (("tokens_per_sec", "tokens_per_s"), ("energi", "energy"), ("xyz", "step_time")):
        with pytest.raises(SpecError) as raised:
            Question(jobs=(JOB,), objectives=(wrong,))

        assert raised.value.problems[0].fix == f"write {near} in place of {wrong}"
        assert raised.value.problems[0].allowed == ", ".join(OBJECTIVES)


def test_several_batches_may_be_compared_by_whatever_is_not_of_one_step():
    job = JOB.model_copy(
        update={"cluster": JOB.cluster.model_copy(update={"price": Price(device_usd_per_hour=2.0)})}
    )
    for name in (name for name, one in OBJECTIVES.items() if not one.per_step):
        asked = Question(jobs=(job,), space=Space(gbs="16,32"), objectives=(name,), total_tokens=1e12)

        assert asked.first is OBJECTIVES[name]


def test_one_objective_has_memory_beside_it_and_several_stand_alone():
    names = ("tokens_per_s", "tokens_per_s_per_device")

    assert Question(jobs=(JOB,)).asked[1] is OBJECTIVES["memory"]
    assert len(Question(jobs=(JOB,), objectives=names).asked) == 2
    assert len(Question(jobs=(JOB,), objectives=("memory",)).asked) == 1


def test_a_job_is_asked_about_on_every_size_of_its_cluster():
    sizes = Question(jobs=(JOB, JOB), space=Space(gpus="2,4", gbs=16)).sized()

    assert [job.cluster.num_devices for job in sizes] == [2, 4, 2, 4]
