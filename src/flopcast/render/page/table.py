"""Tables, bars and numbers of a page, with every text escaped.

Answers: how does a page write numbers for readers and for programs, and the tables around them?
Elsewhere: the frame (frame.py), the style (style.py).
A number is a `<data>` element: its text is for readers, and its value has nine digits, as in the JSON.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import NamedTuple

from flopcast.records import Record
from flopcast.units import Number, show, show_memory, show_seconds

LEAST_SORTED = 4  # rows that are worth a button to sort them


class Markup(Record, kw_only=False):
    """Text that is already HTML; its maker must have escaped it."""

    html: str


class Quantity(NamedTuple):
    """A number and the text that shows it."""

    value: Number
    shown: str


_escaped = lru_cache(maxsize=4096)(escape)  # pages repeat most of their words and numbers
Cell = str | Markup | Quantity


def seconds(value: Number, like: Number | None = None) -> Quantity:
    """Return seconds as a quantity; with a second value, in the unit of that value."""
    return Quantity(value, show_seconds(value, like))


def share(value: Number) -> Quantity:
    """Return a ratio as a percentage."""
    return Quantity(value, f"{value:.1%}")


def size(value: Number) -> Quantity:
    """Return bytes of memory as a quantity."""
    return Quantity(value, show_memory(value))


def rate(value: Number, unit: str) -> Quantity:
    """Return a value in a unit that takes prefixes as a quantity."""
    return Quantity(value, show(value, unit))


def shown(cell: Cell) -> str:
    """Return the content of a cell as text; markup has none."""
    if isinstance(cell, Quantity):
        return cell.shown
    return cell if isinstance(cell, str) else ""


def markup(cell: Cell) -> str:
    """Return the content of a cell as HTML.

    >>> markup("a < b"), markup(seconds(0.25))
    ('a &lt; b', '<data value="0.25">250 ms</data>')
    """
    if isinstance(cell, Quantity):
        return f'<data value="{cell.value:.9g}">{_escaped(cell.shown)}</data>'
    return _escaped(cell) if isinstance(cell, str) else cell.html


def bar(fraction: Number, hue: int = 0) -> Markup:
    """Return a bar whose length is a share of 1; the cell next to it has the number."""
    width = 100 * min(max(0.0, fraction), 1.0)  # 0.0 before -0.0, which SVG would show with its sign
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="hue-{hue}" width="{width:.2f}" height="8"/></svg>'
    )


def part_row(name: str, quantity: Quantity, fraction: Number, hue: int = 0) -> tuple[Cell, ...]:
    """Return the cells of a part of a whole: its name, its amount, and its share as a number and a bar."""
    return name, quantity, share(fraction), bar(fraction, hue)


def listing(texts: Iterable[str]) -> str:
    """Return texts as a bulleted list; "" if there are none."""
    points = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{points}</ul>" if points else ""


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    numeric: Sequence[bool] | None = None,
) -> str:
    """Return a table whose first column names its rows.

    `numeric` columns are right-aligned; by default, the columns that hold only quantities. A reader can
    sort a table with several rows if the browser runs the script.
    """
    lines = list(rows)
    if numeric is None:
        numeric = [_is_numeric([line[place] for line in lines]) for place in range(len(headings))]
    kinds = [' class="number"' if number else "" for number in numeric]
    head = "".join(
        f'<th scope="col"{kind}>{_escaped(heading)}</th>'
        for kind, heading in zip(kinds, headings, strict=True)
    )
    body = "".join(_line(line, kinds) for line in lines)
    sorts = ' class="sorts"' if len(lines) >= LEAST_SORTED else ""
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table{sorts}>{named}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """Return whether all cells of a column are numbers or empty."""
    others = [cell for cell in cells if not isinstance(cell, Quantity)]
    return len(others) < len(cells) and all(cell in ("", "–") for cell in others)


def _line(cells: Sequence[Cell], kinds: Sequence[str]) -> str:
    rest = "".join(
        [f"<td{kind}>{markup(cell)}</td>" for kind, cell in zip(kinds[1:], cells[1:], strict=True)]
    )
    return f'<tr><th scope="row"{kinds[0]}>{markup(cells[0])}</th>{rest}</tr>'
