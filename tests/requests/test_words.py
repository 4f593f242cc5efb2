"""Words without an option: a model instead of a file, the cluster of a job that names none."""

import json

import pytest
from all_cases import all_cases
from command_line import JOB, flopcast

from flopcast import job
from flopcast.errors import SpecError
from flopcast.jobs import dump_job
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.words import files_and_changes
from flopcast.ui.request_fields import job_from

CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
    "num_hidden_layers": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip
PLAN = "dp=4 tp=4 gbs=64 sp zero=1"


def described(made):
    """All that a job says but its assumptions."""
    return dump_job(made.model_copy(update={"assumptions": ()}))


@all_cases("model", ["llama-3-8b", "LLAMA3_8B", "meta-llama/Meta-Llama-3-8B-Instruct", "Qwen/QwQ-32B"])
def test_a_word_that_names_a_model_is_the_option_model(model):
    first, second = job(model, gpus=16, plan=PLAN), job(model=model, gpus=16, plan=PLAN)

    assert first == second


def test_a_model_is_the_same_on_the_command_line_in_python_and_over_http():
    by_word = flopcast("predict", "llama-3-8b", "--gpus", 16, "--plan", PLAN, "--json")
    by_option = flopcast("predict", "--model", "llama-3-8b", "--gpus", 16, "--plan", PLAN, "--json")
    over_http = job_from({"model": "llama-3-8b", "gpus": "16", "plan": PLAN})

    assert by_word == by_option
    assert json.loads(by_word.out)["assumptions"] == list(job("llama-3-8b", gpus=16, plan=PLAN).assumptions)
    assert described(over_http) == described(job("llama-3-8b", gpus=16, plan=f"auto {PLAN}"))


@all_cases("command", ["memory", "explain step", "compare"])
def test_commands_take_a_model_where_they_take_a_file(command):
    setup = ("--gpus", 16, "--plan", PLAN, *(["plan.recompute=full"] if command == "compare" else []))

    by_word = flopcast(*command.split(), "llama-3-8b", *setup)
    by_option = flopcast(*command.split(), "--model", "llama-3-8b", *setup)

    assert by_word.code == 0
    assert by_word.out.replace("llama-3-8b:", "as given:") == by_option.out


def test_a_folder_wins_over_a_model_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "llama-3-8b").mkdir()
    (tmp_path / "llama-3-8b/config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    plan = "dp=8 gbs=8"
    monkeypatch.chdir(tmp_path)

    assert job("llama-3-8b", plan=plan).model.hidden == CONFIG["hidden_size"]
    assert job(model="llama-3-8b", plan=plan).model.hidden == CONFIG["hidden_size"]


@all_cases("first", [True, False])
def test_a_model_beside_a_file_replaces_the_files_model(tmp_path, first):
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    words = ("gpt3-1.3b", str(path)) if first else (str(path), "gpt3-1.3b")

    files, changes = files_and_changes([*words, "plan.recompute=full"])

    assert changes == ("plan.recompute=full",)
    assert resolve(JobRequest(files=files, changes=changes)) == job(
        path, model="gpt3-1.3b", changes=["plan.recompute=full"]
    )


@all_cases(
    ("word", "near"),
    [
        ("lama-3-8b", "did you mean llama-3-8b"),
        ("meta-llama/Llama-99-7B", "did you mean llama-7b"),
        ("job1.yaml", "did you mean job.yaml?"),
        ("./jib.yaml", "did you mean job.yaml?"),
        ("nowhere/job.yaml", "check the path"),
        (
            "alexnet",
            "choose one of these names (flopcast catalog models lists all). For another model, give",
        ),
    ],
)
def test_a_word_that_is_neither_file_nor_model_is_one_fault_with_the_nearest_names(
    word, near, tmp_path, monkeypatch
):
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SpecError) as caught:
        resolve(JobRequest(files=(word,), gpus=16))

    (problem,) = caught.value.problems
    assert problem.value == word
    assert problem.because == "there is no file with this name, and no model in the catalogue"
    assert problem.fix.startswith(near)


@all_cases(
    ("word", "file"),
    [
        ("timm:resnet50", "resnet50.yaml"),
        ("hf:google-t5/t5-11b", "t5-11b.yaml"),
        ("diffusers:./folder/flux/", "flux.yaml"),
    ],
)
def test_a_model_of_another_library_is_predicted_from_its_import(word, file):
    with pytest.raises(SpecError) as caught:
        resolve(JobRequest(files=(word,), gpus=16))

    (problem,) = caught.value.problems
    assert problem.fix == f"run flopcast import graph {word} -o {file}, and predict {file}"


@all_cases("size", [{}, {"gpus": 16}, {"gpus": 4}])
def test_a_job_without_a_cluster_runs_on_the_usual_one(size):
    plan = f"auto gbs=512 {'' if size else 'tp=2'} pp=1 sp mbs=1 recompute=selective"

    assumed = job("llama-3-8b", plan=plan, **size)
    named = job("llama-3-8b", cluster="dgx-h100", plan=plan, **size)

    assert described(assumed) == described(named)
    assert set(assumed.assumptions) - set(named.assumptions) == {"cluster dgx-h100"}


def test_every_way_of_naming_a_cluster_beats_the_usual_one():
    named = job("llama-3-8b", cluster="dgx-a100", gpus=16, plan=PLAN)

    for changes in (("cluster=dgx-a100",), ("cluster.base=dgx-a100",), ("cluster.base=dgx-a100:2",)):
        assert job("llama-3-8b", gpus=16, plan=PLAN, changes=changes) == named
    assert "cluster dgx-h100" not in named.assumptions


def test_a_change_of_the_usual_cluster_is_a_change_of_an_assumed_one():
    changed = job("llama-3-8b", gpus=16, plan=PLAN, price="2 USD/h", changes=["cluster.jitter.ratio=1.5"])

    assert changed.cluster.jitter.ratio == 1.5
    assert changed.cluster.price.device_usd_per_hour == 2
    assert "cluster dgx-h100" in changed.assumptions


def test_the_usual_cluster_has_the_devices_that_a_plan_counts(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("cluster: dgx-a100:1\n", ""), encoding="utf-8")

    assert job("llama-3-8b", plan=PLAN).cluster.num_devices == 16
    assert job(path).cluster.num_devices == 8


def test_what_was_assumed_is_told_with_the_option_that_changes_it():
    told = (
        "  cluster dgx-h100; set --cluster to change it\n  stack megatron-core; set --stack to change it\n"
    )
    setup = ("llama-3-8b", "--gpus", 16, "--plan")

    for command in (("predict",), ("memory",), ("explain", "step")):
        assert f"assumed\n{told}" in flopcast(*command, *setup, PLAN).out
    assert f"assumed\n{told}" in flopcast("search", *setup, "gbs=64 tp=4 mbs=1 pp=1 cp=1 zero=1").out
    assert f"assumed\n{told}" in flopcast("compare", *setup, PLAN, "plan.recompute=full").out


def test_an_import_assumes_no_cluster(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}), encoding="utf-8"
    )

    ended = flopcast("import", "deepspeed", path, "--model", "llama-3-8b", "--gpus", 16)

    assert "cluster" not in ended.out
    assert "states no cluster: add --cluster NAME" in ended.err


def test_a_measured_run_needs_the_cluster_that_it_ran_on(tmp_path):
    setup = ("llama-3-8b", "--gpus", 16, "--plan", PLAN)
    log = tmp_path / "train.log"
    log.write_text("", encoding="utf-8")

    calibrated = flopcast("calibrate", "from-run", *setup, "--observed-step", "5 s")
    diagnosed = flopcast("diagnose", *setup, "--log", log)

    assert (calibrated.code, diagnosed.code) == (1, 1)
    assert "add --cluster NAME" in calibrated.err
    assert "add --cluster NAME" in diagnosed.err
    assert "  cluster dgx-h100; set --cluster to change it" in flopcast("diagnose", *setup).out


def test_an_export_tells_what_was_assumed_beside_the_file():
    ended = flopcast("export", "megatron", "llama-3-8b", "--plan", PLAN)

    assert "note: assumed cluster dgx-h100; set --cluster to change it\n" in ended.err


@all_cases("name", ["model.onnx", "model.pt2", "model.yaml", "cluster.yaml", "batch.json", "job.toml"])
def test_a_missing_file_is_not_found_even_if_its_name_begins_like_a_setting(name):
    with pytest.raises(SpecError) as caught:
        resolve(JobRequest(files=(name,), gpus=8))

    [problem] = caught.value.problems
    assert problem.message.startswith(f"job '{name}' was not found")
