"""The site: it builds without a warning, holds every page, and its pages load nothing from elsewhere."""

import re
import sys
from html.parser import HTMLParser
from os import environ
from shutil import which

import pytest
from all_cases import all_cases
from children import ran
from pages import DOCS, README, ROOT, links

DEFENCE = (ROOT / "docs/defence.md").read_text(encoding="utf-8")
QUESTIONS = re.split(r"^## ", DEFENCE, flags=re.M)[1:]
SHARE = re.compile(r"\d+(?:\.\d+)?(?= ?%)")


class Page(HTMLParser):
    """What a page loads by itself, and whether it has a heading."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.headings = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.loaded.append(given.get("src"))
        if tag == "link" and given.get("rel") in (
            "stylesheet",
            "preload",
            "preconnect",
            "icon",
            "modulepreload",
        ):
            self.loaded.append(given.get("href"))
        self.headings += tag == "h1"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `./dev docs` builds it."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(place)]

    done = ran(command, cwd=ROOT, text=True, env=environ | {"NO_MKDOCS_2_WARNING": "1"})

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return place


def test_every_page_of_the_documentation_is_in_the_site(site):
    wanted = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in DOCS}

    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}

    assert built == wanted | {"index.html", "changelog.html", "404.html"}


def test_no_page_loads_anything_from_another_host(site):
    pages = [Page(page.read_text(encoding="utf-8")) for page in sorted(site.rglob("*.html"))]

    assert {at for page in pages for at in page.loaded if at and re.match(r"(?:https?:)?//", at)} == set()
    assert all(page.headings == 1 for page in pages)


def test_no_style_of_the_site_loads_anything_from_another_host(site):
    styles = "".join(each.read_text(encoding="utf-8") for each in site.rglob("*.css"))

    assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)]*", styles) == []


def test_blocks_of_code_are_blocks_in_the_site(site):
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")

    assert "```" not in tutorial
    assert '<span class="filename">config.json</span>' in tutorial


def test_what_a_page_of_the_site_shows_can_be_searched_for(site):
    index = (site / "search/search_index.json").read_text(encoding="utf-8")

    assert "How many GPUs do I need?" in index
    assert "plan.tensor_parallel" in index


def test_a_page_that_is_opened_as_a_file_without_a_network_searches_the_site(site):
    driver = pytest.importorskip("playwright.sync_api", reason="the driver of browsers is not installed")
    chromium = which("chromium") or which("chromium-browser") or which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        complaints = []
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((site / "howto/fits.html").as_uri())

        page.locator(".md-search__input").click()
        page.keyboard.type("power limit cost")
        page.locator(".md-search-result__link[href*='howto/power.html']").first.click()
        page.wait_for_url("**/howto/power.html*")

        assert page.get_by_role("heading", level=1).inner_text().startswith("What does a power limit cost")
        assert complaints == []
        browser.close()


@all_cases("question", QUESTIONS)
def test_a_hard_question_is_answered_with_a_number_of_a_page_that_it_links_and_a_command(question):
    sources = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in links(question))
    known = set(SHARE.findall(sources))

    assert SHARE.findall(question)
    assert set(SHARE.findall(question)) - known == set()
    assert re.search(r"Commands?:\s+`(?:flopcast|python)", question)


def test_there_are_ten_hard_questions_and_the_readme_leads_to_them():
    assert len(QUESTIONS) == 10
    assert "docs/defence.md" in links(README.read_text(encoding="utf-8"))
