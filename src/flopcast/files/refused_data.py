"""The faults that pydantic found in data, with the line, the reason and the fix of each.

Answers: which field of a file is wrong, on which line, and which keys may stand beside it?
Elsewhere: reading valid data (validate.py), the message about a wrong value (field_faults.py).
"""

import re
from collections.abc import Iterable

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from flopcast.errors import Problem, shown
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.field_faults import contradicted, field_fault, missing_field, spellings
from flopcast.files.field_names import ARGUMENT, meant_name, same_elsewhere, unknown_field
from flopcast.files.field_paths import OF_FILES, dotted, value_at
from flopcast.files.nearest_names import alternatives
from flopcast.files.other_forms import of_kind
from flopcast.files.unit_faults import is_option
from flopcast.files.yaml_text import COMMAND_LINE, Document, Path
from flopcast.fixes import Fix, edits_of, in_place, only_value, set_to, with_names
from flopcast.records import replace

OF_PYDANTIC = ("function-", "literal[", "tuple[")  # parts of locations that stand in no file
ALTERNATIVES = {kind.__name__ for kind in (bool, int, float, str)}  # in locations of pydantic
TOGETHER = "together with "  # begins what is allowed for a field that needs another one
OF_WORDS = ("--traffic", "--slo", "--checkpoint", "--loader", "--to-plan")  # options of several settings


def faults_of(
    error: ValidationError, noun: type[BaseModel], document: Document, path: Path, data: object
) -> dict[str, Problem]:
    """Return the faults that pydantic found, by field."""
    faults: dict[str, Problem] = {}
    details = [of_kind(each) for each in error.errors()]
    for detail in details:
        if not _empty(detail) and not _misspelt(detail, details, noun):
            fault = _problem(detail, noun, document, path, data)
            faults.setdefault(fault.field, fault)  # a choice is refused by each part
    return faults


def _empty(detail: ErrorDetails) -> bool:
    """Return whether a fault follows from another, which is reported anyway.

    A list is called too short because its entries are faulty, a default that follows from other fields is
    missing because one of them is.
    """
    given = detail["input"]
    short = detail["type"] == "too_short" and isinstance(given, list) and len(given) > 0
    return short or detail["type"] == "default_factory_not_called"


def _misspelt(detail: ErrorDetails, details: Iterable[ErrorDetails], noun: type[BaseModel]) -> bool:
    """Return whether a field is missing only because an unknown key of the mapping misspells it."""
    if detail["type"] != "missing":
        return False
    *above, field = detail["loc"]
    owner, name = _owner(noun, tuple(detail["loc"]))
    same = spellings(name, owner.model_fields[name]) if owner else [str(field)]
    unknown = (each["loc"] for each in details if each["type"] == "extra_forbidden")
    return any([*above] == [*others] and meant_name(str(key), same) for *others, key in unknown)


def _problem(
    detail: ErrorDetails, noun: type[BaseModel], document: Document, path: Path, data: object
) -> Problem:
    given = detail["loc"][:-1] if detail["loc"] and detail["loc"][-1] in ALTERNATIVES else detail["loc"]
    parts = tuple(part for part in given if not str(part).startswith(OF_PYDANTIC))
    location, _ = _walk(noun, parts)
    location = _as_written(location, data)
    full = (*path, *location)
    field, value = dotted(full), detail["input"]
    if detail["type"] == "extra_forbidden":
        return _unknown(noun, parts, full, value_at(data, location) or value, document)
    if (named := contradicted(detail)) in (value if isinstance(value, dict) else ()):
        full = (*full, named)
        field, value = dotted(full), value[named]
    where = document.where(full)
    if detail["type"] == "missing":
        where = document.where(full[:-1]) or where
        allowed, because, example = missing_field(*_owner(noun, parts))
        edits = ({str(location[-1]): example},) if example else ()
        fix: str = Fix(f"add {location[-1]}{': ' if example else ', '}{example or allowed}", edits)
        if where in (COMMAND_LINE, "") or where.startswith(ARGUMENT):
            fix = Fix(f'add {field}="{example or "VALUE"}"', edits)
        return Problem(field, None, allowed, because, fix, where=where, fault="is missing")
    name = _last_name(location) or field
    words = field_fault(detail, name, *_owner(noun, parts))
    fix = words.fix
    if not full:  # the whole document
        keys = (f"{key}: {EXAMPLES[key]}" for key in noun.model_fields if key in EXAMPLES)
        fix = f"write {next(keys, fix)} in place of the text"
    text, right = value_at(data, location), only_value(fix)
    if isinstance(text, str) and parts and isinstance(parts[-1], int) and words.allowed == "a number":
        words = replace(words, allowed="whole numbers with commas between them")
    if right and parts[-1:] != location[-1:] and isinstance(text, str) and "," in text:
        fix = set_to({name: ",".join(dict.fromkeys(text.replace(str(value), right).split(",")))})
    if location and isinstance(location[-1], int):  # an entry of a list
        others = value_at(data, location[:-1])
        again = isinstance(others, list) and right in others  # the value that was meant is listed already
        fix = f"leave out {value}" if again else in_place(right, value) if right else fix
    if is_option(where) and (where not in OF_WORDS or len(full) < 2):
        more = {each: f"--{each}" for each in ("samples", "tokens") if fix.startswith("add ")}
        fix = with_names(fix, more | {name: where})
    needed = words.allowed.removeprefix(TOGETHER) if words.allowed.startswith(TOGETHER) else ""
    fault = f"needs {needed}" if needed else ""
    if value is None and not _is_given(data, location):
        fault = "is missing"
    elif where[-1:].isdigit() and isinstance(value_at(document.data, full[:-1]), dict):  # in a file
        written = "=" not in str(value) and re.match(r"write \w+=(?!.* in place of )", fix)
        fix = Fix(fix.replace("=", ": ", 1), edits_of(fix)) if written else fix
    in_text = _in_text(value_at(document.data, full[:-1]), full) if isinstance(value, float) else ""
    value = value_at(data, location) or in_text or value if isinstance(value, (float, dict)) else value
    if key := document.keys.get(full, ""):  # of another program
        named = with_names(fix, {str(full[-1]): key})
        fix = Fix(named, edits_of(fix), getattr(fix, "part", ""), getattr(fix, "is_example", False))
        fault = fault or f"= {shown(value)} (from {key}) is not allowed"
    return Problem(field, value, needed or words.allowed, words.because, fix, where=where, fault=fault)


def _in_text(text: object, path: Path) -> str:
    """Return the value of a field in a short form, "-5min" of every_s in "nvme every=-5min"; "" if none."""
    name = re.sub("_(?:s|steps)$", "", str(path[-1]))
    found = re.search(rf"\b{name}=(\S+)", text) if isinstance(text, str) else None
    return found[1] if found else ""


def _unknown(noun: type[BaseModel], parts: Path, full: Path, value: object, document: Document) -> Problem:
    """Return the fault of a key, at `full` in the document, that its mapping does not have."""
    holder = value_at(document.data, full[:-1])
    whole = holder if isinstance(holder, dict) else dict(re.findall(r"(\w+)=([^\s,]+)", str(holder or "")))
    of_files = OF_FILES.get(full[:-1], ())
    is_changed = not whole or "base" in whole
    names = [*names_at(noun, parts[:-1]), *(of_files if is_changed else of_files[:1])]
    key, where = str(full[-1]), document.where(full)

    def same(name: str) -> list[str]:
        owner, field = _owner(noun, (*parts[:-1], name))
        return spellings(field, owner.model_fields[field]) if owner else []

    unknown = unknown_field(key, value, names, dotted(full), where, whole, same)
    return _of_another_kind(unknown, noun, parts)


def _as_written(location: Path, data: object) -> Path:
    """Return a location without the positions in a list that was written as a text, "1,2,4"."""
    for end, part in enumerate(location):
        if isinstance(part, int) and not isinstance(value_at(data, location[:end]), (list, tuple)):
            return location[:end]
    return location


def _is_given(data: object, location: Path) -> bool:
    """Return whether the data have an entry at a location, even if it is null."""
    inside = value_at(data, location[:-1])
    return not isinstance(inside, dict) or location[-1] in inside


def _owner(noun: type[BaseModel], location: tuple[int | str, ...]) -> tuple[type[BaseModel] | None, str]:
    """Return the innermost model that contains a location, and the name of its field; None, "" if none."""
    for depth in range(len(location) - 1, -1, -1):
        _, holder = _walk(noun, location[:depth])
        written = str(location[depth])
        if isinstance(holder, type) and issubclass(holder, BaseModel):
            for field, info in holder.model_fields.items():
                if written in (field, *spellings(field, info)):
                    return holder, field
    return None, ""


def _last_name(location: Path) -> str:
    """Return the innermost name of a location; an entry of a list has the list's name."""
    return next((part for part in reversed(location) if isinstance(part, str)), "")


def _of_another_kind(unknown: Problem, noun: type[BaseModel], parts: Path) -> Problem:
    """Return the fault of a key; its reason is the kind that has the key, if the mapping is of another."""
    *above, kind, key = ("", *parts)
    kinds = _kinds(_walk(noun, tuple(above[1:]))[1])
    others = [name for name, model in kinds.items() if key in model.model_fields]
    if kind not in kinds or not others or same_elsewhere(str(key), names_at(noun, parts[:-1])):
        return unknown
    because = f"only the kind {alternatives(others)} has this field, and this {above[-1]} is of kind {kind}"
    return replace(unknown, because=because, fix=f"remove {key}")


def names_at(noun: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Return names that the mapping at `location` accepts, including short ones and those of all kinds.

    Positions in lists are skipped, because all entries of a list are of one kind.
    """
    _, current = _walk(noun, location)
    is_one = isinstance(current, type) and issubclass(current, BaseModel)
    models: list[type[BaseModel]] = [current] if is_one else [*_kinds(current).values()]  # type: ignore[list-item]
    return [
        each
        for model in models
        for name, info in model.model_fields.items()
        for each in spellings(name, info)
    ]


def _walk(noun: type[BaseModel], location: tuple[str | int, ...]) -> tuple[Path, object]:
    """Return a location as a user writes it, and its value.

    Pydantic names the kind that was chosen where there are several ("mlp" of a feed-forward): no user wrote
    that word at this place.
    """
    written: list[str | int] = []
    current: object = noun
    for part in location:
        kinds = _kinds(current)
        if part in kinds:
            current = kinds[str(part)]
            continue
        written.append(part)
        if isinstance(part, str) and isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(part)
            current = _inner(field.annotation) if field else None
    return tuple(written), current


def _kinds(annotation: object) -> dict[str, type[BaseModel]]:
    """Return the models of a tagged choice by their tags; empty if there is no choice."""
    kinds: dict[str, type[BaseModel]] = {}
    for argument in getattr(annotation, "__args__", ()):
        tags = [tag.tag for tag in getattr(argument, "__metadata__", ()) if isinstance(tag, Tag)]
        model = getattr(argument, "__origin__", None)
        if tags and isinstance(model, type) and issubclass(model, BaseModel):
            kinds[tags[0]] = model
    return kinds


def _inner(annotation: object) -> object:
    """Return the model inside an annotation such as `Site | None`; a choice unchanged."""
    for argument in getattr(annotation, "__args__", ()):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return annotation
