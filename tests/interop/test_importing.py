"""`flopcast import hf`: a model on stdout or in a file, notes on stderr."""

import json

import pytest
from all_cases import all_cases
from click.testing import CliRunner
from command_line import flopcast
from hf_cases import CONFIGS, NAMES, imported

from flopcast.cli.imports import command
from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import read_yaml
from flopcast.requests.job_files import job_of
from flopcast.spec.model import Model


def run(*words):
    return CliRunner().invoke(command, ["hf", *map(str, words)], catch_exceptions=False)


def model_in(text):
    document = read_yaml(text.encode(), "model.yaml")
    return build(Model, document, document.data)


@all_cases("name", NAMES)
def test_what_is_printed_is_the_model(name):
    ended = run(CONFIGS / f"{name}.json")

    found = model_in(ended.stdout)

    assert ended.exit_code == 0
    assert found.model_copy(update={"source": ()}) == imported(name).model_copy(update={"source": ()})


def test_a_written_file_loads_as_the_same_model_and_stdout_stays_empty(tmp_path):
    place = tmp_path / "model.yaml"

    ended = run(CONFIGS / "llama-2-7b.json", "-o", place)

    assert model_in(place.read_text(encoding="utf-8")).parameters() == 6_738_415_616
    assert ended.stdout == ""
    assert "6.738 billion parameters" in ended.stderr


def test_a_folder_stands_for_the_config_in_it(tmp_path):
    (tmp_path / "config.json").write_bytes((CONFIGS / "llama-2-7b.json").read_bytes())

    assert model_in(run(tmp_path).stdout).parameters() == 6_738_415_616


def test_what_is_printed_stands_under_model_in_a_job():
    text = "\n".join(f"  {line}" for line in run(CONFIGS / "gemma-2-9b.json").stdout.splitlines())
    lines = ["cluster: dgx-a100:1", "stack: megatron-2022", "batch: {seq: 4096}"]
    lines += ["plan: dp=4 tp=2 gbs=8 precision=bf16", "model:", text]

    job = job_of(read_yaml("\n".join(lines).encode(), "job.yaml"))

    assert job.model.parameters() == 9_241_705_984


def test_notes_are_talk():
    ended = run(CONFIGS / "mistral-7b.json")

    assert "keys that config.json omits have the defaults of mistral: attention_dropout 0.0" in ended.stderr
    assert "note" not in ended.stdout


def test_the_source_of_an_imported_model_is_its_file():
    (source,) = model_in(run(CONFIGS / "opt-125m.json").stdout).source

    assert source.title == "opt-125m.json, a Hugging Face config of the opt family"


def test_a_file_that_cannot_be_written_is_told_before_anything_is_read(tmp_path):
    ended = flopcast("import", "hf", CONFIGS / "opt-125m.json", "-o", tmp_path / "no" / "model.yaml")

    assert ended.code == 1
    assert "1 error in the input" in ended.err
    assert "--out" in ended.err


def test_a_config_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(SpecError) as told:
        run(tmp_path / "nowhere.json")

    assert [problem.field for problem in told.value.problems] == ["file"]


def test_nothing_is_written_where_the_config_is_broken(tmp_path):
    config, place = tmp_path / "config.json", tmp_path / "model.yaml"
    config.write_text(json.dumps({"model_type": "gpt2", "n_embd": 0}), encoding="utf-8")

    with pytest.raises(SpecError):
        run(config, "-o", place)

    assert not place.exists()
