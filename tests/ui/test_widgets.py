"""Controls of the pages in a real browser: lists to search in, sliders, colours, advice, uploads."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from browser_at_hand import changed, left, opened, picked, step_s, sync_api

from flopcast.library import catalog
from flopcast.ui.page import EXAMPLES

JOB = "model=llama-3-8b&cluster=dgx-h100&gpus=16&tp=8&pp=1&vpp=1&cp=1&ep=1&mbs=1&gbs=64&zero=1"
WHOLE = f"{JOB}&recompute=none&precision=bf16&plan=sp"


def test_a_list_is_searched_by_words_in_any_order_and_by_what_it_says_of_each(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    entries = page.locator("#field-model-list [role=option]")

    page.click("#field-model-pick")
    sync_api.expect(page.locator("#field-model-list")).to_contain_text("8.03 B parameters")
    whole = entries.count()
    page.fill("#field-model-pick", "v3 671 deep")
    found = entries.all_inner_texts()
    page.fill("#field-model-pick", "no such model")
    nothing = page.inner_text("#field-model-list")
    page.keyboard.press("Escape")

    assert whole == len(catalog.names("models")) + 1
    assert len(found) == 1
    assert "deepseek-v3" in found[0]
    assert "671 B parameters, 37" in found[0]
    assert nothing == "Nothing in the catalogue matches."
    assert page.input_value("#field-model-pick") == page.input_value("[name=model]") == "llama-3-8b"
    assert page.get_attribute("#field-model-pick", "aria-expanded") == "false"


def test_of_names_that_begin_with_what_is_typed_the_nearest_comes_first(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    first = page.locator("#field-model-list [role=option]").first

    for typed in ("llama-2-7", "llama2 7", "LLAMA 2 7"):
        page.fill("#field-model-pick", typed)
        sync_api.expect(first).to_have_attribute("data-value", "llama-2-7b")
    page.fill("#field-model-pick", "llama-2-70")
    sync_api.expect(first).to_have_attribute("data-value", "llama-2-70b")
    page.fill("#field-cluster-pick", "h100")
    sync_api.expect(page.locator("#field-cluster-list [role=option]").first).to_contain_text("h100")
    assert page.complaints == []


def test_a_list_is_walked_with_arrows_and_taken_with_enter_or_a_click(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")

    page.fill("#field-cluster-pick", "dgx-h")
    page.keyboard.press("ArrowDown")
    active = page.get_attribute("#field-cluster-pick", "aria-activedescendant")
    second = page.get_attribute(f"#{active}", "data-value")
    changed(page, lambda: page.keyboard.press("Enter"))
    by_key = page.input_value("[name=cluster]")
    page.fill("#field-cluster-pick", "dgx-b200")
    changed(page, lambda: page.click("#field-cluster-list [role=option]"))

    assert by_key == second == [name for name in catalog.names("clusters") if "dgx-h" in name][1]
    assert page.input_value("[name=cluster]") == "dgx-b200"
    assert "b200" in page.inner_text("#answer .subject")
    assert page.complaints == []


def test_a_slider_moves_the_answer_and_its_end_keeps_it(browser, server):
    """While it moves, the plan stays and replicas follow; the address changes when it stops."""
    page = opened(browser, server, f"/?{WHOLE}")
    before_s, address = step_s(page), page.url
    slider = page.locator(".slides:has([name=gbs]) input[type=range]")

    changed(page, lambda: slider.evaluate("e => { e.value = 7; e.dispatchEvent(new Event('input')); }"))
    moving_s, held = step_s(page), page.url
    changed(page, lambda: slider.evaluate("e => e.dispatchEvent(new Event('change'))"))

    assert page.input_value("[name=gbs]") == "128"
    assert moving_s > 1.5 * before_s
    assert step_s(page) == moving_s
    assert held == address
    assert parse_qs(urlsplit(page.url).query)["gbs"] == ["128"]


def test_a_slider_of_devices_is_moved_by_keys_and_follows_the_number(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")
    slider = page.locator(".slides:has([name=gpus]) input[type=range]")

    assert slider.get_attribute("aria-valuetext") == "16"
    slider.focus()
    changed(page, lambda: page.keyboard.press("ArrowRight"))
    sync_api.expect(page.locator("[name=gpus]")).to_have_value("32")
    changed(page, lambda: page.fill("[name=gpus]", "8"))

    assert slider.input_value() == "3"
    assert "8 × h100" in page.inner_text("#answer .subject")


def test_colours_are_chosen_and_stay_chosen(browser, server):
    page = opened(browser, server, "/upload", color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"

    seen = []
    for _ in range(3):
        seen.append((page.inner_text("#scheme"), page.evaluate(paper)))
        page.click("#scheme")
    page.click("#scheme")
    page.click("#scheme")
    page.reload()

    assert [name for name, _ in seen] == ["Colours: auto", "Colours: light", "Colours: dark"]
    assert seen[0][1] == seen[1][1] != seen[2][1]
    assert (page.inner_text("#scheme"), page.evaluate(paper)) == seen[2]


def test_advice_follows_the_answer_and_is_applied(browser, server):
    page = opened(browser, server, f"/?{WHOLE}&stack=megatron-core")
    page.wait_for_selector("#advice strong")
    before_s = step_s(page)
    saved_s = float(page.locator("#advice data").first.get_attribute("value"))

    with page.expect_navigation():
        page.click("#advice a >> nth=0")

    assert step_s(page) == pytest.approx(before_s - saved_s, rel=1e-6)


def test_the_opening_explains_and_leads_to_examples_that_answer(browser, server):
    """The example that searches is tried by its first message, as it takes half a minute."""
    page = opened(browser, server, "/")
    links = page.locator(".examples a").evaluate_all("all => all.map(each => each.getAttribute('href'))")

    assert len(links) == len(EXAMPLES) == 4
    for link in links:
        page.goto(f"http://{server[0]}:{server[1]}{link}")
        page.wait_for_selector("#answer dl.tiles" if link.startswith("/?") else "#stop:enabled")
        assert page.locator(".faults").count() == 0, link
        assert page.locator(".opening").count() == 0
    page.wait_for_selector("#answer .live")
    page.click("#stop")

    assert re.fullmatch(r"Stopped after [\d,]+ of [\d,]+ plans \w+\.", page.inner_text("#told"))
    assert page.locator("#stop").is_disabled()
    assert page.complaints == []


def test_an_error_leads_to_its_field(browser, server):
    page = opened(browser, server, f"/?{WHOLE}")

    changed(page, lambda: page.fill("[name=tp]", "5"))
    page.click("#answer a[data-field=tp]")

    assert page.evaluate("document.activeElement.name") == "tp"
    assert page.get_attribute("[name=tp]", "aria-invalid") == "true"
    changed(page, lambda: page.fill("[name=tp]", "8"))
    assert page.locator("[aria-invalid]").count() == 0


def test_a_link_is_copied(browser, server):
    page = opened(browser, server, f"/?{WHOLE}", permissions=["clipboard-read", "clipboard-write"])

    page.click("#share")
    sync_api.expect(page.locator("#share")).to_have_text("Copied")

    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_a_dropped_log_says_what_it_is(browser, server):
    page = opened(browser, server, "/upload")
    line = " iteration {0:8d}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): 2100.5 |\n"
    text = "".join(line.format(step) for step in range(1, 30))

    page.evaluate(
        "text => { const data = new DataTransfer(); data.items.add(new File([text], 'train.log'));"
        " document.getElementById('upload').dispatchEvent(new DragEvent('drop', {dataTransfer: data})); }",
        text,
    )
    sync_api.expect(page.locator("#name")).to_have_value("train.log")
    page.click("text=Read this file")

    assert "29 records, 2.10 s a step" in page.inner_text("#preview")


@pytest.mark.parametrize("path", ["/", f"/?{WHOLE}", f"/?{WHOLE}&tp=5", "/serve", "/search", "/upload"])
def test_a_page_loads_without_a_move(browser, server, path):
    for width in (390, 1300):
        left(browser)
        page = opened(browser, server, path, width=width, height=900)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.shifted") < 0.01, width


def test_a_narrow_screen_has_the_answer_below_the_form_in_sight(browser, server):
    page = opened(browser, server, f"/?{WHOLE}", width=390, height=844)

    assert "a step · Fits" in page.inner_text("#glance")
    changed(page, lambda: picked(page, "model", "llama-3-70b"))
    assert "Does not fit" in page.inner_text("#glance")
    page.click("#glance")
    assert page.evaluate("document.querySelector('#answer').getBoundingClientRect().top") < 844


def test_advice_on_the_software_is_applied_where_none_was_named(browser, server):
    """A change of a stack needs its name, which the link adds."""
    page = opened(browser, server, "/?model=llama-3-70b&cluster=dgx-h100&gpus=512&tp=8&pp=8&vpp=5&gbs=640")
    page.wait_for_selector("#advice strong")
    before_s = step_s(page)
    link = page.locator("#advice a", has_text="Apply").first

    with page.expect_navigation():
        link.click()

    assert page.locator(".faults").count() == 0
    assert step_s(page) < before_s


def test_another_length_of_sequences_has_another_plan_and_a_search_is_free_of_the_chosen_one(
    browser, server
):
    page = opened(browser, server, "/?model=llama-2-7b&cluster=dgx-h100&gpus=16&samples=52k&seq=4096")

    def plan():
        return [page.input_value(f"[name={name}]") for name in ("tp", "pp", "mbs", "recompute")]

    before = plan()
    changed(page, lambda: page.fill("[name=seq]", "1024"))
    changed(page, lambda: page.select_option("[name=zero]", "2"))
    link = page.get_attribute("header a[href^='/search']", "href")

    assert plan() != before
    assert page.inner_text(".note") == "set by you: zero"
    words = parse_qs(urlsplit(link).query)
    assert words["zero"] == ["2"]
    assert words["seq"] == ["1024"]
    assert {"tp", "pp", "vpp", "mbs", "recompute", "chosen"} & set(words) == set()


def test_empty_fields_show_what_is_used(browser, server):
    page = opened(browser, server, "/?model=llama-3-8b&cluster=dgx-h100&gpus=16")

    assert page.get_attribute("[name=seq]", "placeholder") == "8192"
    assert page.get_attribute("#field-stack-pick", "placeholder") == "megatron-core"

    page = opened(browser, server, "/serve?model=llama-3-70b&cluster=dgx-h100&gpus=8")
    used = {"tp": "2", "replicas": "1", "concurrency": "16", "prompt": "1000", "output": "300", "rate": ""}
    assert {name: page.get_attribute(f"[name={name}]", "placeholder") for name in used} == used


def test_an_answer_comes_into_sight_after_a_button_below_it(browser, server):
    page = opened(browser, server, f"/?{WHOLE}", width=1000, height=700)
    page.evaluate("document.querySelector('button[name=choose]').scrollIntoView()")

    changed(page, lambda: page.click("button[name=choose]"))

    top = page.evaluate("document.getElementById('answer').getBoundingClientRect().top")
    assert -10 <= top < 500
