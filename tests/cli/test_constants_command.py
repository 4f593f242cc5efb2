"""`flopcast calibrate constants`: what it prints of the shipped constants, and how a refit is written."""

import io
import json
from contextlib import redirect_stdout

import pytest
from command_line import flopcast

from flopcast.cli.calibrate_constants import as_json, as_markdown, as_text, constants
from flopcast.cost.constants import Constant, Fitted
from flopcast.library.constants import meaning_of, read, shipped, write


def constant(name="gemm_level[a]", **changes):
    """A constant of two sources."""
    fields = {
        "name": name,
        "ratio": 1.2,
        "log_sigma_factor": 0.05,
        "prior_log_sigma_factor": 0.1,
        "rows": 7,
        "sources": ("one", "two"),
    }
    return Constant(**(fields | changes))


SITE = constant("fabric[b]", ratio=0.8, rows=3, sources=("one",))
TWO = Fitted((constant(), SITE), {"dense": 0.05})
NONE = Fitted((), {})


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_text_has_a_line_for_each_constant_with_its_numbers_in_order():
    head, first, second = as_text(TWO).splitlines()

    assert head.split() == ["constant", "ratio", "sigma", "before", "rows", "sources"]
    assert first.split(maxsplit=5) == ["gemm_level[a]", "1.200", "0.050", "0.100", "7", "one, two"]
    assert second.split(maxsplit=5) == ["fabric[b]", "0.800", "0.050", "0.100", "3", "one (only source)"]


def test_columns_of_the_text_stand_below_their_headings():
    head, *lines = as_text(TWO).splitlines()

    for word in ("ratio", "sigma", "before", "rows"):
        end = head.index(word) + len(word)
        assert all(line[end - 1].isdigit() and line[end] == " " for line in lines)


def test_no_constants_are_told_as_what_predictions_then_use():
    assert "only kernel measurements and data sheets" in as_text(NONE)


def test_json_holds_every_field_by_its_name():
    found = as_json(TWO)

    assert (found["format_version"], found["noise_log_sigmas"]) == (1, {"dense": 0.05})
    assert found["constants"][1] == {
        "name": "fabric[b]",
        "meaning": meaning_of("fabric"),
        "ratio": 0.8,
        "log_sigma": 0.05,
        "prior_log_sigma": 0.1,
        "rows": 3,
        "sources": ["one"],
        "site": True,
    }
    assert found["constants"][0]["site"] is False
    assert json.loads(json.dumps(found)) == found


def test_the_page_has_one_row_a_constant_and_tells_each_kind_of_constant_once():
    many = Fitted((*TWO.constants, constant("gemm_level[c]")), {})

    page = as_markdown(many)

    of_runs = page.split("| file in the catalogue |")[0]
    rows = [cells(line) for line in of_runs.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == ["`gemm_level[a]`", "`fabric[b]`", "`gemm_level[c]`"]
    assert rows[1] == ["`fabric[b]`", "0.800", "0.050", "0.100", "3", "one (only source)"]
    meanings = [line for line in page.splitlines() if line.startswith(("- `gemm_level`", "- `fabric`"))]
    assert meanings == [f"- `{name}`: {meaning_of(name)}." for name in ("gemm_level", "fabric")]


def test_a_constant_of_a_kind_that_nobody_named_has_no_meaning_and_is_printed_all_the_same():
    odd = constant("odd[x]")

    assert meaning_of(odd.name) == ""
    assert "odd[x]" in as_text(Fitted((odd,), {}))


def test_a_constant_without_any_source_is_no_claim_and_breaks_no_line():
    alone = constant(sources=(), rows=0)

    assert alone.of_one_source
    assert as_text(Fitted((alone,), {})).splitlines()[1].split()[-1] == "0"


@pytest.mark.parametrize("words", [(), ("--markdown",)], ids=["text", "page"])
def test_the_command_prints_what_ships(words):
    ended = flopcast("calibrate", "constants", *words)

    form = as_markdown if words else as_text
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == form(shipped()) + "\n"


def test_the_command_prints_json_of_what_ships():
    ended = flopcast("calibrate", "constants", "--json")

    assert json.loads(ended.out) == json.loads(json.dumps(as_json(shipped())))


def test_what_ships_can_be_written_and_is_the_same_file(tmp_path):
    path = tmp_path / "runs.json"

    ended = flopcast("calibrate", "constants", "--out", path)

    assert ended.code == 0
    assert f"wrote {path}: {len(shipped().constants)} constants" in ended.err
    found = read(path.read_text(encoding="utf-8"))
    assert {one.name for one in found.constants} == {one.name for one in shipped().constants}
    assert found.levels() == shipped().levels()


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_fitted(tmp_path):
    ended = flopcast("calibrate", "constants", "--out", tmp_path / "no" / "such" / "runs.json")

    assert ended.code == 1
    assert "--out" in ended.err
    assert ended.out == ""


def test_differences_between_sites_need_training_runs():
    ended = flopcast("calibrate", "constants", "--sites")

    assert (ended.code, ended.out) == (1, "")
    assert "--sites is given without --runs" in ended.err
    assert "add --runs TABLE" in ended.err


@pytest.fixture
def table(tmp_path):
    """Sixteen runs of two sources."""
    header = "id,source_key,kind,model_name,gpu_model,num_gpus,seq_len,dp,tp,pp,micro_batch,global_batch"
    header += ",framework,year,gated_mlp,layers,hidden,heads,step_time_s"
    row = "train,GPT,A100-80GB,8,2048,8,1,1,1,16,Megatron-LM,2022,False,24,2048,16"
    path = tmp_path / "runs.csv"
    lines = [f"r-{n},source-{n % 2},{row},{0.9 + n / 10}" for n in range(16)]
    path.write_text("\n".join((header, *lines)) + "\n")
    return path


def test_a_refit_of_a_table_says_how_many_rows_hang_on_each_constant(table):
    ended = flopcast("calibrate", "constants", "--runs", table, "--json")

    found = json.loads(ended.out)["constants"]
    assert ended.code == 0
    noise = next(one for one in found if one["name"] == "unexplained[dense]")
    assert (noise["rows"], noise["sources"], noise["ratio"]) == (16, ["source-0", "source-1"], 1.0)
    assert all(one["rows"] <= 16 for one in found)


class Terminal(io.StringIO):
    """What a terminal would be shown."""

    def isatty(self):
        return True


def test_a_terminal_is_told_how_far_a_refit_is(table, monkeypatch):
    shown = Terminal()
    monkeypatch.setattr("flopcast.cli.progress.sys.stderr", shown)
    monkeypatch.setattr("flopcast.cli.progress.SHOW_EACH_S", -1.0)
    monkeypatch.setenv("TERM", "xterm")

    with redirect_stdout(io.StringIO()):
        constants.main(["--runs", str(table)], standalone_mode=False)

    assert shown.getvalue().count("16 of 16 runs") >= 3  # each time that all runs are predicted


def test_a_refit_that_is_interrupted_leaves_the_file_and_says_so(table, tmp_path, monkeypatch):
    out = tmp_path / "constants.json"
    write(out, TWO)
    before = out.read_bytes()

    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("flopcast.lab.validation.leave_one_out.fit", stop)
    ended = flopcast("calibrate", "constants", "--runs", table, "--out", out)

    assert (ended.code, ended.out) == (130, "")
    assert f"{out} is unchanged" in ended.err
    assert "wrote" not in ended.err
    assert out.read_bytes() == before


def test_a_broken_off_write_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "runs.json"
    write(path, TWO)
    before = path.read_bytes()

    def stop(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write(path, NONE)

    assert path.read_bytes() == before


def test_tables_to_which_no_constant_can_be_fitted_are_an_error_and_nothing_is_written(tmp_path):
    table, out = tmp_path / "runs.csv", tmp_path / "c.json"
    head = (
        "id,source_key,kind,phase,model_name,seq_len,gpu_model,num_gpus,dp,tp,pp,micro_batch,global_batch"
    )
    row = "a,b,train,train,llama-3-8b,4096,H100,64,8,8,1,1,256,bf16,Megatron-LM"
    for column, value, expected in (
        ("loss", "6.9", "states no measured time"),
        ("step_time", "6.9", "write step_time_s in place of step_time"),
        ("step_time_s", "6.9", "no constant can be fitted to 1 run"),
    ):
        table.write_text(f"{head},precision,framework,{column}\n{row},{value}\n")
        done = flopcast("calibrate", "constants", "--runs", table, "--out", out)
        assert done.code == 1
        assert expected in done.err, done.err
        assert not out.exists()
