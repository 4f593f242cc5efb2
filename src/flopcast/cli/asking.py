"""What commands that need a job have in common: the options that name one, and how they print.

Answers: which options name a job, how is data printed, which files are refused before work is done?
Elsewhere: which job these words stand for (io/asked.py).
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from flopcast.cli.completion import names_of, of_jobs
from flopcast.errors import Problem, SpecError
from flopcast.io.whole_files import write_whole

if TYPE_CHECKING:
    from flopcast.validation.run import Run

Command = TypeVar("Command", bound=Callable[..., object])

OPTIONS = (
    click.option(
        "--model",
        help="A model of the catalogue, or a path: config.json, its folder, YAML.",
        shell_complete=names_of("models", or_files=True),
    ),
    click.option("--kind", "file_kind", help="The format of the file, where its keys do not tell it."),
    click.option("--arg", multiple=True, metavar="N=VALUE", help="A launch script's argument: 1=8 for $1."),
    click.option(
        "--env", multiple=True, metavar="NAME=VALUE", help="A variable that a launch script reads."
    ),
    click.option(
        "--cluster",
        help="A cluster of the catalogue; NAME:NODES for a part of it.",
        shell_complete=names_of("clusters"),
    ),
    click.option("--gpus", type=click.IntRange(min=1), help="Devices of the cluster to use."),
    click.option("--plan", help='The plan, e.g. "dp=16 tp=8 pp=8 mbs=1 gbs=1536".'),
    click.option(
        "--stack",
        "--framework",
        help="A training stack of the catalogue.",
        shell_complete=names_of("stacks"),
    ),
    click.option("--seq", type=click.IntRange(min=1), help="Tokens of a sequence."),
    click.option("--site", type=click.Path(path_type=Path), help="What this machine sustains."),
    click.option(
        "--price",
        help='Of a device: "2.10 USD/h", or a name of `flopcast catalog prices`.',
        shell_complete=names_of("prices"),
    ),
)


def asks_for_job(command: Command) -> Command:
    """Add the arguments that name a job: the same for every command that needs one.

    The command receives `job` and `changes`, and the options as further keywords for `job_from`.
    """
    for option in reversed(OPTIONS):
        command = option(command)
    command = click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")(command)
    return click.argument("job", required=False, metavar="[JOB.yaml]", shell_complete=of_jobs)(command)


def writes_document(command: Callable[..., None]) -> Callable[..., None]:
    """Add `-o FILE`: what a command prints is written there instead, once all of it is there.

    Stands right above the function, so that options of the command are added to what it returns.
    """

    @wraps(command)
    def written(*arguments: object, output: Path | None, **named: object) -> None:
        check_writable("--output", output)
        if output is None:
            command(*arguments, **named)
            return
        with redirect_stdout(StringIO()) as printed:
            command(*arguments, **named)
        with writing("--output", output):
            write_whole(output, printed.getvalue())
        click.echo(f"wrote {output}", err=True)

    place = click.Path(path_type=Path)
    return click.option("-o", "--output", type=place, help="Write what is printed here instead.")(written)


def with_progress(runs: "Sequence[Run]") -> "Iterator[Run]":
    """The runs of a table; a terminal is told how many of them are done, on stderr."""
    if not sys.stderr.isatty():
        yield from runs
        return
    with click.progressbar(runs, file=sys.stderr, label="runs", show_pos=True) as told:
        yield from told


def print_json(data: object) -> None:
    """One JSON document on stdout, readable by eye; letters of any alphabet stay as they are."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def check_writable(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before any work is done for it.

    Raises
    ------
    SpecError
        The path is a folder, or its folder does not exist.
    """
    if path is None or (path.parent.is_dir() and not path.is_dir()):
        return
    raise SpecError(
        [
            Problem(
                field=option,
                value=str(path),
                allowed="a file in a folder that exists",
                because="it is a folder" if path.is_dir() else f"there is no folder {path.parent}",
                fix="make the folder, or choose another",
            )
        ]
    )


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Tell what keeps a file from being written as a fault of the option that names it.

    Raises
    ------
    SpecError
        There is no right to write there, no room, or something else in its place.
    """
    try:
        yield
    except OSError as error:
        raise SpecError(
            [
                Problem(
                    field=option,
                    value=str(path),
                    allowed="a place where files may be written",
                    because=error.strerror or str(error),
                    fix="choose another place",
                )
            ]
        ) from None
