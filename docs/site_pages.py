"""What the site needs beside mkdocs.yml: the README as its first page, and fences that its Markdown reads.

Answers: what becomes of a page of the repository on its way into the site?
Elsewhere: the order of pages (mkdocs.yml), what blocks of pages mean (tests/pages.py).
Pages are written for the repository; links that leave docs/ lead to a page of the
site, or are none there.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```(\w+) ([^\n]+)$", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside of docs/."""
    for source, name in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=led_inside(text, source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """A page as the site's Markdown reads it."""
    own = page.file.src_uri
    text = markdown if own in OUTSIDE.values() else led_inside(markdown, f"docs/{own}")
    return FENCE.sub(_fence, text)


def led_inside(text: str, source: str) -> str:
    """The text of a file of the repository, with links as pages of the site have them."""
    folder = posixpath.dirname(source)
    inside = folder.removeprefix("docs").lstrip("/")

    def led(found: re.Match[str]) -> str:
        told, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target:
            return found[0]
        place = posixpath.normpath(posixpath.join(folder, target))
        page = OUTSIDE.get(place, place.removeprefix("docs/"))
        if page == place and not place.startswith("docs/"):
            return told  # a file of the repository that is no page
        return f"[{told}]({posixpath.relpath(page, inside or '.')}{anchor})"

    return LINK.sub(led, text)


def _fence(found: re.Match[str]) -> str:
    """The first line of a block; of its words only a file's name is shown."""
    title = re.search(r"title=(\S+)", found[2])
    return f'```{found[1]} title="{title[1]}"' if title else f"```{found[1]}"
