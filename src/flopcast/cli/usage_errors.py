"""A wrong option or argument, which click reports as an exception, as a problem.

Answers: which option or argument is wrong, which values are allowed, and which edit fixes it?
Elsewhere: all errors of a command line (every_error.py), errors as JSON (json_errors.py).
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import click

from flopcast.cli.file_types import RefusedValueError, name_of
from flopcast.cli.options_of_other_tools import COMMANDS_ELSEWHERE, ForeignOptionError
from flopcast.cli.repeated_options import of_list, wrong_use
from flopcast.errors import Problem
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.nearest_names import some_of
from flopcast.fixes import Fix, with_text
from flopcast.records import replace

NEAR_RATIO = 0.7  # of letters in common, below which an option is no suggestion
COMMAND = re.compile(r"^No such command '(.*)'\.")
OTHER = "the value does not have this form"
SUCH_AS = re.compile(r"such as (\S+)$")  # an example at the end of a help text
EXTRA = re.compile(r"unexpected extra arguments? \(([^)]*)\)")
VALUE = re.compile(r"^'(.*)' is not|^(\S+) is not in the range")  # in messages of click's types
PATH = re.compile(r"^\w+ '(.*)' (.*?)\.?$")  # in those about paths: "Directory 'out' is a file."


def nearest_option(name: str, context: click.Context) -> str:
    """Return the option of a command with the most similar name, or ""."""
    names = [each.lstrip("-") for each in sorted(options_of(context))]  # hyphens are no letters in common
    near = difflib.get_close_matches(name.lower().lstrip("-"), names, n=1, cutoff=NEAR_RATIO)
    return f"--{near[0]}" if near else ""


def usage_problem(error: click.ClickException) -> Problem:
    """Return a usage error of click as a problem: the option or argument, what is allowed, and the fix.

    Unknown options and commands get the nearest known name as their fix. Errors without a context are
    errors of the program as a whole.
    """
    context = getattr(error, "ctx", None)
    if isinstance(error, RefusedValueError):
        return error.problem
    if isinstance(error, click.BadOptionUsage) and not isinstance(error, click.NoSuchOption):
        return wrong_use(error)
    if context is None:
        fix = "write a command, such as flopcast predict llama-3-8b"
        return Problem("arguments", None, "flopcast COMMAND", error.message, fix, fault="are wrong")
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error, context)
    if (word := COMMAND.search(error.message)) and isinstance(context.command, click.Group):
        return _unknown_command(word[1], context, context.command)
    parameter = getattr(error, "param", None)
    return _wrong_value(error, parameter, context) if parameter else _extra_arguments(error, context)


def missing_command(context: click.Context, group: click.Group) -> Problem:
    """Return the fault of a group without one of its commands, such as `flopcast import`."""
    known, where = group.list_commands(context), context.command_path
    kind = "KIND" if where.endswith(" import") else "COMMAND"
    fix = f"add one of these words, such as {where} {known[0]}"
    return Problem(kind, None, ", ".join(known), f"{where} needs {kind}", fix, fault="is missing")


def _wrong_value(
    error: click.ClickException, parameter: click.Parameter, context: click.Context
) -> Problem:
    """Return the fault of the value of an option or an argument, or of a missing one."""
    name, allowed, usual = name_of(parameter), _allowed(parameter, context), _usual(parameter, context)
    if isinstance(error, click.MissingParameter):
        about = _first_sentence(parameter)
        told = f" ({about})" if about not in ("", allowed) else ""
        because = f"{context.command_path} needs {name}{told}"
        example = _with_value(name, usual or "".join(SUCH_AS.findall(about)[:1]))
        if isinstance(parameter.type, click.Path):
            kind = "folder" if "folder" in (about or allowed) else "file"
            usual = f"my_{name.lower() if '.' in name else kind}"
            if word := error.message:
                right = usual if Path(word).is_file() and "file" not in allowed else word
                fix = f"write {_with_value(name, right)} in place of {word}"
                return Problem(name, None, allowed, because, fix, fault="is missing")
            example = f"the path of a {_path_kind(parameter)}, such as {_with_value(name, usual).lower()}"
        elif isinstance(parameter, click.Argument) and usual:
            example = f"one of these words, such as {context.command_path} {usual}"
        return Problem(name, None, allowed, because, f"add {example}", fault="is missing")
    if path := PATH.match(error.message):
        kind, about = _path_kind(parameter), _first_sentence(parameter)
        allowed = f"a {about[0].lower()}{about[1:]}" if about.lower().startswith(kind) else f"a {kind}"
        return Problem(name, path[1], allowed, f"the path {path[2]}", f"choose the path of a {kind}")
    found = VALUE.match(error.message)
    value = next(filter(None, found.groups()), "") if found else None
    near = _nearest(value, parameter)
    right, start = near or usual, "write"
    if isinstance(parameter.type, click.Choice) and not near:
        start = "choose one of these values, such as"
    if name in EXAMPLES and usual == EXAMPLES[name]:
        several = re.fullmatch(r"(?!\d+$)(?:\w+=)?([1-9]\d*)(?:,\d+)*", str(value))
        right, start = several[1] if several else usual, "write a number such as"
    fix = Fix(f"{start} {_with_value(name, right)}", ({"": right},) if right else (), is_example=not near)
    fault = "" if found else f"is wrong: {error.message.rstrip('.')}"
    return of_list(name, str(value), allowed, context.command_path) or Problem(
        name, _plain(value), allowed, _because(parameter, value), fix, fault=fault
    )


def _unknown_option(error: click.NoSuchOption, context: click.Context) -> Problem:
    """Return the fault of an option that the command does not have."""
    name = error.option_name
    because, elsewhere = f"{context.command_path} has no such option", commands_with(name, context)
    own = options_of(context)
    near = next((each for other in elsewhere.values() for each in other if each in own), "")
    near = near or ("" if elsewhere else nearest_option(name, context))
    fix = f"did you mean {near}?" if near else f"remove {name}, with its value if it has one"
    if elsewhere and not near:
        because = f"{name} is an option of {', '.join(elsewhere)}, not of {context.command_path}"
        fix = f"remove {name}, or run {next(iter(elsewhere))}"
    if isinstance(error, ForeignOptionError):
        fix = error.fix
    return Problem(name, None, ", ".join(sorted(options_of(context))), because, fix, fault="is not known")


def commands_with(name: str, context: click.Context) -> dict[str, list[str]]:
    """Return the other commands that have an option, beginning with commands of the same group, and all
    names that the option has there.
    """
    found: dict[str, list[str]] = {}
    for each in (context, context.find_root()):
        group = each.command
        if isinstance(group, click.Group):
            commands = ((word, group.get_command(each, word)) for word in group.list_commands(each))
            found |= {
                f"{each.command_path} {word}": parameter.opts
                for word, command in commands
                if command and not isinstance(command, click.Group)
                for parameter in command.params
                if name in parameter.opts
            }
    return dict(islice(found.items(), 3))


def _extra_arguments(error: click.ClickException, context: click.Context) -> Problem:
    """Return the fault of arguments that the command does not take."""
    extra, taken = (EXTRA.search(error.message), " ".join(context.command.collect_usage_pieces(context)))
    if extra is None:
        fix = f"write {context.command_path} {taken}"
        return Problem("arguments", None, taken, error.message, fix, fault="are wrong")
    number = sum(isinstance(each, click.Argument) for each in context.command.params)
    takes = ("no arguments", "one argument")[number] if number < 2 else taken
    because = f"{context.command_path} takes {takes}"
    fault, allowed = f"{extra[1]!r} are not expected", f"{context.command_path} {taken}"
    options = options_of(context)
    fix = f"write --{extra[1]}" if f"--{extra[1].partition(' ')[0]}" in options else f"remove {extra[1]}"
    fix = f"write --runs {extra[1]}" if "--runs" in options and re.match(r"\S+\.csv$", extra[1]) else fix
    return Problem("arguments", extra[1], allowed, because, fix, fault=fault)


def _unknown_command(word: str, context: click.Context, group: click.Group) -> Problem:
    """Return the error of a word that is no command; the name of a file needs a command before it."""
    from flopcast.requests.words import is_model  # loads the catalogue, which only this error needs

    known, where = group.list_commands(context), context.command_path
    near = [each for each in COMMANDS_ELSEWHERE.get(word, "").split("; ") if each.split(" ")[0] in known]
    near = near or difflib.get_close_matches(word.lower(), known, n=1, cutoff=NEAR_RATIO)
    is_file = "." in word or "/" in word or ("predict" in known and is_model(word))
    suffixes = {"json": "hf", "toml": "torchtitan", "sh": "megatron", "yaml": "from-run", "yml": "from-run"}
    of_suffix = suffixes.get(word.rpartition(".")[2], "")
    command = near[0] if near else of_suffix if of_suffix in known else known[0]
    fix = f"choose one of these commands, such as {where} {command}"
    fix = f"write {where} {command}" if near else fix
    fix = f"write {command} before {word}" if is_file else fix
    because = f"{where} {'needs a command before the job' if is_file else 'has no command with this name'}"
    return Problem(word, None, ", ".join(known), because, fix, fault="is not a command")


def _with_value(name: str, value: str) -> str:
    """Return an option with a value, or an argument's value alone, as on a command line.

    >>> _with_value("--gpus", "8"), _with_value("--model", ""), _with_value("SHELL", "bash")
    ('--gpus 8', '--model VALUE', 'bash')
    """
    return f"{name} {value or 'VALUE'}" if name.startswith("-") else value or name


def _plain(value: str | None) -> object:
    """Return a number as a number, so that messages show it without quotes."""
    return int(float(value)) if value is not None and re.fullmatch(r"-?\d{1,15}(\.0)?", value) else value


def _nearest(value: str | None, parameter: click.Parameter) -> str:
    """Return the choice that is most like a value, or the bound of a range that it exceeds, or ""."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        from flopcast.files.other_forms import OTHER_VALUES  # only a wrong word needs it

        if (same := OTHER_VALUES.get(value or "")) in kind.choices:
            return str(same)
        begun = [str(each) for each in kind.choices if value and value.startswith(str(each))]
        near = difflib.get_close_matches(value or "", map(str, kind.choices), n=1)
        return next(iter((*begun, *near)), "")
    if isinstance(kind, (click.IntRange, click.FloatRange)) and kind.max is not None:
        number = re.fullmatch(r"\d+(\.\d*)?", value or "")
        return str(kind.max) if number and float(number[0]) >= kind.max else ""
    return ""


def _usual(parameter: click.Parameter, context: click.Context) -> str:
    """Return a value that an option or an argument accepts; "" if none is known."""
    kind = parameter.type
    numeric = isinstance(kind, (click.types.IntParamType, click.types.FloatParamType))
    if numeric and name_of(parameter) in EXAMPLES:
        return EXAMPLES[name_of(parameter)]
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        if kind.min is None:
            return str(kind.max)
        return str(kind.min + 1 if kind.min_open else kind.min)
    if numeric:
        return "1"
    return next(iter(_words(parameter, context)), "")


def _words(parameter: click.Parameter, context: click.Context) -> list[str]:
    """Return the words that an option or an argument accepts, as shells complete them."""
    if isinstance(parameter.type, click.Choice):
        return [str(choice) for choice in parameter.type.choices]
    return [item.value for item in parameter.shell_complete(context, "") if item.type == "plain"]


def options_of(context: click.Context) -> set[str]:
    """Return the long names of every option that a command has."""
    return {name for each in context.command.get_params(context) for name in each.opts if name[:2] == "--"}


def as_written(problems: Iterable[Problem], words: Sequence[str], group: click.Group) -> list[Problem]:
    """Return problems with the name that a command line has for an option with several names.

    `words` is the whole command line after the program's name, and `group` the program.
    """
    command: click.Command | None = group
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    names: dict[str, str] = {}
    for each in command.params if command else ():
        given = {word.partition("=")[0] for word in words}.intersection(each.opts)
        written = [name for name in given if name[:2] == "--"]
        names |= dict.fromkeys(each.opts, written[0]) if len(written) == 1 else {}

    def renamed(text: str) -> str:
        return re.sub(r"(?<![\w-])--[\w-]+", lambda found: names.get(found[0], found[0]), text)

    return [
        replace(
            each,
            **{name: renamed(getattr(each, name)) for name in ("field", "where", "because")},
            fix=with_text(each.fix, renamed(each.fix)),
        )
        for each in problems
    ]


def _allowed(parameter: click.Parameter, context: click.Context) -> str:
    """Return a description of the values that an option or an argument accepts."""
    kind = parameter.type
    if described := getattr(kind, "described", ""):
        return str(described)
    number = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        if kind.min is not None and kind.max is not None and not kind.min_open:
            return f"{number} from {kind.min} to {kind.max}"
        low = "" if kind.min is None else f" {'above' if kind.min_open else 'of at least'} {kind.min}"
        high = "" if kind.max is None else f"{' of' * (not low)} at most {kind.max}"
        return f"{number}{low}{' and' if low and high else ''}{high}"
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        return number
    return some_of(_words(parameter, context)) or (
        f"the path of a {_path_kind(parameter)}"
        if isinstance(kind, click.Path)
        else _first_sentence(parameter) or "a text"
    )


def _first_sentence(parameter: click.Parameter) -> str:
    """Return the first sentence of the help of an option, without its period; "" for an argument."""
    return (getattr(parameter, "help", None) or "").partition(". ")[0].rstrip(".")


def _path_kind(parameter: click.Parameter) -> str:
    """Return what the path of an option or an argument leads to: a file, a folder, or either."""
    kind = parameter.type
    kinds = {"file": getattr(kind, "file_okay", True), "folder": getattr(kind, "dir_okay", True)}
    return " or ".join(name for name, right in kinds.items() if right)


def _because(parameter: click.Parameter, value: str | None) -> str:
    """Return why a value is refused."""
    kind = parameter.type
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        try:
            number = float(value or "")
        except ValueError:
            return f"the value is not a {'whole ' * isinstance(kind, click.types.IntParamType)}number"
        low = getattr(kind, "min", None)
        if isinstance(kind, click.types.IntParamType) and not number.is_integer():
            return "the value is not a whole number"
        refused = f"values below {low}" if low is not None and number < low else "other values"
        return f"{refused} are not possible"
    return f"{value} is none of these values" if isinstance(kind, click.Choice) else OTHER
