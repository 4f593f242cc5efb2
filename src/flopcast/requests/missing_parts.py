"""Parts that a job lacks or changes: their replacements, and the text of errors about them.

Answers: which values are usual for a missing part, is the part missing or misspelt, and which value of a
catalogue entry replaces a wrong change?
Elsewhere: fields of plans that are missing (missing_plan.py), fields of other parts (files/validate.py).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from pydantic import BaseModel

from flopcast.errors import Problem, SpecError, problems_of
from flopcast.files.field_names import ARGUMENT, UNKNOWN_KEY, meant_name, unknown_field
from flopcast.files.field_paths import OF_FILES, path_of
from flopcast.files.nearest_names import nearest
from flopcast.files.other_forms import known_name
from flopcast.files.yaml_text import COMMAND_LINE, Document
from flopcast.fixes import Fix, in_words, with_text
from flopcast.library import catalog
from flopcast.library.edits import in_long_names
from flopcast.records import replace
from flopcast.spec.factor_kinds import KINDS
from flopcast.spec.job import Job
from flopcast.spec.plan_fields import DEGREES
from flopcast.spec.site import SiteFactor

# values of missing parts: assumed where an option could state them, suggested where a file must
OTHER_STACK = re.compile(r",? or choose another stack(?:, such as [\w-]+)?$")
USUAL_STACKS = ("megatron-core", "torch-fsdp2", "deepspeed-zero")  # proposed before all others
USUAL = {"model": "llama-3-8b", "cluster": "dgx-h100", "stack": "megatron-core"}


def is_misspelt(part: str, keys: Iterable[object]) -> bool:
    """Return whether an unknown key of a job is a misspelling of the name of one of its parts.

    >>> is_misspelt("model", ["MODEL", "cluster"]), is_misspelt("model", ["cluster"])
    (True, False)
    """
    unknown = (str(key) for key in keys if key not in Job.model_fields)
    from flopcast.files.field_names import NEAR

    return any(nearest(key, Job.model_fields, least_ratio=NEAR) == [part] for key in unknown)


def not_a_mapping(document: Document) -> Problem:
    """Return the fault of a job file without keys."""
    data, fix = document.data, "begin the file with model: llama-3-8b"
    equals = re.match(r"(\w+) ?= ?", data) if isinstance(data, str) else None
    if isinstance(data, list):
        marks = "square brackets around" if document.name.endswith(".json") else "hyphens before"
        fix = f"remove the {marks} the keys"
    if re.search(r"\.(?:log|txt|out)$", document.name):
        fix = f"write --log {document.name}, after the job that the log describes"
    if equals:
        fix = f'write "{equals[1]}: " in place of "{equals[0]}", and the same for the other keys'
    fault = "is empty" if data is None else "is not a mapping"
    allowed, because = (
        "a mapping with model, cluster, plan, stack and batch",
        "a job consists of these parts",
    )
    return Problem("document", data, allowed, because, fix, document.where(()), fault)


def missing_part(key: str, where: str) -> Problem:
    """Return the fault of a missing model, cluster or stack. The fix states a name."""
    kind = f"{key}s"
    allowed = f"one of {len(catalog.names(kind))} names (flopcast catalog {kind}), or a description"
    because = f"flopcast needs a {key} for a prediction"
    fix = f"add {key}: NAME, such as {key}: {USUAL[key]}"
    if where == COMMAND_LINE or not re.search(r"\.ya?ml(?::|$)", where):
        file = "a job file, or " if key == "model" and where == COMMAND_LINE else ""
        fix = f"add {file}--{key} NAME, such as --{key} {USUAL[key]}"
    if key == "cluster":  # which only a measured run has to name (resolve.py)
        because = "flopcast needs the cluster on which the run was measured"
        fix = "add --cluster NAME, the machine of the run"
    return Problem(key, None, allowed, because, fix, where=where, fault="is missing")


def unknown_base(kind: str, base: object, field: str, document: Document) -> Problem:
    """Return the fault of a base that the catalogue does not list.

    The name may be that of an entry of another kind, for example a stack below `cluster:`. The heading of
    that section (`stack:`) is then missing, and the fix adds it.
    """
    name, path = base if isinstance(base, str) else "", path_of(field)
    unknown, line = catalog.unknown_name(kind, name, field, document.where(path)), document.lines.get(path)
    lacking = (part for part in USUAL if (part,) not in document.lines)
    own = next((part for part in lacking if catalog.known(f"{part}s", name.partition(":")[0])), "")
    fix = f"add {own}: above line {line}" if line and own and path[1:] else unknown.fix
    return replace(unknown, value=base, fix=fix)


def refuse_changes_alone(
    key: str, data: object, document: Document, noun: type[BaseModel], make: Callable[[object], object]
) -> None:
    """Raise an error for keys that change an entry of the catalogue without naming a base.

    `make` finds further faults in the data with the base that another key names.

    Raises
    ------
    SpecError
        The base is missing or misspelt, and the data are not a complete description either.
    """
    needed = {name for name, field in noun.model_fields.items() if field.is_required()}
    if not isinstance(data, dict) or not data or {"base", *needed} & {*data} or key not in USUAL:
        return
    for name, value in data.items():
        if meant_name(str(name), ["base"]):
            known = (*noun.model_fields, *OF_FILES[(key,)])
            field, where = f"{key}.{name}", document.where((key, str(name)))
            raise SpecError([unknown_field(str(name), value, known, field, where)])
    allowed = f"a name (flopcast catalog {key}s)"
    because = "the other keys change an entry of the catalogue"
    own = catalog.known(f"{key}s", str(data.get("name", "")))
    usual = own or USUAL[key]
    where = document.where((key,))
    fix: str = Fix(f"add base: {usual}", ({"base": usual},))
    if own:
        fix = with_text(fix, "write base in place of name, which names an entry of the catalogue")
    rest, field, value, fault = data, f"{key}.base", None, "is missing"
    for name, device in data.items() if key == "cluster" else ():
        if isinstance(device, str) and (machines := catalog.clusters_with(device)):
            own = next(iter(machines))
            fix = Fix(f"write base: {own} in place of {name}: {device}", ({"base": own},))
            rest = {each: inner for each, inner in data.items() if each != name}
            field, value, fault = f"{key}.{name}", device, UNKNOWN_KEY
            where = document.where((key, str(name)))
    if key == "model" and {"hidden_size", "num_hidden_layers"} & {*data}:
        allowed = "model_type, as in a config.json of Hugging Face, or base, for a model of the catalogue"
        because = "the other keys do not state the family of the model"
        fix = 'add "model_type": "llama", if the layers are those of Llama'
        from flopcast.interop.hugging_face.config import model_from_config

        missing = Problem("model.model_type", None, allowed, because, fix, where, "is missing")
        lines = {path[1:]: line for path, line in document.lines.items() if path[:1] == ("model",)}
        config = Document(document.name, {"model_type": "llama", **data}, lines)
        raise SpecError([missing, *problems_of(lambda: model_from_config(config))])
    missing = Problem(field, value, allowed, because, fix, where, fault)
    raise SpecError([missing, *(problems_of(lambda: make({**rest, "base": own})) if own else ())])


def with_base_value(problem: Problem, base: object, name: str) -> Problem:
    """Return the fault of a change of a catalogue entry.

    Its fix states the value of the entry, if there is one.

    Parameters
    ----------
    problem : a problem whose field begins with the kind of entry: "model.hidden"
    base, name : the entry as its file has it, and its name

    Examples
    --------
    >>> problem = Problem("model.hidden", 0, "", "", "set hidden to 1")
    >>> with_base_value(problem, {"hidden": 1024}, "bloom-560m").fix
    'set hidden to 1024, the value of bloom-560m'
    """
    _, *path = path_of(problem.field)
    value = base
    for part in path:
        is_entry = isinstance(value, list) and isinstance(part, int) and part < len(value)
        is_value = isinstance(value, dict) and part in value
        value = value[part] if is_entry or is_value else None  # type: ignore[index]
    if problem.fix.startswith("begin each entry with a hyphen") and isinstance(value, list):
        places = {str(each.get("name", place)): place for place, each in enumerate(value)}
        wrong = next(key for key in dict(problem.value) if not str(key).isdecimal())  # type: ignore[call-overload]
        near = nearest(str(wrong), places) or [*places][-1:]
        fix = Fix(f"write {places[near[0]]}, the index of {near[0]} in {name}, in place of {wrong}")
        return replace(problem, fix=fix)
    if problem.fix.startswith("write ") and getattr(problem.fix, "is_example", False) and problem.edits:
        ((key, example),) = problem.edits[0].items()
        usual = value if isinstance(value, str) else ""
        if usual:
            return replace(problem, fix=Fix(problem.fix.replace(str(example), usual), ({key: usual},)))
    if (
        not problem.fix.startswith(("set ", "change "))
        or not isinstance(value, (str, int, float))
        or value == problem.value
    ):
        return problem
    fix = Fix(f"set {path[-1]} to {in_words(value)}, the value of {name}", ({str(path[-1]): value},))
    return replace(problem, fix=fix)


def stated_plan(document: Document) -> dict[str, object]:
    """Return the fields of the document's plan by their long names; none if the plan is faulty."""
    try:
        _, plan = in_long_names(document, "plan", document.mapping.get("plan"))
    except SpecError:
        return {}
    return plan if isinstance(plan, dict) else {}


def nodes_meant(wrong: object, name: str, document: Document) -> int:
    """Return the number of nodes that a wrong number means, or else those that the plan fills, or 1."""
    from flopcast.slips import whole_number

    fields = stated_plan(document)
    given = [fields.get(each, 1) for each in DEGREES] if "data_parallel" in fields else [0]
    devices = prod(each for each in given if isinstance(each, int))
    known = catalog.known("clusters", name.strip())
    nodes, rest = divmod(devices, catalog.cluster(known).node.devices) if known else (1, 0)
    return whole_number(wrong, 1 if rest else max(nodes, 1))


def with_factors(problems: Sequence[Problem], part: object) -> list[Problem]:
    """Return the faults of a part of a job. If a site has factors as keys, the fix writes them as a list.

    >>> site = {"factors": [{"name": "fabric", "ratio": 1.2}], "host": 1.1}
    >>> unknown = Problem("site.host", 1.1, "", "", "remove host")
    >>> print(with_factors([unknown], site)[0].fix.partition("}, ")[2])
    {"name": "host", "ratio": 1.1}] in place of factors and host
    """
    keys = part if isinstance(part, dict) else {}
    removed = {f"site.{key}": key for key in map(str, keys) if key.partition("[")[0] in KINDS}
    own = {
        each.field
        for each in problems
        if each.fix.startswith((f"remove {removed.get(each.field)}", f"remove {each.field}="))
        if each.field in removed
    }
    ratios = {key: keys[key] for field, key in removed.items() if field in own}
    if not ratios or not all(type(ratio) in (int, float) and ratio > 0 for ratio in ratios.values()):
        return list(problems)
    stated = keys.get("factors", [])
    if isinstance(stated, dict):
        own |= {"site.factors"}
        name = SiteFactor.model_fields["name"]
        stated = [{"name": known_name(name, key), "ratio": ratio} for key, ratio in stated.items()]
    stated = stated if isinstance(stated, list) else []
    listed = [*stated, *({"name": key, "ratio": ratio} for key, ratio in ratios.items())]
    replaced = " and ".join(each for each in keys if each in ratios or each == "factors")
    text = f"write factors: {json.dumps(listed)} in place of {replaced}"
    if all(each.where.startswith(ARGUMENT) for each in problems if each.field in own):
        text = f"write site.factors='{json.dumps(listed)}'"
    fix = Fix(text, [{"factors": listed}])
    return [replace(each, fix=fix) if each.field in own else each for each in problems]


def with_stacks(
    problems: Sequence[Problem], job: Job, faults: Callable[[Job], Sequence[Problem]]
) -> list[Problem]:
    """Return the faults of a job. If another stack is a fix, the fix names a stack without the fault.

    Parameters
    ----------
    faults : returns the faults of a job with another stack
    """
    named = []
    for problem in problems:
        choice, fix = OTHER_STACK.search(problem.fix), problem.fix
        if choice:
            other, rest = next(_helping(problem, problems, job, faults), ""), fix[: choice.start()]
            fix = Fix(f"{other}, or {rest}" if other else rest, problem.edits)
        named.append(replace(problem, fix=fix))
    return named


def _helping(
    problem: Problem, problems: Sequence[Problem], job: Job, faults: Callable[[Job], Sequence[Problem]]
) -> Iterator[str]:
    """Yield the option for each stack that removes a fault, with the further edit that it needs.

    Faults of the job with its own stack may remain.
    """
    more, others = [], {(each.field, each.because) for each in problems if each != problem}
    for name in (*USUAL_STACKS, *catalog.names("stacks")):
        changed = job.model_copy(update={"stack": catalog.stack(name)})
        left = [each for each in faults(changed) if (each.field, each.because) not in others]
        if not left:
            yield f"choose --stack {name}"
        elif len(left) == 1 and left[0].because != problem.because and left[0].edits:
            more.append(f"choose --stack {name} and {left[0].fix}")
    yield from more
