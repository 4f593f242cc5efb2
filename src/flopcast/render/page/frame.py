"""The frame of every page: a single file with a title, a list of contents and at most one script.

Answers: what surrounds the sections of a page, and what may the page load or run?
Elsewhere: the sections (the other files of this folder, render/published_page.py,
render/search_drawing.py), how they look (style.py), what the script does (report.js).

The content security policy of a page allows only its own style and script, which it lists by their hashes.
A text that was not escaped by mistake could therefore neither load nor run anything.
"""

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY
from hashlib import sha256
from html import escape

from flopcast.records import Record
from flopcast.render.page.style import STYLE, UNSCRIPTED

Parts = Collection[str] | None  # keys of the parts that an answer contains; None: all of them


class Section(Record, kw_only=False):
    """A part of a page.

    Attributes
    ----------
    key : str
        Identifier to which links on the page refer.
    heading : str
        Plain text, which the page escapes.
    html : str
        What follows the heading. Its texts are escaped already.
    """

    key: str
    heading: str
    _: KW_ONLY
    html: str


def folded(key: str, heading: str, html: str, state: str = "") -> str:
    """Return a part of an answer that can be folded, with the heading as HTML.

    Its `state` is " open", and " data-later" if the script asks for its content.
    """
    summary = f"<summary><h2>{heading}</h2></summary>"
    return f'<details class="part" id="part-{key}"{state}>{summary}{html}</details>'


def unfolding(key: str, summary: str, html: str | None) -> str:
    """Return details that are folded at first, inside a part; without `html`, the script asks for it."""
    later = " data-later" if html is None else ""
    return f'<details id="part-{key}"{later}><summary>{summary}</summary>{html or ""}</details>'


def shows(key: str, parts: Parts) -> bool:
    """Return whether an answer that contains only some parts contains this one."""
    return parts is None or key in parts


def document(
    title: str,
    sections: Sequence[Section],
    *,
    top: str = "",
    script: str = "",
    data: Mapping[str, object] | None = None,
) -> str:
    """Return a whole page: HTML in UTF-8 that refers to no other file.

    `title` is plain text. If there are several sections, the page begins with links to them. `top` is the
    HTML of the answer, between the heading and the links. `script` is the only program that may run. `data`
    are the numbers of the page as JSON with the id "data", for the script and for other programs.
    """
    body = "".join(map(_section, sections))
    block = f'<script type="application/json" id="data">{_json(data)}</script>' if data is not None else ""
    run = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"{_without_script(script)}</head>"
        f"<body><header><h1>{escape(title)}</h1></header><main>{top}{_contents(sections)}{body}</main>"
        f"{block}{run}</body></html>\n"
    )


def _section(section: Section) -> str:
    """Return a section as HTML: a region with the heading as its name."""
    key = section.key
    return (
        f'<section id="{key}" aria-labelledby="{key}-name"><h2 id="{key}-name">'
        f"{escape(section.heading)}</h2>{section.html}</section>"
    )


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    links = "".join(f'<li><a href="#{each.key}">{escape(each.heading)}</a></li>' for each in sections)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _policy(script: str) -> str:
    """Return the content security policy of a page, which allows only its own style and script."""
    allowed = f"script-src '{_hash(script)}'; " if script else ""
    styles = f"style-src '{_hash(STYLE)}' '{_hash(UNSCRIPTED)}'"
    return f"default-src 'none'; {allowed}{styles}; base-uri 'none'; form-action 'none'"


def _without_script(script: str) -> str:
    """Return the style that hides buttons if scripts are disabled; "" for a page without a script."""
    return f"<noscript><style>{UNSCRIPTED}</style></noscript>" if script else ""


def _hash(text: str) -> str:
    """Return the hash of a style or a script (Content Security Policy Level 3, section 2.3.1)."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _json(data: Mapping[str, object]) -> str:
    """Return data as JSON in which "<" is escaped, so that it cannot end an HTML element."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
