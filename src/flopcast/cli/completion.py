"""What a shell offers behind a word: names of the catalogue, kinds, files.

Answers: which words complete an option or an argument?
Elsewhere: the script that a shell runs (completing.py), names of commands (main.py).

A key was pressed: nothing but click is imported here, and the catalogue is read as names of files.
"""

from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

CATALOG = Path(__file__).parent.parent / "catalog"
HIDDEN = ("constants", "curves", "runs", "suites", "jobs")  # kinds of files that no word names
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def catalogue(kind: str) -> list[str]:
    """Names of one kind, sorted; none where there is no such kind.

    >>> catalogue("sites") == sorted(catalogue("sites")), "selene" in catalogue("clusters")
    (True, True)
    """
    return sorted(path.stem for path in (CATALOG / kind).glob("*.yaml")) if kind.isalpha() else []


def words(*choices: str) -> Completer:
    """Some words."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _beginning(choices, incomplete)

    return complete


def names_of(kind: str, or_files: bool = False) -> Completer:
    """Names of a kind of the catalogue; files too, where none begins so and a path may stand there."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = _beginning(catalogue(kind), incomplete)
        return found or (_files(incomplete) if or_files else [])

    return complete


def kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds of the catalogue that can be named."""
    folders = sorted(path.name for path in CATALOG.iterdir() if path.is_dir())
    return _beginning([name for name in folders if name not in HIDDEN], incomplete)


def names_of_kind(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the kind that was given before."""
    return _beginning(catalogue(str(ctx.params.get("kind"))), incomplete)


def of_jobs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files: a job may be any of them."""
    return _files(incomplete)


def _files(incomplete: str) -> list[CompletionItem]:
    """The shell's own completion of files."""
    return [CompletionItem(incomplete, type="file")]


def _beginning(names: list[str] | tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Names that begin so."""
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
