"""Words of requests: the same job as the command line's, nothing unknown, no file of the server."""

import base64
import json
import re
import zlib

import pytest
from all_cases import all_cases

from flopcast.cli import predict, search
from flopcast.errors import SpecError
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.ui.request_fields import job_from, packed, question_from, unpacked
from flopcast.ui.responses import fields_of
from flopcast.ui.worker import answer

WHOLE = {
    "tp": "8", "pp": "2", "vpp": "1", "cp": "1", "ep": "1", "mbs": "1", "gbs": "64", "zero": "1",
    "recompute": "none", "precision": "bf16",
}  # fmt: skip
START = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "32"}


def told(error):
    return {problem.field: problem for problem in error.value.problems}


def test_a_form_asks_for_the_same_job_as_the_command_line():
    plan = "dp=2 tp=8 pp=2 mbs=1 gbs=64 zero=1 sp"

    asked = JobRequest(
        model="llama-3-8b", cluster="dgx-h100", gpus=32, plan=plan, changes=("batch.seq=4096",)
    )
    from_line = resolve(asked)

    assert job_from(START | WHOLE | {"plan": "sp", "changes": "batch.seq=4096"}) == from_line


def test_a_limit_of_power_is_that_of_the_site():
    limited = job_from(START | WHOLE | {"plan": "sp", "power_limit": "500 W"})
    changed = job_from(START | WHOLE | {"plan": "sp", "changes": "site.power_limit_w=500W"})
    asked = question_from(START | {"power_limit": "500 W"})

    assert limited == changed
    assert limited.site.power_limit_w == 500.0
    assert {job.site.power_limit_w for job in asked.jobs} == {500.0}


def test_a_search_has_the_options_of_the_command_line():
    words = {"power_limit": "700 W, 500 W", "tp_beyond_domain": "yes", "no_refine": "yes"}
    request = JobRequest(model="llama-3-8b", gpus="32", plan="gbs=64")
    limits = ("700 W", "500 W")
    from_line = question_of(
        SearchRequest(
            job=request, clusters=["dgx-h100"], power_limits=limits, tp_beyond_domain=True, no_refine=True
        )
    )

    asked = question_from({"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "32", "gbs": "64"} | words)

    assert [job.site.power_limit_w for job in asked.jobs] == [700.0, 500.0]
    assert (asked.jobs, asked.space) == (from_line.jobs, from_line.space)
    assert not asked.space.refine
    assert not asked.space.tensor_in_domain
    assert question_from(START | {"no_refine": "no"}).space.refine
    with pytest.raises(SpecError):
        question_from(START | {"no_refine": "2"})


def test_a_limit_of_power_that_is_none_is_told():
    with pytest.raises(SpecError) as error:
        job_from(START | WHOLE | {"power_limit": "500 GB"})

    assert "site.power_limit_w" in told(error)


def test_a_number_of_devices_that_is_too_large_has_a_fix_that_works():
    with pytest.raises(SpecError) as error:
        job_from(START | {"gpus": "10000000000"})

    (problem,) = error.value.problems
    assert (problem.because, problem.fix) == ("no job has so many", "set gpus to 8")


def test_fields_of_a_plan_ask_for_that_plan_again():
    job = job_from(START | {"gbs": "64"})

    again = job_from(START | fields_of(job.plan))

    assert again.plan == job.plan


@pytest.mark.parametrize("gpus", ["16", "64", "128"])
def test_replicas_are_what_is_left_of_the_devices(gpus):
    job = job_from(START | WHOLE | {"gpus": gpus, "plan": "sp"})

    assert job.plan.data_parallel == int(gpus) // 16


def test_a_document_in_a_request_is_a_job_file():
    text = "job.yaml\nmodel: llama-3-8b\ncluster: dgx-h100:2\nplan: dp=2 tp=8 gbs=64 sp\n"

    job = job_from({"job": packed(text)})

    assert (job.plan.data_parallel, job.plan.tensor_parallel) == (2, 8)
    assert job_from({"job": packed(text), "seq": "4096"}).batch.mean_sequence_tokens == 4096


def test_a_config_in_a_request_is_a_model():
    text = (
        'config.json\n{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,'
        ' "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,'
        ' "max_position_embeddings": 4096}'
    )

    job = job_from({"job": packed(text), "cluster": "dgx-h100", "gpus": "8"})

    assert job.model.parameters() == 6_738_415_616  # Llama 2 7B (arXiv:2307.09288)


@pytest.mark.parametrize(
    "words",
    [
        {"model": "/etc/hostname"},
        {"model": "./config.json"},
        {"changes": "model=/etc/hostname"},
        {"plan": "schedule=/etc/hostname.csv"},
        {"schedule": "../order.csv"},
        {"model": "", "job": packed("job.yaml\nmodel: /etc/hostname\ncluster: dgx-h100\n")},
        {"job": packed("job.yaml\nmodel: llama-3-8b\nplan: {dp: 4, schedule: /etc/order.csv, gbs: 8}\n")},
        {"changes": "site=/etc/hostname"},
    ],
)
def test_no_file_of_the_server_is_read(words, monkeypatch):
    monkeypatch.setattr("flopcast.files.named_files.opened", lambda *_: pytest.fail("a file was read"))

    with pytest.raises(SpecError):
        job_from(START | words)


def test_no_trace_and_no_script_of_the_server_is_read(monkeypatch):
    for place in ("interop.request_traces.reader.read_request_trace", "requests.serving_words.read_file"):
        monkeypatch.setattr(f"flopcast.{place}", lambda *_: pytest.fail("a file was read"))
    serving = {"model": "llama-3.1-8b", "cluster": "dgx-h100", "gpus": 1, "engine": "vllm"}
    for words in (
        {"traffic": "trace=/etc/passwd"},
        {"traffic": "/etc/bench.sh"},
        {"changes": "traffic.trace=/etc/passwd"},
        {"changes": "traffic=/etc/bench.sh"},
        {"job": {"traffic": {"trace": "/etc/passwd"}}},
        {"job": {"traffic": "trace=/etc/passwd"}},
        {"job": packed("job.yaml\ntraffic: {trace: /etc/passwd}\n")},
    ):
        for task in ("api.serve", "api.memory", "api.search"):
            assert answer(task, serving | words, lambda _: None).status == 400, (task, words)
        both = {"a": serving | words, "b": serving}
        assert answer("api.compare", both, lambda _: None).status == 400, words


@all_cases(
    ("words", "fixes"),
    [
        ({"modle": "gpt3-175b"}, {"modle": "did you mean model?"}),
        (
            {"batch": 64, "global_batch": 64},
            {"batch": "did you mean gbs?", "global_batch": "did you mean gbs?"},
        ),
        ({"top": 3}, {"top": "remove top"}),
        ({"optimizer": "adamw"}, {"optimizer": 'write "plan": "optimizer=adamw"'}),
        ({"engine": "vllm"}, {"engine": "send the request to /api/v1/serve, or remove engine"}),
        ({"gpus": "-8"}, {"gpus": "set gpus to 8"}),
        ({"gpus": 16.0}, {"gpus": "set gpus to 16"}),
        ({"gpus": "eight", "tpp": 2}, {"gpus": "set gpus to 8", "tpp": "did you mean tp?"}),
        ({"gpus": "9" * 40}, {"gpus": "set gpus to 8"}),
        ({"seq": "1.5"}, {"seq": "set seq to 1"}),
        ({"model": "gpt5"}, {"model": "did you mean"}),
        ({"model": {"num_layers": 2}}, {"model": 'write "job": {"model": {"num_layers": 2}}'}),
        ({"plan": {"tp": 2, "gbs": 64}}, {"plan": 'write "plan": "tp=2 gbs=64"'}),
        ({"changes": ["a.b=1", "c.d=2"]}, {"changes": 'write "changes": "a.b=1 c.d=2"'}),
        ({"power_limit": 400}, {"site.power_limit_w": 'write --power-limit "400 W"'}),
        ({"tp": "8", "plan": "tp=4"}, {"tp": "remove the field tp, or tp=4 from plan"}),
        ({"job": "no packed text"}, {"job": 'write "job": {"model"'}),
        ({"job": packed("job.yaml\n" + "a" * 300_000)}, {"job": "upload the file again"}),
    ],
)
def test_each_wrong_field_is_reported_with_the_edit_that_mends_it(words, fixes):
    with pytest.raises(SpecError) as error:
        job_from(START | words)

    assert all(fix in told(error)[field].fix for field, fix in fixes.items())


def test_errors_of_a_serving_job_are_reported_together_with_edits_that_work():
    words = {
        "model": "llama-3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 1,
        "engine": "vlm",
        "slo": "tttf_p99=2s",
    }
    words |= {"traffic": "rate=-4/s prompt=2000", "outptu": 30}
    for task in ("api.serve", "api.predict", "api.memory", "api.search"):
        stated = dict(words)
        faults = json.loads(answer(task, words, lambda _: None).body)["faults"]

        assert [(each["field"], each["place"]) for each in faults] == [
            (field, "request") for field in ("outptu", "engine", "rate", "slo")
        ], task
        for each in faults:
            stated |= each["edits"][0]
        del stated["outptu"]
        assert answer(task, stated, lambda _: None).status == 200, task


def test_a_setting_of_the_plan_that_stands_outside_is_added_to_the_plan():
    with pytest.raises(SpecError) as error:
        job_from(START | {"plan": "gbs=64", "optimizer": "adam9"})

    assert told(error)["optimizer"].edits == ({"plan": "gbs=64 optimizer=adam9"},)
    assert "plan.optimizer" in told(error)


def test_a_length_may_be_written_as_people_write_it():
    assert job_from(START | {"seq": "8k"}).batch.sequence_length == 8192


def test_a_small_word_that_unpacks_to_much_is_refused_before_it_is_unpacked():
    bomb = base64.urlsafe_b64encode(zlib.compress(b"0" * 50_000_000, 9)).decode()

    with pytest.raises(SpecError):
        unpacked(bomb)


def test_a_search_settles_what_is_said_and_takes_several_values():
    question = question_from(
        START | {"gpus": "32,64", "mbs": "1,2", "gbs": "64", "objectives": "cost memory"}
    )

    assert question.objectives == ("cost", "memory")
    assert tuple(question.space.micro_batch) == (1, 2)
    assert [job.cluster.num_devices for job in question.sized()] == [32, 64]


def test_a_search_takes_several_clusters_and_stacks():
    question = question_from(
        START | {"cluster": "dgx-h100 dgx-a100", "stack": "megatron-core nemo", "objectives": "cost"}
    )

    assert [(job.cluster.name, job.stack.name) for job in question.sized()] == [
        (cluster, stack) for cluster in ("dgx-h100", "dgx-a100") for stack in ("megatron-core", "nemo")
    ]


def test_words_of_a_search_are_none_of_a_job():
    with pytest.raises(SpecError) as error:
        job_from(START | {"objectives": "cost"})

    assert "objectives" in told(error)


@all_cases(
    ("task", "words", "field", "edits"),
    [
        ("api.predict", {"gpus": "16x"}, "gpus", [{"gpus": 16}]),
        ("api.search", {"gpus": 16, "objective": "cost"}, "objective", [{"objectives": "cost"}]),
        ("api.serve", {"gpus": 8, "engine": "vllm", "rate": "-3/min"}, "rate", [{"rate": "3/min"}]),
        ("api.diagnose", {"gpus": 16, "log": "hello"}, "log", []),
        ("api.diagnose", {"gpus": 16, "log": ""}, "log", []),
        ("api.predict", {"gpus": 12}, "gpus", [{"gpus": 8}, {"gpus": 16}]),
        ("api.predict", {"plan": "tp=2 zeroo=1"}, "plan.zeroo", [{"plan": "tp=2 zero=1"}]),
        (
            *("api.serve", {"engine": "vllm", "traffic": "rate=4/s promt=2k"}, "traffic.promt"),
            [{"traffic": "rate=4/s prompt=2k"}],
        ),
    ],
)
def test_an_error_names_the_field_of_the_request_and_has_its_edits(task, words, field, edits):
    made = answer(task, {"model": "llama-3.1-8b", "cluster": "dgx-h100", **words}, lambda _: None)

    (fault,) = json.loads(made.body)["faults"]
    assert (fault["field"], fault["value"], fault["edits"]) == (
        field,
        words.get(field, fault["value"]),
        edits,
    )


OPTIONS = {
    name for command in (search, predict) for parameter in command.command.params for name in parameter.opts
}


def test_answers_name_fields_of_the_request_and_no_options_of_the_command_line():
    """Commands of flopcast that a text names in full, and flags of other software, may stay."""
    job = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "8"}
    large = {"model": "llama-3-8b", "cluster": "rtx-4090-8", "gpus": "1", "lora": "16", "samples": "10k"}
    log = " iteration {0:8d}/ 99 | elapsed time per iteration (ms): 9600.0 | global batch size:  256 |\n"
    asked = {
        "no plan fits": ("api.predict", large, 422),
        "no plan fits, on the page": ("page.predict", large, 422),
        "no such cluster": ("api.predict", job | {"cluster": "t4"}, 400),
        "two kinds of adapters": ("api.predict", job | {"lora": "4", "qlora": "4"}, 400),
        "an objective that lacks tokens": ("api.search", job | {"objectives": "run_cost"}, 400),
        "what was not tried": ("page.search", job | {"stack": "pytorch-ddp"}, 200),
        "a degree above the devices": ("page.search", job | {"tp": "16"}, 400),
        "a log": ("api.diagnose", job | {"log": "".join(map(log.format, range(1, 12)))}, 200),
    }
    for name, (task, words, status) in asked.items():
        made = answer(task, words, lambda _: None)

        told = re.sub(r"flopcast [a-z]+ --[a-z-]+", "", made.body)
        assert made.status == status, name
        assert OPTIONS & set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", told)) == set(), name
    fits = json.loads(answer("api.predict", large, lambda _: None).body)["faults"][0]["message"]
    assert "\n  seq 1024 " in fits
    assert "qlora 16 seq 4096 instead of lora 16" in fits
