"""Options that are given twice, without their value, with a list, or without the hyphens of their name.

Answers: which option of a command line is given twice, has no value or several, or lacks its hyphens?
Elsewhere: all other wrong options (usage_errors.py).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import click

from flopcast.cli.file_types import RefusedValueError
from flopcast.errors import Problem
from flopcast.files.inputs import is_missing

SEVERAL = {  # an option with one value → what compares several values
    "--batch": '--plan "gbs={value}" --objective tokens_per_s',
    "--gpus": "--gpus {value}",
    "--seq": "run flopcast sweep with a file that contains sequence_length: [{listed}]",
    "--lora": "run flopcast sweep with a file that contains lora: [{listed}]",
    "--qlora": "run flopcast sweep with a file that contains qlora: [{listed}]",
}
JOB_KEYS = (  # that begin a change of a job
    *("assumptions", "batch", "checkpoint", "cluster", "loader", "model", "plan", "run", "site", "stack"),
    *("engine", "traffic", "slo"),
)
STEP_KEYS = ("prompts", "samples")  # that begin a change of the file of a reinforcement learning step


class RepeatedOptionError(click.BadOptionUsage):
    """The error of an option that takes one value and was given several, of which only the last would
    count.
    """

    def __init__(self, name: str, context: click.Context, values: Sequence[str] = ()) -> None:
        """Keep the name of the option and its values."""
        self.values: tuple[str, ...] = tuple(values)
        super().__init__(name, f"{name} is given twice", context)


def check_option_syntax(group: click.Group, context: click.Context, words: list[str]) -> None:
    """Check that every option after a command has its hyphens and its value, and is given once.

    click reports the words that it cannot parse.

    Raises
    ------
    click.BadOptionUsage, ForeignOptionError, RepeatedOptionError
        The first such option.
    """
    command = group.get_command(context, words[0]) if words else None
    if command is None:
        return
    inner = click.Context(command, context, words[0], **command.context_settings)
    if slip := first_slip(words[1:], inner):
        raise slip[0]
    try:
        _, rest, order = command.make_parser(inner).parse_args(words[1:])
    except click.UsageError as error:
        error.ctx = inner
        raise
    for twice in repeated(order, inner, words):
        raise twice
    if isinstance(command, click.Group):
        check_option_syntax(command, inner, rest)


def first_slip(words: list[str], context: click.Context) -> tuple[click.UsageError, list[str]] | None:
    """Return the error of the first option without its hyphens or its value, or of a flag with a value.

    The second part of the result is the corrected command line. If the command has no such option, it is
    the unchanged command line. The result is None if there is no such option.
    """
    parameters = context.command.get_params(context)
    known = {name for each in parameters for name in each.opts}
    takes_changes = bool({"changes", "words"} & {each.name for each in parameters})
    keys = JOB_KEYS if all(map(is_missing, words)) else JOB_KEYS + STEP_KEYS
    flags = {name for each in parameters if getattr(each, "is_flag", False) for name in each.opts}
    for at, (before, word, after) in enumerate(zip(["", *words], words, [*words[1:], ""], strict=False)):
        bare, equals, value = word.partition("=")
        right = f"--{bare.lstrip('-')}"
        has_value = before[:1] == "-" and before not in flags and "=" not in before
        is_word = takes_changes and bare not in known and not has_value
        no_change = is_word and (bare not in keys if equals else after and is_missing(word))
        if right in known and bare not in known and (bare[:1] == "-" or no_change):
            from flopcast.cli.options_of_other_tools import ForeignOptionError

            compares = any(each.name == "words" for each in parameters)
            change = _of_second_job(bare, value, words) if compares else ""
            corrected = [*words[:at], change or f"{right}{equals}{value}", *words[at + 1 :]]
            fix = f"write {change} in place of {word}" if change else f"write {right} in place of {bare}"
            return ForeignOptionError(bare, fix, context), corrected
        if takes_changes and before in flags and word.isalpha() and _is_unlike_jobs(word):
            error = click.BadOptionUsage(before, f"{before} does not take a value", context)
            return error, [*words[:at], *words[at + 1 :]]
        if takes_changes and (problem := _with_unit_apart(*words[max(at - 2, 0) : at], word)):
            param = next(each for each in parameters if problem.field in each.opts)
            whole = [*words[: at - 1], f"{before} {word}", *words[at + 1 :]]
            return RefusedValueError(problem, context, param), whole
        if not no_change:
            continue
        from flopcast.cli.options_of_other_tools import ForeignOptionError, elsewhere_without_hyphens

        fix = elsewhere_without_hyphens(bare, value or after, known, words)
        if fix and not (equals and "--plan" in fix):  # the error of the change has a shorter fix
            return ForeignOptionError(bare, fix, context), words
    for missing in without_value(words, context):
        return missing, [word for word in words if word != missing.option_name]
    return None


def _of_second_job(name: str, value: str, words: Sequence[str]) -> str:
    """Return the change of the second of two compared jobs that has the meaning of an option, or "".

    >>> _of_second_job("gpus", "32", ["llama-3-8b"]), _of_second_job("seq", "4096", [])
    ('cluster=dgx-h100:4', 'batch.sequence_length=4096')
    """
    from flopcast.cli.options_of_other_tools import next_word
    from flopcast.library import catalog
    from flopcast.requests.missing_parts import USUAL

    cluster = (next_word(words, "--cluster") or USUAL["cluster"]).partition(":")[0]
    if name == "seq" and value:
        return f"batch.sequence_length={value}"
    known = catalog.known("clusters", cluster) if name == "gpus" and value.isdecimal() else None
    per_node = catalog.cluster(known).node.devices if known and all(map(is_missing, words)) else 0
    return f"cluster={known}:{int(value) // per_node}" if per_node and not int(value) % per_node else ""


def _with_unit_apart(*words: str) -> Problem | None:
    """Return the error of an option whose value and unit are separate words; None for other words.

    >>> print(_with_unit_apart("--price", "2", "USD/h").fix, _with_unit_apart("--batch", "2", "gpt"))
    write --price "2 USD/h" None
    """
    name, number, unit = words if len(words) == 3 else ("", "", "")
    if name[:2] != "--" or not re.fullmatch(r"[\d.,]*\d", number) or not re.fullmatch(r"[A-Za-z/]+", unit):
        return None
    from flopcast.meant_quantities import meant_quantity
    from flopcast.units import SUFFIXES

    text = f"{number} {unit}"
    if not (is_missing(unit) and text in [meant_quantity(text, units) for units in SUFFIXES.values()]):
        return None
    because, fix = "quotes join a number and its unit", f'write {name} "{number} {unit}"'
    return Problem(name, number, "a number and a unit in quotes", because, fix)


def _is_unlike_jobs(word: str) -> bool:
    """Return whether a word is neither a file nor like the name of a model."""
    from flopcast.library import catalog  # only words after flags need it

    return is_missing(word) and "did you mean" not in catalog.unknown_name("models", word).fix


def without_value(words: Sequence[str], context: click.Context) -> Iterator[click.BadOptionUsage]:
    """Yield an error for each option that is followed by another option instead of its value."""
    options = [each for each in context.command.get_params(context) if isinstance(each, click.Option)]
    known = {name for each in options for name in each.opts if name[:2] == "--"}
    valued = {name for each in options if not (each.is_flag or each.count) for name in each.opts}
    for word, following in pairwise(words):
        if word in valued and following.partition("=")[0] in known:
            yield click.BadOptionUsage(word, f"Option {word!r} requires an argument.", context)


def repeated(
    order: Sequence[click.Parameter], context: click.Context, words: Sequence[str]
) -> Iterator[RepeatedOptionError]:
    """Yield an error for each option that takes one value and occurs twice in a parsed command line."""
    for parameter in dict.fromkeys(order):
        single = isinstance(parameter, click.Option) and not (parameter.multiple or parameter.is_flag)
        if single and order.count(parameter) > 1:
            given = {word.partition("=")[0] for word in words}
            values = [after for word, after in pairwise(words) if word in parameter.opts]
            name = max(given.intersection(parameter.opts), key=len)
            yield RepeatedOptionError(name, context, values)


def of_list(name: str, value: str, allowed: str, command: str) -> Problem | None:
    """Return the error of a list of numbers that follows an option with one value; None otherwise."""
    from flopcast.meant_quantities import is_single_number

    if name not in SEVERAL or not re.fullmatch(r"\d+(,\d+)+", value) or is_single_number(value):
        return None
    first, second = value.split(",")[:2]
    listed = value.replace(",", ", ")
    words = SEVERAL[name].format(name=name, value=value, listed=listed, first=first, second=second)
    fix = f"write {words}" if command.endswith(" search") else f"run flopcast search with {words}"
    fix = words if words.startswith("run ") else fix
    because, fault = f"{command} takes one value of this option", f"= {value!r} is a list"
    return Problem(name, value, allowed, because, fix, fault=fault)


def wrong_use(error: click.BadOptionUsage) -> Problem:
    """Return the fault of an option that is given twice or without its value, or of a flag with a value."""
    name = error.option_name
    if isinstance(error, RepeatedOptionError):
        because, fix = "a command uses one value of this option", f"leave out all but one {name}"
        settings = [setting.partition("=")[0] for value in error.values for setting in value.split()]
        if name == "--plan" and len(error.values) > 1 and len(set(settings)) == len(settings):
            fix = f'write --plan "{" ".join(error.values)}"'
        return Problem(name, None, f"{name} once", because, fix, fault="is given twice")
    if "does not take a value" in error.message:
        because = f"{name} is a flag, and flags take no value"
        return Problem(name, None, f"{name} without a value", because, f"write {name}", fault="has a value")
    from flopcast.files.field_examples import EXAMPLES

    example = EXAMPLES.get(name) or EXAMPLES.get(name[2:])
    fix = f"add a value after {name}" + (f", such as {name} {example}" if example else "")
    return Problem(name, None, f"{name} VALUE", f"no value follows {name}", fix, fault="has no value")
