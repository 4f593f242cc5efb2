"""Values that a launch script takes from outside: on the command line, in Python and in an upload."""

import pytest
from megatron_cases import script_of

import flopcast
from flopcast.errors import SpecError
from flopcast.interop.megatron.launch_script import launch_document
from flopcast.interop.shell.parameters import parsed_values, with_values
from flopcast.ui.request_fields import brought_from, job_from

TEXT = script_of(
    launcher="torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py",
    more="--tensor-model-parallel-size $1 --pipeline-model-parallel-size ${2}",
)
SAME = script_of(
    launcher="torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py",
    more="--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2",
)
ARG, ENV = ("1=4", "2=2"), ("NNODES=2",)


def problems(call):
    with pytest.raises(SpecError) as told:
        call()
    return [problem.field for problem in told.value.problems]


def test_a_script_with_values_is_the_script_that_has_them_written_out():
    given = launch_document(TEXT, "run.sh", None, ARG, ENV)

    plain = launch_document(SAME, "run.sh")
    assert given.data == plain.data
    assert given.where(("plan", "tensor_parallel")).startswith("run.sh:")


def test_python_and_an_upload_take_the_same_values(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(TEXT, encoding="utf-8")
    (tmp_path / "plain.sh").write_text(SAME, encoding="utf-8")
    plain = flopcast.job(tmp_path / "plain.sh", cluster="dgx-h100:2")

    python = flopcast.job(path, cluster="dgx-h100:2", arg={"1": "4", "2": "2"}, env={"NNODES": "2"})
    uploaded = job_from(brought_from("run.sh", TEXT, "dgx-h100", "16", " ".join(ARG), " ".join(ENV)))

    assert python.plan == plain.plan == uploaded.plan
    assert python.cluster == plain.cluster


def test_a_value_that_is_missing_is_told_with_the_option_that_gives_it():
    with pytest.raises(SpecError) as told:
        launch_document(TEXT, "run.sh", 16)

    fixes = {problem.field: problem.fix for problem in told.value.problems}
    assert fixes["--tensor-model-parallel-size"] == "add --arg 1=2, with its value"
    assert fixes["--pipeline-model-parallel-size"] == "add --arg 2=2, with its value"


def test_values_that_are_none_are_refused_together():
    for word in ("8", "0=1", "x=1", "1x=1", "100=1", "1=a\x00b"):
        assert problems(lambda word=word: parsed_values([word], "--arg")) == ["--arg"], word
    for word in ("NNODES", "=4", "A-B=1", "1=2"):
        assert problems(lambda word=word: parsed_values([word], "--env")) == ["--env"], word
    assert problems(lambda: parsed_values(["1=2", "1=3", "y"], "--arg")) == ["--arg", "--arg"]


def test_values_are_quoted_as_the_shell_needs_it():
    for value in ("a b", "it's", '$HOME `x` "q"', "a;b", "*", "", "\\"):
        text = with_values("run --name $1 $X\n", {"1": value}, {"X": value})

        assert text.count("\n") == 1
        script = launch_script_words(text.replace("$1", '"$1"').replace("$X", '"$X"'))
        assert script == ["run", "--name", value, value], value


def launch_script_words(text):
    from flopcast.interop.shell.script import read_script

    return [word.text for word in read_script(text, "run.sh").commands[-1].words]


def test_values_without_a_script_are_refused(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("model: llama-3-8b\ncluster: dgx-h100\nplan: dp=8 gbs=64\n", encoding="utf-8")

    assert problems(lambda: flopcast.job(path, arg={"1": "8"})) == ["arg"]
    assert problems(lambda: flopcast.job(model="llama-3-8b", cluster="dgx-h100", env={"A": "8"})) == ["env"]
    assert problems(lambda: brought_from("job.yaml", path.read_text(encoding="utf-8"), arg="1=8")) == [
        "--arg"
    ]
