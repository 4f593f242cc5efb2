"""Which job words on the command line ask for: lengths that are assumed, scripts, sizes of clusters."""

import json

import pytest
from all_cases import all_cases
from command_line import JOB, PLAN, flopcast

from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.words import files_and_changes

NAMED = ("--model", "megatron-1.7b", "--cluster", "dgx-a100", "--plan", PLAN)
FLAGS = (
    "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    " --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 32 --vocab-size 50257 --fp16"
)


def asked(job=None, *changes, **options):
    """The job that the words ask for."""
    files, changes = files_and_changes([*([str(job)] if job else []), *changes])
    return resolve(JobRequest(files=files, changes=changes, **options))


def small(*changes, **options):
    """The job of a model of 1.7 billion parameters on eight devices, its batch left open."""
    usual = {"model": "megatron-1.7b", "cluster": "dgx-a100:1", "plan": PLAN, "stack": "megatron-2022"}
    return asked(None, *changes, **usual | options)


@pytest.fixture
def script(tmp_path):
    """Writes a launch script of 16 ranks, or of as many as its surroundings say."""

    def written(name="train.sh", first="#!/bin/bash", nodes="2"):
        path = tmp_path / name
        path.write_text(
            f"{first}\ntorchrun --nnodes {nodes} --nproc_per_node 8 {FLAGS}\n", encoding="utf-8"
        )
        return path

    return written


@all_cases(
    ("model", "tokens"),
    [
        ("llama-3-8b", 8192),  # arXiv:2407.21783, section 3.4.1: pre-trained with 8192 tokens
        ("llama-3.1-8b", 8192),  # its context is 128 Ki: the long ones are a second phase
        ("llama-2-7b", 4096),  # arXiv:2307.09288, Table 1
        ("gpt2", 1024),
    ],
)
@all_cases("change", [None, "model.tied_embeddings=true", "model.name=mine"])
def test_a_named_model_is_trained_at_its_own_length_with_and_without_changes(model, tokens, change):
    found = small(*[change] if change else [], model=model)

    assert found.batch.sequence_length == tokens
    assert f"sequence_length {tokens}" in found.assumptions


def test_a_changed_context_changes_the_length_that_is_assumed():
    found = small("model.context_length=4096", model="llama-3-8b")

    assert found.batch.sequence_length == 4096


def test_a_model_that_does_not_say_its_context_is_trained_at_that_of_gpt_3():
    found = small("model.context_length=0", "model.learned_positions=0", model="llama-3-8b")

    assert found.batch.sequence_length == 2048


def test_the_option_of_a_length_leaves_the_rest_of_the_batch_to_the_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("{sequence_length: 2048}", "{seq: 2048, packed: true}"), encoding="utf-8")

    ended = flopcast("predict", path, "--seq", 1024)

    assert ended.code == 1
    assert f"{path}:4: batch.packed = true" in ended.err


@pytest.mark.parametrize(
    ("name", "first"), [("train.sh", "# no interpreter"), ("train", "#!/bin/bash"), ("train.slurm", "")]
)
def test_a_launch_script_sizes_its_cluster_whether_its_name_or_its_first_line_tells_it(script, name, first):
    found = asked(script(name, first), cluster="selene")

    assert (found.plan.devices, found.cluster.num_devices) == (16, 16)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        (("cluster=selene",), {}),
        (("cluster=selene:2",), {}),
        (("cluster=selene:4",), {"gpus": 16}),
        (("cluster=selene", "cluster.jitter.ratio=1.5"), {}),
    ],
    ids=str,
)
def test_a_cluster_that_a_change_names_has_the_size_that_the_script_or_the_option_says(
    script, changes, options
):
    found = asked(script(), *changes, **options)

    assert (found.cluster.name, found.cluster.num_devices) == ("selene", 16)


def test_a_script_that_leaves_its_nodes_open_runs_on_those_of_a_changed_cluster(script):
    found = asked(script(nodes="$NNODES"), "cluster=selene:4")

    assert (found.plan.data_parallel, found.cluster.num_devices) == (32, 32)


@pytest.mark.parametrize("gpus", [4, 16])
def test_devices_leave_other_changes_of_the_cluster_alone(gpus):
    plan = f"dp={gpus} gbs={gpus} precision=fp16"

    found = small("cluster.jitter.ratio=1.5", gpus=gpus, plan=plan, cluster="dgx-a100")

    assert (found.cluster.num_devices, found.cluster.jitter.ratio) == (gpus, 1.5)


def test_a_faulty_change_of_a_sized_cluster_is_told_as_the_change():
    ended = flopcast("predict", *NAMED, "--gpus", 16, "cluster.jitter.ratio=-1")

    assert ended.code == 1
    assert "argument cluster.jitter.ratio=-1: cluster.jitter.ratio = -1" in ended.err


def test_words_that_are_no_change_and_devices_that_fill_no_node_are_told_together():
    ended = flopcast("predict", *NAMED, "--gpus", 12, "plan.tp=1", "plan..tp=8")

    assert ended.code == 1
    assert ended.err.startswith("2 errors in the input\n")


def test_a_folder_with_a_config_is_a_model(tmp_path):
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")

    found = small(model=str(tmp_path))

    assert (found.model.hidden, found.batch.sequence_length) == (64, 32)


def test_a_script_takes_its_arguments_and_its_environment_from_options(script):
    path = script(nodes="$1")
    path.write_text(path.read_text(encoding="utf-8").replace("--fp16", "--$TYPE"), encoding="utf-8")
    values = ("--arg", "1=2", "--env", "TYPE=fp16", "--cluster", "dgx-a100")

    given = flopcast("predict", str(path), *values, "--json")
    plain = flopcast("predict", str(script("plain.sh")), "--cluster", "dgx-a100", "--json")

    assert given.code == 0, given.err
    one, other = (json.loads(result.out) for result in (given, plain))
    assert one["step_time_s"] == other["step_time_s"]
    searched = flopcast("search", str(path), *values, "--arg", "2=4")
    assert searched.code == 1
    assert "--arg" in searched.err
