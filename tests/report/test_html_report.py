"""report/html.py: one well-formed page that needs no network and trusts no text."""

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import pytest
from conftest import make_job
from sample_reports import PARTS, report_of, sample_report

from flopcast.report.costs import as_text
from flopcast.report.html import MOST_BOXES, SVG_WIDTH, as_html
from flopcast.report.memory_drawing import ROW_HEIGHT, memory_drawing

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Tags in order, text by tag; a tag that closes another is an error."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.wrong = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return " ".join(data for name, data in self.texts if name == tag)


def page_of(name):
    return Page(as_html(sample_report(name)))


@pytest.mark.parametrize("name", PARTS)
def test_every_tag_is_closed_in_its_place(name):
    page = page_of(name)

    assert page.wrong == []
    assert page.open == []


@pytest.mark.parametrize("name", PARTS)
def test_the_page_starts_as_html_and_says_its_language_and_encoding(name):
    text = as_html(sample_report(name))
    page = Page(text)

    assert text.startswith("<!doctype html>")
    assert page.of("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.of("meta")
    assert page.text("title")


@pytest.mark.parametrize("name", PARTS)
def test_the_page_loads_and_runs_nothing(name):
    page = page_of(name)

    tags = {tag for tag, _ in page.tags}
    attributes = [(key, value) for _, found in page.tags for key, value in found.items()]
    assert tags.isdisjoint({"script", "link", "img", "iframe", "a", "object"})
    assert not any(key in ("src", "href", "srcset") or key.startswith("on") for key, _ in attributes)
    assert not any(re.search(r"https?:|url\(|@import", value or "") for _, value in attributes)
    assert not re.search(r"https?:|url\(|@import", page.text("style"))


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", "a & b < c", "\"'><b>", "naïve – 模型"])
def test_text_of_the_user_is_shown_as_text(evil):
    job = make_job()
    names = {
        "model": job.model.model_copy(update={"name": evil}),
        "stack": job.stack.model_copy(update={"name": evil}),
        "assumptions": (evil,),
    }
    report = report_of(job.model_copy(update=names))

    page = Page(as_html(replace(report, warnings=(evil,))))

    assert page.wrong == []
    assert page.of("script") == []
    assert page.of("b") == []
    for tag in ("title", "h1", "li"):
        assert evil in page.text(tag)


@pytest.mark.parametrize("name", PARTS)
def test_the_page_says_whether_the_plan_fits(name):
    report = sample_report(name)

    verdicts = Page(as_html(report)).text("strong")

    assert verdicts.endswith("fits" if report.memory.fits else "does not fit")
    assert ("does not fit" in verdicts) == (not report.memory.fits)


def test_warnings_are_marked():
    page = page_of("too large")

    assert {"class": "warning"} in page.of("p")
    assert "does not fit" in page.text("p")


@pytest.mark.parametrize("name", PARTS)
def test_every_task_update_and_reduction_is_drawn_on_its_stage(name):
    report = sample_report(name)

    boxes = Page(as_html(report)).of("rect")

    stages = len(report.memory.per_stage)
    rows = [int(box["y"]) // 22 for box in boxes]
    expected = len(report.timeline.stage) + 2 * stages
    assert len(boxes) == expected
    assert [rows.count(stage) for stage in range(stages)] == [expected // stages] * stages


@pytest.mark.parametrize("name", PARTS)
def test_boxes_lie_inside_the_drawing(name):
    boxes = page_of(name).of("rect")

    least = min(float(box["x"]) for box in boxes)
    most = max(float(box["x"]) + float(box["width"]) for box in boxes)
    assert least == 0.0
    assert 0.9 * SVG_WIDTH < most <= SVG_WIDTH + 0.3  # the shortest box is 0.3 wide


@pytest.mark.parametrize("name", ["batched", "sequential"])
def test_forwards_and_backwards_have_different_colours(name):
    report = sample_report(name)

    fills = [box["fill"] for box in Page(as_html(report)).of("rect")]

    half = len(report.timeline.stage) // 2
    assert fills.count("var(--forward)") == fills.count("var(--backward)") == half


@pytest.mark.parametrize("name", ["batched", "one stage"])
def test_boxes_of_tasks_are_as_long_as_the_tasks(name):
    report = sample_report(name)

    boxes = Page(as_html(report)).of("rect")

    for box, start, end in zip(boxes, report.timeline.start_s, report.timeline.end_s, strict=False):
        assert float(box["x"]) == pytest.approx(start / report.clean_step_time_s * SVG_WIDTH, abs=0.006)
        width = (end - start) / report.clean_step_time_s * SVG_WIDTH
        assert float(box["width"]) == pytest.approx(max(width, 0.3), abs=0.006)


def test_a_drawing_of_too_many_tasks_is_replaced_by_a_sentence():
    report = report_of(make_job(plan=f"pp=8 gbs={MOST_BOXES // 16 + 1} precision=fp16"))

    page = Page(as_html(report))

    assert page.of("rect") == []
    assert "too many to draw" in page.text("p")


@pytest.mark.parametrize("name", PARTS)
def test_every_row_of_the_report_is_a_row_of_a_table(name):
    report = sample_report(name)

    cells = Page(as_html(report)).text("td")

    assert all(component.replace("_", " ") in cells for component in report.breakdown)
    assert all(factor.name in cells for factor in report.factors)
    assert all(entry.curve in cells for entry in report.evidence)


def test_bars_of_the_breakdown_sum_to_the_step():
    widths = [
        float(style["style"].removeprefix("width:").removesuffix("%"))
        for style in page_of("batched").of("div")
        if style.get("class") == "bar"
    ]

    assert sum(widths) == pytest.approx(100.0, abs=0.01 * len(widths))


def test_the_same_report_gives_the_same_page():
    assert as_html(report_of(make_job())) == as_html(report_of(make_job()))


@pytest.mark.parametrize("name", ["batched", "interleaved"])
def test_memory_is_drawn_for_every_stage_and_fills_the_row_of_the_fullest(name):
    report = sample_report(name)

    drawing = memory_drawing(report)

    paths = re.findall(r'<path d="([^"]+)" fill="var\(--forward\)"', drawing)
    tops = [min(float(y) for y in re.findall(r"V([\d.]+)", path)) for path in paths]
    heights = [(row + 1) * ROW_HEIGHT - top for row, top in enumerate(tops)]
    assert len(paths) == len(report.memory.per_stage)
    assert max(heights) == pytest.approx(ROW_HEIGHT - 4, abs=0.1)
    sizes = [stage.allocated_bytes for stage in report.memory.per_stage]
    assert heights == pytest.approx([size / max(sizes) * (ROW_HEIGHT - 4) for size in sizes], abs=0.1)
    assert drawing in as_html(report)


def test_the_page_tells_money_and_energy_in_the_words_of_the_text():
    report = sample_report("one stage")

    page = as_html(report)

    told = [line.split(maxsplit=1)[1] for line in as_text(report.cost)[1:]]
    assert len(told) == 5
    assert all(escape(line) in page for line in told)
