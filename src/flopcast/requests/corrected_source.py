"""The source of a job after the fixes of its faults, which may hide faults of the described job.

Answers: which job does a file or a command describe after every fault that its reader found is corrected?
Elsewhere: reading files (sources.py), fixes of faults of a job (accepted_fixes.py).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from flopcast.errors import MEANT, Problem, SpecError, numbered, problems_of
from flopcast.files.named_files import read_file
from flopcast.files.yaml_text import Path as Place
from flopcast.fixes import in_words, only_value, set_to, with_text
from flopcast.records import replace
from flopcast.requests.graph_models import is_graph
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.sources import COMMAND, read_source, reader_in, source_of
from flopcast.requests.words import is_command

OTHER_SWITCH = {"write true": "write false", "write false": "write true",
                "write True": "write False", "write False": "write True"}  # fmt: skip
BROKEN = "text"  # the field of the error of a file that cannot be read, such as after a wrong correction
EXAMPLE = re.compile(r"choose one of these values, such as (\S+)")
GUESSED = ("the value is not a whole number", "the value is out of range")  # faults whose fix is a guess
MOST_CAUSES = 16  # of which the effect on other faults is tried
MOST_ROUNDS = 4  # of corrections, each of which may reveal further faults
WRITTEN = re.compile(
    r"(?:write|set \S+ to|choose one of these values, such as) (?:--?[\w-]+ |[\w.-]+: )?([^\s,]+)"
    r"(?= in line |$|, or )"
)
IN_PLACE = re.compile(r"write (.+?) in place of (.+?)(?: in line \d+.*)?")
OUTSIDE = re.compile(r"add --(env|arg) (\w+)=(\d+), with its value")  # for a script that does not set it
ADDED = re.compile(r"add (--[a-z][\w-]*(?: [\w.-]+)*)(?:, or write .*)?")  # flags of a script
AS_STATED = "as the file states"  # ends the fix of degrees that contradict the number of devices
FROM_KEY = re.compile(r" \(from ([^ )]+)\) is not allowed")
REMOVED = re.compile(r"remove (\S+)(?: or \S+)?")


def source_and_faults(request: JobRequest) -> tuple[JobSource, tuple[Problem, ...]]:
    """Return the content of the files of a request, and their faults if the fixes correct the files.

    Raises
    ------
    SpecError
        The fixes do not correct the files. The error lists the faults and those that the fixes reveal.
    """
    try:
        return read_source(request), ()
    except SpecError as error:
        problems = error.problems
    if len(request.files) != 1 or is_graph(request.files[0]):
        raise SpecError(problems)
    (word,) = request.files
    name, folder = (COMMAND, Path()) if is_command(word) else (word, Path(word).parent)
    try:
        text = word if name == COMMAND else read_file(Path(word)).decode()
    except (SpecError, UnicodeDecodeError):
        raise SpecError(problems) from None

    def source(changed: str) -> JobSource:
        return source_of(changed.encode(), name, request, reader_in(folder))

    @cache  # the faults are compared before and after they are completed
    def wrong_in(changed: str) -> frozenset[str]:
        return frozenset(each.field for each in problems_of(partial(source, changed)))

    whole = text
    new = problems = _causes(problems, whole, wrong_in)
    for _ in range(MOST_ROUNDS):
        before, text = text, _corrected(text, new)
        if text == before:
            break
        try:
            return source(text), _causes(problems, whole, wrong_in)
        except SpecError as error:
            if BROKEN in {each.field for each in error.problems}:
                break
            known = {(each.field, each.because) for each in problems}
            new = tuple(each for each in error.problems if (each.field, each.because) not in known)
            guesses = {_correction(each)[1] for each in problems if each.fix.startswith(MEANT)}
            new = tuple(each for each in new if each.field.rpartition(".")[2] not in guesses)
            first = {(each.field, _correction(each)[1].lower()): each for each in problems}
            for second in new:
                if one := first.get((second.field, str(second.value).lower())):
                    problems = tuple(
                        _refused_twice(one, second) if each is one else each for each in problems
                    )
                else:
                    problems = (*problems, second)
    raise SpecError(_causes(problems, whole, wrong_in))


def _causes(
    problems: Sequence[Problem], text: str, wrong_in: Callable[[str], frozenset[str]]
) -> tuple[Problem, ...]:
    """Return the faults of a text without those that the fix of another one removes, too.

    A value without a meaning gets the allowed value with which the file has fewer faults. `wrong_in`
    returns the wrong fields of a text.
    """
    left, known = list(problems), {each.field for each in problems}
    seen = wrong_in(text) if len(left) > 1 else frozenset[str]()
    for problem in problems[:MOST_CAUSES]:
        before = seen  # the faults that the next correction may remove
        for changed in (problem, _with_other_value(problem)):
            corrected = _corrected(text, [changed])
            if len(left) < 2 or problem not in left or corrected == text:
                break
            after = wrong_in(corrected)
            if problem.field in after or not after <= known:
                break  # a wrong correction, or one that hides other faults
            gone = [each for each in left if each.field in before - after and each is not problem]
            if gone:
                left = [changed if each is problem else each for each in left if each not in gone]
                break
            before = after
    return tuple(left)


def _with_other_value(problem: Problem) -> Problem:
    """Return the fault of a word that means no allowed value; its fix states another one of these."""
    fix = OTHER_SWITCH.get(problem.fix, problem.fix)
    if (example := EXAMPLE.fullmatch(fix)) and example[1] in (words := problem.allowed.split(", ")):
        fix = f"write {next((word for word in words if word != example[1]), example[1])}"
    return replace(problem, fix=fix)


def _refused_twice(problem: Problem, second: Problem) -> Problem:
    """Return the fault of a value whose correction `second` refuses, with the fix of both."""
    wrong, right = str(problem.value), str(second.value)
    fix = with_text(second.fix, second.fix.replace(f"in place of {right}", f"in place of {wrong}"))
    because = f"{problem.because}; {right} is not allowed either, because {second.because}"
    return replace(problem, allowed=second.allowed, because=because, fix=fix)


def without_examples(faults: Sequence[Problem], misread: Sequence[Problem]) -> Iterator[Problem]:
    """Yield the faults of a job, without conditions on example values that stand for values of its file."""
    fixes = [each for each in misread if getattr(each.fix, "is_example", False)]
    values = "|".join(
        re.escape(in_words(value)) for each in fixes for edit in each.edits[:1] for value in edit.values()
    )
    for fault in faults:
        limit = rf"(?:= |\(|divisor of )({values})\b"
        kept = [each for each in fault.conditions if not (values and re.search(limit, each[0]))]
        if kept:
            allowed, because = (numbered(texts) for texts in zip(*kept, strict=True))
            yield replace(fault, allowed=allowed, because=because) if values else fault


def with_later_fixes(
    problems: Sequence[Problem], faults: Sequence[Problem], keys: Mapping[Place, str]
) -> list[Problem]:
    """Return the faults of a file, and those of its job that do not concern a corrected value of the file.

    A value whose correction the job refuses has one fault, whose fix states a value that the job accepts.
    `keys` are the keys of the file by their fields of the job.
    """
    joined, changed = {each.field: each for each in problems}, dict[str, Problem]()
    guessed = [each.field for each in problems if each.because in GUESSED and not each.edits]
    names = "|".join(re.escape(str(path[-1])) for path, key in keys.items() if key in guessed)
    left = [
        each
        for each in faults
        if not (names and re.search(rf"\b({names})\b", f"{each.allowed} {each.because}"))
        or ((found := FROM_KEY.search(each.fault)) and found[1] in joined)
    ]
    for second in [each for each in left if each.edits]:
        key = FROM_KEY.search(second.fault)
        first, right = joined.get(key[1]) if key else None, only_value(set_to(*second.edits))
        before = _correction(first)[1] if first else ""
        if first and key and before and right:
            because = f"{first.because}; {before} is not allowed either, because {second.because}"
            fix = first.fix.replace(before, right, 1)
            changed[key[1]] = joined[key[1]] = replace(
                first, allowed=second.allowed, because=because, fix=fix
            )
            left.remove(second)
    return [*(changed.get(each.field, each) for each in problems), *left]


def with_examples(request: JobRequest, problems: Sequence[Problem], times: int) -> JobRequest:
    """Return a request with the values that its script lacks.

    Numbers are those of the example times a factor.
    """
    values: dict[str, list[str]] = {"env": [*request.env], "arg": [*request.arg]}
    for option, name, number in (found for each in problems for found in OUTSIDE.findall(each.fix)):
        if not any(given.startswith(f"{name}=") for given in values[option]):  # else the fix has no effect
            values[option].append(f"{name}={int(number) * times}")
    return replace(request, env=tuple(values["env"]), arg=tuple(values["arg"]))


def _corrected(text: str, problems: Sequence[Problem]) -> str:
    """Return a text after the fixes of problems, each in the line of its problem."""
    lines = text.split("\n")
    for problem in problems:
        number = problem.where.rpartition(":")[2]
        at = int(number) - 1 if number.isdecimal() else -1
        places = [at] if 0 <= at < len(lines) else range(len(lines))
        if (added := ADDED.fullmatch(problem.fix)) and 0 <= at < len(lines):
            lines[at] = re.sub(r"\s*\\?$", lambda end: f" {added[1]}{end[0]}", lines[at], count=1)
        wrong, right = _correction(problem)
        for place in places if wrong else ():
            lines[place] = _replaced(lines[place], problem.field, wrong, right)
    return "\n".join(lines)


def _replaced(line: str, field: str, wrong: str, right: str) -> str:
    """Return a line with another value, preferably that of the field of a problem.

    >>> _replaced("--micro 8 --tp 8", "--tp", "8", "4"), _replaced("--tp 3 --bf16", "--bf16", "--bf16", "")
    ('--micro 8 --tp 4', '--tp 3 ')
    """
    key = re.escape(field.rpartition(".")[2])
    value = re.escape(wrong)  # as a whole word
    value = rf"(?<![\w-]){value}" if wrong[:1].isalnum() or wrong[:1] == "-" else value
    value = rf"{value}(?![\w-])" if wrong[-1:].isalnum() else value
    replaces = right.isdecimal() or right.lower() in ("true", "false") or right[:1] == '"'
    value = rf'"{value}"|{value}' if replaces and wrong[:1] != '"' else value  # the quotes as well
    section = re.search(rf"(?<![\w-]){re.escape(field.rpartition('.')[0] or '$')}[\"']?: *{{", line)
    if section:
        start = section.end()
        return line[:start] + _replaced(line[start:], key, wrong, right)
    named, found = re.subn(
        rf"((?<![\w-]){key}[\"':= ]+?)(?:{value})", lambda match: match[1] + right, line, count=1
    )
    removed = rf"{value}(?:[\"']?: *[^,}}\n]*)?,? ?"  # with the value of a key
    return named if found else re.sub(value if right else removed, lambda _: right, line)


def _correction(problem: Problem) -> tuple[str, str]:
    """Return the wrong text of a problem and the right one; ("", "") if its fix states no single text."""
    wrong = problem.field if problem.fault else str(problem.value)
    if meant := re.match(rf"{MEANT}([^ ,?]+)\?(?= Otherwise|$)", problem.fix):
        same = wrong.rpartition(".")[0] == meant[1].rpartition(".")[0]  # names of one section
        return (wrong.rpartition(".")[2], meant[1].rpartition(".")[2]) if same else (wrong, meant[1])
    if swapped := IN_PLACE.fullmatch(problem.fix):
        return swapped[2], swapped[1]
    if plain := re.fullmatch(r"write (\S+) without quotes", problem.fix):
        return f'"{plain[1]}"', plain[1]
    edit = problem.edits[0] if problem.edits else {}
    own = ("", problem.field, problem.field.rpartition(".")[2])
    named = re.match(r"set (\S+) to", problem.fix)
    if not problem.fault and named and (named[1] not in own or problem.fix.endswith(AS_STATED)):
        wrong = ""  # the fix changes another field, or either side of a contradiction
    elif len(edit) == 1 and " " not in (right := in_words(*edit.values())):
        return getattr(problem.fix, "part", "") or wrong, right
    if removed := REMOVED.fullmatch(problem.fix):
        return removed[1], ""
    written = WRITTEN.match(problem.fix)
    return (wrong, written[1]) if wrong and written and not problem.fault else ("", "")
