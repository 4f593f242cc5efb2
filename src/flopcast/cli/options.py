"""Code that all commands share: the options that describe a job, and how data is printed and written.

Answers: which options describe a job, and how is data printed?
Elsewhere: which job the options describe (requests/resolve.py).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.file_types import InputFile, OutputFile
from flopcast.cli.suggestions import names_of, of_jobs
from flopcast.cli.terminal import print_text
from flopcast.quantities import parse_length
from flopcast.records import replace

if TYPE_CHECKING:
    from flopcast.errors import Problem
    from flopcast.requests.job_request import JobRequest

option = DocumentedOptions(__name__)

FILE = click.Path(path_type=Path)  # the type of an option that names a file
INPUT = InputFile(path_type=Path)  # of an option that names a file to read
OUTPUT = OutputFile()  # of an option that names a file to write
PAGE = OutputFile(".html", ".htm", "", because="flopcast writes reports as HTML pages")
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
CLUSTER = "Name of a cluster (flopcast catalog clusters); dgx-h100:4 has 4 nodes"
CLUSTER_OR_NONE = click.option("--cluster", help=f"{CLUSTER}.", shell_complete=names_of("clusters"))
Command = Callable[..., None]
Decorator = Callable[[Command], Command]
Check = Callable[["JobRequest", dict[str, Any]], object]  # of a request, and the other options of a command


class Length(click.IntRange):
    """The type of an option that is a number of tokens, such as 8192 or 8k."""

    described = "a whole number of at least 1, such as 8192 or 8k"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of tokens; fail if the value is not such a number, or too small."""
        length: Any = value
        with suppress(ValueError):
            length = parse_length(str(value).removesuffix(".0"))
        return int(super().convert(length, param, ctx))


class Sequences(click.IntRange):
    """Type of an option that takes a number of sequences.

    A number of tokens is accepted, because the errors of the job then convert it to sequences.
    """

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of sequences, or a text with a number of tokens; fail for all other values."""
        given: Any = value
        in_tokens = re.search(r"\d ?(?:[kKmMBT]? ?tok|[kKmMBT]$)", str(given))
        return given if in_tokens else super().convert(given, param, ctx)


OPTIONS: dict[str, Decorator] = {  # of a request, by the names of its fields
    "model": option("--model", shell_complete=names_of("models", or_files=True)),
    "kind": option("--kind"),
    "arg": option("--arg", multiple=True, metavar="N=VALUE"),
    "env": option("--env", multiple=True, metavar="NAME=VALUE"),
    "cluster": click.option(
        "--cluster", help=f"{CLUSTER}. Default: dgx-h100.", shell_complete=names_of("clusters")
    ),
    "gpus": option("--gpus", type=click.IntRange(min=1)),
    "plan": option("--plan"),
    "offload": option("--offload", metavar="KIND:MEMORY[,...]"),
    "stack": option("--stack", "--framework", shell_complete=names_of("stacks")),
    "batch": option("--batch", type=Sequences(min=1)),
    "inference": option("--inference", is_flag=True),
    "size": option("--size", multiple=True, metavar="NAME=NUMBER"),
    "autocast": option("--autocast", is_flag=True),
    "seq": option("--seq", type=Length(min=1)),
    "images": option("--images", metavar="NxWIDTHxHEIGHT[+...]"),
    "lora": option("--lora", type=int, metavar="RANK"),
    "qlora": option("--qlora", type=int, metavar="RANK"),
    "tokens": option("--tokens"),
    "samples": click.option(
        "--samples", help='Number of sequences in one epoch, such as "52,000" or "52k".'
    ),
    "epochs": option("--epochs"),
    "checkpoint": option("--checkpoint", metavar="METHOD STORAGE ..."),
    "loader": option("--loader", metavar="STAGE=VALUE[,...]"),
    "site": option("--site", type=INPUT),
    "slow": option("--slow", metavar="KIND=INDEX:FRACTION[,...]"),
    "power_limit": option("--power-limit"),
    "price": option("--price", shell_complete=names_of("prices")),
}
SERVING: dict[str, Any] = {  # options of a request that serves
    "engine": option("--engine", shell_complete=names_of("engines")),
    "traffic": option("--traffic"),
    "slo": option("--slo"),
}
OF_RUN = ("tokens", "epochs", "checkpoint", "price")  # matter to the time and cost of a whole run alone
SAMPLES = option("--samples")
ARGUMENTS = (
    click.argument("job", required=False, metavar="[JOB|MODEL]", shell_complete=of_jobs),
    click.argument("changes", nargs=-1, metavar="[KEY=VALUE]..."),
)
Found = TypeVar("Found")


def further_problems(found: Callable[[dict[str, Any]], list["Problem"]]) -> Callable[[Command], Command]:
    """Report errors of a command's options together with the errors that a function finds in its input.

    Parameters
    ----------
    found : returns the errors of the command's input, given the values of its parameters by name
    """

    def decorated(command: Command) -> Command:
        vars(command)["further_problems"] = found
        return command

    return decorated


def job_options(
    *arguments: Decorator, without: Sequence[str] = (), check: Check | None = None, **options: Decorator
) -> Decorator:
    """Return a decorator that adds the options that describe a job.

    The command receives them as its `request`.

    Errors of other options are reported together with those of the job.

    Parameters
    ----------
    arguments : take the place of ARGUMENTS
    without : OPTIONS that have no effect on the output of the command, which therefore does not have them
    check : raises the errors of the request, given other options of the command; by default, the errors of
        one job
    options : take the place of the OPTIONS with their names
    """

    def decorated(command: Command) -> Command:
        def asked(named: dict[str, Any]) -> tuple["JobRequest", dict[str, Any]]:
            from flopcast.requests.job_request import JobRequest
            from flopcast.requests.words import files_and_changes

            words = [word for word in (named.get("job"), *named.get("changes", ())) if word]
            files, changes = files_and_changes(words)
            fields = {name: named[name] for name in OPTIONS | options if name in named}
            of_job = ("job", "changes", *fields)
            others = {name: value for name, value in named.items() if name not in of_job}
            return JobRequest(files=files, changes=changes, **fields), others

        def problems_of_job(named: dict[str, Any]) -> list["Problem"]:
            def checked() -> None:
                request, others = asked(named)
                if check is not None:
                    check(request, others)
                else:
                    check_request(request, may_serve="engine" in options)

            from flopcast.errors import problems_of
            from flopcast.requests.checked_request import check_request

            return [_of_option(each, named) for each in problems_of(checked)]

        @wraps(command)
        def requested(*given: object, **named: Any) -> None:  # noqa: ANN401 - click passes any type
            from flopcast.errors import SpecError

            request, others = asked(named)
            try:
                command(*given, request=request, **others)
            except SpecError as error:
                own = [_of_option(each, named) for each in error.problems]
                raise SpecError([*own, *problems_of_job(named)]) from error

        further_problems(problems_of_job)(requested)
        shown = {name: option for name, option in (OPTIONS | options).items() if name not in without}
        return with_all((*(arguments or ARGUMENTS), *shown.values()), requested)

    return decorated


def _of_option(problem: "Problem", named: Mapping[str, object]) -> "Problem":
    """Return an error of a file; its field is the option that names the file."""
    is_file = isinstance(named.get(problem.field), Path)
    return replace(problem, field=f"--{problem.field}") if is_file else problem


def with_all(decorators: Sequence[Decorator], command: Command) -> Command:
    """Return the command with arguments and options, which its help shows in this order."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def out_option(content: str) -> Decorator:
    """Return the option `-o FILE` of a command whose output is a file, such as a "model"."""
    text = f"Write the {content} to this file. Default: standard output."
    return click.option("-o", "--out", "--output", "out", type=OUTPUT, help=text)


def writes_document(command: Command) -> Command:
    """Add the option `-o FILE`, which writes the whole output to a file once the command succeeds.

    Apply it directly above the function, below all other options.
    """
    from flopcast.cli.output_files import write_output

    @wraps(command)
    def written(*arguments: object, output: Path | None, **named: object) -> None:
        if output is None:
            command(*arguments, **named)
            return
        with redirect_stdout(StringIO()) as printed:
            command(*arguments, **named)
        write_output("--output", output, printed.getvalue())

    return option("-o", "--output", "--out", "output", type=OUTPUT)(written)


def print_json(data: object) -> None:
    """Print one indented JSON document on stdout, without escapes of letters."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def print_found(
    result: Found,
    wants_json: bool,
    as_json: Callable[[Found], object],
    marked_text: Callable[[Found], str],
    *,
    is_page: bool = False,
) -> None:
    """Print a result as one JSON document, as text with marks, or as a page of Markdown.

    Parameters
    ----------
    result : object
    wants_json : bool
    as_json, marked_text : function
        Return the result as plain data, and as text with marks for a terminal.
    is_page : bool
        Whether the text is a page, which is printed without colours.
    """
    if wants_json:
        print_json(as_json(result))
    elif is_page:
        click.echo(marked_text(result))
    else:
        print_text(marked_text(result))
