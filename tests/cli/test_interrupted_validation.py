"""An interrupt (Ctrl-C) of `validate` or `calibrate`: what is done is printed, or a note says why not."""

import json
import signal

import pytest
from command_line import flopcast

from flopcast.lab.published import predictions

HEADER = (
    "id,source_key,kind,model_name,gpu_model,num_gpus,seq_len,dp,tp,pp,micro_batch,global_batch,framework,"
    "year,gated_mlp,layers,hidden,heads,step_time_s"
)
RUN = "{},source-{},train,GPT,A100-80GB,8,2048,8,1,1,1,16,Megatron-LM,2022,False,24,2048,16,0.9"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, *(RUN.format(f"a-{row}", row % 2) for row in range(5)))) + "\n")
    return path


def interrupting(monkeypatch, owner, name, call):
    """An interrupt arrives during one of the calls of a function."""
    function, calls = getattr(owner, name), []

    def counted(*given, **named):
        calls.append(given)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return function(*given, **named)

    monkeypatch.setattr(owner, name, counted)


def test_the_runs_of_a_suite_that_are_predicted_are_printed(monkeypatch):
    interrupting(monkeypatch, predictions.Predictions, "of", 3)
    ended = flopcast("validate", "--suite", "sc21")
    monkeypatch.undo()
    interrupting(monkeypatch, predictions.Predictions, "of", 3)
    data = flopcast("validate", "--suite", "sc21", "--suite", "korthikanti", "--json")
    monkeypatch.undo()

    whole = json.loads(flopcast("validate", "--suite", "sc21", "--json").out)
    assert (ended.code, data.code) == (130, 130)
    assert "sc21" in ended.out
    assert "interrupted: this result is based on 3 of 10 runs" in ended.err
    assert json.loads(data.out)["rows"] == whole["rows"][:3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_runs_of_a_table_that_are_predicted_are_printed_if_they_need_no_others(monkeypatch, table):
    interrupting(monkeypatch, predictions, "reproduce", 3)

    ended = flopcast("validate", "--runs", table, "--no-constants", "--json")

    assert ended.code == 130
    assert len(json.loads(ended.out)["published"]["rows"]) == 3
    assert "interrupted: this result is based on 3 of 5 runs" in ended.err


def test_where_constants_are_fitted_on_all_runs_a_note_says_that_there_is_no_result(monkeypatch, table):
    for words in (
        ("validate", "--runs", table, "--leave-one-source-out"),
        ("validate", "--runs", table, "--decisions"),
        ("calibrate", "constants", "--runs", table),
    ):
        interrupting(monkeypatch, predictions, "reproduce", 3)
        ended = flopcast(*words)
        monkeypatch.undo()

        assert (ended.code, ended.out) == (130, "")
        assert "interrupted: 2 of 5 runs are done; " in ended.err


def test_a_second_interrupt_ends_the_command_at_once(monkeypatch):
    interrupting(monkeypatch, predictions.Predictions, "of", 3)
    interrupting(monkeypatch, predictions.Predictions, "of", 3)  # both during the same call

    ended = flopcast("validate", "--suite", "sc21")

    assert (ended.code, ended.out) == (130, "")


def test_without_an_interrupt_nothing_is_said_of_one():
    ended = flopcast("validate", "--suite", "sc21")

    assert (ended.code, ended.err) == (0, "")
