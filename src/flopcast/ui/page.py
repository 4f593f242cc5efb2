"""The pages: a form of what is asked on one side, the answer on the other; whole without a script.

Answers: which fields does a form have, and what stands around an answer?
Elsewhere: answers (responses.py), what fields mean (request_fields.py), the script that spares loading
(static/app.js).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from flopcast.library import catalog
from flopcast.requests.job_files import USUAL
from flopcast.search.objectives import OBJECTIVES
from flopcast.spec.precision import RECIPES
from flopcast.ui.chosen_plan import CHOSEN
from flopcast.ui.request_fields import FREE, OF_MACHINE, OF_PLAN, OF_SEARCH, OF_TRAINING

PAGES = {"predict": ("/", "Predict"), "search": ("/search", "Search"), "compare": ("/compare", "Compare")}
FILES = {
    "/report.html": "Whole report",
    "/report.json": "Report as JSON",
    "/job.yaml": "Job file",
    "/upload": "Upload a file",
}
MOST_PACKED = 48_000  # characters of an address
SIDES = ("a.", "b.")  # what fields of the two jobs of a comparison begin with
START = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "64"}
Fields = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of a form: its label, what it offers, and a hint beside the label.

    A field that offers nothing takes any text, one that `counts` whole numbers.
    """

    label: str
    hint: str = ""
    choices: Sequence[str] = ()
    counts: bool = False
    wide: bool = False


def known_fields() -> dict[str, Field]:
    """Return every field by name."""
    counted = {
        "gpus": Field(label="GPUs", counts=True),
        "seq": Field(label="Sequence", hint="tokens", counts=True),
        "tp": Field(label="tp", hint="tensor", counts=True),
        "pp": Field(label="pp", hint="pipeline", counts=True),
        "vpp": Field(label="vpp", hint="chunks a stage", counts=True),
        "cp": Field(label="cp", hint="context", counts=True),
        "ep": Field(label="ep", hint="experts", counts=True),
        "dp": Field(label="dp", hint="empty: the rest", counts=True),
        "mbs": Field(label="mbs", hint="micro-batch", counts=True),
        "gbs": Field(label="gbs", hint="global batch", counts=True),
        "lora": Field(label="LoRA", hint="rank", counts=True),
        "qlora": Field(label="QLoRA", hint="rank", counts=True),
    }
    chosen = {
        "model": Field(label="Model", choices=catalog.names("models"), wide=True),
        "cluster": Field(label="Cluster", choices=catalog.names("clusters"), wide=True),
        "stack": Field(label="Stack", choices=catalog.names("stacks"), wide=True),
        "zero": Field(label="ZeRO", choices=("0", "1", "2", "3")),
        "recompute": Field(label="Recompute", choices=("none", "selective", "full")),
        "precision": Field(label="Precision", choices=tuple(RECIPES)),
        "objectives": Field(label="Best by", choices=tuple(OBJECTIVES), wide=True),
    }
    written = {
        "price": Field(label="Price of a device", hint="2.10 USD/h", wide=True),
        "power_limit": Field(label="Power limit", hint="of a device: 500 W", wide=True),
        "schedule": Field(label="Schedule", hint="1f1b"),
        "plan": Field(label="More of the plan", hint="sp optimizer=adamw", wide=True),
        "changes": Field(label="Changes", hint="stack.launches=…", wide=True),
        "samples": Field(label="Samples", hint="of an epoch: 52k"),
        "epochs": Field(label="Epochs", hint="3"),
        "tokens": Field(label="Tokens", hint="or samples: 2T"),
        "deadline": Field(label="Done within", hint="30 d"),
        "budget": Field(label="Budget", hint="2.5M USD"),
        "headroom": Field(label="Memory", hint="what fits"),
    }
    return counted | chosen | written


EMPTY = {  # what a list shows while nothing is selected
    "model": "as the file says",
    "cluster": f"the file's, or {USUAL['cluster']}",
    "stack": f"usual: {USUAL['stack']}",
    "objectives": "step_time",
    "zero": "any",
    "recompute": "any",
    "precision": "usual: bf16",
}


def page(name: str, words: Fields, html: str) -> str:
    """Return a whole page.

    Parameters
    ----------
    name : a key of PAGES
    words : what the form holds
    html : the answer, as `answers` makes it; empty where nothing was asked yet
    """
    path, heading = PAGES[name]
    main = (
        f'<main data-page="{name}"><h1 class="hidden">{heading}</h1>'
        f'<form id="form" action="{path}" method="get" autocomplete="off">{_form(name, words)}</form>'
        f'<section id="answer" aria-label="Answer" aria-busy="false">{html}</section></main>'
    )
    return _document(heading.lower(), name, words, main)


def pending(words: Fields) -> str:
    """Return the place of an answer that takes seconds: the script fetches it; without one, a link does."""
    query = escape(urlencode({**words, "now": "1"}))
    return f'<noscript><p><a href="/search?{query}">Show the answer</a></p></noscript>'


def _script_values(given: Fields) -> str:
    """Return the fields for arguments and environment variables of a launch script."""
    fields = (("arg", "Arguments", "1=8 2=4"), ("env", "Environment", "NNODES=4"))
    return "".join(
        f'<p class="field"><label for="{name}">{label}</label>'
        f'<input id="{name}" name="{name}" value="{escape(given.get(name, ""))}" placeholder="{hint}"></p>'
        for name, label, hint in fields
    )


def upload_page(given: Fields, errors: str = "") -> str:
    """Return the page that takes a file: a config, a job, a launch script.

    Parameters
    ----------
    given : values that were entered before, so that an error loses nothing
    errors : HTML with the errors in these values, or ""
    """
    alert = f'<div role="alert">{errors}</div>' if errors else ""
    known = known_fields()
    machine = "".join(
        _field(name, known[name], given.get(name, ""), one=True) for name in ("cluster", "gpus")
    )
    form = (
        f'<form id="upload" action="/upload" method="post"><h1>Upload a file</h1>{alert}'
        "<p>Upload a model's config.json, a job file, a launch script, or a configuration of another"
        " program. Nothing in it is run. The address of the next page contains the file.</p>"
        '<p class="scripted" hidden><label for="file">File</label> <input type="file" id="file"></p>'
        '<p><label for="name">File name</label>'
        f'<input id="name" name="name" value="{escape(given.get("name", "config.json"))}" required'
        ' maxlength="100"></p>'
        '<p><label for="text">Contents</label>'
        '<textarea id="text" name="text" rows="16" required spellcheck="false">'
        f"\n{escape(given.get('text', ''))}</textarea></p>"
        f"<fieldset><legend>Values of a launch script</legend>{_script_values(given)}</fieldset>"
        f"<fieldset><legend>Machine</legend>{machine}"
        f'<p class="field wide soft">Leave these empty to use what the file says. A file without a cluster'
        f" is predicted on {USUAL['cluster']}.</p></fieldset>"
        '<p class="buttons"><button type="submit">Use this file</button>'
        '<span id="told" role="status"></span></p></form>'
    )
    return _document("upload a file", "upload", {}, f'<main id="answer" data-page="upload">{form}</main>')


def refused_page(html: str) -> str:
    """Return the page that is shown if a file cannot be made; `html` gives the reason."""
    main = f'<main id="answer" data-page="refused"><h1>This file cannot be made</h1>{html}</main>'
    return _document("no file", "", {}, main)


def lost_page() -> str:
    """Return the page of an unknown address."""
    main = (
        '<main id="answer" data-page="lost"><h1>There is no such page</h1>'
        '<p>The list above has all pages; <a href="/">Predict</a> is the first.</p></main>'
    )
    return _document("no such page", "", {}, main)


def _document(title: str, name: str, words: Fields, main: str) -> str:
    """Return a page with the beginning and end that all pages share."""
    links = "".join(_link(key, name, words) for key in PAGES)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>flopcast: {escape(title)}</title><link rel="stylesheet" href="/static/style.css">'
        '<link rel="icon" href="data:,"><script src="/static/app.js" defer></script></head>'
        '<body class="ui"><a class="skip" href="#answer">To the answer</a>'
        f'<header><strong>flopcast</strong><nav aria-label="Pages"><ul>{links}</ul></nav></header>'
        f"{main}</body></html>\n"
    )


def _link(key: str, here: str, words: Fields) -> str:
    """Return a page's entry in the list of pages; it keeps the job."""
    current = ' aria-current="page"' if key == here else ""
    return f'<li><a href="{escape(_address(key, here, words))}"{current}>{PAGES[key][1]}</a></li>'


def _address(there: str, here: str, words: Fields) -> str:
    """Return another page of the same job; a comparison has it twice, a search single values."""
    if here == "search" != there:
        words = {name: value for name, value in words.items() if "," not in value and ".." not in value}
    if here == "compare" != there:
        words = {name[2:]: value for name, value in words.items() if name.startswith("a.")}
    if there != "search":
        words = {name: value for name, value in words.items() if name not in OF_SEARCH}
    words = {name: value for name, value in words.items() if name.rpartition(".")[2] != CHOSEN}
    if there == "compare" != here:
        words = {f"{side}.{name}": value for side in ("a", "b") for name, value in words.items()}
    query = urlencode({name: value for name, value in words.items() if value})
    return f"{PAGES[there][0]}?{query}" if query else PAGES[there][0]


def _form(name: str, words: Fields) -> str:
    if name == "compare":
        sides = "".join(
            f'<fieldset class="side"><legend>{side.upper()}</legend>{_job(words, f"{side}.")}</fieldset>'
            for side in ("a", "b")
        )
        return sides + _buttons('<button type="submit">Compare</button>')
    if name == "search":
        question = _group("What is best", OF_SEARCH, words)
        buttons = _buttons('<button type="submit" name="go" value="1">Search</button>')
        return question + _job(words, "", several=True) + buttons
    buttons = _buttons(
        '<button type="submit">Predict</button>'
        '<button type="submit" name="choose" value="1">Choose the plan for me</button>'
    )
    return _job(words, "") + buttons + _files(words)


def _job(words: Fields, prefix: str, *, several: bool = False) -> str:
    """Return the fields of a job; those of a search may hold several values."""
    packed = words.get(f"{prefix}job", "")
    brought = (
        f'<p><label><input type="checkbox" name="{prefix}job" value="{escape(packed)}" checked>'
        " Use the uploaded file. Fields override it.</label></p>"
    )
    chosen = escape(words.get(prefix + CHOSEN, ""))
    return (
        ("" if several else f'<input type="hidden" name="{prefix}{CHOSEN}" value="{chosen}">')
        + (brought if packed else "")
        + _group("Model and machine", OF_MACHINE, words, prefix, several=several)
        + _group("Fine-tuning and length of the run", OF_TRAINING, words, prefix)
        + _group("Plan", (*OF_PLAN, *FREE[:2]), words, prefix, several=several)
    )


def _group(
    legend: str, names: Sequence[str], words: Fields, prefix: str = "", *, several: bool = False
) -> str:
    known = known_fields()
    inner = ""
    for name in names:
        one = not several or name not in (*OF_PLAN, "gpus", "cluster", "stack")
        inner += _field(prefix + name, known[name], words.get(prefix + name, ""), one=one)
    mark = " data-plan" if legend == "Plan" else ""
    return f"<fieldset{mark}><legend>{escape(legend)}</legend>{inner}</fieldset>"


def _field(name: str, field: Field, value: str, *, one: bool) -> str:
    """Return one field with its label; one that may hold several values takes any text."""
    key = f"field-{name}"
    hint = f' <small id="{key}-hint">{escape(field.hint)}</small>' if field.hint else ""
    described = f' aria-describedby="{key}-hint"' if field.hint else ""
    shared = f'id="{key}" name="{name}"{described}'
    empty = EMPTY.get(name.rpartition(".")[2], "")
    if field.choices and one:
        control = f"<select {shared}>{_options(field.choices, value, empty)}</select>"
    else:
        digits = ' inputmode="numeric"' if field.counts and one else ""
        control = f'<input {shared} type="text" value="{escape(value)}"{digits} spellcheck="false">'
    wide = " wide" if field.wide else ""
    return f'<div class="field{wide}"><label for="{key}">{escape(field.label)}{hint}</label>{control}</div>'


def _options(choices: Sequence[str], value: str, empty: str) -> str:
    """Return what a list offers: first the empty choice; also a value that is not in the list."""
    offered = ("", *(() if value in ("", *choices) else (value,)), *choices)
    chosen = {value: " selected"}
    return "".join(
        f'<option value="{escape(each)}"{chosen.get(each, "")}>{escape(each or empty)}</option>'
        for each in offered
    )


def _buttons(inner: str) -> str:
    """Return the buttons of a form, and the place of its status."""
    return f'<p class="buttons">{inner}<span id="told" role="status"></span></p>'


def _files(words: Fields) -> str:
    """Return links and inputs for the files that a page reads and writes."""
    query = escape(urlencode({name: value for name, value in words.items() if value}))
    links = "".join(
        f'<li><a class="file" data-path="{path}" href="{path}?{query}">{caption}</a></li>'
        for path, caption in FILES.items()
        if path != "/upload"
    )
    bring = f'<li><a href="/upload">{FILES["/upload"]}</a></li>'
    log = '<label for="log">Compare with a training log</label> <input type="file" id="log">'
    files = f'<nav aria-label="Files"><ul>{links}{bring}</ul></nav>'
    return f'{files}<p class="scripted" hidden>{log}</p>'
