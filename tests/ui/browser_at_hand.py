"""A headless browser for tests of pages, and a page that notes every complaint of its console."""

import contextlib
import re
import shutil

import pytest
from server_at_hand import LIMIT_S

sync_api = pytest.importorskip("playwright.sync_api", reason="the driver of browsers is not installed")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
EMPTY = "about:blank"
FEW_PROCESSES = ("--in-process-gpu", "--renderer-process-limit=1", "--disable-site-isolation-trials")
SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({type: 'layout-shift', buffered: true});
"""


@contextlib.contextmanager
def running_browser():
    """Chromium of the system, as none is downloaded for tests; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=["--no-sandbox", *FEW_PROCESSES])
        running.kept = []
        yield running
        running.close()


def opened(browser, server, path, color_scheme="light", width=1300, height=1000, **options):
    """A page that complains to the test of whatever its console or its policy complains of.

    A context takes longer to start than a page to load. So tests that need no options of a context have the
    same page, which `left` empties behind each of them.
    """
    page = None if options else next((page for page in browser.kept if page.url == EMPTY), None)
    if page is None:
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.add_init_script(SHIFTS)
        if not options:
            browser.kept.append(page)
    page.complaints = []
    page.emulate_media(color_scheme=color_scheme)
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"http://{server[0]}:{server[1]}{path}")
    return page


def left(browser):
    """Empty the pages that are used again, and close the others: what is open keeps a processor busy."""
    contexts = [page.context for page in browser.kept]
    for context in browser.contexts:
        if context not in contexts:
            context.close()
    for page in (page for page in browser.kept if page.url != EMPTY):
        page.evaluate("localStorage.clear()")
        page.goto(EMPTY)
        page.context.new_cdp_session(page).send("Page.resetNavigationHistory")


def step_s(page):
    """Seconds of the step that a page shows."""
    return float(page.locator("#answer dl.tiles data").first.get_attribute("value"))


def changed(page, action, task="predict"):
    """Do something, and wait until its answer is shown."""
    shown = int(page.get_attribute("#answer", "data-shown") or 0)
    with page.expect_response(re.compile(f"/answer/{task}")):
        action()
    page.wait_for_function(
        "(shown) => { const {dataset, ariaBusy} = document.getElementById('answer');"
        " return dataset.shown > shown && ariaBusy === 'false'; }",
        arg=shown,
    )


def picked(page, name, text):
    """Choose an entry of a list that can be searched, by typing and Enter."""
    page.fill(f"#field-{name}-pick", text)
    page.keyboard.press("Enter")
