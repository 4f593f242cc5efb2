"""The terminal of a command: its colours, its progress line and its width.

Answers: how is a text printed on a terminal, and how in a pipe or a file?
Elsewhere: marks and line breaks (render/terminal.py).

A pipe or a file gets plain text, the same bytes on every machine. On a terminal, lines fit its width and
marks become colours, unless NO_COLOR is set or TERM is "dumb". FORCE_COLOR and CLICOLOR_FORCE keep the
colours in a pipe.
"""

import os
import sys
from io import StringIO
from typing import TextIO

import click

from flopcast.render.terminal import bad, fitted, plain, with_common_marks

NARROWEST = 40  # columns; text for a narrower terminal is broken as for this one


def print_text(text: str) -> None:
    """Print marked text on stdout: plain, or in colours and wrapped at the width of the terminal."""
    text = with_common_marks(text)
    if _is_terminal(sys.stdout):
        text = fitted(text, max(NARROWEST, width()))
    coloured = shows_colours(sys.stdout)
    click.echo(text if coloured else plain(text), color=coloured)


def print_error(headline: str, rest: str = "") -> None:
    """Print a message about an error on stderr; its headline is red if stderr shows colours."""
    coloured = shows_colours(sys.stderr)
    click.echo((bad(headline) if coloured else headline) + rest, err=True, color=coloured)


def shows_colours(stream: TextIO | None) -> bool:
    """Return whether a stream shows colours, or is a pipe for which the user forces them."""
    if stream is None or isinstance(stream, StringIO) or os.environ.get("NO_COLOR"):
        return False
    forced = (os.environ.get(name, "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    return any(value not in ("", "0") for value in forced) or moves_cursor(stream)


def moves_cursor(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal that understands control sequences, such as a progress line."""
    return _is_terminal(stream) and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Return the number of columns of the terminal."""
    from shutil import get_terminal_size  # a pipe has no width, and the import takes 1 ms

    return get_terminal_size().columns


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; a process may have been started without one."""
    return stream is not None and stream.isatty()
