"""render/report_page.py: one well-formed page that needs no network, trusts no text, and agrees with the
JSON."""

import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import escape

import pytest
from all_cases import all_cases
from conftest import make_job
from page_reader import Page
from sample_reports import PARTS, page_of, report_of, sample_report, text_of, with_parts

from flopcast.api import report_page
from flopcast.files.yaml_text import read_yaml
from flopcast.lab.diagnosis.settings import best_changes
from flopcast.library.curves import load_book
from flopcast.render.page.limits import LEAST_SHOWN, by_limit
from flopcast.render.report_json import as_json
from flopcast.render.report_page import as_html
from flopcast.render.report_text import cost_lines
from flopcast.report.labels import component_label, memory_label
from flopcast.requests.job_files import job_of
from flopcast.search.scaled import scaled
from flopcast.spec.factor_kinds import in_words
from flopcast.units import nine_digits

EVERY = pytest.mark.parametrize("name", PARTS)
MOST_BYTES = 1_000_000


@EVERY
def test_every_tag_is_closed_in_its_place_and_every_id_is_given_once(name):
    page = page_of(name)

    assert page.wrong == []
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


@EVERY
def test_the_page_starts_as_html_and_says_its_language_and_encoding(name):
    text = text_of(name)
    page = page_of(name)

    assert text.startswith("<!doctype html>")
    assert page.of("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.of("meta")
    assert page.text("title")


@EVERY
def test_the_page_loads_nothing(name):
    page = page_of(name)

    attributes = [(key, value or "") for _, found in page.tags for key, value in found.items()]
    links = [value for key, value in attributes if key == "href"]
    assert {tag for tag, _ in page.tags}.isdisjoint({"link", "img", "iframe", "object", "base", "form"})
    assert not any(key in ("src", "srcset", "style") or key.startswith("on") for key, _ in attributes)
    assert all(link.startswith(("#", "data:application/yaml;")) for link in links)
    assert {link[1:] for link in links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"https?:|url\(|@import", page.text("style"))


@EVERY
def test_only_the_style_and_the_script_of_the_page_may_take_effect(name):
    text = text_of(name)
    (policy,) = [found["content"] for found in page_of(name).of("meta") if "http-equiv" in found]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    bodies = {
        "script-src": re.findall(r"<script>(.*?)</script>", text, re.S),
        "style-src": re.findall(r"<style>(.*?)</style>", text, re.S),
    }
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    assert {len(found) for found in bodies.values()} == {1, 2}
    for rule, found in bodies.items():
        hashes = [b64encode(sha256(each.encode()).digest()).decode() for each in found]
        assert rules.pop(rule).split() == [f"'sha256-{each}'" for each in hashes]
    assert rules == {}


@cache
def scaled_sample():
    report = sample_report("jitter")
    return scaled(report, load_book(report.job.cluster))


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><b>",
    "a & b < c",
    "\"'><b onload=x>",
    "--><!--",
    "]]>",
    "naïve – 模型",
]


@all_cases("evil", HOSTILE)
def test_text_of_the_user_is_shown_as_text(evil):
    report = sample_report("one stage")
    job = report.job
    device = job.cluster.node.device.model_copy(update={"name": evil})
    node = job.cluster.node.model_copy(update={"device": device})
    group = job.cluster.groups[0].model_copy(update={"node": node})
    names = {
        "model": job.model.model_copy(update={"name": evil}),
        "stack": job.stack.model_copy(update={"name": evil}),
    }
    cluster = job.cluster.model_copy(update={"name": evil, "groups": (group,)})
    report = with_parts(
        report,
        job=job.model_copy(update=names | {"cluster": cluster}),
        assumptions=(evil,),
        warnings=(evil,),
        factors=tuple(replace(each, name=evil) for each in report.factors),
        evidence=tuple(replace(each, curve=evil, source=evil) for each in report.evidence),
    )

    text = as_html(report, scaled_sample())
    page = Page(text)

    assert page.wrong == []
    assert len(page.of("script")) == 2
    assert page.of("b") == []
    assert text.count("<!--") == 0
    for tag in ("title", "h1", "li"):
        assert evil in page.text(tag)
    assert page.data["report"]["job"]["model"] == evil
    assert page.data["report"]["warnings"] == [evil]


@EVERY
def test_the_page_holds_the_json_of_the_report(name):
    report = sample_report(name)

    assert page_of(name).data["report"] == json.loads(json.dumps(as_json(report)))


@EVERY
def test_the_answer_has_the_numbers_of_the_json(name):
    told = as_json(sample_report(name))
    text = text_of(name)

    tiles = text[text.index('<dl class="tiles">') : text.index("</dl>")]
    values = [float(value) for value in re.findall(r'<data value="([^"]+)"', tiles)]
    keys = ("step_time_s", "step_time_low_s", "step_time_high_s")
    recomputed = ("hfu",) if told["hfu"] != told["mfu"] else ()
    rates = ("tokens_per_s", "tokens_per_s_per_device", "mfu", *recomputed, "model_tflops_per_device")
    memory = [
        nine_digits(told["memory"][key])
        for key in ("expected_bytes", "low_bytes", "high_bytes", "capacity_bytes")
    ]
    costs = [
        told[key + end]
        for key in ("cost_usd_per_1e12_tokens", "energy_kwh_per_1e12_tokens")
        for end in ("", "_low", "_high")
    ]
    first, last = ([told[key] for key in part] for part in (keys, rates))
    assert values == first + memory + costs + last


@EVERY
def test_tables_have_the_numbers_of_the_json(name):
    told, page = as_json(sample_report(name)), page_of(name)
    step_s = told["step_time_s"]

    _, components = page.table("by component")
    factors = page.table("The factors that determine the interval")[1]
    folded = f"less than {LEAST_SHOWN:.2%}"  # factors that move nothing
    if any(folded in caption for caption in page.tables):
        factors = [*factors, *page.table(folded)[1]]
    _, curves = page.table("All efficiency curves that the prediction uses")
    _, stages = page.table("Allocated: all tensors")

    assert [(row[0], row[1]) for row in components] == [
        (component_label(part), seconds) for part, seconds in told["breakdown"].items()
    ]
    assert [row[2] for row in components] == pytest.approx(
        [seconds / step_s for seconds in told["breakdown"].values()], rel=1e-7
    )
    assert [row[:3] for row in factors] == [
        [in_words(one["name"]), one["d_log_step"], one["log_sigma"]] for one in told["factors"]
    ]
    assert [(row[0], row[1], row[2] == "outside", row[3]) for row in curves] == [
        (one["curve"], one["relative_error"], one["extrapolated"], one["source"])
        for one in told["evidence"]
    ]
    assert [row[2:] for row in stages] == [
        [one["allocated_bytes"], one["reserved_bytes"], one["device_used_bytes"]]
        for one in told["memory"]["per_stage"]
    ]


@EVERY
def test_categories_of_a_stage_are_those_of_the_json_and_add_up(name):
    told = as_json(sample_report(name))["memory"]["per_stage"]

    headings, rows = page_of(name).table("of each stage at its peak")

    for row, stage in zip(rows, told, strict=True):
        held = dict(zip(headings[1:-1], row[1:-1], strict=True))
        assert {memory_label(key): size for key, size in stage["by_category"].items()} == {
            key: size for key, size in held.items() if size != "–"
        }
        assert sum(size for size in held.values() if size != "–") == pytest.approx(row[-1], rel=1e-8)


@EVERY
def test_the_page_says_whether_the_plan_fits(name):
    report = sample_report(name)

    text = as_html(report)

    word = {"fits": "Fits", "tight": "Tight", "does not fit": "Does not fit"}[report.memory.verdict]
    assert re.findall(r'<dd><span class="(?:good|amber|bad)">([^<]*)</span>', text) == [word]


def test_the_page_says_what_limits_the_step_most():
    report = sample_report("one stage")
    limit = escape(max(by_limit(report), key=by_limit(report).get))

    assert f"<dt>Limited by</dt><dd>{limit[:1].upper()}{limit[1:]}<small>" in text_of("one stage")


def test_the_page_has_the_change_that_helps_most_first():
    """The first change is the one whose seconds, weighed by their certainty, are most."""
    report = sample_report("interleaved")
    changes = best_changes(report, report_of)

    shown = Page(as_html(report, changes=changes)).text("strong")
    without = as_html(report, changes=())

    assert changes
    assert [text in shown for text in (f"{one.title}." for one in changes[:4])] == [True] * len(changes[:4])
    assert shown.index(changes[0].title) == min(shown.index(one.title) for one in changes[:4])
    assert changes[0].rank == max(one.rank for one in changes)
    assert "No single setting saves 1 % or more of the step" in without
    assert "What would help most" not in as_html(report)


def test_warnings_are_marked():
    page = page_of("too large")

    assert {"class": "warning"} in page.of("p")
    assert "Does not fit" in page.text("p")


@EVERY
def test_the_job_in_the_page_repeats_the_report(name):
    report = sample_report(name)
    page = page_of(name)

    (saved,) = [found for found in page.of("a") if "download" in found]
    text = b64decode(saved["href"].split(",", 1)[1])

    assert saved["download"] == "job.yaml"
    assert text.decode() == page.text("pre")
    again = report_of(job_of(read_yaml(text, "job.yaml")))
    assert as_json(again) == as_json(report)


def test_the_same_report_gives_the_same_page():
    assert as_html(report_of(make_job())) == as_html(report_of(make_job()))


def test_the_page_tells_money_and_energy_in_the_words_of_the_text():
    report = sample_report("one stage")

    page = as_html(report)

    told = [line.split(maxsplit=1)[1] for line in cost_lines(report)[1:]]
    assert len(told) == 7
    assert all(escape(line) in page for line in told)


def test_a_step_whose_price_and_power_nobody_states_says_so():
    report = sample_report("one stage")
    unknown = replace(report.cost, step_usd=None, price=None, price_usd_per_hour=None, energy=None)

    page = Page(as_html(with_parts(report, cost=unknown)))

    assert "the price of a device is not stated" in page.text("small")
    assert "board power is not stated" in page.text("small")


@pytest.mark.parametrize(
    "plan",
    ["pp=8 gbs=64 precision=fp16", "pp=8 gbs=1280 precision=fp16", "pp=8 vpp=16 gbs=1024 precision=fp16"],
)
def test_pages_stay_below_a_megabyte(plan):
    model = {
        "hidden": 1024,
        "vocabulary": 50257,
        "blocks": [{"count": 128, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}],
    }

    page = report_page(report_of(make_job(model=model, plan=plan)))

    assert len(page.encode()) < MOST_BYTES


def test_the_page_of_a_hundred_stages_and_a_thousand_micro_batches_stays_below_a_megabyte():
    model = {
        "hidden": 1024,
        "vocabulary": 50257,
        "blocks": [{"count": 128, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}],
    }
    report = report_of(make_job(model=model, cluster="dgx-a100:16", plan="pp=128 gbs=2000 precision=fp16"))

    page = as_html(report)

    assert len(report.timeline.stage) == 128 * 2000 * 2
    assert len(page.encode()) < MOST_BYTES
    assert Page(page).wrong == []
    assert "32 of 128 stages" in page


def test_numbers_of_cells_are_written_with_the_digits_of_the_json():
    found = re.findall(r'<data value="([^"]+)"', as_html(sample_report("jitter")))

    assert len(found) > 200
    assert all(float(value) == nine_digits(float(value)) for value in found)
