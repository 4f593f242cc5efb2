"""Tables of texts, printed on a terminal and written as pages of the documentation.

Answers: how are columns aligned, and how does a table become Markdown below its legend?
Elsewhere: tables of HTML pages (page/table.py), which tables there are (published_tables.py, decisions.py,
from_one_run_tables.py), the texts of pages (texts/).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.records import Record
from flopcast.render.terminal import padded, shown_length

WIDTH = 108  # characters of a line of text
BAR, BAR_WIDTH = "█", 24
SHORT_HEADING = 5  # characters of a heading that is never split


class PrintedTable(Record):
    """One table. `title` and `caption` are printed above the table if they are not empty.

    Each of `lines` has a name, under the heading `first`, and cells under `headings`.
    """

    first: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, list[str]], ...]
    title: str = ""
    caption: str = ""


def texts_of(page: str) -> dict[str, Any]:
    """Return the texts of a page of the documentation: its head, its legend, and captions."""
    return read_table(__package__, f"texts/{page}.yaml")


def table_of(
    texts: Mapping[str, Any],
    lines: Iterable[tuple[str, list[str]]],
    headings: Sequence[str] = (),
    **values: object,
) -> PrintedTable:
    """Return a table with a title and caption from `texts`, in which `values` replace names in braces."""
    words = {name: texts.get(name, "").format(**values) for name in ("title", "caption", "first")}
    return PrintedTable(headings=tuple(headings or texts["headings"]), lines=tuple(lines), **words)


def bar(share: float) -> str:
    """Return a bar of at most `BAR_WIDTH` characters whose length shows a fraction."""
    return BAR * round(share * BAR_WIDTH)


def in_paragraphs(*parts: Sequence[str]) -> str:
    """Return the lines of each part as a paragraph; parts without lines are left out."""
    return "\n\n".join("\n".join(part) for part in parts if part)


def aligned(rows: Sequence[Sequence[str]], signs: str = "") -> list[str]:
    """Return rows as lines. `signs` has "<" for each column that is aligned left, and ">" for right."""
    widths = [max(map(shown_length, column)) for column in zip(*rows, strict=True)]
    signs = signs or "<" * len(widths)
    return ["  ".join(map(padded, row, signs, widths)).rstrip() for row in rows]


def aligned_below(headings: Sequence[str], rows: Sequence[Sequence[str]], signs: str = "") -> list[str]:
    """Return rows as lines below one or two lines of headings.

    A heading that is wider than every cell of its column is split at a blank, so that the column is narrow.

    >>> print(*aligned_below(["plan", "time of the run"], [["a", "7 d"], ["b", "12 d"]], "<>"), sep="\\n")
          time of
    plan  the run
    a         7 d
    b        12 d
    """
    widths = [max(map(shown_length, column)) for column in zip(*rows, strict=True)]
    split = [_split(each, width) for each, width in zip(headings, widths, strict=True)]
    upper, lower = zip(*split, strict=True)
    return aligned([*([upper] if any(upper) else []), lower, *rows], signs)


def _split(heading: str, width: int) -> tuple[str, str]:
    """Return a heading as an upper and a lower line; the upper one is empty where one line is enough."""
    words = heading.split()
    if len(heading) <= max(width, SHORT_HEADING) or len(words) < 2:
        return "", heading
    ways = [(" ".join(words[:place]), " ".join(words[place:])) for place in range(1, len(words))]
    return min(ways, key=lambda way: max(map(len, way)))


def legend_lines(legend: Mapping[str, str], start: str = "", end: str = "") -> list[str]:
    """Return a line for each heading with its meaning. `start` and `end` enclose every heading."""
    return [f"{start}{heading}{end}: {meaning}" for heading, meaning in legend.items()]


def as_text(legend: Mapping[str, str], tables: Iterable[PrintedTable]) -> str:
    """Return the meaning of each heading, and tables, for a terminal."""
    lines = [line for entry in legend_lines(legend) for line in wrap(entry, WIDTH, subsequent_indent="  ")]
    for table in tables:
        head = ": ".join(part for part in (table.title, table.caption) if part)
        lines += ["", head] if head else [""]
        if table.lines:
            rows = [(table.first, *table.headings), *((name, *line) for name, line in table.lines)]
            lines += aligned_below(rows[0], rows[1:])
    return "\n".join(lines)


def as_markdown(head: str, legend: Mapping[str, str], tables: Iterable[PrintedTable]) -> str:
    """Return a page of the documentation below its heading, without its last line break."""
    lines = (line for table in tables for line in _markdown_lines(table))
    return "\n".join([head, "", *(f"- {entry}" for entry in legend_lines(legend, "*", "*")), *lines])


def _markdown_lines(table: PrintedTable) -> Iterator[str]:
    for head in (f"## {table.title}" if table.title else "", table.caption):
        if head:
            yield from ("", head)
    if not table.headings:
        return
    rows = ((name, *line) for name, line in table.lines)
    yield from ("", *markdown_rows((table.first, *table.headings), rows))


def markdown_rows(
    headings: Sequence[str], rows: Iterable[Sequence[object]], signs: str = ""
) -> Iterator[str]:
    """Yield the lines of a Markdown table; `signs` are as in `aligned`, by default "<" (left)."""
    yield f"| {' | '.join(headings)} |"
    ends = {"<": "---", ">": "--:"}
    yield f"|{'|'.join(ends[sign] for sign in signs or '<' * len(headings))}|"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)
