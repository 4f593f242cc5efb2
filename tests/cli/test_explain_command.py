"""`flopcast explain`: the numbers that `predict` prints, with their reasons."""

import json

from command_line import PLAN, WORDS, flopcast

JOB = (*WORDS, "--gpus", "8", "--plan", PLAN)


def test_a_component_explained_is_the_one_that_predict_prints():
    breakdown = json.loads(flopcast("predict", *JOB, "--json").out)["breakdown"]

    found = json.loads(flopcast("explain", "mlp", *JOB, "--json").out)

    assert abs(found["value"] / breakdown["mlp"] - 1) < 1e-8
    assert abs(sum(part["value"] for part in found["parts"]) / breakdown["mlp"] - 1) < 1e-8


def test_an_operator_is_told_with_its_formula_and_its_sources():
    ended = flopcast("explain", "mlp.up", *JOB)

    assert ended.code == 0
    assert "max(FLOP / peak, bytes / bandwidth) / efficiency" in ended.out
    assert "NVIDIA A100" in ended.out


def test_a_file_and_changes_are_read_as_by_predict(tmp_path):
    from command_line import JOB as FILE

    place = tmp_path / "job.yaml"
    place.write_text(FILE, encoding="utf-8")

    whole, half = (
        json.loads(flopcast("explain", "memory", place, *changes, "--json").out)["value"]
        for changes in ((), ("plan.tensor_parallel=2", "plan.data_parallel=4"))
    )

    assert half < whole


def test_an_unknown_name_is_wrong_input_that_lists_what_there_is():
    ended = flopcast("explain", "mpl", *JOB)

    assert ended.code == 1
    assert "components: " in ended.err
    assert "did you mean mlp?" in ended.err
