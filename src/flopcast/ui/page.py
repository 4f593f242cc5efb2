"""The pages: a form on one side and the answer on the other. They work completely without a script.

Answers: which elements surround a form and an answer, and what does the first page show?
Elsewhere: fields of a form (form.py), answers (responses.py), the HTML of pages (templates/), the
scripts that avoid reloading the page (static/).
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from html import escape
from string import Template
from urllib.parse import quote_plus, urlencode

from flopcast.files.package_table import read_table, read_text
from flopcast.render.page.table import listing
from flopcast.requests.missing_parts import USUAL
from flopcast.ui.chosen_plan import without_chosen
from flopcast.ui.form import compare_form, machine_fields, predict_form, search_form, serve_form
from flopcast.ui.request_values import OF_SEARCH

Fields = Mapping[str, str]
PAGES = {
    "predict": ("/", "Predict"),
    "search": ("/search", "Search"),
    "compare": ("/compare", "Compare"),
    "serve": ("/serve", "Serve"),
    "upload": ("/upload", "Upload"),
}
FORMS = {"predict": predict_form, "search": search_form, "compare": compare_form, "serve": serve_form}
FILES = {"/report.html": "Whole report", "/report.json": "JSON", "/job.yaml": "Job file"}
MOST_PACKED = 48_000  # characters of an address
_quoted = lru_cache(maxsize=256)(quote_plus)  # all links of a page have the same fields
SIDES = ("a.", "b.")  # what fields of the two jobs of a comparison begin with
OF_MACHINE = ("model", "cluster", "gpus", "price")  # fields that pages of training and of serving share
_TABLE = read_table(__package__, "tables/examples.yaml")
START: Fields = _TABLE["start"]
START_OTHER: Fields = _TABLE["start_of_other"]  # of the second of two jobs
START_SERVING: Fields = _TABLE["start_of_serving"]
EXAMPLES = _TABLE["examples"]
_BREAK = re.compile(r"(?<=>)\n|\n(?=<)")  # a line break of a template that stands for nothing


@cache
def _template(name: str) -> Template:
    """Return a file of templates/ in one line: a break beside a tag is nothing, and others are blanks."""
    text = read_text(__package__, f"templates/{name}.html").strip()
    return Template(_BREAK.sub("", text).replace("\n", " "))


def _made(template: str, /, **parts: str) -> str:
    """Return HTML from a template; `parts` are HTML too."""
    return _template(template).substitute(parts)


def page(name: str, words: Fields, html: str, *, opening: bool = False) -> str:
    """Return a whole page.

    Parameters
    ----------
    name : a key of FORMS
    words : the values of the form
    html : the answer from `responses`, empty before the first request
    opening : whether to explain the page and to show examples
    """
    path, heading = PAGES[name]
    main = _made(
        "form",
        name=name,
        heading=heading,
        opening=_opening() if opening else "",
        path=path,
        form=FORMS[name](words),
        tools=_tools(name, words),
        answer=html,
    )
    if name == "predict":
        main += '<a id="glance" href="#answer" class="scripted" hidden></a>'
    return _document(heading.lower(), name, words, main)


def pending(words: Fields) -> str:
    """Return the placeholder of a slow answer, which the script fetches; without a script, a link does."""
    query = escape(urlencode({**words, "now": "1"}))
    return f'<noscript><p><a href="/search?{query}">Show the answer</a></p></noscript>'


def search_hint() -> str:
    """Return the text on the search page before a search has run."""
    return _made("search_hint")


def _opening() -> str:
    """Return the first page's content before a request: questions that it answers, and examples."""
    examples = "".join(
        f'<li><a href="{each["path"]}?{escape(urlencode(each["fields"]))}">'
        f"<strong>{escape(each['name'])}</strong><small>{escape(each['about'])}</small></a></li>"
        for each in EXAMPLES
    )
    return _made("opening", examples=examples)


def _tools(name: str, words: Fields) -> str:
    """Return the actions for an answer: share it, save it, compare it with a log."""
    if name == "search":
        return ""
    share = '<button type="button" id="share" class="scripted" aria-live="polite" hidden>Copy link</button>'
    if name != "predict":
        return f'<div class="toolbar">{share}</div>'
    links = "".join(
        f'<li><a href="{escape(_with_query(path, words))}">{caption}</a></li>'
        for path, caption in FILES.items()
    )
    return f'<div class="toolbar">{share}{_made("tools", links=links)}</div>'


def upload_page(given: Fields, errors: str = "", preview: str = "") -> str:
    """Return the page on which a user uploads a file: a config, a job or a launch script.

    Parameters
    ----------
    given : values that the user entered before, so that an error does not lose them
    errors : HTML with the errors in these values, or ""
    preview : HTML with the content of the file, or ""
    """
    alert = f'<div role="alert">{errors}</div>' if errors else ""
    own = {name: escape(given.get(name, "")) for name in ("arg", "env")}
    main = _made(
        "upload",
        alert=alert,
        preview=preview,
        name=escape(given.get("name", "config.json")),
        text=f"\n{escape(given.get('text', ''))}",
        machine=machine_fields(given),
        cluster=USUAL["cluster"],
        **own,
    )
    return _document("upload a file", "upload", {}, main)


def preview(rows: Mapping[str, str], assumed: tuple[str, ...], fields: Fields) -> str:
    """Return the content of an uploaded file as HTML, with a link to its prediction.

    Parameters
    ----------
    rows : mapping of str
        Names and values that the file states.
    assumed : tuple of str
        Assumptions for values that the file does not state, as in a report.
    fields : mapping
        Fields of the form that the link fills.
    """
    lines = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in rows.items()
    )
    points = listing(assumed)
    unstated = f"<h3>Assumed, because the file does not state it</h3>{points}" if points else ""
    link = f'<a class="button main" href="/?{escape(urlencode(fields))}">Predict this job</a>'
    return (
        f'<section class="advice" id="preview"><h2>What flopcast read</h2><dl class="pairs">{lines}</dl>'
        f"{unstated}<p>{link}</p></section>"
    )


def refused_page(html: str) -> str:
    """Return the page that is shown if a file cannot be created; `html` gives the reason."""
    main = f'<main id="answer" data-page="refused"><h1>This file cannot be made</h1>{html}</main>'
    return _document("no file", "", {}, main)


def lost_page() -> str:
    """Return the page for an unknown address."""
    return _document("no such page", "", {}, _made("lost"))


def _document(title: str, name: str, words: Fields, main: str) -> str:
    """Return a page with the beginning and end that all pages share."""
    links = "".join(_link(key, name, words) for key in PAGES)
    return _made("document", title=escape(title), links=links, main=main) + "\n"


def _link(key: str, here: str, words: Fields) -> str:
    """Return a page's entry in the navigation; its link keeps the job."""
    current = ' aria-current="page"' if key == here else ""
    return f'<li><a href="{escape(_address(key, here, words))}"{current}>{PAGES[key][1]}</a></li>'


def _address(there: str, here: str, words: Fields) -> str:
    """Return another page's address for the same job, or for two such jobs if it compares."""
    if there == "upload":
        return PAGES[there][0]
    if "serve" in (here, there) and here != there:
        first = "a." if here == "compare" else ""
        words = {name: words[first + name] for name in OF_MACHINE if words.get(first + name)}
        here = "predict"
    if here == "search" != there:
        words = {name: value for name, value in words.items() if "," not in value and ".." not in value}
    if here == "compare" != there:
        words = {name[2:]: value for name, value in words.items() if name.startswith("a.")}
    if there != "search":
        words = {name: value for name, value in words.items() if name not in OF_SEARCH}
    if there == "search":
        words = without_chosen(words)
    if there == "compare" != here:
        words = {f"{side}.{name}": value for side in ("a", "b") for name, value in words.items()}
    return _with_query(PAGES[there][0], words)


def _with_query(path: str, words: Fields) -> str:
    """Return an address with the fields that are not empty."""
    query = "&".join([f"{_quoted(name)}={_quoted(value)}" for name, value in words.items() if value])
    return f"{path}?{query}" if query else path


def addresses(here: str, words: Fields) -> dict[str, str]:
    """Return the addresses to which a page links for its job, by path: one for each page and each file."""
    files = {path: _with_query(path, words) for path in FILES} if here == "predict" else {}
    return {PAGES[there][0]: _address(there, here, words) for there in PAGES} | files
