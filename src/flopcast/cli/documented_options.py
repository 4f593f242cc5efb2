"""Options whose help texts are in help.json, in one section for each module.

Answers: where is the text about an option that `flopcast COMMAND --help` prints?
Elsewhere: options that describe a job (options.py), what a command does (the docstring of its function).
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import click

from flopcast.files.package_files import folder_of

FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)


class DocumentedOptions:
    """Makes the options of one module of this folder.

    >>> option = DocumentedOptions("flopcast.cli.explain")
    >>> option("--json", is_flag=True)(click.Command("explain")).params[0].help
    'Print the explanation as JSON.'
    """

    def __init__(self, module: str) -> None:
        """Keep the texts of a module, which has this `__name__`."""
        self._texts = texts_of_help()[module.rpartition(".")[2]]

    def __call__(self, *names: str, **settings: Any) -> Callable[[FC], FC]:  # noqa: ANN401 - those of click
        """Return a decorator like `click.option`; the help is that of the first long name."""
        text = self._texts[next(name for name in names if name.startswith("--"))]
        return click.option(*names, help=text, **settings)


@lru_cache(maxsize=1)
def texts_of_help() -> dict[str, dict[str, str]]:
    """Return the texts by module and option, and those of commands under "commands", the most used first.

    Each option has its first long name. The format is JSON because Python reads it much faster than TOML.
    """
    texts = folder_of(__package__).joinpath("help.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = json.loads(texts)
    return found
