"""The page of published runs: one file, every run a mark where it belongs, every text escaped."""

import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from made_up_runs import JOB, judged, run

from flopcast.api import predict
from flopcast.errors import Problem, SpecError
from flopcast.render.page.drawing import WIDTH
from flopcast.render.published_drawing import EDGE, ratios_drawing
from flopcast.render.published_page import runs_as_html
from flopcast.render.published_tables import runs_as_markdown, tables

REPORT = predict(JOB)


def drawings(page):
    """The drawings of a page, as trees: each is an XML document."""
    return [
        ElementTree.fromstring(found)
        for found in re.findall(r'<svg role="img".*?</svg>', page, flags=re.DOTALL)
    ]


def marks(drawing):
    """Where the marks stand, by the text of their titles."""
    return {
        group.findtext("title"): [
            float(number) for number in re.findall(r"[\d.]+", group.find("g").get("transform"))
        ]
        for group in drawing.findall("g")
    }


def test_the_page_needs_nothing_else():
    page = runs_as_html(judged([run("a")]))

    assert "<script" not in page
    assert not re.search(r"""src=|href="[^#]|url\(|@import|https?://""", page)
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page


def test_every_run_is_a_mark_with_its_name_in_both_drawings():
    page = runs_as_html(judged([run("a"), run("b", step_time_s=0.5)]))

    for drawing in drawings(page):
        assert [title.split(":")[0] for title in marks(drawing)] == ["a", "b"]


def test_a_right_prediction_stands_on_the_diagonal():
    """As far from the left as from the bottom."""
    (times, _) = drawings(runs_as_html(judged([run("a", step_time_s=REPORT.step_time_s)])))

    ((across, up),) = marks(times).values()

    assert across - EDGE == pytest.approx(WIDTH - EDGE - up, abs=0.11)


def test_half_and_twice_the_time_are_as_far_from_one():
    seconds = REPORT.step_time_s
    rows = judged([run("slow", step_time_s=seconds / 2), run("fast", step_time_s=seconds * 2)]).rows
    right = judged([run("right", step_time_s=seconds)]).rows

    def height(found):
        drawing = ElementTree.fromstring(ratios_drawing(found, ["made-up"])).find(".//svg")
        return [up for _, up in marks(drawing).values()]

    slow, fast = height(rows)
    (middle,) = height(right)
    assert middle - slow == pytest.approx(fast - middle, abs=0.11)


def test_the_tables_are_those_of_the_text():
    published = judged([run("a"), run("b", job=SpecError([problem()]))])
    page, markdown = runs_as_html(published), runs_as_markdown(published)

    for table in tables(published):
        assert table.title in page
        assert table.title in markdown
        for name, cells in table.lines:
            assert name in page
            assert all(cell in markdown for cell in cells)


def problem(because="it is not supported"):
    return Problem(field="plan", value=1, allowed="", because=because, fix="")


def test_texts_of_a_table_are_escaped():
    hostile = '<img onerror="x">'
    published = judged([run("a", source=hostile), run("b", job=SpecError([problem(hostile)]))])

    page = runs_as_html(published)

    assert "<img" not in page


def test_a_page_of_rows_that_are_all_left_out_says_why():
    page = runs_as_html(judged([run("b", job=SpecError([problem()]))]))

    assert "it is not supported" in page
    assert drawings(page) == []


def test_the_page_names_its_only_style_by_its_hash_and_forbids_everything_else():
    page = runs_as_html(judged([run("a")]))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)

    digest = b64encode(sha256(style.encode()).digest()).decode()

    assert policy.startswith("default-src 'none'; style-src ")
    assert f"'sha256-{digest}'" in policy
    assert "script-src" not in policy
    assert "style=" not in page


def test_headings_and_rows_of_the_page_say_what_they_are_of():
    page = runs_as_html(judged([run("a"), run("b", job=SpecError([problem()]))]))

    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    ids = re.findall(r' id="([^"]+)"', page)
    assert levels[:2] == [1, 2]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(ids) == len(set(ids))
    assert page.count("<th") == page.count('<th scope="') + page.count("<thead")
    for words in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert set(words.split()) <= set(ids)


def test_columns_of_numbers_stand_to_the_right():
    page = runs_as_html(judged([run("a"), run("b", step_time_s=0.5)]))

    table = page[page.index("<table") : page.index("</table>")]
    headings = re.findall(r'<th scope="col"([^>]*)>([^<]+)', table)
    numeric = {name for kind, name in headings if "number" in kind}
    assert {"median", "mean", "p90", "bias"} <= numeric
    assert "source" not in numeric
