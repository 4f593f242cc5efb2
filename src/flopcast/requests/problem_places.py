"""Places of broken rules: the line or the option with the value of a problem.

Elsewhere: places of values that are invalid (files/validate.py).
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress

from flopcast.errors import Problem, shown
from flopcast.files.field_paths import dotted, path_of, value_at
from flopcast.files.yaml_text import Document, Path
from flopcast.fixes import Fix, in_words, set_to, with_names
from flopcast.library import catalog
from flopcast.library.edits import in_long_names
from flopcast.quantities import exactly, fraction_of, parse_quantity
from flopcast.records import replace
from flopcast.spec.recompute import FIELDS
from flopcast.units import units_of

OF_DEVICE: dict[Path, Path] = {  # fields of a site → what a device has at most
    ("site", "power_limit_w"): ("groups", 0, "node", "device", "board_power_w")
}
IN_TEXT = (("site", "slow"), ("checkpoint",), ("loader",))  # short forms of several words


def with_places(problems: Sequence[Problem], document: Document) -> list[Problem]:
    """Return broken rules, each with the place of the value that it concerns.

    If the value follows from a key of another program, the fix names this key.
    """
    placed = []
    for problem in (_in_short_form(each, document) for each in problems):
        path = path_of(problem.field)
        key, right = document.keys.get(path, ""), _right_value(problem, path)
        where, fix, fault = problem.where or document.where(path), problem.fix, problem.fault
        if document.keys and where.startswith(f"{document.name}:"):
            if key and right:
                others = fix.removeprefix(set_to(problem.edits[0])) if len(problem.edits) == 1 else ""
                option = others if others.startswith(", or use --") else ""
                fix = Fix(f"change {key} so that {path[-1]} is {right}{option}", problem.edits)
            elif problem.edits and fix == set_to(problem.edits[0]):
                edit = {
                    (*path[:-1], name) if "." not in name else (name,): v
                    for name, v in problem.edits[0].items()
                }
                words = (f"{dotted(each)}={in_words(value)}" for each, value in edit.items())
                fix = Fix(f"add {' '.join(words)} to the command of flopcast", problem.edits)
            fault = fault or (f"= {shown(problem.value)} (from {key}) is not allowed" if key else "")
        if where.startswith("--") and fix == f"remove {problem.field}":
            fix = f"remove {where}"
        value = _as_written(problem.value, value_at(document.data, path), str(path[-1]))
        placed.append(replace(problem, value=value, where=where, fix=fix, fault=fault))
    return placed


def _as_written(value: object, text: object, name: str) -> object:
    """Return the text of a quantity in a document if it has this value, or else the value.

    >>> _as_written(5e5, "500 kW", "power_limit_w"), _as_written(5e5, "400 W", "power_limit_w")
    ('500 kW', 500000.0)
    """
    with suppress(ValueError):
        if isinstance(text, str) and (units := units_of(name)) and parse_quantity(text, units) == value:
            return text
    return value


def _right_value(problem: Problem, path: Path) -> str:
    """Return the value that the first edit of a fix gives to the field of the problem; "" if none."""
    edit = problem.edits[0] if problem.edits else {}
    sets = tuple(edit) in (path[-1:], (problem.field,)) and problem.fix.startswith(set_to(edit))
    return in_words(*edit.values()) if sets else ""


def as_typed(
    problems: Sequence[Problem], document: Document, changes: Sequence[str], corrected: Collection[str] = ()
) -> list[Problem]:
    """Return the faults of a job with fixes of the values that the user entered.

    `corrected` are settings of the document, such as "hidden=4", that fixes of other faults have changed.
    If one of them limits another value, an error about this value states the limit.
    """
    short = [_in_short_form(_in_text(each, document), document) for each in problems]
    wrong = [change for change in changes if any(each.where.endswith(change) for each in short)]
    own = [each for each in short if not any(_is_caused(each, change) for change in wrong)]
    model = document.mapping.get("model")
    in_file = [f"{name}={value}" for name, value in model.items()] if isinstance(model, dict) else []
    in_file = in_file if isinstance(model, dict) and "base" in model else []
    in_file = [setting for setting in in_file if setting not in corrected]
    own = [_after_correction(each, corrected) for each in own]
    return [_as_share(_with_option(_with_cause(each, (*changes, *in_file))), document) for each in own]


def _as_share(problem: Problem, document: Document) -> Problem:
    """Return the fault of a quantity in percent; its fix states this share of the catalogue's quantity."""
    share = fraction_of(str(problem.value)) if "%" in str(problem.value) else None
    cluster, path = document.mapping.get("cluster"), path_of(problem.field)
    name = str(cluster.get("base") if isinstance(cluster, dict) else cluster).partition(":")[0]
    known, units = catalog.known("clusters", name), units_of(str(path[-1]) if path else "")
    if not (share and known and units and problem.edits):
        return problem
    whole = value_at(catalog.cluster(known), OF_DEVICE.get(path, path[1:]))
    ((field, usual),) = problem.edits[0].items()
    if not isinstance(whole, (int, float)):
        return problem
    right = exactly(float(f"{share * whole:.3g}"), units[0])
    return replace(problem, fix=Fix(problem.fix.replace(str(usual), right), ({field: right},)))


def _with_option(problem: Problem) -> Problem:
    """Return a fault of an option for one field of the plan; its fix sets the option."""
    names = {problem.field.rpartition(".")[2]: problem.where}
    is_option = problem.where in ("--batch", "--offload", "--power-limit")
    return replace(problem, fix=with_names(problem.fix, names)) if is_option else problem


def _in_text(problem: Problem, document: Document) -> Problem:
    """Return an error in a part that the user wrote in short form; its fix is the corrected short form."""
    path, edit = path_of(problem.field), problem.edits[0] if problem.edits else {}
    named = len(edit) == 1 and "" not in edit
    for home in IN_TEXT:
        text = value_at(document.data, home)
        if named and path[: len(home)] == home != path and isinstance(text, str):
            value = in_words(*edit.values())
            right = corrected_text(text, problem, value)
            return replace(problem, fix=of_text(home, right, document), where=document.where(home))
    return problem


def corrected_text(text: str, problem: Problem, value: str) -> str:
    """Return a short form with the right value of one field, which replaces the wrong value or is added."""
    wrong = rf"(?<![\w.]){re.escape(str(problem.value))}(?![\w.])"
    right, found = re.subn(wrong, value, text)
    return right if found else f"{value} {text}"


def of_text(home: Path, text: str, document: Document) -> str:
    """Return the fix that replaces the text of a part of the job in short form."""
    place = document.where(home)
    start = f"{home[-1]}: " if place[-1:].isdigit() else f"{place} " if place[:2] == "--" else ""
    return f'write {start}"{text}"'


def _with_cause(problem: Problem, changes: Sequence[str]) -> Problem:
    """Return a fault of one value that a change of another value causes; the fix may undo this change."""
    for change in changes:
        if _is_caused(problem, change) and not problem.fix.startswith(f"leave out {change}, or "):
            return replace(problem, fix=f"leave out {change}, or {problem.fix}")
    return problem


def _after_correction(problem: Problem, corrected: Collection[str]) -> Problem:
    """Return a fault that says which corrected settings it assumes."""
    causes = [setting.replace("=", " is ") for setting in corrected if _is_caused(problem, setting)]
    if not causes:
        return problem
    return replace(problem, because=f"{problem.because} ({' and '.join(causes)} after its correction)")


def _is_caused(problem: Problem, change: str) -> bool:
    """Return whether the value of another field, which a change sets, is the limit of a problem's value."""
    name, _, value = change.partition("=")
    limit = rf"\b{re.escape(name.rpartition('.')[2])} (?:= |\(){re.escape(value)}\b"
    return change not in problem.where and re.search(limit, problem.allowed) is not None


def _in_short_form(problem: Problem, document: Document) -> Problem:
    """Return a fault of a part of recompute on the short form that was written, such as full:block:99."""
    part = problem.field.removeprefix("plan.")
    right = in_words(problem.edits[0].get(part, "")) if problem.edits else ""
    if part not in FIELDS:
        return problem
    _, plan = in_long_names(document, "plan", document.mapping.get("plan"))
    word = plan.get("recompute") if isinstance(plan, dict) else None
    if not isinstance(word, str) or ":" not in word:
        return problem
    head, *values = word.split(":")
    values = [right if right and each == str(problem.value) else each for each in values]
    values = [right] if right and part == "recompute_modules" else values
    fix = set_to(recompute=":".join([head, *values])) if right else problem.fix
    return replace(problem, field="plan.recompute", value=word, fix=fix)
