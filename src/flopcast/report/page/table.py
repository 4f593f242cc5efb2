"""Tables, bars and numbers of a page, with every text escaped.

Answers: how does a page write a number that is read by eye and by programs, and the table around it?
Elsewhere: the frame (shell.py), the style (style.py).
A number is a `<data>` element: its text is for people, its value has the nine digits of the JSON.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from flopcast.units import Number, show, show_seconds

LEAST_SORTED = 4  # rows that are worth a button to sort them


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already: whoever makes one has escaped what is in it."""

    html: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and the text that stands for it."""

    value: Number
    shown: str


Cell = str | Markup | Quantity


def seconds(value: Number, like: Number | None = None) -> Quantity:
    """Seconds, as a reader wants them; bounds in the unit of what they bound."""
    return Quantity(value, show_seconds(value, like))


def share(value: Number) -> Quantity:
    """A ratio in percent."""
    return Quantity(value, f"{value:.1%}")


def size(value: Number) -> Quantity:
    """Bytes."""
    return Quantity(value, show(value, "B"))


def rate(value: Number, unit: str) -> Quantity:
    """Anything else with a unit that takes prefixes."""
    return Quantity(value, show(value, unit))


def markup(cell: Cell) -> str:
    """The HTML of a cell's content.

    >>> markup("a < b"), markup(seconds(0.25))
    ('a &lt; b', '<data value="0.25">250 ms</data>')
    """
    if isinstance(cell, Markup):
        return cell.html
    if isinstance(cell, Quantity):
        return f'<data value="{cell.value:.9g}">{escape(cell.shown)}</data>'
    return escape(cell)


def bar(fraction: Number, hue: int = 0) -> Markup:
    """A bar as long as a share of one; what it says stands beside it in figures."""
    width = 100 * min(max(0.0, fraction), 1.0)  # 0.0 before -0.0, which SVG would show with its sign
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="hue-{hue}" width="{width:.2f}" height="8"/></svg>'
    )


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    numeric: Sequence[bool] | None = None,
) -> str:
    """A table whose first column names its rows.

    `numeric` columns stand to the right: without it those that hold quantities and no text. A table of
    several rows can be sorted where the reader's browser runs the script.
    """
    lines = list(rows)
    if numeric is None:
        numeric = [_is_numeric([line[place] for line in lines]) for place in range(len(headings))]
    kinds = [' class="number"' if number else "" for number in numeric]
    head = "".join(
        f'<th scope="col"{kind}>{escape(heading)}</th>'
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
    """Whether a column is one of numbers, gaps aside."""
    return any(isinstance(cell, Quantity) for cell in cells) and all(
        isinstance(cell, Quantity) or cell in ("", "–") for cell in cells
    )


def _line(cells: Sequence[Cell], kinds: Sequence[str]) -> str:
    """One row: its name, then its cells."""
    rest = "".join(
        f"<td{kind}>{markup(cell)}</td>" for kind, cell in zip(kinds[1:], cells[1:], strict=True)
    )
    return f'<tr><th scope="row"{kinds[0]}>{markup(cells[0])}</th>{rest}</tr>'
