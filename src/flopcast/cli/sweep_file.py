"""The input of `flopcast sweep`: one YAML file that describes a grid of searches.

Answers: which scenarios does a file describe, and which faults does it have?
Elsewhere: the command (sweep.py), the settings of one search (requests/search_request.py), workers
(executors.py).
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.field_names import NEAR
from flopcast.files.named_files import read_file
from flopcast.files.nearest_names import nearest
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.fixes import Fix, in_place
from flopcast.library.edits import long_names
from flopcast.meant_quantities import is_single_number
from flopcast.quantities import parse_length
from flopcast.records import Record, replace
from flopcast.requests.cluster_options import in_whole_nodes
from flopcast.requests.job_request import JobRequest
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.space_words import numbers
from flopcast.slips import meant, whole_number
from flopcast.spec.plan import Plan

OF_ADAPTERS = ("lora", "qlora")
AXES = (
    "model",
    *OF_ADAPTERS,
    "cluster",
    "gpus",
    "sequence_length",
    "stack",
    "plan",
)  # the last varies fastest
OF_JOB = ("price", "tokens", "samples", "epochs")  # settings of the job of every scenario
OF_SEARCH = ("deadline", "budget", "headroom", "tp_beyond_domain", "no_refine", "evolve")
ALONE = (*OF_JOB, "site", "objective", *OF_SEARCH)
KEYS = (*AXES, *ALONE)
ALIASES = {"seq": "sequence_length", "framework": "stack", "objectives": "objective"}
FIELDS = {  # first word of a faulty field → the key of the grid that sets it
    "global_batch": "plan", "batch": "sequence_length", "objectives": "objective",
    "headroom_fraction": "headroom",
}  # fmt: skip
OPTION = re.compile(r'(write|add) --(\w+) "?([^"]*)"?')  # the fix of an option of a search
MOST = 10_000  # scenarios of one file


class Scenario(Record):
    """One search of a grid.

    Attributes
    ----------
    words : dict
        The value of the scenario on each axis, or None if the file omits the axis.
    question : Question
        The search itself.
    """

    words: dict[str, object]
    question: Question


def scenarios_of(path: Path) -> tuple[Scenario, ...]:
    """Return the scenarios of a file in order; the last axis varies fastest.

    Raises
    ------
    SpecError
        The file or a scenario has faults. The error lists each fault once.
    """
    return scenarios_in(read_yaml(read_file(path), str(path)))


def scenarios_in(document: Document) -> tuple[Scenario, ...]:
    """Return the scenarios of a document, as `scenarios_of` does for a file.

    Raises
    ------
    SpecError
        All faults of the file: unknown keys, wrong values, and scenarios that are not possible. A fault
        that several scenarios share is reported once.
    """
    document, unknown = _with_meant_keys(document)
    axes, alone, problems = _read(document)
    problems, scenarios = [*unknown, *problems], []
    for values in product(*(axes[name] for name in AXES)):
        words = dict(zip(AXES, values, strict=True))
        try:
            scenarios.append(Scenario(words=words, question=_question(words, alone)))
        except SpecError as error:
            problems += [one for one in _placed(error.problems, document) if one not in problems]
    if problems:
        raise SpecError(problems)
    return tuple(scenarios)


def _read(document: Document) -> tuple[dict[str, Sequence[object]], dict[str, object], list[Problem]]:
    """Return the values of every axis, the settings that all scenarios share, and the faults of both.

    An axis has the value that a wrong one means, or none, so that the scenarios are checked all the same.

    Raises
    ------
    SpecError
        The file is no grid, or there are too many scenarios.
    """
    if not isinstance(document.data, dict):
        because = "a grid is a mapping from names of axes to values"
        fix = (
            "write the keys of a scenario at the top level, without hyphens; write several values "
            "of a key as a list"
        )
        raise SpecError([_fault(document, "grid", document.data, "a mapping", because, fix)])
    data = {ALIASES.get(str(key), str(key)): value for key, value in document.data.items()}
    wrong_values: list[Problem] = []
    if isinstance(plan := data.get("plan"), dict) and data.keys() & {"gpus", "sequence_length"}:
        words = " ".join(
            f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in plan.items()
        )
        because, fix = "each value of an axis is a text or a number", f'write plan: "{words}"'
        own = {name: value for name, value in plan.items() if name not in data}
        wrong_values.append(_fault(document, "plan", own, "a text, or a list of texts", because, fix))
        data["plan"] = plan = words  # so that the rest is checked, too
    if isinstance(data.get("batch"), dict) or isinstance(plan, dict):
        allowed, because = "a grid, with values for each axis", "the file describes one job"
        fix = f"run flopcast search {document.name}, or give a file that lists the values of each axis"
        raise spec_error(document.name, None, allowed, because, fix, fault="is a job file, not a grid")
    if serving := next((key for key in ("engine", "traffic", "slo") if key in data), ""):
        allowed, because = "training jobs", f"{serving} describes serving"
        fix = "run flopcast search with --engine, which compares deployments of an engine"
        raise SpecError([_fault(document, serving, data[serving], allowed, because, fix)])
    axes: dict[str, Sequence[object]] = dict.fromkeys(AXES, (None,))
    for name in AXES:
        if name in data:
            values = _values(name, data[name])
            wrong = list(_faults_of(document, name, values))
            meant_values = [one for each in wrong for one in re.findall(r"write (\d+)", each.fix)]
            kept = [one for one in values if not any(each.value == one for each in wrong)]
            axes[name] = [*kept, *map(int, meant_values)] or (None,)  # so that the rest is checked, too
            wrong_values += wrong
    size = 1
    for values in axes.values():
        size *= len(values)
    if size > MOST:
        allowed, because = f"{MOST} scenarios at most", "flopcast runs a whole search for each scenario"
        fix = "split the grid into several files"
        too_large = _fault(document, "grid", f"{size} scenarios", allowed, because, fix)
        raise SpecError([*wrong_values, too_large])
    return axes, {name: data.get(name) for name in ALONE}, wrong_values


def _with_meant_keys(document: Document) -> tuple[Document, list[Problem]]:
    """Return the document with the keys that its unknown keys mean, and the faults of these.

    The values of a misspelt key are checked in the same run.
    """
    document, sections = _without_sections(document)
    data = document.data if isinstance(document.data, dict) else {}
    given = [ALIASES.get(str(key), str(key)) for key in data]
    problems = [_unknown(document, key, given) for key in data if ALIASES.get(key, key) not in KEYS]
    problems = [*sections, *problems]
    names = {each.field: next(iter(edit)) for each in problems for edit in each.edits}
    settings = dict(_setting(each.field, data.get(each.field)) for each in problems if each not in sections)
    settings.pop("", None)
    if not names and not settings:
        return document, problems
    below = {path: line for path, line in document.lines.items() if path}
    lines = {(names.get(str(path[0]), path[0]), *path[1:]): line for path, line in below.items()}
    lines |= {(): document.lines[()]} if () in document.lines else {}
    meant_data = {names.get(str(key), key): value for key, value in data.items()}
    if settings and isinstance(plan := meant_data.get("plan", ""), str):
        meant_data["plan"] = " ".join([plan, *map("=".join, settings.items())]).strip()
    elif settings and isinstance(plan, dict):
        meant_data["plan"] = plan | settings
    return replace(document, data=meant_data, lines=lines), problems


def _without_sections(document: Document) -> tuple[Document, list[Problem]]:
    """Return the document with the keys of unknown sections, such as `job:`, at the top level, and the
    fault of each section.
    """
    data = document.data if isinstance(document.data, dict) else {}
    sections = {
        key: inner
        for key, inner in data.items()
        if key not in KEYS
        and isinstance(inner, dict)
        and any(ALIASES.get(each, each) in KEYS for each in inner)
    }
    fix = "remove the line {}: and write the keys inside it without indentation"
    problems = [replace(_unknown(document, key, ()), fix=fix.format(key)) for key in sections]
    rest = {key: value for key, value in data.items() if key not in sections}
    lines = {
        path[1:] if path[:1] and path[0] in sections and path[1:] else path: line
        for path, line in document.lines.items()
    }
    moved = {name: value for inner in sections.values() for name, value in inner.items()}
    return (replace(document, data=rest | moved, lines=lines), problems) if sections else (document, [])


def _values(name: str, given: object) -> Sequence[object]:
    """Return the values of an axis; `gpus` may also be a range as text, as for a search."""
    if name == "sequence_length":
        return [_length(each) for each in (given if isinstance(given, list) else [given])]
    if isinstance(given, list):
        return given
    if name == "gpus":
        try:
            sizes = numbers(given)
        except ValueError:
            return (given,)
        return sizes if isinstance(sizes, tuple) and sizes else (given,)
    return (given,)


def _length(given: object) -> object:
    """Return the number of tokens that a text such as 8k means; other values unchanged.

    A number in quotes stays a text, which raises an error.
    """
    try:
        return parse_length(given) if isinstance(given, str) and not given.isdecimal() else given
    except ValueError:
        return given


def _question(words: dict[str, Any], alone: dict[str, Any]) -> Question:
    """Return the settings of one scenario, as from the options of `flopcast search`."""
    cluster, gpus, site, objective = words["cluster"], words["gpus"], alone["site"], alone["objective"]
    objectives = objective if isinstance(objective, list) else [objective] if objective else []
    named = {"model": words["model"], "plan": words["plan"], "seq": words["sequence_length"]}
    named |= {"gpus": None if gpus is None else str(gpus)} | {name: words[name] for name in OF_ADAPTERS}
    named |= {name: alone[name] for name in OF_JOB}
    job = JobRequest(site=None if site is None else Path(str(site)), **named)
    settings = {"stacks": (words["stack"],), "clusters": () if cluster is None else (str(cluster),)}
    settings |= {"objectives": tuple(map(str, objectives))} | {name: alone[name] for name in OF_SEARCH}
    return question_of(SearchRequest(job=job, **settings))


def _faults_of(document: Document, name: str, values: Sequence[object]) -> Iterator[Problem]:
    """Yield the faults of values on an axis that have a wrong type."""
    if not values:
        allowed, because = "at least one value", "without values, the grid contains no scenario"
        yield _fault(document, name, [], allowed, because, f"remove {name}")
    text = ",".join(map(str, values))
    if name == "sequence_length" and is_single_number(text):
        because = f"{text} may be one number; for several numbers, write {list(reversed(values))}"
        fix = f"write {text.replace(',', '')} in place of {list(values)}"
        yield _fault(document, name, list(values), "whole numbers above 0", because, fix)
    counts = Counter(map(str, values))
    for twice in (value for value, count in counts.items() if count > 1):
        because, fix = "the same searches would run twice", f"leave out one of the values {twice}"
        yield _fault(document, name, list(values), "each value once", because, fix)
    for value in values:
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if name == "sequence_length" and not whole:
            allowed, because = "a whole number above 0", "this axis is the number of tokens of a sequence"
            fix = _meant_length(value, allowed, values)
            if isinstance(value, str) and value.isdecimal():
                because, fix = "a value in quotes is a text, not a number", f"write {value} without quotes"
            yield _fault(document, name, value, allowed, because, fix)
        elif name == "gpus" and not (whole or isinstance(value, str)):
            allowed, fix = "a whole number above 0, or a range such as 64..1024", "write 8"
            clusters = _values("cluster", document.mapping.get("cluster")) or [None]
            number = whole_number(value, 8)
            if (filled := in_whole_nodes(number, clusters[0])) != number:
                allowed = "numbers of devices that fill whole nodes, or a range such as 64..1024"
                fix = in_place(filled, value)
            yield _fault(document, name, value, allowed, "this axis is the number of devices", fix)
        elif not (whole or isinstance(value, str)):
            because, allowed = "each value of an axis is a text or a number", "names, paths or numbers"
            yield _fault(document, name, value, allowed, because, f"write a name or a path after {name}")


def _meant_length(value: object, allowed: str, values: Sequence[object]) -> str:
    """Return the fix of a wrong length, which does not repeat another value of its axis.

    >>> [_meant_length(text, "a whole number above 0", [4096]) for text in ("8192k2", "4096t", "x")]
    ['write 8192', 'remove it', 'remove it']
    """
    digits = re.match(r"\s*(\d{3,7})(?![\d.,])", str(value))
    right = digits[1] if digits else meant(value, allowed)
    lengths = [each for each in values if isinstance(each, int)]
    return "remove it" if lengths and (not right or int(right) in lengths) else f"write {right or 4096}"


def _placed(problems: Sequence[Problem], document: Document) -> Iterator[Problem]:
    """Yield the faults of a scenario, each with the line of the key that causes it."""
    for problem in problems:
        word = re.split(r"[.\[ ]", problem.field.removeprefix("--"))[0]
        option = problem.where.removeprefix("--")
        key = FIELDS.get(word, "plan" if word in Space.model_fields else word)
        key = option if option in (*OF_JOB, *OF_ADAPTERS) else word if (word,) in document.lines else key
        written = next((name for name in (key, *ALIASES) if ALIASES.get(name, name) == key and
                        isinstance(document.data, dict) and name in document.data), key)  # fmt: skip
        fix = OPTION.sub(r"\1 \2: \3", problem.fix.replace("set --", "set ").replace("or --", "or "))
        if key == "model" and problem.fault == "is missing":
            fix = f"add a line such as model: {EXAMPLES['model']}"
        is_own = problem.field == f"--{key}" or (problem.field == word == key == option)
        field = written if is_own else problem.field
        yield replace(problem, field=field, where=document.where((written,)), fix=fix)


def _unknown(document: Document, key: str, given: Collection[str]) -> Problem:
    near = nearest(str(key), [name for name in KEYS if name not in given], least_ratio=NEAR)
    fix = Fix(f"did you mean {near[0]}?", ({near[0]: None},)) if near else f"remove {key}"
    name, value = _setting(key, document.mapping[key])
    fix = f"write {name}={value} in plan in place of it" if name else fix
    problem = _fault(document, str(key), None, ", ".join(KEYS), "flopcast does not use this key", fix)
    return replace(problem, fault="is not a key of a grid")


def _setting(key: str, value: object) -> tuple[str, str]:
    """Return the field of a plan that an unknown key of a grid means, "" if it means none, and its
    values."""
    name = "global_batch" if key == "batch" else key
    values = value if isinstance(value, list) else [value]
    is_known = {name, long_names(Plan).get(name)} & Space.model_fields.keys()
    return (name if is_known else "", ",".join(map(str, values)))


def _fault(document: Document, field: str, value: object, allowed: str, because: str, fix: str) -> Problem:
    keys = document.data if isinstance(document.data, dict) else {}
    field = next((key for key in keys if ALIASES.get(key) == field), field)
    where = document.where((field,))
    return Problem(field, value, allowed, because, fix, where=where)
