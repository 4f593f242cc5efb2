"""`flopcast search`: what a line of words asks for, and what is printed, written and said."""

import csv
import json
import re
from functools import cache
from io import StringIO
from itertools import product

import pytest
from all_cases import all_cases
from command_line import data_of, flopcast

from flopcast.cli import progress
from flopcast.search import top_candidates as sifting
from flopcast.search import usual_plans
from flopcast.search.find import Progress

JOB = """\
model: megatron-1.7b
cluster: dgx-a100:1
stack: megatron-core
batch: {sequence_length: 2048}
plan: {dp: 8, gbs: 64, precision: bf16}
"""
WORDS = ("--model", "megatron-1.7b", "--cluster", "dgx-a100:1", "--stack", "megatron-core", "--seq", "2048")
FEW = "gbs=64 mbs=1,2 pp=1 vpp=1 cp=1 zero=1 dp_shard=0 recompute=none"
KEYS = [
    "format_version",
    "candidates",
    "feasible",
    "screened",
    "screened_per_s",
    "seconds",
    "plans",
    "pareto",
    "nearest_infeasible",
]
PLAN_KEYS = [
    "plan",
    "step_time_s",
    "low_s",
    "high_s",
    "peak_memory_bytes",
    "cost_usd_per_1e12_tokens",
    "why",
]


@cache
def searched(*words):
    """The answer as data; of equal words once, since several tests look at it."""
    return data_of("search", *words)


def test_the_answer_has_the_keys_that_programs_rely_on():
    found = searched(*WORDS, "--plan", FEW)

    assert set(KEYS) <= set(found)
    assert found["candidates"] >= found["possible"] >= found["feasible"] >= len(found["plans"]) > 1
    for plan in (*found["plans"], *found["pareto"], *found["nearest_infeasible"]):
        assert set(PLAN_KEYS) <= set(plan)
        assert plan["low_s"] < plan["step_time_s"] < plan["high_s"]
        assert plan["why"]


def test_the_first_plan_is_what_predict_says_of_it():
    first = searched(*WORDS, "--plan", FEW)["plans"][0]

    ended = flopcast("predict", *WORDS, "--plan", first["short"], "--json")

    report = json.loads(ended.out)
    assert report["step_time_s"] == pytest.approx(first["step_time_s"], rel=1e-9)
    assert report["memory"]["device_used_bytes"] == pytest.approx(first["peak_memory_bytes"], rel=1e-9)


def test_a_search_says_the_same_twice_but_for_its_time():
    once, again = searched(*WORDS, "--plan", FEW), searched.__wrapped__(*WORDS, "--plan", FEW)

    times = {key: once[key] for key in ("seconds", "screened_per_s")}
    assert once == again | times


def test_words_of_the_plan_settle_it_or_name_what_it_may_be():
    found = searched(*WORDS, "--plan", f"{FEW} tp=2,4", "--top", "100")

    assert {plan["plan"]["tensor_parallel"] for plan in found["plans"]} == {2, 4}
    assert {plan["plan"]["global_batch"] for plan in found["plans"]} == {64}


def test_a_job_files_plan_settles_the_training_and_nothing_else(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)

    found = searched(
        path, "plan.mbs=1", "plan.pp=1", "plan.vpp=1", "plan.cp=1", "plan.recompute=none", "--top", "100"
    )

    assert {plan["plan"]["global_batch"] for plan in found["plans"]} == {64}
    assert len({plan["plan"]["data_parallel"] for plan in found["plans"]}) > 1


def test_several_sizes_are_told_apart():
    found = searched(*WORDS, "--plan", FEW, "--gpus", "2..8", "--objective", "tokens_per_s", "--top", "100")

    assert {plan["devices"] for plan in found["plans"]} == {2, 4, 8}
    fastest = max(found["plans"], key=lambda plan: plan["tokens_per_s"])
    assert fastest["devices"] == 8
    assert fastest["ratio_to_best"] == 1


def test_every_cluster_size_and_stack_that_is_named_is_in_the_answer():
    found = searched(
        *WORDS, "--stack", "megatron-2022", "--cluster", "dgx-h100:1", "--gpus", "4,8",
        "--plan", f"{FEW} tp=2", "--objective", "tokens_per_s", "--pareto", "--top", "1",
        "--no-refine",
    )  # fmt: skip

    named = {(one["cluster"], one["devices"], one["stack"].partition("@")[0]) for one in found["settings"]}
    assert named == set(product(("dgx-a100", "dgx-h100"), (4, 8), ("megatron-core", "megatron-2022")))
    assert len(found["settings"]) == 8
    for one in found["settings"]:
        assert (one["best"]["cluster"], one["best"]["devices"]) == (one["cluster"], one["devices"])
        assert one["best"]["stack"] == one["stack"]


def test_the_table_shows_as_many_plans_as_asked_and_a_sentence_for_each():
    ended = flopcast("search", *WORDS, "--plan", FEW, "--top", "3", "--pareto")

    assert ended.code == 0
    assert "searched " in ended.out
    assert "\n  3  " in ended.out
    assert "\n  4  " not in ended.out
    assert "Pareto front: no other plan is better in step time and memory in use at once" in ended.out


def test_every_played_plan_is_a_row_of_the_table_that_is_written(tmp_path):
    path = tmp_path / "plans.csv"

    found = searched(*WORDS, "--plan", FEW, "--csv", path)

    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [row["short"] for row in rows[: len(found["plans"])]] == [p["short"] for p in found["plans"]]
    assert float(rows[0]["step_time_s"]) == found["plans"][0]["step_time_s"]
    assert {row["on_front"] for row in rows} == {"True", "False"}


@pytest.mark.parametrize("name", ["front.html", "front.svg"])
def test_a_drawing_is_one_file_that_loads_nothing(tmp_path, name):
    path = tmp_path / name

    found = searched(*WORDS, "--plan", FEW, "--plot", path)

    drawn = path.read_text(encoding="utf-8")
    assert "<script" not in drawn
    assert "src=" not in drawn
    assert set(re.findall(r'href="([^"]?)', drawn)) <= {"#"}  # to its own sections alone
    assert drawn.count("<circle") >= len(found["plans"])
    assert all(plan["short"] in drawn for plan in found["pareto"])


def test_where_nothing_fits_the_nearest_plan_is_named_and_the_code_is_two():
    words = ("--model", "llama-2-70b", "--cluster", "dgx-a100:1", "--seq", "2048")

    ended = flopcast("search", *words, "--plan", "gbs=8 mbs=1 pp=1,2 zero=1 cp=1 dp_shard=0 vpp=1")

    assert ended.code == 2
    assert "no plan is feasible; these plans come closest" in ended.out
    assert "GiB more" in ended.out


def test_where_no_plan_is_possible_the_rules_that_the_nearest_breaks_are_told():
    ended = flopcast("search", *WORDS, "--plan", f"{FEW} precision=nvfp4")

    assert ended.code == 2
    assert "no plan is possible" in ended.out
    assert "breaks plan.precision = nvfp4" in ended.out


def test_degrees_that_make_no_plan_are_told():
    ended = flopcast("search", *WORDS, "--plan", "tp=8 dp=2 gbs=64")

    assert ended.code == 2
    assert "no plan exists" in ended.out


def test_a_deadline_that_nothing_meets_leaves_no_plan():
    words = ("--plan", FEW, "--tokens", "300B", "--deadline")

    late, soon = (flopcast("search", *WORDS, *words, days, "--json") for days in ("10000 d", "1 h"))

    assert (late.code, soon.code) == (0, 2)
    assert json.loads(soon.out)["plans"] == []
    assert "deadline" in json.loads(soon.out)["nearest_infeasible"][0]["why"]


def test_every_fault_of_the_words_is_told_at_once():
    words = ("--plan", "tp=zwei gbs=64", "--objective", "speed", "--tokens", "many", "--deadline", "soon")

    ended = flopcast("search", *WORDS, *words, "--headroom", "2")

    assert ended.code == 1
    for told in ("tensor_parallel", "objective", "--tokens", "--deadline", "headroom_fraction"):
        assert told in ended.err


@all_cases(
    ("words", "told"),
    [
        (("--plot", "front.png"), "--plot"),
        (("--objective", "time_to_train"), "tokens"),
        (("--gpus", "12"), "gpus = 12"),
        (("--plan", "gbs=64,128"), "objective"),
        (("--cluster", "no-such-cluster"), "no-such-cluster"),
        (("--csv", "no-such-folder/plans.csv"), "--csv"),
    ],
)
def test_a_fault_is_named_by_what_was_written(words, told):
    ended = flopcast("search", *WORDS, *words)

    assert ended.code == 1
    assert told in ended.err


def test_a_terminal_shows_the_share_the_time_left_what_is_done_and_the_best_plan(monkeypatch):
    """A half of the screening took 20 s, and the rest takes 11 times the usual plans (1 s)."""
    clock, processor = iter([0.0, 1.0, 21.0, 21.1, 41.0]), iter([0.0, *[1.0] * 4])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(progress.time, "process_time", lambda: next(processor))
    shown = StringIO()
    shown.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    watch = progress.OfSearch()

    watch(Progress(doing="screening", done=0, total=10_000, best="17.4 s: dp=8"))
    watch(Progress(doing="screening", done=5_000, total=10_000, processor_s=20.0))
    watch(Progress(doing="screening", done=6_000, total=10_000))
    watch(Progress(doing="screening", done=10_000, total=10_000))

    told = shown.getvalue()
    assert "trying typical plans first, then all 10,000 plans; best so far 17.4 s: dp=8" in told
    assert "41%, about 31 s left: screening 5,000 of 10,000 plans; best so far 17.4 s: dp=8" in told
    assert "6,000" not in told  # too soon after the last
    assert watch.screening_s == 41.0


def test_a_pipe_is_told_nothing_on_the_way(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    watch = progress.OfSearch()

    watch(Progress(doing="screening", done=50, total=100))

    assert shown.getvalue() == ""


@pytest.mark.parametrize(("words", "code"), [((), 2), (("--tp-beyond-domain",), 0)])
def test_a_degree_that_leaves_its_domain_is_told_with_the_way_out(words, code):
    asked = ("llama-2-7b", "--cluster", "dgx-a100", "--gpus", "16", "--stack", "megatron-core")
    ended = flopcast("search", *asked, "--plan", "dp=1 pp=1 cp=1 gbs=64 mbs=1", *words)

    assert ended.code == code
    assert ("--tp-beyond-domain" in ended.out) is (not words)


def test_breaking_off_before_anything_is_screened_says_so(monkeypatch):
    def interrupted(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(sifting, "screen", interrupted)

    ended = flopcast("search", *WORDS)

    assert ended.code == 130
    assert "interrupted before any part of the space was searched" in ended.out
    assert "breaks" not in ended.out


def test_breaking_off_prints_the_best_so_far(monkeypatch):
    """The usual plans are screened as a whole before the space is."""
    screen, batches, usual_are_done, calls = sifting.screen, usual_plans.batches_on, [], []

    def interrupted(*words):
        calls.extend(usual_are_done)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return screen(*words)

    def usual(*words):
        yield from batches(*words)
        usual_are_done.append(words)

    monkeypatch.setattr(sifting, "screen", interrupted)
    monkeypatch.setattr(usual_plans, "batches_on", usual)

    ended = flopcast("search", *WORDS, "--plan", "gbs=64 mbs=1,2 vpp=1 cp=1 zero=1 dp_shard=0", "--json")

    found = json.loads(ended.out)
    assert ended.code == 130
    assert found["partial"] is True
    assert found["plans"]
    assert (
        "interrupted: these are the best plans so far; partial results are lost; with --ledger FILE"
        in ended.err
    )


def test_parquet_is_written_by_a_library_or_refused_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr("flopcast.files.tables.find_spec", lambda name: None)

    ended = flopcast("search", *WORDS, "--plan", FEW, "--parquet", tmp_path / "plans.parquet")

    assert ended.code == 1
    assert "--parquet" in ended.err
    assert "flopcast[data]" in ended.err


def test_a_price_and_tokens_make_days_and_dollars():
    words = ("--plan", FEW, "--tokens", "100B", "--price", "2 USD/h", "--objective", "run_cost")

    plans = searched(*WORDS, *words, "--objective", "time_to_train")["plans"]

    for plan in plans:
        days, dollars = plan["objectives"]["time_to_train_s"] / 86400, plan["objectives"]["run_cost_usd"]
        assert dollars == pytest.approx(days * 24 * 8 * 2)
        assert plan["cost_usd_per_1e12_tokens"] < 10 * dollars  # which has failures in it


def test_words_of_one_field_are_separated_by_commas():
    found = searched(*WORDS, "--plan", f"{FEW.replace('none', 'none,full:block:1')} tp=2", "--top", "100")

    again = {(p["plan"]["recompute"], p["plan"]["recompute_method"]) for p in found["plans"]}
    assert again == {("none", "uniform"), ("full", "block")}


@pytest.mark.parametrize("text", ["0", "many", "-5 USD", "5,2"])
def test_a_budget_that_is_no_money_is_refused(text):
    ended = flopcast("search", *WORDS, "--plan", FEW, "--tokens", "1T", "--budget", text)

    assert ended.code == 1
    assert "--budget" in ended.err


def test_devices_given_twice_are_both_searched():
    """As one option with both; every cluster is searched with each number."""
    words = ("--model", "llama-3-8b", "--plan", "tp=1 cp=1 pp=1 zero=1 gbs=128 mbs=1 recompute=full")
    twice = flopcast("search", *words, "--gpus", "16", "--gpus", "8")
    once = flopcast("search", *words, "--gpus", "16,8")

    assert twice.code == 0
    assert "dgx-h100     8 " in twice.out
    assert "dgx-h100    16 " in twice.out
    assert twice.out == once.out
