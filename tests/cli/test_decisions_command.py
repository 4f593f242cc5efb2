"""`flopcast validate --decisions`: made-up tables in, how well plans were chosen out."""

import json

import pytest
from command_line import flopcast
from test_validate_runs import HEADER, RUN

CUT = "a-2,source-a,train,GPT,A100-80GB,8,2048,4,2,1,2,16,Megatron-LM,2022,False,24,2048,16,2.5"
OTHER = RUN.replace("a-1,source-a", "b-1,source-b")


@pytest.fixture
def swept_table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, RUN, CUT, OTHER)) + "\n")
    return path


def test_sources_that_sweep_plans_are_told_in_all_ways_of_judging(swept_table):
    ended = flopcast("validate", "--runs", swept_table, "--decisions")

    lines = ended.out.splitlines()
    assert ended.code == 0
    assert sum(line.startswith("source-a ") for line in lines) == 3
    assert not any(line.startswith("source-b ") for line in lines)


@pytest.mark.parametrize(
    ("option", "way"),
    [("--no-constants", "none"), ("--leave-one-source-out", "others"), ("--leave-out=source-a", "others")],
)
def test_one_way_of_judging_may_be_named(swept_table, option, way):
    ended = flopcast("validate", "--runs", swept_table, "--decisions", option, "--json")

    found = json.loads(ended.out)["decisions"]["ways"]
    assert list(found) == [way]
    (sweep,) = found[way]["sweeps"]
    assert sweep["source"] == "source-a"
    assert (sweep["fastest"], sweep["plans"]) == ("a-1", 2)


def test_suites_are_judged_beside_a_table_where_both_are_named(swept_table):
    ended = flopcast(
        "validate",
        "--runs",
        swept_table,
        "--suite",
        "korthikanti",
        "--decisions",
        "--no-constants",
        "--json",
    )

    sweeps = json.loads(ended.out)["decisions"]["ways"]["none"]["sources"]
    assert [entry["source"] for entry in sweeps if entry["free"] == "plan"] == ["source-a", "korthikanti"]


def test_without_a_table_suites_are_judged_alone():
    ended = flopcast("validate", "--suite", "korthikanti", "--decisions", "--markdown")

    assert ended.code == 0
    assert "| korthikanti | 4 | 8 | 1.00 | 0.0% |" in ended.out


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (("--report", "page.html"), {"--report"}),
        (("--suite", "memory"), {"--suite"}),
        (("--report", "page.html", "--suite", "memory"), {"--report", "--suite"}),
    ],
)
def test_what_decisions_are_not_made_of_is_refused_all_at_once(swept_table, options, fields):
    ended = flopcast("validate", "--runs", swept_table, "--decisions", *options)

    assert ended.code == 1
    assert all(field in ended.err for field in fields)
