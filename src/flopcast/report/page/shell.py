"""The frame of every page: one file that loads nothing, its title, its contents, its one script.

Answers: what stands around the sections of a page, and what may it do?
Elsewhere: the sections (the other files of this folder, validation/published_html.py,
search/found_drawing.py), how they look (style.py), what the script does (script.py).

The page forbids itself every source but its own style and script, which it names by their hashes, so that
a text that slipped through unescaped could neither load nor run anything.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape

from flopcast.report.page.style import STYLE, UNSCRIPTED


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of a page: `key` names it in links, `html` is what follows its heading."""

    key: str
    heading: str
    html: str


def document(
    title: str,
    sections: Sequence[Section],
    *,
    top: str = "",
    script: str = "",
    data: Mapping[str, object] | None = None,
) -> str:
    """A whole page.

    Parameters
    ----------
    title : str
        Plain text: the name of the page and its first heading.
    sections : sequence of Section
        In order; where there are several, links to them stand on top.
    top : str
        HTML between the heading and the links: the answer.
    script : str
        The only program that may run; none where it is empty.
    data : mapping
        What the page shows, for the script and for programs that read pages: JSON with the id "data".

    Returns
    -------
    str
        HTML, UTF-8, without a reference to anything outside.
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
    """A heading and what follows it, as a region that is named by the heading."""
    key = section.key
    return (
        f'<section id="{key}" aria-labelledby="{key}-name"><h2 id="{key}-name">'
        f"{escape(section.heading)}</h2>{section.html}</section>"
    )


def _contents(sections: Sequence[Section]) -> str:
    """Links to the sections; a page of one section needs none."""
    if len(sections) < 2:
        return ""
    links = "".join(f'<li><a href="#{each.key}">{escape(each.heading)}</a></li>' for each in sections)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _policy(script: str) -> str:
    """The page's content security policy: its own style and script, and nothing else at all."""
    allowed = f"script-src '{_hash(script)}'; " if script else ""
    styles = f"style-src '{_hash(STYLE)}' '{_hash(UNSCRIPTED)}'"
    return f"default-src 'none'; {allowed}{styles}; base-uri 'none'; form-action 'none'"


def _without_script(script: str) -> str:
    """What a page with a script hides where none runs."""
    return f"<noscript><style>{UNSCRIPTED}</style></noscript>" if script else ""


def _hash(text: str) -> str:
    """How a policy names a style or a script (Content Security Policy Level 3, section 2.3.1)."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _json(data: Mapping[str, object]) -> str:
    """JSON that ends no element: "<" is written as an escape."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
