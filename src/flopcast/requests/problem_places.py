"""Places of broken rules: in which line or option does the value of a problem stand?

Elsewhere: places of values that are wrong by themselves (files/validate.py).
"""

import re
from collections.abc import Sequence

from flopcast.errors import Problem, shown
from flopcast.files.validate import path_of
from flopcast.files.yaml_text import Document
from flopcast.library.edits import in_long_names
from flopcast.records import replace
from flopcast.spec.recompute import FIELDS

SET = re.compile(r"set (\w+) to (\S+)")


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


def _in_short_form(problem: Problem, document: Document) -> Problem:
    """Return a fault of a part of recompute on the short form that was written, such as full:block:99."""
    part, edit = problem.field.removeprefix("plan."), SET.fullmatch(problem.fix)
    if part not in FIELDS:
        return problem
    _, plan = in_long_names(document, "plan", document.mapping.get("plan"))
    word = plan.get("recompute") if isinstance(plan, dict) else None
    if not isinstance(word, str) or ":" not in word:
        return problem
    head = word.partition(":")[0] if part == "recompute_modules" else word.rpartition(":")[0]
    fix = f"set recompute to {head}:{edit[2]}" if edit else problem.fix
    return replace(problem, field="plan.recompute", value=word, fix=fix)
