"""`flopcast validate --runs`: made-up tables in, one line a source out."""

import io
import json
import sys

import pytest
from command_line import flopcast

from flopcast.api import predict
from flopcast.cli import progress
from flopcast.lab.published.job import reproduce
from flopcast.lab.published.predictions import predict_with
from flopcast.lab.published.table import read_table

HEADER = (
    "id,source_key,kind,model_name,gpu_model,num_gpus,seq_len,dp,tp,pp,micro_batch,global_batch,framework,"
    "year,gated_mlp,layers,hidden,heads,step_time_s"
)
RUN = "a-1,source-a,train,GPT,A100-80GB,8,2048,8,1,1,1,16,Megatron-LM,2022,False,24,2048,16,0.9"
SERVED = RUN.replace("a-1", "a-2").replace("train", "inference")
BROKEN = RUN.replace("a-1", "a-3").replace(",0.9", ",fast")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, RUN, SERVED, BROKEN)) + "\n")
    return path


def test_a_table_is_judged_by_source_and_what_is_left_out_is_told(table):
    ended = flopcast("validate", "--runs", table)

    lines = ended.out.splitlines()
    assert ended.code == 0
    assert any(line.startswith("source-a ") and " 1 " in line for line in lines)
    assert "rows that are not predicted: 2" in lines
    assert any("flopcast predicts only training runs" in line for line in lines)


def test_json_holds_every_row_with_its_line_and_assumptions(table):
    found = json.loads(flopcast("validate", "--runs", table, "--json").out)["published"]

    (row,) = found["rows"]
    assert row["where"] == f"{table}:2"
    assert any("precision fp16" in told for told in row["assumptions"])
    assert [entry["where"] for entry in found["left_out"]] == [f"{table}:3", f"{table}:4"]
    assert [entry["id"] for entry in found["left_out"]] == ["a-2", "a-3"]
    assert found["all"]["rows"] == 1


def test_the_same_table_twice_counts_every_run_once(table):
    found = json.loads(flopcast("validate", "--runs", table, "--runs", table, "--json").out)["published"]

    assert (len(found["rows"]), found["twice"]) == (1, ["a-1"])


def test_markdown_is_a_page_with_the_same_numbers(table):
    page = flopcast("validate", "--runs", table, "--markdown").out
    printed = flopcast("validate", "--runs", table).out

    cells = next(line for line in printed.splitlines() if line.startswith("source-a")).split()
    assert page.startswith("# Published runs\n")
    assert f"| {' | '.join(cells)} |" in page


def test_a_table_of_no_known_kind_ends_with_what_it_lacks(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")

    ended = flopcast("validate", "--runs", path)

    assert ended.code == 1
    assert "contains no column of these kinds" in ended.err


def test_a_page_is_written_beside_what_is_printed(table, tmp_path):
    ended = flopcast("validate", "--runs", table, "--report", tmp_path / "page.html")

    assert ended.code == 0
    assert "source-a" in ended.out
    assert "a-1: GPT" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--suite", "sc21"], "add --runs"), (["--runs", "none.csv"], "does not exist")]
)
def test_a_page_that_cannot_be_written_is_refused_before_any_work(tmp_path, arguments, told):
    path = tmp_path / ("page.html" if "--suite" in arguments else "nowhere/page.html")

    ended = flopcast("validate", *arguments, "--report", path)

    assert ended.code == 1
    assert told in ended.err


def eight(source, ratio):
    """Runs of one source, of eight batches: as many as a constant is fitted on."""
    line = RUN.replace("source-a", f"source-{source}")
    return [
        line.replace("a-1", f"{source}-{n}").replace(",16,Mega", f",{8 * n},Mega").rpartition(",")[0]
        + f",{ratio * (0.1 + 0.13 * n):.3f}"
        for n in range(1, 9)
    ]


def test_a_source_is_judged_by_constants_of_the_others(tmp_path):
    """Source b is 1.3 times as slow as source a; judged by a, it stays too fast, and a by b too slow."""
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, *eight("a", 1.0), *eight("b", 1.3))) + "\n")

    def steps(*options):
        found = json.loads(flopcast("validate", "--runs", path, "--json", *options).out)["published"]
        return {row["source"]: row["predicted_step_time_s"] for row in found["rows"]}

    alone = steps("--leave-out", "source-b")
    each = steps("--leave-one-source-out")

    assert list(alone) == ["source-b"]
    assert each["source-b"] == alone["source-b"]
    assert each["source-a"] > each["source-b"]


def test_a_table_of_one_source_generation_or_model_says_that_no_constant_is_left(table):
    for group, words in (
        ("source", "one source"),
        ("generation", "one generation"),
        ("model", "one model"),
    ):
        ended = flopcast("validate", "--runs", table, f"--leave-one-{group}-out")

        first = ended.out.splitlines()[0]
        assert words in first, group
        assert "so no constant is left, as with --no-constants" in first, group


@pytest.mark.parametrize(
    "options",
    [("--leave-out", "source-a"), ("--leave-one-source-out",), ("--report", "page.html")],
    ids=lambda options: options[0],
)
def test_what_is_about_published_runs_needs_a_table_of_them(options):
    ended = flopcast("validate", "--suite", "memory", *options)

    assert ended.code == 1
    assert options[0] in ended.err
    assert "add --runs TABLE.csv" in ended.err


def test_a_source_of_no_run_cannot_be_left_out(table):
    ended = flopcast("validate", "--runs", table, "--leave-out", "source-z")

    assert ended.code == 1
    assert "source-z" in ended.err
    assert "allowed: source-a" in ended.err


def test_constants_are_fitted_written_and_printed(tmp_path):
    out, path = tmp_path / "constants.json", tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, *eight("a", 1.2))) + "\n")
    ended = flopcast("calibrate", "constants", "--runs", path, "--out", out, "--json")
    found = json.loads(ended.out)["constants"]

    assert ended.code == 0
    assert {entry["name"] for entry in found} == {
        entry["name"] for entry in json.loads(out.read_text())["constants"]
    }
    assert len(found) > 1
    assert all(entry["site"] and entry["sources"] == ["source-a"] for entry in found)
    assert found[0]["name"] in flopcast("calibrate", "constants", "--runs", path).out


def test_the_constants_in_use_are_printed_without_a_fit():
    text, page = (flopcast("calibrate", "constants", *options).out for options in ((), ("--markdown",)))

    assert text.strip()
    assert page.startswith("# Constants fitted on whole runs\n")


class Terminal(io.StringIO):
    """What a terminal would be shown."""

    def isatty(self):
        return True


def test_a_terminal_is_told_how_many_runs_are_done_and_the_time_left(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "SHOW_EACH_S", -1.0)
    monkeypatch.setenv("TERM", "xterm")

    assert list(progress.OfRuns()(["a", "b", "c"])) == ["a", "b", "c"]
    assert "\r67%, about 1 s left: 2 of 3 runs " in shown.getvalue()
    assert "100%" in shown.getvalue()


def test_what_is_no_terminal_is_told_nothing_but_the_answer(table):
    assert flopcast("validate", "--runs", table).err == ""


def test_without_constants_kernels_alone_judge(table):
    def step_s(*options):
        found = json.loads(flopcast("validate", "--runs", table, "--json", *options).out)["published"]
        return found["rows"][0]["predicted_step_time_s"]

    job = reproduce(read_table(table).runs[0])

    assert step_s() == pytest.approx(predict(job).step_time_s, rel=1e-8)
    assert step_s("--no-constants") == pytest.approx(predict_with(job, {}).step_time_s, rel=1e-8)


def test_runs_are_judged_in_one_way_at_a_time(table):
    ended = flopcast("validate", "--runs", table, "--no-constants", "--leave-out", "source-a")

    assert ended.code == 1
    assert "keep one of them" in ended.err


@pytest.mark.parametrize(
    ("options", "constants", "word"),
    [
        ((), "catalogue", "Fitted:"),
        (("--leave-one-source-out",), "others", "Left out:"),
        (("--no-constants",), "none", "Never fitted:"),
    ],
    ids=["catalogue", "others", "none"],
)
def test_every_form_says_by_which_constants_it_judges(table, tmp_path, options, constants, word):
    page = tmp_path / "page.html"
    text, markdown = (
        flopcast("validate", "--runs", table, *options, *form).out for form in ((), ("--markdown",))
    )
    data = flopcast("validate", "--runs", table, "--json", "--report", page, *options).out

    assert text.startswith(word)
    assert f"**{word}" in markdown
    assert json.loads(data)["published"]["constants"] == constants
    assert f"<strong>{word}" in page.read_text(encoding="utf-8")
