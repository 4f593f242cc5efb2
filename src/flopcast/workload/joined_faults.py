"""Several broken rules as one error.

Answers: how does one error state the allowed values and the reasons of several broken rules?
Elsewhere: which rules have a common cause (suggested_fixes.py), the rules (spec/rules*.py).
"""

from collections.abc import Iterator, Sequence

from flopcast.errors import Problem, numbered
from flopcast.records import replace

MOST_REASONS = 4  # that one error gives


def joined(problems: Sequence[Problem]) -> Problem:
    """Return several faults as one: the first fault, with the numbered allowed values and reasons of all.

    Allowed values of another field than that of the first fault follow the name and value of their field.
    """
    first = problems[0]
    pairs = dict.fromkeys(
        (
            one.allowed
            if one.field in (first.field, "plan")
            else f"for {one.field} (now {one.value}): {one.allowed}",
            one.because,
        )
        for one in problems[:MOST_REASONS]
    )
    allowed, because = (numbered(texts) for texts in zip(*pairs, strict=True))
    return replace(first, allowed=allowed, because=because)


def by_field(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Yield one error for each field that breaks a rule."""
    fields: dict[str, list[Problem]] = {}
    for problem in problems:
        fields.setdefault(problem.field, []).append(problem)
    for same in fields.values():
        yield joined(same)
