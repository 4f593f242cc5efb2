"""`flopcast validate --from-one-run`: made-up tables in, what a run of a machine teaches out."""

import json

import pytest
from command_line import flopcast
from test_validate_runs import HEADER, RUN

ROWS = [
    RUN,
    "a-2,source-a,train,GPT,A100-80GB,8,2048,4,2,1,2,16,Megatron-LM,2022,False,24,2048,16,2.5",
    "a-3,source-a,train,GPT,A100-80GB,8,2048,2,4,1,2,16,Megatron-LM,2022,False,24,2048,16,3.0",
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return path


def test_a_machine_of_three_runs_is_told_as_text_page_and_json(table):
    text, page, data = (
        flopcast("validate", "--runs", table, "--from-one-run", *form)
        for form in ((), ("--markdown",), ("--json",))
    )

    assert "dense: source-a, a100-sxm4-80gb" in text.out
    assert page.out.startswith("# Calibration with runs of a cluster")
    found = json.loads(data.out)["from_one_run"]
    assert {way: found[way]["dense"]["runs"] for way in ("one", "others")} == {"one": 3, "others": 3}


def test_options_that_do_not_go_with_it_are_refused_at_once(table):
    ended = flopcast("validate", "--from-one-run", "--leave-out", "source-a", "--leave-one-generation-out")

    assert ended.code == 1
    for told in ("--runs", "--leave-out", "--leave-one-generation-out"):
        assert told in ended.err


def test_constants_that_it_does_not_use_and_two_choices_of_constants_are_refused(table):
    for_models = flopcast("validate", "--runs", table, "--from-one-run", "--leave-one-model-out")
    both = flopcast(
        "validate", "--runs", table, "--from-one-run", "--no-constants", "--leave-one-source-out"
    )

    assert (for_models.code, both.code) == (1, 1)
    assert "--leave-one-model-out" in for_models.err
    assert "constants are chosen by several options" in both.err
