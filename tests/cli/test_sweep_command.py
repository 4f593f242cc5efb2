"""`flopcast sweep`, and the options that say who works and what is kept."""

import csv
import json
from io import StringIO

import pytest
from command_line import flopcast, process

from flopcast.cli import executors, progress
from flopcast.cli.sweep_file import scenarios_in, scenarios_of
from flopcast.files.yaml_text import Document
from flopcast.workers import executor
from flopcast.workers.run import RunSummary
from flopcast.workers.tasks import Task

GRID = """\
model: [megatron-1.7b, llama-2-70b]
cluster: dgx-a100
gpus: 4..8
seq: 2048
plan: "gbs=64 mbs=1 pp=1 vpp=1 cp=1 zero=1 dp_shard=0 recompute=none"
objective: tokens_per_s
"""
WORDS = ("--model", "megatron-1.7b", "--cluster", "dgx-a100", "--gpus", "8", "--seq", "2048")
FEW = ("--plan", "gbs=64 mbs=1 pp=1 vpp=1 cp=1 zero=1 dp_shard=0 recompute=none")


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def without_times(found):
    return {key: value for key, value in found.items() if key not in ("seconds", "screened_per_s")}


def test_every_scenario_is_what_a_search_of_it_finds(grid):
    ended = flopcast("sweep", grid, "--json", "--top", "20")

    scenarios = json.loads(ended.out)["scenarios"]
    alone = flopcast("search", *WORDS, *FEW, "--objective", "tokens_per_s", "--json", "--top", "20")
    assert ended.code == 0
    assert [(one["model"], one["gpus"]) for one in scenarios] == [
        ("megatron-1.7b", 4),
        ("megatron-1.7b", 8),
        ("llama-2-70b", 4),
        ("llama-2-70b", 8),
    ]
    for key, value in without_times(json.loads(alone.out)).items():
        assert scenarios[1][key] == value
    assert scenarios[2]["plans"] == []
    assert "more" in scenarios[2]["nearest_infeasible"][0]["why"]


def test_the_table_and_the_file_have_a_line_for_each(grid, tmp_path):
    path = tmp_path / "best.csv"

    ended = flopcast("sweep", grid, "--csv", path)

    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert ended.out.startswith("4 scenarios, ")
    assert ended.out.count("megatron-1.7b") == ended.out.count("none is feasible") == 2
    assert [row["short"] == "" for row in rows] == [False, False, True, True]
    assert float(rows[0]["tokens_per_s"]) > 0


def test_two_processes_and_a_ledger_change_no_byte_and_a_second_start_takes_all_over(grid, tmp_path):
    words = ("sweep", grid, "--json")

    alone = flopcast(*words)
    first, again = (
        process(*words, "--workers", "2", "--ledger", tmp_path / "ledger.sqlite") for _ in range(2)
    )

    assert alone.out == first.out == again.out
    assert (alone.code, alone.err, first.code, first.err) == (0, "", 0, "")
    assert "4 of 4 chunks of plans are already done" in again.err


def test_a_ledger_of_another_search_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    assert flopcast("search", *WORDS, *FEW, "--ledger", path).code == 0

    other = flopcast("search", *WORDS, *FEW, "--ledger", path, "--headroom", "0.9")

    assert other.code == 1
    assert "another search" in other.err


def test_a_search_takes_one_kind_of_workers():
    ended = flopcast("search", *WORDS, *FEW, "--workers", "2", "--dask", "tcp://127.0.0.1:9")

    assert ended.code == 1
    assert "remove --workers or --dask" in ended.err


@pytest.mark.parametrize("command", ["search", "sweep"])
def test_a_cluster_that_is_not_there_is_told(command, grid):
    words = ("sweep", grid) if command == "sweep" else ("search", *WORDS, *FEW)

    ended = flopcast(*words, "--dask", "no address")

    assert (ended.code, ended.out) == (1, "")
    assert "--dask = 'no address' is not allowed" in ended.err


@pytest.mark.parametrize(
    ("plans", "workers", "size"),
    [(executors.MANY_PLANS - 1, None, 1), (executors.MANY_PLANS, None, 3), (10, 2, 2), (10**9, 1, 1)],
)
def test_large_spaces_take_every_core_and_small_ones_none_but_ours(plans, workers, size, monkeypatch):
    monkeypatch.setattr(executors, "num_cores", lambda: 3)

    executor = executors._executor(plans, workers, None)

    assert executor.size == size
    executor.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models: [a]\n", "models is not a key of a grid"),
        (GRID.replace("dgx-a100", "[dgx-a100, dgx-a1000]"), "dgx-a1000"),
        (GRID.replace("4..8", "[4, 12]"), "12"),
        (GRID.replace("2048", "long"), "grid.yaml:4: seq = 'long'"),
        (GRID.replace("cluster: dgx-a100\n", "cluster: []\n"), "at least one value"),
        (GRID.replace("tokens_per_s", "speed"), "objective"),
        ("- a list\n", "mapping"),
        (GRID.replace("4..8", "1..60000:1"), "10000 scenarios at most"),
        (GRID.replace("4..8", "1..1048576:1"), "at most 65,536 values"),
        (GRID.replace("4..8", "8..1000000000000"), "at most 1,048,576 devices"),
    ],
)
def test_faults_of_a_grid_are_told_with_their_line(grid, text, told):
    grid.write_text(text)

    ended = flopcast("sweep", grid)

    assert ended.code == 1
    assert told in ended.err
    assert "grid.yaml:" in ended.err
    assert ended.err.count("fix:") == len(set(ended.err.split("\n\n")[1].split("grid.yaml:"))) - 1


@pytest.mark.parametrize("ledger", [False, True])
def test_a_sweep_that_is_broken_off_tells_what_is_answered_and_how_to_go_on(
    grid, tmp_path, monkeypatch, ledger
):
    def interrupted(task):
        if task.name.startswith("1/play"):
            raise KeyboardInterrupt
        return done(task)

    done, path = executor.done, tmp_path / "best.csv"
    words = ("sweep", grid, "--csv", path, *(("--ledger", tmp_path / "ledger.sqlite") if ledger else ()))
    whole = flopcast(*words[:2], "--json")
    monkeypatch.setattr(executor, "done", interrupted)

    ended = flopcast(*words, "--json")
    table = flopcast(*words[:4])

    told = json.loads(ended.out)
    assert (ended.code, table.code) == (130, 130)
    assert told["partial"] is True
    assert told["scenarios"] == json.loads(whole.out)["scenarios"][:1]
    assert json.loads(whole.out)["partial"] is False
    assert len(path.read_text().splitlines()) == 2
    assert "interrupted: 1 of 4 scenarios are finished" in ended.err
    assert ("again to resume the search" if ledger else "with --ledger FILE") in ended.err
    assert table.out.startswith("1 scenario, ")


def test_where_no_scenario_has_a_plan_the_code_is_two(grid):
    grid.write_text(GRID.replace("megatron-1.7b, ", ""))

    assert flopcast("sweep", grid).code == 2


def test_the_last_axis_turns_fastest(grid):
    words = [(one.words["model"], one.words["gpus"]) for one in scenarios_of(grid)]

    assert words[:3] == [("megatron-1.7b", 4), ("megatron-1.7b", 8), ("llama-2-70b", 4)]


def test_ranks_of_adapters_are_an_axis():
    data = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "gpus": 8, "lora": [8, 64], "seq": 1024}

    found = scenarios_in(Document("grid.yaml", data, {}))

    assert [each.words["lora"] for each in found] == [8, 64]
    assert [each.question.jobs[0].model.adapters.rank for each in found] == [8, 64]


def test_the_time_that_is_left_is_that_of_plans_of_this_start():
    watch = progress.OfSweep(2, 1000)
    task = Task(name="0/screen/0", kind="screen", question="", part="")

    watch(RunSummary(task=task, weight=500, kept=True))
    before = watch.text(10.0)
    watch(RunSummary(task=task, weight=100, kept=False))

    assert "left" not in before
    assert watch.text(10.0) == "0 of 2 scenarios, 600 of 1,000 plans, about 40 s left"


def test_a_pipe_is_told_nothing_on_the_way(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr("sys.stderr", shown)

    progress.OfSweep(1, 10).clear()

    assert shown.getvalue() == ""


def test_faults_of_keys_and_of_scenarios_are_told_together(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text('model: llama-9\ngpus: "64..6x"\ncolour: red\nobjective: happiness\n', encoding="utf-8")

    told = flopcast("sweep", str(file)).err

    for text in ("grid.yaml:3: colour is not a key", "llama-9", "set gpus to 64", "happiness"):
        assert text in told


def test_a_number_of_devices_below_one_is_told_as_such(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("model: llama-3-8b\ngpus: [0, 8]\n", encoding="utf-8")

    told = flopcast("sweep", str(file)).err

    assert "grid.yaml:2: gpus = 0 is not allowed\n  allowed: a whole number above 0" in told
