"""All errors of a command line with wrong options, of which click reports only the first.

Answers: which errors do the options have, and which does the job have once the options are corrected?
Elsewhere: the problem of one option (usage_errors.py), errors of a job whose options are right (requests/).
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from click.core import iter_params_for_processing

from flopcast.cli.file_types import name_of
from flopcast.cli.options_of_other_tools import (
    ForeignOptionError,
    devices_of_nodes,
    misspelt_elsewhere,
    next_word,
    same_here,
)
from flopcast.cli.repeated_options import first_slip, repeated
from flopcast.cli.usage_errors import commands_with, nearest_option, options_of, usage_problem
from flopcast.errors import MEANT, MISSING, Problem, SpecError, common_problems, shown
from flopcast.files.inputs import is_missing
from flopcast.fixes import in_words
from flopcast.records import replace

ADDED = re.compile(  # an option that a fix adds
    r'write (--[\w-]+)(?: (?!NAME)("[^"]*"|[^\s,]+))?(?=,|$| or | in place )'
)
WITH_HYPHENS = re.compile(r"^write (--[\w-]+) in place of ")  # an option that lacks its hyphens
NOT_GIVEN = getattr(click.core, "UNSET", None)  # the value of an option that is not given, since click 8.3
OTHER_SIZE = 64  # times an example value, for a second check: an error of both does not depend on it


def every_problem(error: click.ClickException, words: Sequence[str]) -> list[Problem]:
    """Return every error in a command line, of which click raises only the first.

    Each wrong option is corrected with its fix, so that the job can also be checked. `words` is the whole
    command line after the program's name.
    """
    context = getattr(error, "ctx", None)
    if context is None or isinstance(context.command, click.Group):
        return [usage_problem(error)]
    fresh = click.Context(context.command, context.parent, context.info_name)
    line = _Line(fresh, list(words[len(context.command_path.split()) - 1 :]))
    return _joined(line, line.problems_of_job()) if line.problems else [usage_problem(error)]


class _Line:
    """The words after a command, the problems of its options, and the words that correct them."""

    def __init__(self, context: click.Context, words: list[str]) -> None:
        """Find all problems, in the order in which click checks the words."""
        self.context, self.words = context, words
        self.problems: list[Problem] = []
        self.unknown: list[Problem] = []
        self.examples: dict[click.Parameter, int] = {}
        self.written: dict[str, Problem] = {}  # options that a fix writes, or settings of --plan
        for _ in words:
            if (slip := first_slip(self.words, context)) is None:
                break
            if slip[1] == self.words and isinstance(slip[0], click.NoSuchOption):
                self._tell_unknown(slip[0])
            else:
                problem = self._tell(slip[0])
                self.written |= dict.fromkeys(WITH_HYPHENS.findall(problem.fix), problem)
                self.words = slip[1]
        if "--gpus" in options_of(context):
            error, self.words = devices_of_nodes(self.words, context)
            if error:
                self._tell_unknown(error)
        while True:
            try:
                parsed = context.command.make_parser(context).parse_args(list(self.words))
                break
            except click.NoSuchOption as wrong:
                self._tell_unknown(self._elsewhere(wrong))
            except click.BadOptionUsage as wrong:
                self._tell(wrong)
                self.words = _without_option(self.words, wrong.option_name, context)
        self._check_values(*parsed)

    def _tell(self, error: click.ClickException) -> Problem:
        """Add the problem of an error, with the fix that its reader sees."""
        (problem,) = SpecError([usage_problem(error)]).problems
        self.problems.append(problem)
        return problem

    def _tell_unknown(self, error: click.NoSuchOption) -> None:
        """Add the problem of an unknown option, and replace the option by those of its fix."""
        problem, name = self._tell(error), error.option_name
        self.unknown.append(problem)
        value = next_word(self.words, name)
        left = _without_option(self.words, name, self.context)
        if problem.fix.startswith(MEANT):
            right = problem.fix[len(MEANT) : -1]
            self.words = left if right in left else [right if word == name else word for word in self.words]
            self.words = [re.sub(rf"^{re.escape(name)}=", f"{right}=", word) for word in self.words]
            return
        added = ADDED.match(problem.fix)
        option, text = added.groups() if added else ("", "")
        right = " ".join(shlex.split(text or ""))
        if (
            value in left
            and len(left) == len(self.words) - 1
            and (value in right or _is_unlike_jobs(value))
        ):
            left.remove(value)  # it belongs to the unknown option
        words = right.split() if option == "--plan" else [option]
        self.written |= dict.fromkeys(filter(None, words), problem)
        if option == "--plan" and (plan := next_word(left, option)) is not None:
            left[left.index(plan) if plan in left else left.index(f"{option}={plan}")] += f" {right}"
        elif option and option not in left:
            left += [option, right] if right else [option]
        self.words = left

    def _elsewhere(self, error: click.NoSuchOption) -> click.NoSuchOption:
        """Return the error of an unknown option with what it means in other tools, if that is known."""
        known, name, context = options_of(self.context), error.option_name, self.context
        value = next_word(self.words, name)
        if single := next((word for word in self.words if f"-{word}" in known), ""):
            return ForeignOptionError(single, f"write -{single} in place of {single}", context)
        names = {*known, context.command.name or ""}
        fix = same_here(name, value, names, self.words)
        is_ours = nearest_option(name, context) or commands_with(name, context)
        if fix := fix or ("" if is_ours else misspelt_elsewhere(name, value, names)):
            return ForeignOptionError(name, fix, context)
        return error

    def _check_values(
        self, given: Mapping[str, object], extra: list[str], order: list[click.Parameter]
    ) -> None:
        """Add the problems of values, and keep the values of all parameters, corrected where possible."""
        context, command = self.context, self.context.command
        twice = list(repeated(order, context, self.words))
        for error in twice:
            self._tell(error)
        known = {error.option_name for error in twice}  # their values are not reported as well
        meant = {nearest_option(each.field, context) for each in self.unknown}
        meant |= {word for each in self.unknown for word in each.fix.split()}
        parameters = [each for each in command.get_params(context) if not each.is_eager]
        for parameter in iter_params_for_processing(order, parameters):
            try:
                _, extra = parameter.handle_parse_result(context, given, extra)
            except click.MissingParameter as error:
                is_path = isinstance(parameter.type, click.Path)
                word = extra.pop(0) if extra and not self.unknown and is_path else ""
                if not meant.intersection(parameter.opts):
                    self._tell(click.MissingParameter(word, context, param=parameter) if word else error)
            except click.UsageError as error:
                if name_of(parameter) not in known:
                    self._correct(parameter, self._tell(error))
                    for other in self._of_other_values(parameter, given, error):
                        self._tell(other)
        if extra and not self.unknown:  # a word after an unknown option may be its value
            self._tell(click.UsageError(f"Got unexpected extra arguments ({' '.join(extra)})", context))

    def _of_other_values(
        self, parameter: click.Parameter, given: Mapping[str, Any], error: click.UsageError
    ) -> Iterator[click.UsageError]:
        """Yield the errors of the other values of an option that may stand several times."""
        for value in given.get(str(parameter.name), ()) if parameter.multiple else ():
            try:
                parameter.type_cast_value(self.context, (value,))
            except click.UsageError as other:
                if other.message != error.message:
                    other.ctx = self.context
                    yield other

    def _correct(self, parameter: click.Parameter, problem: Problem) -> None:
        """Give a parameter the value that the fix of its problem states."""
        edit = problem.edits[0] if problem.edits else {}
        right = in_words(*edit.values()) if len(edit) == 1 else None
        value = (
            right if parameter.nargs == 1 and not parameter.multiple else () if right is None else (right,)
        )
        self.context.params[str(parameter.name)] = parameter.process_value(self.context, value)
        if getattr(problem.fix, "is_example", False) and str(right).isdecimal():
            self.examples[parameter] = int(str(right))
        self.written[name_of(parameter)] = problem

    def problems_of_job(self) -> list[Problem]:
        """Return the errors of the job with corrected options, except errors that example values cause."""
        check = getattr(self.context.command.callback, "further_problems", None)
        if check is None:
            return []
        named: dict[str, Any] = {
            str(each.name): () if each.nargs == -1 or each.multiple else None
            for each in self.context.command.get_params(self.context)
            if each.expose_value
        }
        given = {name: value for name, value in self.context.params.items() if value is not NOT_GIVEN}
        named |= {name: value for name, value in given.items() if name in named}
        found = [check(named)]
        if found[0] and self.examples:
            others = {
                str(each.name): each.process_value(self.context, str(OTHER_SIZE * value))
                for each, value in self.examples.items()
            }
            found.append(check(named | others))
        in_fixes = {word for each in self.unknown for word in each.fix.split()}
        return [
            each
            for each in common_problems(found)
            if each.fault != MISSING
            or not (each.field in in_fixes or any(name in each.allowed for name in self.written))
        ]  # an option that is wrong may take the place of one that is missing


def _is_unlike_jobs(word: str) -> bool:
    """Return whether a word is no file, no model and no change of a job."""
    from flopcast.requests.words import is_model  # loads the catalogue, which only this error needs

    return "=" not in word and is_missing(word) and not is_model(word)


def _joined(line: _Line, of_job: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a command line and of its job.

    If the fix of an option causes a problem of the job, both become one problem with a fix of both.
    """
    from flopcast.library.edits import long_names  # imports the job, which not every error needs
    from flopcast.requests.accepted_fixes import also_refused
    from flopcast.spec.plan import Plan

    names = long_names(Plan)
    pairs = ((word.partition("=")[0], word) for word in line.written if "=" in word)
    settings = {names.get(key, key): word for key, word in pairs}
    fixed, left = {id(each): each for each in line.problems}, list[Problem]()
    for second in of_job:
        own_name = second.field.rpartition(".")[2]
        first_edit = second.edits[0] if second.edits else {}
        edit = {name.removeprefix("plan.") or own_name: value for name, value in first_edit.items()}
        first = replace(second, because=second.conditions[0][1])
        refused = also_refused(shown(second.value), first)
        if second.where == "--plan" and edit and edit.keys() <= settings.keys():
            for name, value in edit.items():
                key, own = settings[name].partition("=")[0], id(line.written[settings[name]])
                fix = fixed[own].fix.replace(settings[name], f"{key}={in_words(value)}")
                fixed[own] = replace(fixed[own], because=f"{fixed[own].because}; {refused}", fix=fix)
        elif (second.where or second.field) in line.written:
            own = id(line.written[second.where or second.field])
            because = f"{fixed[own].because}; {refused}"
            fix = second.fix.replace(f"remove {second.where or second.field}", f"remove {fixed[own].field}")
            fixed[own] = replace(fixed[own], allowed=second.allowed, because=because, fix=fix)
        else:
            left.append(second)
    return [*fixed.values(), *left]


def _without_option(words: list[str], name: str, context: click.Context) -> list[str]:
    """Return a command line without a wrong option, and without its value if it has one.

    The next word is the value if the most similar option of the command takes one.
    """
    places = [i for i, word in enumerate(words) if word.startswith(f"{name}=")]
    places = places or [i for i, word in enumerate(words) if word == name]
    if not places:  # one of several letters after a single hyphen
        return [word for word in words if not (word[:1] == "-" != word[1:2] and name[1:] in word)]
    at, similar = places[-1], nearest_option(name, context)
    takes_value = any(
        isinstance(each, click.Option) and similar in each.opts and not each.is_flag
        for each in context.command.get_params(context)
    )
    has_value = takes_value and words[at] == name and not "".join(words[at + 1 : at + 2]).startswith("-")
    return [*words[:at], *words[at + 1 + has_value :]]
