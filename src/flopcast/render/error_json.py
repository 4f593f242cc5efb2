"""Errors as JSON, in one shape for the command line and for HTTP.

Answers: which fields does a JSON error have?
Elsewhere: the errors themselves (errors.py), when the command line prints them (cli/main.py), their HTTP
status (ui/worker.py, ui/limits.py).
"""

import math
from collections.abc import Iterable

from flopcast.errors import Problem
from flopcast.fixes import edits_of, in_words
from flopcast.render.plain_data import FORMAT_VERSION, unrounded

INPUT, INFEASIBLE, LIMIT, BUG = "input", "infeasible", "limit", "bug"
KINDS = {  # kind → what it means
    INPUT: "a value of the input is wrong",
    INFEASIBLE: "the input is right, but no plan satisfies it",
    LIMIT: "the request is too large, the answer takes too long, or the server has too many requests",
    BUG: "a defect of flopcast",
}
FIELDS = {  # name → what it holds; null where an error has none of it
    "kind": f"one of: {', '.join(KINDS)}",
    "message": "the whole error in one sentence",
    "field": "the field as the user writes it, such as plan.tensor_parallel",
    "value": "the value that was given",
    "allowed": "the values that are accepted",
    "because": "the reason",
    "fix": "one edit that corrects the input",
    "edits": "the fix as data: alternatives, each with new values of fields; empty if it sets no values",
    "place": "where the value was given: FILE:LINE, an option, an argument, or the request",
}
MOST_SHOWN = 200  # characters of a value that JSON cannot hold


def input_faults(problems: Iterable[Problem]) -> dict[str, object]:
    """Return errors in the input as data for JSON.

    Returns
    -------
    dict
        `format_version`, and `faults`: one entry for each problem with the keys of FIELDS.
    """
    return _document([_of_problem(problem) for problem in problems])


def fault(kind: str, message: str, changes: Iterable[str] = ()) -> dict[str, object]:
    """Return one error that belongs to no field as data for JSON, with the keys of `input_faults`.

    `changes` are fixes that the message lists.
    """
    edits = [dict(edit) for change in changes for edit in edits_of(change)]
    data = dict.fromkeys(FIELDS) | {"kind": kind, "message": message}
    return _document([data | ({"edits": edits} if edits else {})])


def no_plan(message: str) -> dict[str, object]:
    """Return `fault(INFEASIBLE, message)`, to be added to an answer whose list of plans is empty."""
    return fault(INFEASIBLE, message)


def _document(faults: list[dict[str, object]]) -> dict[str, object]:
    return {"format_version": FORMAT_VERSION, "faults": faults}


def _of_problem(problem: Problem) -> dict[str, object]:
    return {
        "kind": INPUT,
        **unrounded(problem, "message", "field"),
        "value": _plain(problem.value),
        **unrounded(problem, "allowed", "because", "fix"),
        "edits": [
            {name or problem.field: _plain(value) for name, value in edit.items()} for edit in problem.edits
        ],
        "place": problem.where or None,
    }


def _plain(value: object) -> object:
    """Return a value for JSON: numbers and strings unchanged, lists as users write them, else `repr`."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return (in_words(value) if isinstance(value, (list, tuple)) else repr(value))[:MOST_SHOWN]
