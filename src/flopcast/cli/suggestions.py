"""Completion of options and arguments in a shell: names of the catalogue, its kinds, and files.

Answers: which values complete an option or an argument?
Elsewhere: the script that a shell runs (completion.py), names of commands (main.py).

Completion must be quick: this module imports only click, and lists the catalogue by its file names.
"""

from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

CATALOG = Path(__file__).parent.parent / "catalog"
HIDDEN = ("constants", "curves", "graphs", "runs", "suites", "jobs")  # kinds of files that no word names
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def catalogue(kind: str) -> list[str]:
    """Return the sorted names of one kind of the catalogue; empty if there is no such kind.

    >>> catalogue("sites") == sorted(catalogue("sites")), "selene" in catalogue("clusters")
    (True, True)
    """
    return sorted(path.stem for path in (CATALOG / kind).glob("*.yaml")) if kind.isalpha() else []


def words(*choices: str) -> Completer:
    """Return a completer that offers fixed choices."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _beginning(choices, incomplete)

    return complete


def names_of(kind: str, or_files: bool = False) -> Completer:
    """Return a completer of one kind of the catalogue.

    With `or_files`, it completes names of files if no entry begins with the word.
    """

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = _beginning(catalogue(kind), incomplete)
        return names or (_files(incomplete) if or_files else [])

    return complete


def kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the kinds of the catalogue that begin with `incomplete`."""
    folders = sorted(path.name for path in CATALOG.iterdir() if path.is_dir())
    return _beginning([name for name in folders if name not in HIDDEN], incomplete)


def names_of_kind(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of the kind that the previous argument gives."""
    return _beginning(catalogue(str(ctx.params.get("kind"))), incomplete)


def of_jobs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return models whose names begin with a word, or files if a file or no model begins with the word."""
    models = _beginning(catalogue("models"), incomplete) if incomplete else []
    return _files(incomplete) if not models or any(Path().glob(f"{incomplete}*")) else models


def _files(incomplete: str) -> list[CompletionItem]:
    """Return the item that makes the shell complete files itself."""
    return [CompletionItem(incomplete, type="file")]


def _beginning(names: list[str] | tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
