"""Files that commands write: which are refused before any work is done, and how they are written.

Answers: may a command write this file, and what is printed once it is written?
Elsewhere: which options name files (options.py).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from flopcast.errors import spec_error
from flopcast.files.atomic_write import write_whole

PAGES = (".html", ".htm", "")  # suffixes of a report's name


def check_page(path: Path | None) -> None:
    """Raise an error if a report cannot be written, or if the ending of its name is not that of HTML.

    Raises
    ------
    SpecError
        As `check_writable`; or the name has another suffix than .html.
    """
    check_writable("--report", path)
    if path is not None and path.suffix.lower() not in PAGES:
        allowed, because = "a file name that ends in .html", "flopcast writes reports as HTML pages"
        fix = f"write --report {path.with_suffix('.html')}"
        raise spec_error("--report", str(path), allowed, because, fix)


def check_writable(option: str, path: Path | None) -> None:
    """Raise an error if a file cannot be written; call this before any work is done for the file.

    Raises
    ------
    SpecError
        The path is a folder, or its folder does not exist.
    """
    if path is None or (path.parent.is_dir() and not path.is_dir()):
        return
    because, fix = f"the folder {path.parent} does not exist", "create the folder, or choose another path"
    if path.is_dir():
        because, fix = "the path is a folder", "add the name of a file to the path"
    raise spec_error(option, str(path), "a file in a folder that exists", because, fix)


def write_output(option: str, path: Path, content: str | bytes, message: str = "") -> None:
    """Write a whole file, and report it on stderr with a message; by default, "wrote PATH".

    Raises
    ------
    SpecError
        As `writing`.
    """
    with writing(option, path):
        write_whole(path, content)
    click.echo(message or f"wrote {path}", err=True)


def print_or_write(text: str, out: Path | None, message: str) -> None:
    """Print a text, or write it to the file of --out and report that with a message.

    Raises
    ------
    SpecError
        As `writing`.
    """
    if out is None:
        click.echo(text, nl=False)
    else:
        write_output("--out", out, text, f"{out}: {message}")


def print_notes(notes: Iterable[str]) -> None:
    """Print what was assumed or left out to stderr."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Report an error of writing a file as a fault of the option that names it.

    Raises
    ------
    SpecError
        Permission is missing, the disk is full, or the path is taken by something else.
    """
    try:
        yield
    except OSError as error:
        allowed, because = "a path at which you may write a file", error.strerror or str(error)
        raise spec_error(option, str(path), allowed, because, "choose another path") from None
