"""Rows of tables of runs that are not predicted, with all reasons.

Elsewhere: the predicted rows (published.py), how often each reason occurs (published_statistics.py).
"""

from collections.abc import Iterable, Mapping, Sequence

from flopcast.errors import Problem
from flopcast.lab.validation.run import Run
from flopcast.records import Record

UNREADABLE = "unreadable"  # instead of a source, which is not known


class LeftOut(Record):
    """A row that is not predicted, with all reasons, and with the faults from which they follow."""

    id: str
    source: str
    where: str
    reasons: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


def refused(run: Run, problems: Sequence[Problem]) -> LeftOut:
    """Return a row that describes no job that can be predicted."""
    reasons = tuple(dict.fromkeys(f"{problem.field}: {problem.because}" for problem in problems))
    return LeftOut(id=run.id, source=run.source, where=run.where, reasons=reasons, problems=tuple(problems))


def unreadable(problems: Iterable[Problem], names: Mapping[str, str]) -> list[LeftOut]:
    """Return rows that cannot be read as runs, each with all its faults."""
    by_row: dict[str, list[Problem]] = {}
    for problem in problems:
        by_row.setdefault(problem.where, []).append(problem)
    return [
        LeftOut(
            id=names.get(where, where),
            source=UNREADABLE,
            where=where,
            reasons=tuple(f"{each.field} = {each.value!r}: {each.because}" for each in of_row),
            problems=tuple(of_row),
        )
        for where, of_row in by_row.items()
    ]
