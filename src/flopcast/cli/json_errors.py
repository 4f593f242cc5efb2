"""Errors of the command line as JSON, for commands with `--json`.

Answers: when are errors printed as JSON, and how is a usage error of click reported?
Elsewhere: the shape of the JSON (render/error_json.py), exit codes (main.py).
"""

import json
from collections.abc import Sequence

import click

from flopcast.errors import InfeasibleError, Problem, SpecError

OPTION = "--json"


def wants_json(words: Sequence[str]) -> bool:
    """Return whether `--json` is among the options of a command line; words after `--` are arguments.

    Examples
    --------
    >>> wants_json(["predict", "--json"]), wants_json(["predict", "--", "--json"])
    (True, False)
    """
    options = words[: words.index("--")] if "--" in words else words
    return OPTION in options


def as_json(error: Exception) -> str:
    """Return an error as the text of one JSON object."""
    from flopcast.render.error_json import BUG, INFEASIBLE, fault, input_faults

    if isinstance(error, click.ClickException):
        data = input_faults([usage_problem(error)])
    elif isinstance(error, SpecError):
        data = input_faults(error.problems)
    elif isinstance(error, InfeasibleError):
        data = fault(INFEASIBLE, str(error))
    else:
        data = fault(BUG, f"{type(error).__name__}: {error}")
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


def usage_problem(error: click.ClickException) -> Problem:
    """Return a usage error of click as a problem: the option or argument, what is allowed, and the fix."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "flopcast"
    see = f"see {command} --help"
    if isinstance(error, click.NoSuchOption):
        import difflib

        known = sorted(_options(context)) if context is not None else []
        near = error.possibilities or difflib.get_close_matches(error.option_name, known, n=1)
        allowed, because = ", ".join(known) or "an option of this command", f"{command} has no such option"
        fix = f"did you mean {' or '.join(near)}?" if near else see
        return Problem(error.option_name, None, allowed, because, fix, fault="is not known")
    parameter = getattr(error, "param", None)
    return Problem(
        field=_name(parameter) if parameter is not None else getattr(error, "option_name", "arguments"),
        value=None,
        allowed=_allowed(parameter) if parameter is not None else "an option that the help lists",
        because=error.format_message(),
        fix=see,
        fault="is missing" if isinstance(error, click.MissingParameter) else "cannot be read",
    )


def _options(context: click.Context) -> set[str]:
    """Return the long names of every option that a command has."""
    return {name for each in context.command.get_params(context) for name in each.opts if name[:2] == "--"}


def _name(parameter: click.Parameter) -> str:
    """Return the longest name of an option, or the name of an argument as the help shows it."""
    if isinstance(parameter, click.Argument):
        return parameter.human_readable_name
    return max(parameter.opts, key=len)


def _allowed(parameter: click.Parameter) -> str:
    """Return a description of the values that an option or an argument accepts."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return ", ".join(map(str, kind.choices))
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        low = "" if kind.min is None else f" of at least {kind.min}"
        high = "" if kind.max is None else f" of at most {kind.max}"
        return f"one number{low}{' and' if low and high else ''}{high}"
    return f"one {kind.name}"
