"""Files that commands write.

Answers: how is a file written, and what does the command print afterwards?
Elsewhere: which paths are refused before any work is done (file_types.py).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from flopcast.errors import spec_error
from flopcast.files.atomic_write import write_whole


def write_output(option: str, path: Path, content: str | bytes, message: str = "") -> None:
    """Write a whole file, and report it on stderr with a message; by default, "wrote PATH".

    Raises
    ------
    SpecError
        In the same cases as `writing`.
    """
    with writing(option, path):
        write_whole(path, content)
    click.echo(message or f"wrote {path}", err=True)


def print_or_write(text: str, out: Path | None, message: str) -> None:
    """Print a text, or write it to the file of --out and report that with a message.

    Raises
    ------
    SpecError
        In the same cases as `writing`.
    """
    if out is None:
        click.echo(text, nl=False)
    else:
        write_output("--out", out, text, f"{out}: {message}")


def print_notes(notes: Iterable[str]) -> None:
    """Print notes about assumptions and omissions to stderr."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Report an error of writing a file as a fault of the option that names it.

    Raises
    ------
    SpecError
        Permission is missing, the disk is full, or the path is not a file.
    """
    try:
        yield
    except OSError as error:
        allowed, because = "a path at which you may write a file", error.strerror or str(error)
        raise spec_error(option, str(path), allowed, because, "choose another path") from None
