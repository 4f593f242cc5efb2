"""The pages: a form on one side and the answer on the other. They work completely without a script.

Answers: which elements surround a form and an answer, and what does the first page show?
Elsewhere: fields of a form (form.py), answers (responses.py), the scripts that avoid reloading the page
(static/).
"""

from collections.abc import Mapping
from functools import lru_cache
from html import escape
from urllib.parse import quote_plus, urlencode

from flopcast.files.package_table import read_table
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
MARK = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><rect class="hue-0" x="2" y="4" width="12" height="4"'
    ' rx="1"/><rect class="hue-1" x="6" y="10" width="12" height="4" rx="1"/><rect class="hue-2" x="10"'
    ' y="16" width="12" height="4" rx="1"/></svg>'
)


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
    main = (
        f'<main data-page="{name}"><h1 class="hidden">{heading}</h1>{_opening() if opening else ""}'
        f'<form id="form" action="{path}" method="get" autocomplete="off">{FORMS[name](words)}</form>'
        f'<div class="result">{_tools(name, words)}'
        f'<section id="answer" aria-label="Answer" aria-busy="false">{html}</section></div></main>'
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
    return (
        "<p>A search simulates the plans that your cluster allows and ranks them by step time, cost,"
        " memory or energy. Fields of the plan limit it: <code>4,8</code> allows two values and"
        " <code>1..8</code> a range. You can also give several GPU counts, clusters and stacks.</p>"
    )


def _opening() -> str:
    """Return the first page's content before a request: questions that it answers, and examples."""
    examples = "".join(
        f'<li><a href="{each["path"]}?{escape(urlencode(each["fields"]))}">'
        f"<strong>{escape(each['name'])}</strong><small>{escape(each['about'])}</small></a></li>"
        for each in EXAMPLES
    )
    return (
        '<section class="opening"><h2>How long does a training step take, does it fit, and what does it'
        " cost?</h2><p>flopcast predicts the training of language models from measured kernels and links,"
        " with a 90 % interval. Choose a model and a cluster on this page, or open an example:</p>"
        f'<ul class="examples">{examples}</ul></section>'
    )


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
    log = (
        '<span class="scripted" hidden><label class="button" for="log">Compare with a training log</label>'
        '<input type="file" id="log" class="hidden"></span>'
    )
    return f'<div class="toolbar">{share}{log}<nav aria-label="Files"><ul>{links}</ul></nav></div>'


def upload_page(given: Fields, errors: str = "", preview: str = "") -> str:
    """Return the page on which a user uploads a file: a config, a job or a launch script.

    Parameters
    ----------
    given : values that the user entered before, so that an error does not lose them
    errors : HTML with the errors in these values, or ""
    preview : HTML with the content of the file, or ""
    """
    alert = f'<div role="alert">{errors}</div>' if errors else ""
    form = (
        f'<form id="upload" action="/upload" method="post"><h1>Upload a file</h1>'
        "<p>Upload a model's config.json, a job file, a launch script, or a configuration of another"
        " program. The next page shows what flopcast read from it, before you predict the job. flopcast"
        " runs no code of the file. The address of the next page contains the file.</p>"
        f"{alert}{preview}"
        '<p class="scripted drop" hidden><label for="file">Choose a file, or drop it here</label>'
        ' <input type="file" id="file"></p>'
        '<p><label for="name">File name</label>'
        f'<input id="name" name="name" value="{escape(given.get("name", "config.json"))}" required'
        ' maxlength="100"></p>'
        '<p><label for="text">Contents</label>'
        '<textarea id="text" name="text" rows="16" required spellcheck="false">'
        f"\n{escape(given.get('text', ''))}</textarea></p>"
        f'<fieldset class="card"><legend>Machine</legend>{machine_fields(given)}'
        f'<p class="field wide soft">Leave these fields empty to use the values of the file. A file without'
        f" a cluster is predicted on {USUAL['cluster']}.</p></fieldset>"
        '<fieldset class="card"><legend>Values of a launch script</legend>'
        f"{_script_values(given)}</fieldset>"
        '<p class="buttons"><button type="submit">Read this file</button>'
        '<span id="told" role="status"></span></p></form>'
    )
    return _document("upload a file", "upload", {}, f'<main id="answer" data-page="upload">{form}</main>')


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
    points = "".join(f"<li>{escape(text)}</li>" for text in assumed)
    unstated = f"<h3>Assumed, because the file does not state it</h3><ul>{points}</ul>" if points else ""
    link = f'<a class="button main" href="/?{escape(urlencode(fields))}">Predict this job</a>'
    return (
        f'<section class="advice" id="preview"><h2>What flopcast read</h2><dl class="pairs">{lines}</dl>'
        f"{unstated}<p>{link}</p></section>"
    )


def _script_values(given: Fields) -> str:
    """Return the fields for arguments and environment variables of a launch script."""
    fields = (("arg", "Arguments", "1=8 2=4"), ("env", "Environment", "NNODES=4"))
    return "".join(
        f'<p class="field"><label for="{name}">{label}</label>'
        f'<input id="{name}" name="{name}" value="{escape(given.get(name, ""))}" placeholder="{hint}"></p>'
        for name, label, hint in fields
    )


def refused_page(html: str) -> str:
    """Return the page that is shown if a file cannot be created; `html` gives the reason."""
    main = f'<main id="answer" data-page="refused"><h1>This file cannot be made</h1>{html}</main>'
    return _document("no file", "", {}, main)


def lost_page() -> str:
    """Return the page for an unknown address."""
    main = (
        '<main id="answer" data-page="lost"><h1>There is no such page</h1><p>The links at the top lead to '
        'all pages, such as <a href="/">Predict</a>.</p></main>'
    )
    return _document("no such page", "", {}, main)


def _document(title: str, name: str, words: Fields, main: str) -> str:
    """Return a page with the beginning and end that all pages share."""
    links = "".join(_link(key, name, words) for key in PAGES)
    scheme = (
        '<button type="button" id="scheme" class="scripted" hidden aria-label="Colours: as the system">'
        "Colours: auto</button>"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>flopcast: {escape(title)}</title><link rel="stylesheet" href="/static/style.css">'
        '<link rel="icon" href="data:,"><script src="/static/early.js"></script>'
        '<script src="/static/app.js" type="module"></script></head>'
        '<body class="ui"><a class="skip" href="#answer">To the answer</a>'
        f'<header><a class="brand" href="/">{MARK}flopcast</a>'
        f'<nav aria-label="Pages"><ul>{links}</ul></nav>{scheme}</header>'
        f"{main}</body></html>\n"
    )


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
