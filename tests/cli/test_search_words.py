"""Which question a line of words of `flopcast search` asks."""

import pytest
from all_cases import all_cases

from flopcast.errors import SpecError
from flopcast.requests.job_request import JobRequest
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.requests.words import files_and_changes

JOB = """\
model: megatron-1.7b
cluster: dgx-a100:1
stack: megatron-core
batch: {sequence_length: 2048}
plan: PLAN
"""
WITHOUT_FILE = {
    "model": "megatron-1.7b",
    "clusters": ("dgx-a100:1",),
    "stacks": ("megatron-core",),
    "seq": 2048,
}


def asked(job=None, *changes, **named):
    """The question that these words ask; on one DGX A100 unless a file says otherwise."""
    files, changes = files_and_changes([*([str(job)] if job else []), *changes])
    named = (WITHOUT_FILE if job is None else {}) | named
    own = {name: named.pop(name) for name in JobRequest.__slots__ if name in named}
    return question_of(SearchRequest(job=JobRequest(files=files, changes=changes, **own), **named))


@pytest.fixture
def file(tmp_path):
    def written(plan):
        path = tmp_path / "job.yaml"
        path.write_text(JOB.replace("PLAN", plan))
        return path

    return written


def test_words_of_the_plan_become_values_of_the_space():
    space = asked(
        plan="tp=2,4 pp=1 gbs=64..256 zero=1,3 sp recompute=none,full", objectives=("memory",)
    ).space

    assert space.tensor_parallel == (2, 4)
    assert space.pipeline_parallel == (1,)
    assert space.global_batch == (64, 128, 256)
    assert space.zero == (1, 3)
    assert space.sequence_parallel == (True,)
    assert space.recompute == ("none", "full")


def test_words_that_no_space_has_are_settled_in_the_jobs_plan():
    question = asked(plan="gbs=64 optimizer=sgd rank_order=tp-cp-pp-dp")

    assert question.jobs[0].plan.optimizer == "sgd"
    assert question.jobs[0].plan.rank_order == "tp-cp-pp-dp"
    assert question.space.global_batch == (64,)


def test_a_whole_plan_of_a_file_settles_the_training_and_is_kept_to_compare(file):
    question = asked(file("{dp: 4, tp: 2, gbs: 32, precision: fp16, optimizer: sgd}"))

    (given,) = question.given
    assert question.space.global_batch == (32,)
    assert question.space.precision == ("fp16",)
    assert question.space.tensor_parallel == ()
    assert question.jobs[0].plan.optimizer == "sgd"
    assert (given.plan.data_parallel, given.plan.tensor_parallel) == (4, 2)


def test_the_option_for_the_plan_leaves_the_training_of_a_file_as_it_is(file):
    question = asked(file("{dp: 4, tp: 2, gbs: 32, precision: fp16, optimizer: sgd}"), plan="tp=2,4 gbs=64")

    assert question.space.tensor_parallel == (2, 4)
    assert question.space.global_batch == (64,)
    assert question.space.precision == ("fp16",)
    assert question.jobs[0].plan.optimizer == "sgd"


def test_an_open_plan_of_a_file_settles_what_it_says_and_is_nothing_to_compare(file):
    question = asked(file("{auto: true, tp: 4, gbs: 32, recompute: 'full:block:4'}"))

    assert question.space.tensor_parallel == (4,)
    assert question.space.recompute == ("full:block:4",)
    assert question.given == ()


def test_a_plan_of_a_file_that_cannot_run_is_nothing_to_compare(file):
    question = asked(file("{dp: 3, gbs: 32}"))

    assert question.given == ()
    assert question.space.global_batch == (32,)


def test_changes_of_the_plan_win_over_its_file(file):
    question = asked(file("{dp: 8, gbs: 32}"), "plan.gbs=128", "plan.tp=2,4", "batch.sequence_length=1024")

    assert question.space.global_batch == (128,)
    assert question.space.tensor_parallel == (2, 4)
    assert question.jobs[0].batch.sequence_length == 1024


def test_a_change_of_the_plan_may_come_first_without_a_file():
    assert asked("plan.gbs=64", **WITHOUT_FILE).space.global_batch == (64,)


def test_clusters_make_one_job_each_and_sizes_are_of_the_space():
    question = asked(clusters=("dgx-a100:1", "dgx-h100:1"), gpus="4,8", plan="gbs=64")

    assert [job.cluster.name for job in question.jobs] == ["dgx-a100", "dgx-h100"]
    assert [job.cluster.num_devices for job in question.sized()] == [4, 8, 4, 8]


def test_names_with_commas_between_them_are_names_of_their_own():
    several = {
        "clusters": ("dgx-a100:1", "dgx-h100:1"),
        "stacks": ("megatron-core", "megatron-2022"),
        "objectives": ("tokens_per_s", "cost"),
    }
    wanted = asked(plan="gbs=64 precision=fp16", **several)

    for separator in (",", ", "):
        joined = {name: (separator.join(values),) for name, values in several.items()}
        assert asked(plan="gbs=64 precision=fp16", **joined) == wanted


def test_a_name_between_commas_that_is_unknown_is_told_alone():
    with pytest.raises(SpecError) as error:
        asked(clusters=("dgx-a100:1,dgx-z100",))

    assert [problem.value for problem in error.value.problems] == ["dgx-z100"]


@all_cases(("text", "tokens"), [("2e12", 2e12), ("2T", 2e12), ("300B", 3e11), ("15 T", 15e12), (None, 0.0)])
def test_tokens_are_written_as_people_count_them(text, tokens):
    assert asked(tokens=text).total_tokens == tokens


@all_cases(
    ("text", "dollars"),
    [
        ("40000", 4e4),
        ("40,000 USD", 4e4),
        ("$1,234,567", 1_234_567.0),
        ("2.5M USD", 2.5e6),
        ("$3M", 3e6),
        ("1B", 1e9),
        (None, None),
    ],
)
def test_a_budget_is_written_with_or_without_its_unit(text, dollars):
    assert asked(tokens="1T", budget=text).budget_usd == dollars


@pytest.mark.parametrize(("text", "seconds"), [("30 d", 30 * 86400.0), ("12 h", 43200.0), (None, None)])
def test_a_deadline_has_a_unit(text, seconds):
    assert asked(tokens="1T", deadline=text).deadline_s == seconds


def test_room_and_domains_are_limits_of_the_space():
    space = asked(headroom="0.8", tp_beyond_domain=True).space

    assert space.headroom_fraction == 0.8
    assert not space.tensor_in_domain


def test_the_first_objective_is_a_step_unless_another_is_named():
    assert asked(plan="gbs=64").objectives == ("step_time",)
    assert asked(objectives=("memory", "energy")).objectives == ("memory", "energy")


def test_a_price_is_read_as_everywhere():
    question = asked(price="2.5 USD/h")

    assert question.jobs[0].cluster.price.device_usd_per_hour == 2.5


@all_cases(
    ("words", "fields"),
    [
        ({"plan": "tp=2 tp=4"}, ["plan.tensor_parallel"]),
        ({"plan": "nonsense=1"}, ["plan.nonsense"]),
        ({"plan": "zero=7"}, ["zero"]),
        ({"headroom": "1.5"}, ["headroom_fraction"]),
        ({"tokens": "-1T"}, ["run.tokens"]),
        ({"tokens": "0", "objectives": ("time_to_train",)}, ["run.tokens"]),
        ({"deadline": "30"}, ["--deadline", "tokens"]),
        ({"deadline": "-3 d", "tokens": "1T"}, ["--deadline"]),
        ({"clusters": ("nowhere", "neverwhere")}, ["cluster", "cluster"]),
        ({"model": "no-such-model", "tokens": "many"}, ["model", "run.tokens"]),
        ({"gpus": "13"}, ["gpus"]),
    ],
)
def test_faults_are_told_by_what_was_written_all_at_once(words, fields):
    with pytest.raises(SpecError) as raised:
        asked(**words)

    told = [problem.field for problem in raised.value.problems]
    assert len(told) == len(fields)
    assert all(one in other for one, other in zip(fields, told, strict=True))


def test_evolution_is_asked_by_a_flag_or_a_word():
    assert not asked().evolve
    assert asked(evolve=True).evolve
    assert asked(evolve="yes").evolve
    with pytest.raises(SpecError, match="set --evolve to yes, or remove it"):
        asked(evolve="100")
