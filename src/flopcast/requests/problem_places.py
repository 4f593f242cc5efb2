"""Places of broken rules: in which line or option does the value of a problem stand?

Elsewhere: places of values that are wrong by themselves (files/validate.py).
"""

import re
from collections.abc import Callable, Sequence

from flopcast.errors import MISSING, InfeasibleError, Problem, SpecError, shown
from flopcast.files.field_names import ARGUMENT, UNKNOWN_KEY
from flopcast.files.validate import dotted, path_of, value_at
from flopcast.files.yaml_text import Document, Path, read_yaml, resolve
from flopcast.library.edits import edited, in_long_names, long_names
from flopcast.records import replace
from flopcast.spec.plan import Plan
from flopcast.spec.recompute import FIELDS

SET = re.compile(r"set (\w+) to (\S+)")
VALUE = re.compile(r"set [\w.\[\]]+ to (?:a value such as )?([\w.]+)")  # of the fix of one value
EDIT = re.compile(r"(?:set ([\w.-]+) to|write(?=.* in place of)) ([\w.:=,-]+)(?: in place of (\S+))?")
MEANT_KEY = re.compile(r"(?:did you mean |write (?=.+ in place of it))(\w+)(?:\?$|(: .+) in place of it)")
ADDED = re.compile(r"add (\w+): (\S+)")
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
    short = [_in_short_form(_in_text(each, document), document) for each in problems]
    wrong = [change for change in changes if any(each.where.endswith(change) for each in short)]
    own = [each for each in short if not any(_is_caused(each, change) for change in wrong)]
    model = document.mapping.get("model")
    in_file = [f"{name}={value}" for name, value in model.items()] if isinstance(model, dict) else []
    return [_with_option(_with_cause(each, (*changes, *in_file))) for each in own]


def _with_option(problem: Problem) -> Problem:
    """Return a fault of an option for one field of the plan; its fix sets the option."""
    field = problem.field.removeprefix("plan.")
    option = problem.where if problem.where in ("--batch", "--offload") else field
    return replace(problem, fix=problem.fix.replace(f"set {field} to ", f"set {option} to "))


def with_accepted_fixes(
    problems: Sequence[Problem], document: Document, check: Callable[[Document], object]
) -> list[Problem]:
    """Return the faults of a job; where it refuses the value of a fix, too, the fault has its next fix.

    All fixes that edit one value are tried together. Faults that they reveal in the same part of the job
    are added, so that no further run reports them.

    Parameters
    ----------
    problems, document : the faults of a document
    check : raises an error unless a document describes a job
    """
    data, right = document.data, dict[str, str]()
    lines, places = dict(document.lines), dict(document.places)
    for problem in problems:
        path, key = path_of(problem.field), MEANT_KEY.match(problem.fix)
        if problem.fault == UNKNOWN_KEY and key:
            new = (*path[:-1], key[1])
            after, value = _with_key(data, path, key), key[1]
            lines |= {new: lines[path]} if path in lines else {}
            if document.places.get(path, "").startswith(ARGUMENT):
                places |= {new: f"{ARGUMENT}{dotted(new)}={problem.value}"}
        elif problem.fault == MISSING and (added := ADDED.fullmatch(problem.fix)):
            after, value = edited(data, [*map(str, path)], resolve(added[2])), added[1]
        else:
            after, value = _with_value(data, path, problem)
        if after != data:
            data, right[problem.field] = after, value
    if not right:
        return list(problems)
    changed, left = replace(document, data=data, lines=lines, places=places), list[Problem]()
    try:
        check(changed)
    except SpecError as error:
        parts = {path_of(field)[0] for field in right} | set(right.values())
        known = {(each.field, each.because) for each in problems}
        left = [each for each in error.problems if (each.field, each.because) not in known]
        left = [each for each in left if path_of(each.field)[:1] and path_of(each.field)[0] in parts]
    except InfeasibleError:
        pass
    again = {each.field: each for each in left if each.field in right and not _concerns_part(each)}
    first = [_refused_twice(each, again.get(each.field), right.get(each.field, "")) for each in problems]
    further = [each for each in left if each.field not in again]
    return [*first, *as_typed(further, changed, ())]


def _refused_twice(problem: Problem, second: Problem | None, right: str) -> Problem:
    """Return the fault of a value; `second` is that of its usual spelling `right`, if it has one."""
    if second is None:
        return problem
    because = f"{problem.because}; {right} is refused, too, because {second.because}"
    return replace(problem, allowed=second.allowed, because=because, fix=second.fix)


def _concerns_part(problem: Problem) -> bool:
    """Return whether a fix replaces a part of a value, such as one module of several."""
    edit = EDIT.fullmatch(problem.fix)
    return edit is not None and edit[3] not in (None, str(problem.value))


def _with_value(data: object, path: Path, problem: Problem) -> tuple[object, str]:
    """Return data after the edit of one value that a fix states, and the new value.

    The value may stand in a text of several settings. Other fixes leave the data as they are.
    """
    edit, names = EDIT.fullmatch(problem.fix), [str(part) for part in path[-1:]]
    names += [short for short, name in long_names(Plan).items() if name in names]
    if edit is None or (edit[1] and edit[1].removeprefix("--") not in names):
        return data, ""
    wrong, right = edit[3] or str(problem.value), edit[2]
    after = rf"\b(?:{'|'.join(names)})="  # of the value in a text
    for end in range(len(path), 0, -1):
        text = value_at(data, path[:end])
        if isinstance(text, str) and wrong in text:
            found = re.search(rf"{after}{re.escape(wrong)}(?![\w.])", text)
            at = found.end() - len(wrong) if found else text.index(wrong)
            new = f"{text[:at]}{right}{text[at + len(wrong) :]}"
            return edited(data, [*map(str, path[:end])], resolve(new)), right
        if end == len(path) and text is not None and text == problem.value:
            return edited(data, [*map(str, path)], resolve(right)), right
    return data, ""


def _with_key(data: object, path: Path, meant: re.Match[str]) -> object:
    """Return data with the key, or the part, that a fix writes in place of an unknown key."""
    holder, (*above, key) = value_at(data, path[:-1]), path
    if isinstance(holder, str) and not meant[2]:
        text = re.sub(rf"\b{re.escape(str(key))}=", f"{meant[1]}=", holder)
        return edited(data, [*map(str, above)], text)
    if not isinstance(holder, dict) or key not in holder:
        return data
    rest = {name: value for name, value in holder.items() if name != key}
    part = read_yaml(f"{meant[1]}{meant[2]}".encode(), "").mapping if meant[2] else {meant[1]: holder[key]}
    return data if rest.keys() & part.keys() else edited(data, [*map(str, above)], rest | part)


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
        if _is_caused(problem, change):
            return replace(problem, fix=f"leave out {change}, or {problem.fix}")
    return problem


def _is_caused(problem: Problem, change: str) -> bool:
    """Return whether the value of another field, which a change sets, is the limit of a problem's value."""
    name, _, value = change.partition("=")
    limit = rf"\b{re.escape(name.rpartition('.')[2])} = {re.escape(value)}\b"
    return change not in problem.where and re.search(limit, problem.allowed) is not None


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
