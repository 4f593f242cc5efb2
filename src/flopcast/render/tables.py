"""Tables of texts, printed on a terminal and written as pages of the documentation.

Answers: how are columns aligned, and how does a table become Markdown below its legend?
Elsewhere: tables of HTML pages (page/table.py), which tables there are (published_tables.py, decisions.py,
from_one_run_tables.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from flopcast.render.terminal import padded, shown_length

WIDTH = 108  # characters of a line of text


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedTable:
    """One table; `title` and `caption` are printed above it if they are not empty.

    `lines` are the name of a line, under the heading `first`, and its cells under `headings`.
    """

    first: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, list[str]], ...]
    title: str = ""
    caption: str = ""


def aligned(rows: Sequence[Sequence[str]], signs: str = "") -> list[str]:
    """Return rows as lines; `signs` has "<" for each column that is aligned left, and ">" for right."""
    widths = [max(map(shown_length, column)) for column in zip(*rows, strict=True)]
    signs = signs or "<" * len(widths)
    return ["  ".join(map(padded, row, signs, widths)).rstrip() for row in rows]


def legend_text(legend: Mapping[str, str], start: str = "", end: str = "") -> str:
    """Return what each heading means, in one sentence; `start` and `end` stand around every heading."""
    return "; ".join(f"{start}{heading}{end}: {meaning}" for heading, meaning in legend.items())


def as_text(legend: str, tables: Iterable[PrintedTable]) -> str:
    """Return a legend and tables for a terminal."""
    lines = wrap(legend, WIDTH)
    for table in tables:
        head = ": ".join(part for part in (table.title, table.caption) if part)
        lines += ["", head] if head else [""]
        if table.lines:
            rows = [(table.first, *table.headings), *((name, *line) for name, line in table.lines)]
            lines += aligned(rows)
    return "\n".join(lines)


def as_markdown(head: str, legend: str, tables: Iterable[PrintedTable]) -> str:
    """Return a page of the documentation below its heading, without its last line break."""
    lines = (line for table in tables for line in _markdown_lines(table))
    return "\n".join([head, "", *wrap(f"{legend}.", WIDTH), *lines])


def _markdown_lines(table: PrintedTable) -> Iterator[str]:
    for head in (f"## {table.title}" if table.title else "", table.caption):
        if head:
            yield from ("", head)
    if not table.headings:
        return
    headings = " | ".join(table.headings)
    yield from ("", f"| {table.first} | {headings} |", "|---" * (len(table.headings) + 1) + "|")
    for name, line in table.lines:
        yield f"| {name} | " + " | ".join(line) + " |"
