"""Places of broken rules: in which line or option does the value of a problem stand?

Elsewhere: places of values that are wrong by themselves (files/validate.py).
"""

import re
from collections.abc import Sequence

from flopcast.errors import Problem, shown
from flopcast.files.validate import path_of, value_at
from flopcast.files.yaml_text import Document
from flopcast.library.edits import in_long_names
from flopcast.records import replace
from flopcast.spec.recompute import FIELDS

SET = re.compile(r"set (\w+) to (\S+)")
VALUE = re.compile(r"set [\w.\[\]]+ to (?:a value such as )?([\w.]+)")  # of the fix of one value
IN_TEXT = (("site", "slow"), ("checkpoint",), ("loader",))  # short forms of several words


def with_places(problems: Sequence[Problem], document: Document) -> list[Problem]:
    """Return broken rules with the place of the value that each one concerns.

    If the value follows from a key of another program, the fix names this key.
    """
    placed = []
    for problem in (_in_short_form(each, document) for each in problems):
        path = path_of(problem.field)
        key, edit = document.keys.get(path, ""), SET.fullmatch(problem.fix)
        where, fix, fault = problem.where or document.where(path), problem.fix, problem.fault
        if key and where.startswith(f"{document.name}:"):
            fix = f"change {key}, so that {edit[1]} is {edit[2]}" if edit else fix
            fault = fault or f"= {shown(problem.value)} (from {key}) is not allowed"
        if where.startswith("--") and fix == f"remove {problem.field}":
            fix = f"remove {where}"
        placed.append(replace(problem, where=where, fix=fix, fault=fault))
    return placed


def as_typed(problems: Sequence[Problem], document: Document, changes: Sequence[str]) -> list[Problem]:
    """Return the faults of a job with fixes that concern what the user has typed."""
    short = (_in_short_form(_in_text(each, document), document) for each in problems)
    return [_with_cause(each, changes) for each in short]


def _in_text(problem: Problem, document: Document) -> Problem:
    """Return an error in a part that the user wrote in short form; its fix is the corrected short form."""
    edit, path = VALUE.match(problem.fix), path_of(problem.field)
    for home in IN_TEXT:
        text = value_at(document.data, home)
        if edit and path[: len(home)] == home != path and isinstance(text, str):
            right, found = re.subn(rf"(?<![\w.]){re.escape(str(problem.value))}(?![\w.])", edit[1], text)
            right = right if found else f"{edit[1]} {text}"
            place = document.where(home)
            start = f"{home[-1]}: " if place[-1:].isdigit() else f"{place} " if place[:2] == "--" else ""
            return replace(problem, fix=f'write {start}"{right}"', where=place)
    return problem


def _with_cause(problem: Problem, changes: Sequence[str]) -> Problem:
    """Return a fault of one value that a change of another value causes; the fix may undo this change."""
    for change in changes:
        name, _, value = change.partition("=")
        caused = re.search(
            rf"\b{re.escape(name.rpartition('.')[2])} = {re.escape(value)}\b", problem.allowed
        )
        if caused and change not in problem.where:
            return replace(problem, fix=f"leave out {change}, or {problem.fix}")
    return problem


def _in_short_form(problem: Problem, document: Document) -> Problem:
    """Return a fault of a part of recompute on the short form that was written, such as full:block:99."""
    part, edit = problem.field.removeprefix("plan."), SET.fullmatch(problem.fix)
    if part not in FIELDS:
        return problem
    _, plan = in_long_names(document, "plan", document.mapping.get("plan"))
    word = plan.get("recompute") if isinstance(plan, dict) else None
    if not isinstance(word, str) or ":" not in word:
        return problem
    head, *values = word.split(":")
    values = [edit[2] if edit and each == str(problem.value) else each for each in values]
    values = [edit[2]] if edit and part == "recompute_modules" else values
    fix = f"set recompute to {':'.join([head, *values])}" if edit else problem.fix
    return replace(problem, field="plan.recompute", value=word, fix=fix)
