"""Marks that a terminal shows as colours, and lines that fit its width.

Answers: how are the answer, a verdict, a warning or an aside marked, and where does a long line break?
Elsewhere: whether stdout is a terminal, and shows colours (cli/terminal.py).

A renderer marks its answer and its verdicts. This module marks the parts that all renderers write alike
(intervals, warnings and assumptions). Marks are ANSI sequences, which `plain` removes.
"""

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

import click

from flopcast.render.assumption_lines import HEADING

if TYPE_CHECKING:
    from flopcast.memory.verdict import Verdict

Mark = Callable[[str], str]
LEAST_COLUMN = 30  # characters; text wraps below its own column only if the column is at least as wide
LABELS = 14  # characters of a label and the space behind it, at most
DEEPER = 4  # characters by which the rest of a line is indented otherwise
INTERVALS = re.compile(r"\(90 %: [^)]*\)")
ASSUMED = re.compile(rf"^{HEADING}$(?:\n  .*)*", re.MULTILINE)
LINES = re.compile(r"[^ \n].*")
CAUTIONS = re.compile(r"^(?:warning|note) {3,}.*", re.MULTILINE)


def answer(text: str) -> str:
    """Return a text marked as the answer to the question, or as its best line."""
    return click.style(text, bold=True)


def good(text: str) -> str:
    """Return a text marked as good news."""
    return click.style(text, fg="green")


def caution(text: str) -> str:
    """Return a text marked as a warning, or as a result that is only just acceptable."""
    return click.style(text, fg="yellow")


def bad(text: str) -> str:
    """Return a text marked as a failure, or as a result that cannot be used."""
    return click.style(text, fg="red")


def aside(text: str) -> str:
    """Return a text marked as less important than its neighbours: an interval, an assumption, a source."""
    return click.style(text, dim=True)


OF_VERDICT: "dict[Verdict, Mark]" = {"fits": good, "tight": caution, "does not fit": bad}


def capital(text: str) -> str:
    """Return a text with a capital as its first letter.

    >>> capital("the mean of 4 GPUs"), capital("")
    ('The mean of 4 GPUs', '')
    """
    return text[:1].upper() + text[1:]


def plain(text: str) -> str:
    """Return a text without marks.

    >>> plain(answer("8.81 s")), plain("8.81 s")
    ('8.81 s', '8.81 s')
    """
    return click.unstyle(text)


def with_common_marks(text: str) -> str:
    """Return a text in which intervals and assumptions are asides, and warnings are cautions.

    >>> with_common_marks("step 8.81 s (90 %: 8 s to 9 s)") == "step 8.81 s " + aside("(90 %: 8 s to 9 s)")
    True
    """
    for pattern, mark in ((CAUTIONS, caution), (INTERVALS, aside)):
        text = pattern.sub(lambda found, mark=mark: mark(found[0]), text)  # type: ignore[misc]
    return ASSUMED.sub(
        lambda found: re.sub(r"[^ \n].*", lambda line: aside(plain(line[0])), found[0]), text
    )


def shown_length(text: str) -> int:
    """Return the number of characters that a terminal shows of a text.

    >>> shown_length(answer("8.81 s"))
    6
    """
    return len(plain(text))


def padded(text: str, sign: str, width: int) -> str:
    """Return a text that fills a column: "<" aligns it left, ">" right.

    >>> padded("fits", ">", 6), padded(good("fits"), "<", 6) == good("fits") + "  "
    ('  fits', True)
    """
    blank = " " * (width - shown_length(text))
    return text + blank if sign == "<" else blank + text


def fitted(text: str, columns: int) -> str:
    """Return a text whose lines fit a terminal, except for words that are longer than a line.

    Long lines break at spaces, and long lists of numbers after commas. The following lines begin below the
    broken cell if this column is wide enough. Otherwise, they are indented by a few spaces.

    >>> print(fitted("plan      dp=16 tp=4 pp=8 vpp=6 mbs=1 gbs=512 sp zero=1 precision=bf16", 44))
    plan      dp=16 tp=4 pp=8 vpp=6 mbs=1
              gbs=512 sp zero=1 precision=bf16
    """
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def _parts(line: str, columns: int) -> Iterator[str]:
    """Yield a line in parts that fit."""
    if shown_length(line) <= columns:
        yield line
        return
    words = re.findall(r"\s*\S+", line)
    ends = list(accumulate(map(shown_length, words)))
    over = next(place for place, end in enumerate(ends) if end > columns)
    cell = max((place for place in range(1, over + 1) if words[place].startswith("  ")), default=0)
    start = ends[cell] - shown_length(words[cell].lstrip())
    hangs = cell > 0 and columns - start >= min(LEAST_COLUMN, columns // 2)
    indent = start if hangs else _usual_indent(plain(line))
    part = ""
    for place, word in enumerate(words):
        for piece in _pieces(word, columns - indent):
            starts_line = cell > 0 and not hangs and place == cell and piece.startswith(" ")
            if part and (starts_line or shown_length(part + piece) > columns):
                yield part
                part = ""
            part = part + piece if part or not place else " " * indent + piece.lstrip()
    yield part


def _usual_indent(line: str) -> int:
    """Return the indent of the rest of a line: below what follows its label, or a little deeper.

    >>> _usual_indent("plan      dp=16  seq=8192"), _usual_indent("  dp=16 tp=4")
    (10, 6)
    """
    label = re.match(r" *\S+(?: \S+)* {2,}", line)
    lead = len(line) - len(line.lstrip())
    return label.end() if label and label.end() <= LABELS else lead + DEEPER


def _pieces(word: str, columns: int) -> list[str]:
    """Return a word in pieces: one, or parts of a list of numbers that is too long for a line."""
    return [word] if shown_length(word.lstrip()) <= columns else re.split(r"(?<=,)(?=\d)", word)
