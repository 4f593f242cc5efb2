"""All deliberate errors of flopcast, and the text of an error in the input.

FlopcastError            catch this to catch them all
├── SpecError            the input is wrong: holds every Problem found, not just the first
├── InfeasibleError      the input is right, but no plan satisfies it
└── InternalError        a broken invariant of ours: the bug is in flopcast
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Protocol, TypeVar

from flopcast.fixes import Edit, Fix, edits_of, in_place
from flopcast.records import Record, replace

MISSING, MEANT = "is missing", "did you mean "
SCRIPT = re.compile(r"\.(?:sh|bash|slurm|sbatch|job):\d+$")  # the place of a value in a script
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
NUMBER = re.compile(r"(?:^|; )\(\d\) ")  # before each condition of an error that joins several


class HasPlace(Protocol):
    """An object with a place in a file, such as "job.yaml:3"."""

    @property
    def where(self) -> str:
        """Return the place."""


Placed = TypeVar("Placed", bound=HasPlace)


class Problem(Record, kw_only=False):
    """One error in the input, with everything that its reader needs to fix it.

    Examples
    --------
    >>> print(Problem(field="plan.tensor_parallel", value=6, allowed="a divisor of heads (16)",
    ...               because="ranks hold whole heads", fix="set tensor_parallel to 4"))
    plan.tensor_parallel = 6 is not allowed
      allowed: a divisor of heads (16)
      because: ranks hold whole heads
      fix:     set tensor_parallel to 4
    """

    field: str  # as the user writes it: "plan.tensor_parallel"
    value: object
    allowed: str  # the values that would pass, spelt out
    because: str
    fix: str  # one concrete edit
    where: str = ""  # "job.yaml:12" where the fault has a line
    fault: str = ""  # what is wrong, where that is not the value: "is missing"

    @property
    def message(self) -> str:
        """Return the error in one line: "plan.tensor_parallel = 6 is not allowed"."""
        return f"{self.field} {self.fault or f'= {shown(self.value)} is not allowed'}"

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Return the edits that the fix consists of; () if the fix does not set single values."""
        return edits_of(self.fix)

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """Return each condition as a pair: what is allowed, and why.

        >>> Problem("plan.tp", 3, "(1) a divisor of 8; (2) an even number", "(1) x; (2) y", "").conditions
        (('a divisor of 8', 'x'), ('an even number', 'y'))
        """
        allowed, because = (NUMBER.split(text)[1:] for text in (self.allowed, self.because))
        if not allowed or len(allowed) != len(because):
            return ((self.allowed, self.because),)
        return tuple(zip(allowed, because, strict=True))

    def __str__(self) -> str:
        """Return short lines; the first names place, field and value, and the last is the fix."""
        place = f"{self.where}: " if self.where else ""
        reasons = "".join(
            f"\n  allowed: {allowed}\n  because: {because}" for allowed, because in self.conditions
        )
        return f"{place}{self.message}{reasons}\n  fix:     {self.fix}"


def shown(value: object, limit: int = 80) -> str:
    """Return the value as Python writes it, but true, false and null as files write them.

    The middle of a long value is omitted, because paths end in the name of a file.
    """
    text = repr(value)
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= limit else f"{text[: limit // 2 - 1]}…{text[-limit // 2 :]}"


class FlopcastError(Exception):
    """Base class of all errors that flopcast raises on purpose."""


class SpecError(FlopcastError, ValueError):
    """The input is wrong. `problems` lists all errors of the input."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the faults; InternalError if there is none."""
        super().__init__()
        self._found: tuple[Problem, ...] = tuple(problems)
        if not self._found:
            raise InternalError("an error in the input was raised without saying what is wrong")

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Return all errors, each once and with the best fix; trial jobs raise errors that nobody reads."""
        repaired = (_with_variable(_with_meant(problem)) for problem in self._found)
        found = in_order_of_lines(_each_cause(repaired))
        renamed = {problem.fix[len(MEANT) : -1] for problem in found if problem.fix.startswith(MEANT)}
        return tuple(
            each
            for each in found
            if not (each.fault == MISSING and {each.field, each.field.partition(".")[0]} & renamed)
            if each.fix.removeprefix("add ") not in renamed
            if not (each.fault == MISSING and _replaced(each, found))
        )

    def __str__(self) -> str:
        """Return the errors one under the other."""
        return "\n".join(str(problem) for problem in self.problems)

    def __reduce__(self) -> tuple[type["SpecError"], tuple[tuple[Problem, ...]]]:
        """Return how to rebuild the error, so that copies and other processes print the same message."""
        return SpecError, (self.problems,)


def in_order_of_lines(found: Sequence[Placed]) -> list[Placed]:
    """Return errors, or rows with errors, so that those of one file are in the order of its lines.

    Errors without a line keep their positions, as do those of other files.

    >>> places = ("a.yaml:3", "--gpus", "b.yaml:1", "a.yaml:2")
    >>> [each.where for each in in_order_of_lines([Problem("x", 1, "", "", "", where) for where in places])]
    ['a.yaml:2', '--gpus', 'b.yaml:1', 'a.yaml:3']
    """
    places = [each.where.rpartition(":") for each in found]
    ordered = list(found)
    for file in {file for file, _, line in places if file and line.isdecimal()}:
        slots = [at for at, place in enumerate(places) if place[0] == file and place[2].isdecimal()]
        by_line = sorted(slots, key=lambda at: int(places[at][2]))
        for slot, at in zip(slots, by_line, strict=True):
            ordered[slot] = found[at]
    return ordered


def _replaced(missing: Problem, problems: Sequence[Problem]) -> bool:
    """Return whether the fix of another problem beside it writes a missing field."""
    beside, _, name = missing.field.rpartition(".")
    return any(
        each.field.rpartition(".")[0] == beside and each.fix.startswith(f"write {name} in place of ")
        for each in problems
    )


def _with_variable(problem: Problem) -> Problem:
    """Return the problem of a value that contains a variable of the shell with this as its reason."""
    variable = VARIABLE.search(problem.value) if isinstance(problem.value, str) else None
    if variable is None or problem.fault or "variable" in f"{problem.because} {problem.fix}":
        return problem
    because = f"flopcast does not replace the variable {variable[0]}"
    name = variable[1] or variable[2]
    fix = f"write the value of {name} in place of {variable[0]}"
    if SCRIPT.search(problem.where):
        because = f"the script does not set the variable {name}"
        fix = f"set {name} in the script, or add --env {name}=VALUE with its value"
    return replace(problem, because=because, fix=fix)


def _with_meant(problem: Problem) -> Problem:
    """Return the problem with the value that was certainly meant as its fix, if the fix names another."""
    from flopcast.slips import meant
    from flopcast.units import thousand_of

    thousand = thousand_of(f"{problem.field} {problem.allowed}")
    sure = "" if problem.fault else meant(problem.value, problem.allowed, problem.fix, thousand)
    right = "" if problem.fault else sure or _unquoted(problem)
    named = re.search(rf"(?<![\w.-]){re.escape(right)}(?![\w:-]|\.\d)", problem.fix)
    if not right or (named and "such as" not in problem.fix):
        return problem
    wrong = problem.value if isinstance(problem.value, str) else shown(problem.value).removesuffix(".0")
    if wrong == right and "--" in (problem.field[:2], problem.where[:2]):
        return problem  # the shell has removed the quotes of options
    quotes = " without quotes" if isinstance(problem.value, str) else ""
    fix = Fix(f"write {right}{quotes}", ({"": right},)) if wrong == right else in_place(right, wrong)
    return replace(problem, fix=fix)


def _unquoted(problem: Problem) -> str:
    """Return a value without the quotation mark that only one of its ends has; "" if it has none."""
    text = problem.value if isinstance(problem.value, str) and '"' not in problem.allowed else ""
    plain = text.strip("\"'")
    is_half = len(text) - len(plain) == 1 and not re.search("[\"']", plain) and "'" not in problem.allowed
    return plain if is_half else ""


def _each_cause(problems: Iterable[Problem]) -> list[Problem]:
    """Return each problem once; those with the same value and the same fix become one."""
    causes: dict[object, dict[tuple[str, str], Problem]] = {}
    for each in problems:
        cause = (each.where, each.field, str(each.value), each.fix, each.fault)
        causes.setdefault(cause, {}).update(dict.fromkeys(each.conditions, each))
    return [
        replace(next(iter(same.values())), allowed=numbered(allowed), because=numbered(because))
        for same in causes.values()
        for allowed, because in [zip(*same, strict=True)]
    ]


def numbered(texts: Sequence[str]) -> str:
    """Return texts in one line, each with its number if there are several."""
    if len(texts) == 1:
        return texts[0]
    return "; ".join(f"({number}) {text}" for number, text in enumerate(texts, start=1))


def spec_error(
    field: str, value: object, allowed: str, because: str, fix: str, where: str = "", fault: str = ""
) -> SpecError:
    """Return the error of a single problem, which has the given fields."""
    return SpecError([Problem(field, value, allowed, because, fix, where, fault)])


@contextmanager
def collected(problems: list[Problem]) -> Iterator[None]:
    """Add the faults of a block to earlier faults, without repetition.

    The code after the block always runs.
    """
    try:
        yield
    except SpecError as error:
        problems.extend(problem for problem in error.problems if problem not in problems)


@contextmanager
def told_as(told: Callable[[Problem], Problem]) -> Iterator[None]:
    """Raise the faults of a block after `told` has rewritten them, for example with names of arguments."""
    try:
        yield
    except SpecError as error:
        raise SpecError(map(told, error.problems)) from None


class InfeasibleError(FlopcastError):
    """The input is valid, but no plan is feasible. The message names the closest plan.

    `changes` lists edits of the input that make a plan feasible, as text and as data.
    """

    def __init__(self, text: str, changes: Sequence[Fix] = ()) -> None:
        """Keep the message and the changes."""
        super().__init__(text, tuple(changes))
        self.changes: tuple[Fix, ...] = tuple(changes)

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])


def problems_of(check: Callable[[], object]) -> list[Problem]:
    """Return the errors of the input that a check raises. InfeasibleError is not one of them."""
    found: list[Problem] = []
    with collected(found), suppress(InfeasibleError):
        check()
    return found


def _is_same(one: Problem, other: Problem) -> bool:
    """Return whether two errors refuse the same text beginning with a digit, or the same misspelt name."""
    text = one.value if isinstance(one.value, str) else ""
    is_misspelt = one.fix == other.fix and one.fix.startswith(MEANT)
    same = (one.field, one.value, one.where) == (other.field, other.value, other.where)
    return same and (text[:1].isdigit() or (text != "" and is_misspelt))


def common_problems(each: Sequence[Sequence[Problem]]) -> Iterator[Problem]:
    """Yield the errors that all lists contain, with the conditions that all of them state.

    If every list refuses the same text that begins with a digit ("64k" for a number), or proposes the same
    fix for a misspelt name, the first list's error is yielded, even if the lists give different reasons.
    """
    for problem in each[0] if each else ():
        same = [[one for one in others if one.message == problem.message] for others in each]
        if all(any(_is_same(one, problem) for one in others) for others in each):
            yield problem
            continue
        common = [
            condition
            for condition in problem.conditions
            if all(condition in one[0].conditions for one in same if one)
        ]
        if all(same) and common:
            allowed, because = (numbered(texts) for texts in zip(*common, strict=True))
            yield replace(problem, allowed=allowed, because=because)


class InternalError(FlopcastError):
    """A bug in flopcast. Please report it."""
