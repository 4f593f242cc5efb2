"""Errors of the command line as JSON, for commands with `--json`.

Answers: when are errors printed as JSON, and how is a usage error of click reported?
Elsewhere: the shape of the JSON (render/error_json.py), exit codes (main.py).
"""

import json
import re
from collections.abc import Sequence

import click

from flopcast.errors import InfeasibleError, Problem, SpecError

OPTION = "--json"
NEAR_RATIO = 0.7  # of letters in common, below which an option is no suggestion
COMMAND = re.compile(r"^No such command '(.*)'\.")
EXTRA = re.compile(r"unexpected extra arguments? \(([^)]*)\)")


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
    if isinstance(error, click.NoSuchOption):
        import difflib

        known = sorted(_options(context)) if context is not None else []
        near = difflib.get_close_matches(error.option_name, known, n=1, cutoff=NEAR_RATIO)
        allowed, because = ", ".join(known) or "an option of this command", f"{command} has no such option"
        fix = f"did you mean {near[0]}?" if near else f"remove {error.option_name}"
        return Problem(error.option_name, None, allowed, because, fix, fault="is not known")
    parameter, because = getattr(error, "param", None), error.format_message()
    if (
        context is not None
        and isinstance(context.command, click.Group)
        and (word := COMMAND.search(because))
    ):
        return _unknown_command(word[1], context, context.command)
    if parameter is None:
        field = getattr(error, "option_name", "") or "arguments"
        extra = EXTRA.search(because)
        fix = f"remove {extra[1]}" if extra else f"add a value of {field}"
        allowed = "what the help lists"
        return Problem(field, None, allowed, because, fix, fault="cannot be read")
    name, missing = _name(parameter), isinstance(error, click.MissingParameter)
    usual = _usual(parameter)
    fix = f"{'add' if missing else 'write'} {name} {usual}".rstrip()
    fault = "is missing" if missing else "cannot be read"
    return Problem(name, None, _allowed(parameter), because, fix, fault=fault)


def _unknown_command(word: str, context: click.Context, group: click.Group) -> Problem:
    """Return the fault of a word in the place of a command; a file's name needs a command before it."""
    import difflib

    known, where = group.list_commands(context), context.command_path
    near = difflib.get_close_matches(word, known, n=1)
    is_file = "." in word or "/" in word
    fix = f"{where} {near[0] if near else known[0]}{f' {word}' if is_file else ''}"
    because = f"{where} is followed by a command" + (", then the file" if is_file else "")
    return Problem(word, None, ", ".join(known), because, fix, fault="is not a command")


def _usual(parameter: click.Parameter) -> str:
    """Return a value that an option or an argument accepts; "" if its type names none."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        if kind.min is None:
            return str(kind.max)
        return str(kind.min + 1 if kind.min_open else kind.min)
    return "1" if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)) else ""


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
        low = "" if kind.min is None else f" {'above' if kind.min_open else 'of at least'} {kind.min}"
        high = "" if kind.max is None else f" of at most {kind.max}"
        return f"one number{low}{' and' if low and high else ''}{high}"
    return f"one {kind.name}"
