"""Data of a job after the fix of one error.

Answers: which job does the user describe after this edit?
Elsewhere: trials of fixes (accepted_fixes.py), files of other programs after fixes (corrected_source.py).
"""

import re
from collections.abc import Sequence

from flopcast.errors import MISSING, Problem
from flopcast.files.field_names import ARGUMENT, UNKNOWN_KEY
from flopcast.files.field_paths import path_of, value_at
from flopcast.files.yaml_text import Document, Path, resolve
from flopcast.fixes import in_words
from flopcast.library import catalog
from flopcast.library.edits import edited, long_names
from flopcast.records import replace
from flopcast.requests.cluster_options import devices_of_cluster
from flopcast.requests.problem_places import IN_TEXT, corrected_text
from flopcast.spec.batch import Batch
from flopcast.spec.deployment import Deployment
from flopcast.spec.plan import Plan
from flopcast.spec.traffic import Traffic

MOVED = re.compile(r"set ([\w.]+)(?:, or --seq,)? to (\S+) instead")  # a value of another part
HOME = re.compile(r"move \w+ to ([\w.]+)(?:.*? and call it (\w+))?")  # a key of another section
OPTIONAL = ("checkpoint", "loader", "site", "stack", "slo")  # parts whose fields have defaults
LONG_NAMES = {
    short: name for noun in (Plan, Deployment, Traffic, Batch) for short, name in long_names(noun).items()
}
IN_PLAN = " in plan in place of it"  # ends the fix of a key that repeats settings of the plan


def after_fix(data: object, problem: Problem) -> object:
    """Return the data of a job with the first edit of a problem's fix applied.

    The wrong value, or the unknown key, may be part of a text with several settings, such as "dp=8 tp=3".
    The data are returned unchanged if the edit changes another field, or if the fix is an example of a
    whole section.
    """
    path, names = path_of(problem.field), [str(part) for part in path_of(problem.field)[-1:]]
    if not path or not problem.edits or len(problem.edits[0]) > 1:
        return data if problem.edits or not path else _moved(data, problem)
    ((name, value),) = problem.edits[0].items()
    if problem.fault == UNKNOWN_KEY:
        return _with_key(data, path, name, value, _written(problem.value))
    holder = value_at(data, path[:-1])
    names += [problem.field, *(short for short, name in LONG_NAMES.items() if name in names)]
    if isinstance(holder, dict) and path[-1] not in holder:  # by its short name
        path = (*path[:-1], next((each for each in names if each in holder), path[-1]))
    wrong, right = getattr(problem.fix, "part", "") or _written(problem.value), in_words(value)
    if (name and name not in (*names, problem.where) and name.removeprefix("--") not in names) or (
        isinstance(value, str) and value[:1] in ('"', "[", "{")
    ):
        return data
    for end in range(len(path), 0, -1):
        text = value_at(data, path[:end])
        if isinstance(text, str) and wrong in text:
            named = re.search(rf"\b(?:{'|'.join(map(re.escape, names))})={re.escape(wrong)}(?![\w.])", text)
            found = named or re.search(rf"(?<![\w-]){re.escape(wrong)}", text)
            if found is None:
                continue
            at = found.end() - len(wrong)
            right = f"{text[:at]}{right}{text[at + len(wrong) :]}"
        elif end < len(path) or (problem.fault != MISSING and (text is None or text != problem.value)):
            continue
        is_list = isinstance(value, list) and end == len(path)
        return edited(data, [*map(str, path[:end])], value if is_list else resolve(right))
    for home in IN_TEXT:  # a word that the text does not contain yet
        text = value_at(data, home)
        if path[: len(home)] == home != path and isinstance(text, str):
            return edited(data, [*map(str, home)], corrected_text(text, problem, right))
    return data


def with_stated_homes(problems: Sequence[Problem], document: Document) -> list[Problem]:
    """Return the problems. A fix omits a value instead of moving it to a field that the job already
    states.
    """
    found = []
    for problem in problems:
        moved, key = MOVED.fullmatch(problem.fix), HOME.match(problem.fix)
        path = moved[1] if moved else f"{key[1]}.{key[2] or path_of(problem.field)[-1]}" if key else ""
        home, _, name = path.rpartition(".")
        stated, held = _stated(value_at(document.data, path_of(home)), name) if home else ("", "")
        fix = f"remove {problem.field}, because {home}.{stated} is given"
        if problem.where.startswith(ARGUMENT) and home:  # a change replaces what the job states
            fix = f"write {home}.{stated}={in_words(problem.value)}"
        elif problem.field == "batch":
            fix = (
                f"remove batch, or write batch: {{seq: {problem.value}}}, because {home}.{stated} is given"
            )
        elif key and stated:
            fix = f"remove {path_of(problem.field)[-1]}, because {home} already has {stated}={held}"
            if held != (value := in_words(problem.value)):
                fix += f"; if you mean {value}, also write {stated}={value} in {home}"
        elif problem.field == "gpus" and problem.fault == UNKNOWN_KEY:
            stated, fix = "gpus", _of_devices(problem, document)
        found.append(replace(problem, fix=fix) if stated else problem)
    return found


def _stated(held: object, name: str) -> tuple[str, str]:
    """Return the name by which a section, or a text with its settings, states a field, and its value."""
    written = dict(re.findall(r"(\S+)=(\S+)", held)) if isinstance(held, str) else held
    long = LONG_NAMES.get(name, name)
    names = [long, *(short for short, each in LONG_NAMES.items() if each == long)]
    stated = next((each for each in names if isinstance(written, dict) and each in written), "")
    return (stated, in_words(written[stated])) if isinstance(written, dict) and stated else ("", "")


def _of_devices(problem: Problem, document: Document) -> str:
    """Return the fix of a number of devices beside a cluster: its name includes the number of nodes."""
    cluster = document.mapping.get("cluster")
    devices, name = devices_of_cluster(document), str(cluster).partition(":")[0]
    if not isinstance(cluster, str) or not devices:
        return problem.fix
    if str(problem.value) == str(devices):
        return f"remove gpus, because {cluster} already has {devices}"
    each = catalog.cluster(name, 1).num_devices
    nodes, rest = divmod(int(str(problem.value)), each) if str(problem.value).isdecimal() else (0, 0)
    return f"write cluster: {name}:{nodes} in place of gpus" if nodes and not rest else problem.fix


def _moved(data: object, problem: Problem) -> object:
    """Return data after a fix that removes a value, or moves it to another part; else unchanged."""
    path, moved, home = path_of(problem.field), MOVED.fullmatch(problem.fix), HOME.match(problem.fix)
    removed, key = problem.fix.removeprefix("remove ").partition(", ")[0], str(path[-1])
    own = (key, problem.field, problem.where, problem.where.removeprefix(ARGUMENT))
    is_removed = (problem.fix != removed and removed in own) or problem.fix.endswith(IN_PLAN)
    is_optional = path[:2] == ("cluster", "price") or (len(path) > 1 and path[0] in OPTIONAL)
    is_removed |= is_optional and not problem.fault  # so that the rest is checked
    if not (moved or home or is_removed):
        return data
    path = path[:2] if path[:2] == ("cluster", "price") else path
    value, data = value_at(data, path), _with_key(data, path, "", None, _written(problem.value))
    if len(path) > 1 and value_at(data, path[:-1]) == {}:  # a section without any key
        data = _with_key(data, path[:-1], "", None, "")
    place = [*home[1].split("."), home[2] or key] if home else moved[1].split(".") if moved else []
    value = resolve(moved[2]) if moved else value
    if place[:1] == ["plan"] and isinstance(plan := value_at(data, ("plan",)), str):
        return edited(data, ["plan"], f"{plan} {place[-1]}={in_words(value)}")
    return edited(data, place, value) if place else data


def _written(value: object) -> str:
    """Return a value as it stands in a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_key(data: object, path: Path, name: str, value: object, wrong: str) -> object:
    """Return data with a value of the field that was meant in place of an unknown key and its value.

    Without a `name`, the key is removed.
    """
    holder, (*above, key) = value_at(data, path[:-1]), path
    if isinstance(holder, str) and not isinstance(value, dict):
        setting = f"{name}={in_words(value)}" if name else ""
        text = re.sub(rf"\b{re.escape(str(key))}={re.escape(wrong)}", setting, holder)
        return edited(data, [*map(str, above)], text)
    if not isinstance(holder, dict) or key not in holder:
        return data
    value = resolve(value) if isinstance(value, str) else value
    meant, rest = long_names(Plan).get(name, name), {each: holder[each] for each in holder if each != key}
    is_given = any(long_names(Plan).get(other, other) == meant for other in rest)
    return edited(data, [*map(str, above)], rest | {name: value} if name and not is_given else rest)
