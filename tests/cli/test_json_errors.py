"""With --json, stdout holds one JSON object whatever happens; the exit code stays that of the error."""

import json

import click
import pytest
from all_cases import all_cases
from command_line import JOB, PLAN, WORDS, flopcast, process

from flopcast.cli.main import group
from flopcast.render.error_json import FIELDS, KINDS

WHOLE = (*WORDS, "--gpus", "8", "--plan", PLAN)
TOO_LARGE = ("--model", "gpt3-175b", "--cluster", "dgx-a100", "--gpus", "1", "--seq", "2048")
MISSING = {  # every command that has --json → words that name a file that does not exist
    "predict": ("nowhere.yaml",),
    "search": ("nowhere.yaml",),
    "run": ("nowhere.yaml", "--tokens", "2T"),
    "compare": ("nowhere.yaml", "plan.tp=2"),
    "memory": ("nowhere.yaml",),
    "sweep": ("nowhere.yaml",),
    "validate": ("--runs", "nowhere.csv"),
    "calibrate constants": ("--runs", "nowhere.csv"),
    "calibrate score": ("--data", "nowhere"),
    "diagnose": ("nowhere.yaml",),
    "checkpoint": ("nowhere.yaml",),
    "explain": ("step", "nowhere.yaml"),
    "shard": ("nowhere.json", "--ranks", "2"),
    "contention": ("nowhere.yaml", "elsewhere.yaml"),
}


def with_json(command, words=()):
    """The names of every command that has --json."""
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if isinstance(inner, click.Group):
            yield from with_json(inner, (*words, name))
        elif any("--json" in each.opts for each in inner.params):
            yield " ".join((*words, name))


def faults_of(ended, code):
    """The errors of a call, once its exit code and the shape of its JSON are as they should be."""
    assert ended.code == code, ended.err
    data = json.loads(ended.out)
    assert set(data) >= {"format_version", "faults"}
    assert data["faults"]
    for fault in data["faults"]:
        assert set(fault) == set(FIELDS)
        assert fault["kind"] in KINDS
        assert fault["message"]
    return data["faults"]


def test_the_table_of_commands_with_json_is_whole():
    assert set(with_json(group)) == set(MISSING)


def test_an_unknown_option_is_a_json_error_of_every_command():
    for command in MISSING:
        fault, *others = faults_of(flopcast(*command.split(), "--json", "--reprot", "x"), 1)

        assert fault["field"] == "--reprot", command
        assert "--json" in fault["allowed"]
        assert all(other["message"].endswith("is missing") for other in others), command


def test_all_wrong_options_and_arguments_are_reported_together():
    wrong = ("--gpuss", "8", "--gpus", "none", "--json=3", "--seq", "0", "--modell", "x", "--report")

    faults = faults_of(flopcast("predict", "--json", *wrong), 1)

    assert [fault["field"] for fault in faults] == [
        *("--gpuss", "--json", "--modell", "--report"),  # where the command line cannot be read
        *("--gpus", "--seq"),  # where it can, but a value is wrong
        "model",  # of the job that the corrected command line describes
    ]
    assert [
        fault["field"] for fault in faults_of(flopcast("explain", "step", "--json", "--gpus", "x"), 1)
    ] == ["--gpus", "model"]


def test_arguments_that_a_command_does_not_take_are_reported_with_wrong_values():
    faults = faults_of(flopcast("validate", "--json", "--suite", "papers", "runs.csv", "more.csv"), 1)

    assert [fault["field"] for fault in faults] == ["--suite", "arguments"]
    assert "runs.csv more.csv" in faults[1]["fix"]


def test_a_needless_permission_for_unknown_operators_is_one_line_of_stderr():
    ended = flopcast("predict", *WHOLE, "--json", "--allow-unknown")

    assert ended.err == "note: --allow-unknown was not needed: the job has no unknown operators\n"
    assert json.loads(ended.out)["step_time_s"] > 0


def test_a_near_option_is_the_fix_and_stderr_has_the_text():
    ended = flopcast("predict", "--json", "--modell", "x")

    assert "--model" in faults_of(ended, 1)[0]["fix"]
    assert "--modell is not known" in ended.err


def test_a_missing_file_is_a_json_error_of_every_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    told = {
        name: faults_of(flopcast(*name.split(), *words, "--json"), 1) for name, words in MISSING.items()
    }

    assert [name for name, faults in told.items() if "nowhere" not in json.dumps(faults)] == []


def test_unreadable_yaml_is_a_json_error_with_its_line(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB + "  - [")

    (fault,) = faults_of(flopcast("predict", path, "--json"), 1)

    assert fault["place"].startswith(f"{path}:")


def test_json_holds_every_error_that_the_text_holds(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("micro_batch: 1", "micro_batch: 0").replace("fp16", "fp4"))

    ended = flopcast("predict", path, "--json")

    for fault in faults_of(ended, 1):
        assert f"{fault['place']}: {fault['message']}\n" in ended.err
        assert all(fault[name] in ended.err for name in ("allowed", "because", "fix"))
    assert ended.err.startswith("2 errors")


@pytest.mark.parametrize("command", ["predict", "search"])
def test_that_no_plan_is_feasible_is_a_json_error(command):
    ended = flopcast(command, *TOO_LARGE, "--json")

    (fault,) = faults_of(ended, 2)
    assert fault["kind"] == "infeasible"


def test_a_bug_is_a_json_error(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("flopcast.api.predict", broken)
    ended = flopcast("predict", *WHOLE, "--json")

    (fault,) = faults_of(ended, 3)
    assert (fault["kind"], fault["message"]) == ("bug", "ZeroDivisionError: of ours")
    assert "Traceback" in ended.err


def test_an_error_after_the_answer_leaves_one_object(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    ended = flopcast("predict", *WHOLE, "--json", "--report", tmp_path / "page.html")

    (fault,) = faults_of(ended, 1)
    assert fault["field"] == "--report"


@all_cases(
    ("words", "field", "allowed", "fix"),
    [
        (("predict", "gpt2", "--gpus", "none"), "--gpus", "at least 1", "--gpus 8"),
        (("explain", "--model", "gpt2"), "WHAT", "memory", "flopcast explain step"),
        (("predict", "gpt2", "--report"), "--report", "--report VALUE", "such as --report report.html"),
        (("search", "gpt2", "--top", "0"), "--top", "a whole number of at least 1", "--top 1"),
        (("validate", "--suite", "papers"), "--suite", "paper, sc21", "--suite paper"),
        (("predict", "gpt2", "--json=1"), "--json", "--json without a value", "write --json"),
        (("predikt",), "predikt", "search", "flopcast predict"),
    ],
)
def test_a_usage_error_names_what_is_wrong(words, field, allowed, fix):
    (fault,) = faults_of(flopcast(words[0], "--json", *words[1:]), 1)

    assert fault["field"] == field
    assert allowed in fault["allowed"]
    assert fix in fault["fix"]
    assert "Invalid value" not in fault["because"]


def test_a_process_prints_its_errors_and_its_answer_whole():
    assert faults_of(process("memory", "nowhere.yaml", "--json"), 1)
    assert json.loads(process("memory", *WHOLE, "--json").out)["memory"]["fits"] is True


def test_without_json_stdout_stays_empty():
    assert flopcast("predict", "nowhere.yaml").out == ""
    assert flopcast("predict", "--", "--json").out == ""
