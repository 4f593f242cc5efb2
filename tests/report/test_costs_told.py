"""Money and energy in the text and the JSON of a report."""

import pytest
from all_cases import all_cases
from conftest import make_job
from sample_reports import report_of, sample_report
from unmarked import unmarked

from flopcast.render.comparison import marked_text as marked_compared
from flopcast.render.report_json import as_json, with_bounds
from flopcast.render.report_page import as_html
from flopcast.render.report_text import marked_text
from flopcast.report.versus import versus
from flopcast.spec.operations import Price
from flopcast.units import show_usd

compared = unmarked(marked_compared)
as_text = unmarked(marked_text)

KEYS = (
    "cost_usd_per_step",
    "cost_usd_per_1e12_tokens",
    "energy_j_per_step",
    "energy_kwh_per_1e12_tokens",
    "mean_power_w_per_device",
)


def bare_report():
    """No price, and a device that no data sheet tells the power of."""
    job = make_job()
    group = job.cluster.groups[0]
    device = group.node.device.model_copy(update={"board_power_w": None})
    group = group.model_copy(update={"node": group.node.model_copy(update={"device": device})})
    cluster = job.cluster.model_copy(update={"groups": (group,), "price": None})
    return report_of(job.model_copy(update={"cluster": cluster}))


@all_cases("key", KEYS)
def test_every_number_stands_between_its_bounds(key):
    data = as_json(sample_report("jitter"))

    assert data[f"{key}_low"] < data[key] < data[f"{key}_high"]


def test_the_same_energy_is_told_in_joules_watts_and_kilowatt_hours():
    report = sample_report("one stage")
    data = as_json(report)

    kwh = data["energy_j_per_step"] / 3.6e6 * 1e12 / report.job.step_tokens
    assert data["energy_kwh_per_1e12_tokens"] == pytest.approx(kwh)
    devices_j = data["mean_power_w_per_device"] * report.step_time_s * 8
    node_j = 0.5 * 400 * report.step_time_s * 8
    assert data["energy_j_per_step"] == pytest.approx(1.2 * (devices_j + node_j))


def test_the_price_is_told_with_its_day():
    data = as_json(sample_report("one stage"))

    assert data["price"]["name"] == "a100-sxm4-80gb"
    assert data["price"]["date"].startswith("20")
    assert data["price"]["currency"] == "USD"
    assert "source" not in data["price"]


def test_what_is_unknown_is_null_and_the_text_says_how_to_tell_it():
    report = bare_report()

    data, text = as_json(report), as_text(report)

    assert [data[key] for key in (*KEYS, "price")] == [None] * 6
    assert "--price" in text
    assert "board_power_w" in text


def test_the_text_holds_the_numbers_of_the_json():
    report = sample_report("one stage")
    data, text = as_json(report), as_text(report)

    cost = text.split("\ncost and energy (")[1].split("\n\n")[0]
    assert show_usd(data["cost_usd_per_step"]) in cost
    assert show_usd(data["cost_usd_per_1e12_tokens_high"]) in cost
    assert f"{data['mean_power_w_per_device']:.0f} W per device" in cost
    assert "a100-sxm4-80gb, on demand" in cost


def test_a_price_changes_money_and_nothing_else():
    job = make_job()
    dear = job.cluster.model_copy(update={"price": Price(device_usd_per_hour=100.0)})

    plain, other = (as_json(report_of(each)) for each in (job, job.model_copy(update={"cluster": dear})))

    changed = {key for key in plain if plain[key] != other[key]}
    money = {f"{key}{end}" for key in KEYS[:2] for end in ("", "_low", "_high")}
    assert changed == money | {"price"}


def test_an_unknown_amount_keeps_its_keys():
    assert with_bounds("x", None) == {"x": None, "x_low": None, "x_high": None}


@all_cases(
    ("usd", "text"),
    [
        (0.00123, "$0.00123"),
        (0.996, "$1.00"),
        (12.3, "$12.30"),
        (999.6, "$1,000"),
        (1.234e6, "$1.23 M"),
        (9.996e8, "$1.00 B"),
        (1.25e11, "$125 B"),
        (1e15, "$1,000 T"),
    ],
)
def test_dollars_are_shown_as_people_write_them(usd, text):
    assert show_usd(usd) == text


@all_cases("run", [{"tokens": "1T"}, {"samples": 52000}])
def test_only_pretraining_of_unknown_length_is_quoted_for_1e12_tokens(run):
    """A run of known length has a cost of its own, beside that of a step."""
    known = report_of(make_job(run=run))

    text, page, pair = as_text(known), as_html(known), compared(versus(known, known), ("a", "b"))

    for told in (text, page, pair):
        assert "1e12 tokens" not in told
    assert f"{show_usd(known.cost.step_usd.value)} per step (90 %: " in text
    assert show_usd(known.run.usd.value) in text
    for told in (as_text(sample_report("one stage")), as_html(sample_report("one stage"))):
        assert "1e12 tokens" in told
