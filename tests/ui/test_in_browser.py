"""The pages in a real browser: what happens between a change and its answer, what a keyboard reaches."""

import re
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from browser_at_hand import changed, opened, picked, step_s, sync_api
from server_at_hand import data

SMALL = "model=llama-3-8b&cluster=dgx-h100&gpus=16&tp=8&pp=1&vpp=1&cp=1&ep=1&mbs=1&gbs=64&zero=1"
WHOLE = f"{SMALL}&recompute=none&precision=bf16&plan=sp"


def test_a_change_is_answered_and_kept_in_the_address(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    before_s = step_s(page)

    changed(page, lambda: page.select_option("[name=recompute]", "full"))

    assert step_s(page) > before_s
    words = parse_qs(urlsplit(page.url).query)
    assert (words["recompute"], words["tp"]) == (["full"], ["8"])
    page.reload()
    assert page.input_value("[name=recompute]") == "full"
    assert page.complaints == []


def test_what_is_typed_is_answered_as_the_api_answers(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")

    changed(page, lambda: page.fill("[name=tp]", "4"))

    report = data(server, "predict", dict(parse_qsl(WHOLE)) | {"tp": "4"})[1]
    assert step_s(page) == pytest.approx(report["step_time_s"], rel=1e-8)


def test_faults_are_shown_and_mended(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")

    changed(page, lambda: page.fill("[name=tp]", "5"))
    assert "Tensor parallel" in page.inner_text("#answer [role=alert]")

    changed(page, lambda: page.fill("[name=tp]", "8"))
    assert page.locator("#answer [role=alert]").count() == 0


def test_a_plan_is_chosen_into_the_form(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    changed(page, lambda: page.select_option("[name=recompute]", "full"))

    changed(page, lambda: page.click("button[name=choose]"))

    assert page.input_value("[name=recompute]") == "none"
    assert page.input_value("[name=gbs]") == "64"


def test_blocks_dealt_out_for_other_stages_are_forgotten(browser, server):
    dealt = WHOLE.replace("&pp=1", "&pp=2") + "+stage_layers=17,15"
    page = opened(browser, server, f"/?{dealt}")
    assert "stage_layers" in page.input_value("[name=plan]")

    changed(page, lambda: page.fill("[name=pp]", "1"))

    assert page.input_value("[name=plan]") == "sp"
    assert page.locator("#answer dl.tiles").count() == 1


def test_parts_that_are_open_stay_open(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    page.click("#part-evidence > summary")
    page.click("#part-time > summary")

    changed(page, lambda: page.select_option("[name=zero]", "0"))

    assert page.locator("#part-evidence[open]").count() == 1
    assert page.locator("#part-time[open]").count() == 0


def test_a_part_is_completed_when_it_is_opened_or_scrolled_to(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    page.click("#part-costs > summary")
    page.evaluate("scrollTo(0, 0)")
    keys = ("operators", "pipeline", "costs")
    whole = [page.locator(f"#part-{key} tr").count() for key in keys]
    height = page.locator("#part-pipeline").bounding_box()["height"]

    changed(page, lambda: page.select_option("[name=recompute]", "full"))
    changed(page, lambda: page.select_option("[name=recompute]", "none"))

    assert [page.locator(f"#part-{key} tr").count() for key in keys] == [0, 0, 0]
    assert page.locator("#part-pipeline").bounding_box()["height"] == pytest.approx(height, abs=1)
    page.click("#part-operators > summary")
    for key in keys:
        page.evaluate(f"document.getElementById('part-{key}').scrollIntoView()")
        page.wait_for_selector(f"#part-{key}:not([data-later])")
    assert [page.locator(f"#part-{key}[open] tr").count() for key in keys] == whole
    assert page.locator("#part-limits tr").count() == 0
    assert page.complaints == []


def test_back_undoes_one_change_at_a_time(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    before_s = step_s(page)
    changed(page, lambda: page.select_option("[name=recompute]", "full"))
    changed(page, lambda: page.fill("[name=gbs]", "128"))
    changed(page, lambda: page.select_option("[name=zero]", "0"))

    seen = []
    for _ in range(3):
        with page.expect_navigation():
            page.evaluate("history.back()")
        page.wait_for_selector("#answer dl.tiles")
        seen.append([page.input_value(f"[name={name}]") for name in ("recompute", "gbs", "zero")])

    assert seen == [["full", "128", "1"], ["full", "64", "1"], ["none", "64", "1"]]
    assert step_s(page) == before_s
    assert page.complaints == []


def test_letters_of_one_field_are_one_step_back(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    steps = page.evaluate("history.length")

    for letters in ("1", "12", "128"):
        changed(page, lambda letters=letters: page.fill("[name=gbs]", letters))

    assert page.evaluate("history.length") == steps + 1


def test_another_model_fills_the_form_with_another_plan(browser, server):
    page = opened(browser, server, "/?model=llama-3-8b&cluster=dgx-h100&gpus=16")
    assert page.input_value("[name=vpp]") != "1"
    changed(page, lambda: page.select_option("[name=recompute]", "full"))

    changed(page, lambda: picked(page, "model", "llama-2 13b"))

    assert page.locator("#answer dl.tiles").count() == 1
    assert "llama-2-13b" in page.url
    assert page.input_value("[name=recompute]") == "full"
    assert page.inner_text(".note") == "set by you: recompute"
    assert page.complaints == []


def test_an_error_keeps_what_was_typed(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    page.click("text=Price, power and other fields")

    changed(page, lambda: page.fill("[name=changes]", "stack.lunches=graph"))
    changed(page, lambda: page.fill("[name=gpus]", "13"))

    assert page.locator("#answer .faults").count() == 1
    assert page.input_value("[name=changes]") == "stack.lunches=graph"
    assert page.input_value("[name=gpus]") == "13"


def test_a_plan_that_is_chosen_for_an_empty_form_is_filled_in(browser, server):
    page = opened(browser, server, "/")

    changed(page, lambda: page.fill("[name=gpus]", "13"))
    emptied = page.input_value("[name=tp]")
    changed(page, lambda: page.fill("[name=gpus]", "16"))

    assert emptied == ""
    assert page.input_value("[name=tp]") != ""


def test_a_search_shows_its_front_and_leads_to_a_plan(browser, server):
    page = opened(browser, server, f"/search?{SMALL.replace('mbs=1', 'mbs=1,2').replace('tp=8', 'tp=4,8')}")

    page.click("button[name=go]")
    page.wait_for_selector("#answer .plans")

    assert page.locator("#answer svg circle").count() >= 2
    assert "go=1" in page.url
    page.click("#answer .plans a >> nth=0")
    page.wait_for_selector("#answer dl.tiles")
    assert page.input_value("[name=gbs]") == "64"
    assert page.complaints == []


NAMES = "cells => cells.map((cell) => cell.dataset.name)"
RUN_AND_RATES = {"time of the run", "cost of the run", "tokens/s", "MFU"}
CUT_OFF = """
cells => cells.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)
"""


def test_an_answer_of_a_search_is_readable_in_every_width(browser, server):
    """It begins by itself; tiles come first; no number is cut off or wrapped; a plan takes a row."""
    words = SMALL.replace("mbs=1", "mbs=1,2").replace("cluster=dgx-h100", "cluster=dgx-h100,dgx-a100")
    page = opened(browser, server, f"/search?{words}&recompute=none&tokens=2T&go=1")
    page.wait_for_selector("#answer .plans")

    tiles = page.locator("#answer .tiles dt").all_inner_texts()
    assert tiles[:4] == ["Step time", "Chosen from", "The whole run takes", "The whole run costs"]
    assert (
        page.locator("#answer .subject a").first.inner_text()
        == page.locator("#answer .plans td[colspan] a").first.inner_text()
    )
    assert page.locator("#answer .plans strong").first.inner_text() == "Recommended."
    assert page.locator("#answer .plans").last.locator("tbody").count() == 2
    assert set(page.locator("#answer .plans").last.locator("td").evaluate_all(NAMES)) >= RUN_AND_RATES
    for width in (390, 800, 1300):
        page.set_viewport_size({"width": width, "height": 1000})
        cells = page.locator("#answer .plans td, #answer .plans tbody th")
        assert cells.evaluate_all(CUT_OFF) == [], width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.complaints == []


LINKS = """
links => links.map((link) => {
  const address = new URL(link.href);
  for (const record of ['chosen', 'a.chosen', 'b.chosen'])  // the script's holds earlier choices too
    address.searchParams.delete(record);
  return [address.pathname, ...Array.from(address.searchParams, (pair) => pair.join('=')).sort()];
})
"""


def test_links_follow_the_form_as_if_the_page_were_opened_again(browser, server):
    """With a whole plan, with one that was chosen, and on the page of two jobs."""
    both = "&".join(f"{side}.{word}" for side in "ab" for word in WHOLE.split("&"))
    for path, field, task in (
        (f"/?{WHOLE}", "gbs", "predict"),
        ("/?model=llama-3-8b&cluster=dgx-h100&gpus=16", "gbs", "predict"),
        (f"/compare?{both}", "a.gbs", "compare"),
    ):
        page = opened(browser, server, path)
        before = page.locator("header nav a, .toolbar nav a").evaluate_all(LINKS)

        changed(page, lambda page=page, field=field: page.fill(f"[name='{field}']", "128"), task)
        page.wait_for_function("expected => location.search.includes(expected)", arg=f"{field}=128")
        after = page.locator("header nav a, .toolbar nav a").evaluate_all(LINKS)
        page.goto(page.url)
        again = page.locator("header nav a, .toolbar nav a").evaluate_all(LINKS)

        assert after == again != before
        assert page.complaints == []


def test_two_plans_side_by_side(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    page.click("header nav >> text=Compare")
    page.wait_for_selector("#answer .verdict")
    page.wait_for_load_state()
    page.click("fieldset.side >> nth=1 >> summary:has-text('Plan')")

    changed(page, lambda: page.select_option("[name='b.recompute']", "full"), "compare")

    assert "B takes" in page.inner_text("#answer .verdict")
    assert page.input_value("[name='a.recompute']") == "none"


def test_a_file_is_read_into_a_prediction(browser, server, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("model: llama-3-8b\ncluster: dgx-h100:2\nplan: dp=2 tp=8 mbs=1 gbs=64 sp\n")
    page = opened(browser, server, "/upload")

    page.set_input_files("#file", file)
    sync_api.expect(page.locator("#text")).to_have_value(re.compile("llama"))
    page.click("text=Read this file")
    assert "8.03 B parameters" in page.inner_text("#preview")
    page.click("text=Predict this job")
    page.wait_for_selector("#answer dl.tiles")

    assert page.input_value("[name=tp]") == "8"


def test_a_log_is_set_beside_the_prediction(browser, server, tmp_path):
    file = tmp_path / "train.log"
    line = " iteration {0:8d}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): 2100.5 |\n"
    file.write_text("".join(line.format(step) for step in range(1, 30)))
    page = opened(browser, server, f"/?{WHOLE}")

    changed(page, lambda: page.set_input_files("#log", file), "log")

    assert "2.10 s" in page.inner_text("#answer")


def test_a_keyboard_reaches_every_field_in_their_order_on_the_page(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    page.evaluate("document.querySelectorAll('form details').forEach(part => { part.open = true; })")
    named = "(e => e.name || e.dataset.for || e.textContent)(document.activeElement)"
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(named))

    fields = page.evaluate(
        "Array.from(document.querySelectorAll('form [name]:not([type=hidden])')).map(each => each.name)"
    )
    assert reached[0] == "To the answer"
    order = [name for name in reached if name in fields]
    assert order[: len(fields)] == fields
    page.focus("[name=tp]")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_a_change_with_which_a_job_fits_is_applied_by_one_click(browser, server):
    page = opened(browser, server, "/?model=llama-3-8b&cluster=rtx-4090-8&gpus=1&lora=16&samples=10k")
    assert page.inner_text("#glance") == "No answer: see why"

    page.locator(".changes li", has_text="QLoRA 16").get_by_text("Apply").click()
    page.wait_for_selector("#answer .tiles")

    assert (page.input_value("[name=qlora]"), page.input_value("[name=lora]")) == ("16", "")
    assert "Fits" in page.inner_text("#answer")


def test_the_fix_of_an_error_is_applied_where_the_value_stands_and_an_error_has_no_files(browser, server):
    for stated in ("plan=dp%3D8+tp%3D3+gbs%3D64", "dp=8&tp=3&gbs=64"):
        page = opened(browser, server, f"/?model=llama-3-8b&gpus=8&{stated}")
        assert not page.locator(".toolbar nav").is_visible()

        page.locator(".faults dd").get_by_text("Apply").click()
        page.wait_for_selector("#answer .tiles")

        by_field = page.input_value("[name=tp]"), page.input_value("[name=dp]")
        written = page.input_value("[name=plan]")
        assert by_field == ("2", "4") or ("tp=2" in written and "dp=4" in written)
        assert "tp=3" not in written
        assert page.locator(".toolbar nav").is_visible()


def test_tiles_of_an_answer_fill_their_rows(browser, server):
    """The last tile of each row ends where the row ends."""
    page = opened(browser, server, f"/?{WHOLE}")

    tiles = page.evaluate(
        "Array.from(document.querySelectorAll('.tiles > div')).map(e => [e.offsetTop, e.offsetLeft +"
        " e.offsetWidth])"
    )

    ends = dict(tiles)
    assert len(tiles) == 7
    assert max(ends.values()) - min(ends.values()) <= 1
