"""What a comparison of two predictions says in words: verdicts, order of lines, what is the same."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import sample_report, with_parts
from unmarked import unmarked

from flopcast.render.comparison import as_json, marked_text
from flopcast.report.labels import component_label
from flopcast.report.versus import ReportComparison, versus

as_text = unmarked(marked_text)

LAWS = settings(max_examples=50)


def compared(ratio, low=None, high=None):
    """Two reports and a made-up ratio."""
    return ReportComparison(
        first=sample_report("one stage"),
        second=sample_report("batched"),
        time_ratio=ratio,
        low_ratio=ratio / 1.01 if low is None else low,
        high_ratio=ratio * 1.01 if high is None else high,
    )


def lines(found):
    return as_text(found, ("a.yaml", "b.yaml")).splitlines()


def verdict(found):
    return next(line for line in lines(found) if line.startswith("B takes"))


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (0.5, "B takes 50.0% less time per token than A (90 %: 49.5% to 50.5% less)"),
        (1.25, "B takes 25.0% more time per token than A (90 %: 23.8% to 26.2% more)"),
        (1.00004, "B takes as long per token as A (90 %: 1.0% less to 1.0% more)"),
    ],
)
def test_the_verdict_says_who_needs_less_and_by_how_much(ratio, told):
    assert verdict(compared(ratio)) == told


@all_cases(
    ("low", "high", "sure"),
    [(0.8, 0.99, True), (0.8, 1.0, False), (0.8, 1.1, False), (1.0, 1.2, False), (1.01, 1.2, True)],
)
def test_an_order_is_settled_where_the_interval_leaves_one_out(low, high, sure):
    found = compared(0.9 if high < 1.1 else 1.1, low, high)

    assert found.sure is sure
    assert verdict(found).endswith("; the order is uncertain") is not sure
    assert as_json(found)["settled"] is sure


@LAWS
@given(st.floats(0.01, 100.0))
def test_the_json_holds_the_ratio_and_its_bounds_in_nine_digits(ratio):
    data = as_json(compared(ratio))

    assert data["time_per_token_ratio"] == pytest.approx(ratio, rel=1e-8)
    assert data["time_per_token_ratio_low"] <= data["time_per_token_ratio"]
    assert data["time_per_token_ratio"] <= data["time_per_token_ratio_high"]
    assert set(data) == {
        "format_version", "first", "second", "time_per_token_ratio", "time_per_token_ratio_low",
        "time_per_token_ratio_high", "settled", "cost_per_token_ratio", "cost_per_token_ratio_low",
        "cost_per_token_ratio_high", "cost_settled", "energy_per_token_ratio", "energy_per_token_ratio_low",
        "energy_per_token_ratio_high", "energy_settled", "cost_difference_usd", "cost_difference_usd_low",
        "cost_difference_usd_high", "cost_difference_of",
    }  # fmt: skip


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_equal_facts_of_the_second_are_the_same_and_other_ones_are_told():
    found = {cells(line)[0]: cells(line)[1:] for line in lines(compared(0.9)) if line}

    first, second = sample_report("one stage").job, sample_report("batched").job
    assert found["model"] == [first.model.name, "same"]
    assert found["device"] == [first.cluster.node.device.name, "same"]
    assert found["cluster"] == [f"dgx-a100, {first.cluster.num_devices} devices", "dgx-a100, 32 devices"]
    assert second.cluster.num_devices == 32


def test_a_job_that_does_not_fit_is_told_so():
    large = sample_report("too large")

    text = as_text(versus(sample_report("one stage"), large), ("a", "b"))

    memory = next(line for line in text.splitlines() if line.startswith("memory"))
    assert memory.endswith("DOES NOT FIT")
    assert not large.memory.fits
    assert all(f"warning   B: {told}" in text for told in large.warnings)


def changed(**seconds):
    """The report of one stage with some components of its step as given, the others nothing."""
    report = sample_report("one stage")
    breakdown = dict.fromkeys(report.breakdown, 0.0) | seconds
    return with_parts(report, breakdown=breakdown, step_time_s=1.0)


def components(first, second):
    text = as_text(versus(first, second), ("a", "b"))
    return [cells(line)[0] for line in text.splitlines() if line.startswith("  ") and cells(line)]


@all_cases(("seconds", "shown"), [(0.0049, False), (0.0051, True)])
@all_cases("side", [0, 1])
def test_a_component_below_half_a_percent_of_both_steps_is_left_out(seconds, shown, side):
    pair = [changed(mlp=0.5), changed(mlp=0.5)]
    pair[side] = changed(mlp=0.5, tp_communication=seconds)

    assert (component_label("tp_communication") in components(*pair)) is shown


def test_times_of_pipeline_stages_stand_below_a_heading_that_names_the_busiest_stage():
    staged, whole = sample_report("batched"), sample_report("one stage")

    assert staged.job.plan.pipeline_parallel > 1
    for pair in ((staged, staged), (staged, whole), (whole, staged)):
        assert "\ntime on the busiest stage\n" in as_text(versus(*pair), ("a", "b"))
    alone = as_text(versus(whole, whole), ("a", "b"))
    assert "\ntime of the step\n" in alone
    assert "busiest stage" not in alone


def test_columns_of_the_table_begin_below_one_another():
    text = lines(compared(0.9))
    start = next(number for number, line in enumerate(text) if line.strip().startswith("A") and number > 1)
    rows = text[start : text.index("", start)]

    places = [rows[0].index("A"), rows[0].index("B")]
    for row in rows[1:]:
        assert all(row[place - 1] == " " for place in places if place <= len(row))
        assert all(row[place] != " " for place in places if place < len(row))
