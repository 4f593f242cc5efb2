"""The page in a real browser: what its script adds, and that nothing breaks without it.

These run where Chromium and its driver are installed; what a page says is tested without them.
"""

import os
import re
from itertools import pairwise
from shutil import which

import numpy as np
import pytest
from conftest import make_job
from sample_reports import report_of, sample_report

from flopcast.render.page.drawing import WIDTH
from flopcast.render.page.pipeline import MOST_TASKS, end_of
from flopcast.render.page.time_axis import LEFT, RIGHT, TIME_UNITS
from flopcast.render.report_page import as_html
from flopcast.units import show_seconds

sync_api = pytest.importorskip("playwright.sync_api", reason="the driver of browsers is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or which("chromium") or which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
NAME = "interleaved"
SHIFT = """() => new Promise(done => {
  let total = 0;
  new PerformanceObserver(list => { for (const each of list.getEntries()) total += each.value; })
    .observe({type: 'layout-shift', buffered: true});
  setTimeout(() => done(total), 300);
})"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(as_html(sample_report(NAME)), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    """Opens the page; `told` is everything that the browser complains of, `asked` what it fetches."""
    pages = []

    def open_page(**options):
        page = browser.new_page(viewport={"width": 1200, "height": 1800}, **options)
        page.told, page.asked = [], []
        page.on("console", lambda message: page.told.append(message.text))
        page.on("pageerror", lambda error: page.told.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()


def view(page, key="pipeline"):
    """Which part of the step a drawing shows, as shares of it."""
    left, _, width, _ = map(float, page.get_attribute(f"#{key}-drawing svg.plot", "viewBox").split())
    return left / TIME_UNITS, (left + width) / TIME_UNITS


def place(page, across, down):
    """Where on the screen a point of the pipeline stands, in shares of the drawing's width and height."""
    box = page.locator("#pipeline-drawing .time > svg").bounding_box()
    scale = box["width"] / WIDTH
    height = float(page.get_attribute("#pipeline-drawing svg.plot", "height"))
    return box["x"] + (LEFT + across * (RIGHT - LEFT)) * scale, box["y"] + down * height * scale


def ticks(page, key="pipeline"):
    return page.locator(f"#{key}-drawing .ticks text").all_text_contents()


def test_the_page_loads_itself_alone_and_breaks_none_of_its_rules(opened, file):
    page = opened()

    page.keyboard.press("Tab")

    assert page.told == []
    assert page.asked == [file.as_uri()]


def test_nothing_moves_once_it_is_shown(opened):
    assert opened().evaluate(SHIFT) == 0


def test_keys_zoom_and_move_both_drawings_over_time(opened):
    page = opened()
    drawing = page.locator("#pipeline-drawing .time")
    drawing.focus()

    drawing.press("+")
    assert view(page) == view(page, "memory") == pytest.approx((0.25, 0.75))
    drawing.press("+")
    drawing.press("ArrowRight")
    assert view(page) == pytest.approx((0.4375, 0.6875))
    drawing.press("ArrowLeft")
    drawing.press("-")
    assert view(page) == pytest.approx((0.25, 0.75))
    drawing.press("0")
    assert view(page) == view(page, "memory") == (0.0, 1.0)


def test_what_is_shown_is_told_to_those_who_do_not_see_it(opened):
    page = opened()
    end_s = end_of(sample_report(NAME))
    drawing, told = page.locator("#pipeline-drawing .time"), page.locator("#pipeline-drawing .told")
    hint = told.text_content()

    drawing.press("+")
    shown = told.text_content().removeprefix("Showing ").removesuffix(".").split(" to ")
    assert told.get_attribute("role") == "status"
    starts = [float(text.split()[0]) for text in shown]
    assert starts == pytest.approx([end_s * 250, end_s * 750], rel=2e-3)  # in ms
    drawing.press("0")
    assert told.text_content() == hint


def test_zoom_stays_inside_the_step(opened):
    page = opened()
    drawing = page.locator("#memory-drawing .time")

    drawing.press("-")
    assert view(page) == (0.0, 1.0)
    drawing.press("+")
    for _ in range(9):
        drawing.press("ArrowLeft")
    assert view(page) == pytest.approx((0.0, 0.5))


def test_ticks_drawn_by_the_script_are_those_of_the_page(opened):
    page = opened()
    before = ticks(page)
    drawing = page.locator("#pipeline-drawing .time")

    drawing.press("+")
    zoomed = ticks(page)
    drawing.press("0")

    def plain(texts):
        return [re.sub(r"\.?0+(?= )", "", text) if "." in text else text for text in texts]

    assert plain(ticks(page)) == plain(before)
    assert zoomed != before
    assert len(zoomed) >= 3


def test_buttons_do_what_keys_do(opened):
    page = opened()

    page.get_by_role("button", name="Zoom in: 4 pipeline stages").click()
    assert view(page) == pytest.approx((0.25, 0.75))
    page.get_by_role("button", name="Show all: Allocated memory").click()
    assert view(page) == (0.0, 1.0)


def test_a_wheel_scrolls_the_page_and_zooms_with_ctrl_only(opened):
    page = opened()
    page.mouse.move(*place(page, 0.5, 0.5))

    page.mouse.wheel(0, 1)
    assert view(page) == (0.0, 1.0)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("document.querySelector('svg.plot').viewBox.baseVal.width < 100000")
    assert view(page) == pytest.approx((0.1, 0.9), abs=0.005)


def test_the_task_under_the_pointer_is_told(opened):
    report = sample_report(NAME)
    timeline, page = report.timeline, opened()
    shares = timeline.start_s / end_of(report)
    chosen = np.flatnonzero((shares > 0.3) & (shares < 0.7))[::7]
    page.locator("#pipeline-drawing .time").press("+")
    left, right = view(page)

    for task in chosen.tolist():
        middle = (timeline.start_s[task] + timeline.end_s[task]) / 2 / end_of(report)
        stage = int(timeline.stage[task])
        page.mouse.move(*place(page, (middle - left) / (right - left), (stage + 0.5) / 4))
        told = page.locator("#pipeline-drawing .told").text_content()
        kind = ("forward", "backward")[int(timeline.kind[task])]
        assert told.startswith(f"Stage {stage} at ")
        assert f"{kind} of micro-batch {int(timeline.micro_batch[task])}" in told
        assert (f"chunk {int(timeline.chunk[task])}" in told) == (timeline.chunk[task] > 0)


def test_a_pipeline_of_columns_tells_stage_and_moment(browser, tmp_path):
    report = report_of(make_job(plan=f"pp=8 gbs={MOST_TASKS // 16 + 8} precision=fp16"))
    path = tmp_path / "large.html"
    path.write_text(as_html(report), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1200, "height": 1800})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())

    page.locator("#pipeline-drawing .time").press("+")
    page.mouse.move(*place(page, 0.5, 7.5 / 8))
    told = page.locator("#pipeline-drawing .told").text_content()
    page.close()

    assert re.fullmatch(r"Stage 7 at [\d.]+ m?s", told)
    assert faults == []


def test_a_table_is_sorted_by_the_heading_that_is_pressed(opened):
    page = opened()
    table = page.locator("#time table").first
    cells = table.locator("td:nth-child(2) data")
    values = "all => all.map(one => Number(one.value))"
    times = cells.evaluate_all(values)
    head = table.locator("thead th").nth(1)

    for state, wanted in (("descending", sorted(times, reverse=True)), ("ascending", sorted(times))):
        head.locator("button").press("Enter")
        assert cells.evaluate_all(values) == wanted
        assert head.get_attribute("aria-sort") == state
    table.locator("thead th").first.locator("button").click()
    assert head.get_attribute("aria-sort") is None


def test_focus_goes_down_the_page_and_is_seen(opened):
    page = opened()
    seen = []

    for _ in range(40):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const at = document.activeElement, box = at.getBoundingClientRect();"
            " return [at.tagName, box.top + scrollY, getComputedStyle(at).outlineWidth]; }"
        )
        seen.append(found)
    tops = [top for tag, top, _ in seen if tag != "BODY"]
    assert len(tops) > 30
    assert all(after >= before - 40 for before, after in pairwise(tops))
    assert {width for tag, _, width in seen if tag != "BODY"} == {"3px"}


def test_without_scripts_all_of_it_is_there_but_what_needs_one(opened):
    page = opened(java_script_enabled=False)

    assert page.locator("#pipeline-drawing svg.plot path").count() > 0
    assert not page.locator(".needs-script").first.is_visible()
    assert page.locator("#time table").first.is_visible()
    for place in (0, 1):  # the list of components, and the first of them
        page.locator("#time details summary").nth(place).click()
    assert page.locator("#time details table").first.is_visible()


@pytest.mark.parametrize(("scheme", "ground"), [("light", "255"), ("dark", "17")])
def test_the_ground_follows_the_scheme_of_the_reader_but_paper_is_white(opened, scheme, ground):
    page = opened(color_scheme=scheme)
    told = "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"

    assert page.evaluate(told) == ground
    page.emulate_media(media="print", color_scheme=scheme)
    assert page.evaluate(told) == "255"
    assert not page.locator("nav").is_visible()
    assert page.locator("#time details table").first.is_visible()  # closed parts are printed too


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_nothing_is_wider_than_the_window(opened, width):
    page = opened()

    page.set_viewport_size({"width": width, "height": 900})

    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 390])
def test_a_plan_of_many_chunks_is_no_wider_than_a_telephone(browser, tmp_path, width):
    """`stage_layers` of 32 chunks is one word without a blank, in which equal neighbours are counted."""
    dealt = "stage_layers=" + ",".join(["1"] * 32)
    words = {"model": "llama-3-8b", "cluster": "dgx-a100:2", "stack": "megatron-core"}
    report = report_of(make_job(**words, plan=f"pp=16 vpp=2 gbs=16 {dealt} precision=bf16"))
    place = tmp_path / "long.html"
    place.write_text(as_html(report), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})

    page.goto(place.as_uri())

    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    shown = page.inner_text("body")
    assert "stage_layers=1x32 " in shown
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_saved_job_is_the_job_that_is_shown(opened):
    page = opened()

    with page.expect_download() as waiting:
        page.get_by_role("link", name="Save job.yaml").click()

    assert waiting.value.suggested_filename == "job.yaml"
    saved = waiting.value.path().read_text(encoding="utf-8")
    page.locator("#job summary").click()
    assert saved == page.locator("#job pre").text_content()


def test_seconds_of_the_script_are_those_of_the_page(opened):
    page = opened()
    end_s = end_of(sample_report(NAME))
    page.mouse.move(*place(page, 0.5, 0.5))

    told = page.locator("#pipeline-drawing .told").text_content()

    assert float(told.split(" at ")[1].split()[0]) == pytest.approx(
        float(show_seconds(end_s / 2).split()[0]), rel=0.02
    )
