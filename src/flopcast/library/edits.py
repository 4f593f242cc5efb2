"""Edits of a job's plain data before it is validated: short forms, `base:` with changes, KEY=VALUE.

Answers: which mapping do these words and changes describe?
Elsewhere: whether that mapping is a valid job (files/validate.py, spec/checks.py).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from pydantic import AliasChoices, BaseModel

from flopcast.errors import Problem, SpecError, collected
from flopcast.files.field_paths import dotted, example_of
from flopcast.files.yaml_text import Document, Path, read_yaml, resolve
from flopcast.fixes import anew
from flopcast.quantities import joined_units
from flopcast.records import replace
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import NUMERIC

WITH_SHORT_NAMES = ("plan", "batch", "traffic")  # parts of a job
SPACED = re.compile(r"(?<=\w)(?:\s+=\s*|=\s+)(?=[^\s=]+(?:\s|$))")  # an equals sign beside a space
UNEQUAL = re.compile(r"(?<![\w=:,.-])([A-Za-z_]+)(?::\s*|\s+)(?=\d+(?:[\s,]|$))")  # a colon or a space


@cache
def long_names(noun: type[BaseModel]) -> Mapping[str, str]:
    """Return the fields of a class that have a short name, by this name.

    Examples
    --------
    >>> long_names(Batch), long_names(Plan)["tp"]
    ({'seq': 'sequence_length'}, 'tensor_parallel')
    """
    return {
        str(alias): name
        for name, info in noun.model_fields.items()
        if isinstance(info.validation_alias, AliasChoices)
        for alias in info.validation_alias.choices
        if alias != name
    }


def _long_names_of(part: str) -> Mapping[str, str]:
    """Return the same for one of `WITH_SHORT_NAMES`."""
    if part == "traffic":  # only serving needs it
        from flopcast.spec.traffic import Traffic

        return long_names(Traffic)
    return long_names(Plan if part == "plan" else Batch)


def plan_words(text: str, where: str = "") -> dict[str, object]:
    """Return a plan's short form, such as "tp=8 pp=4 gbs=1024 sp" (sp is then true), as a mapping.

    A list continues after a comma, even if the line ends there.

    Raises
    ------
    SpecError
        A name occurs twice, or has no value after its "=".

    Examples
    --------
    >>> plan_words("tp=8 sp precision=bf16")
    {'tensor_parallel': 8, 'sequence_parallel': True, 'precision': 'bf16'}
    >>> plan_words("pp=2 stage_layers=17, 15")
    {'pipeline_parallel': 2, 'stage_layers': '17,15'}
    """
    return dict(words_of("plan", text, where))


@lru_cache(maxsize=64)  # a request reads its plan several times
def words_of(part: str, text: str, where: str = "") -> Mapping[str, object]:
    """Return the short form of a part of `WITH_SHORT_NAMES` as a mapping of long names.

    Raises
    ------
    SpecError
        In the same cases as `plan_words`.
    """
    words, problems, text = dict[str, object](), list[Problem](), joined_units(text)
    bare = re.sub(r"[{}\"]", "", text) if text[:1] == "{" else text  # of YAML or JSON
    spaced = re.sub(r"\s*;\s*(?=[A-Za-z_]+[\s=:])|(?<!\S)-+(?=[a-z])", " ", bare)
    joined = (text if spaced == text else spaced.strip()).replace(";", ",")
    glued, name_and_number = _names_and_numbers(part)
    joined = glued.sub(lambda found: name_and_number.sub(r" \1=\2", found[0]).strip(), joined)
    if (joined := UNEQUAL.sub(r"\1=", SPACED.sub("=", joined))) != text:
        allowed = "settings NAME=VALUE with spaces between them"
        because = "an equals sign without spaces joins a name and its value"
        because = "spaces separate settings, and commas separate values" if ";" in text else because
        joined = re.sub(r",\s*([A-Za-z_]+)[:=](?=\S)", r" \1=", joined)
        raise SpecError([Problem(part, text, allowed, because, anew(joined), where)])
    for word in re.sub(r",\s+", ",", text).split():
        short, equals, value = word.partition("=")
        name = _long_names_of(part).get(short, short)
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", short):
            allowed = f"settings NAME=VALUE with spaces between them, such as {example_of(part)}"
            because, fix = f"{short} is not the name of a setting", f"write {part} as {example_of(part)}"
            if limit := re.fullmatch(r"([A-Za-z_]+)([<>])=(\d+)", word):
                ends = f"1..{limit[3]}" if limit[2] == "<" else f"{limit[3]}..{max(8, 4 * int(limit[3]))}"
                because, fix = "a range has two ends", f"write {limit[1]}={ends} in place of {word}"
            problems.append(Problem(part, text, allowed, because, fix, where=where))
        elif _joins_settings(part, value):
            allowed, because = "settings with spaces between them", "commas separate values of one setting"
            fix = anew(re.sub(r",\s*(?=[A-Za-z_]+=)", " ", text))
            problems.append(Problem(part, text, allowed, because, fix, where))
        elif part == "plan" and not equals and name not in _flags_of_plans():
            allowed, because = "settings NAME=VALUE", f"{word} has no value"
            usual = example_of(name) or "2"
            fix = f"write {word}={usual}" if name in Plan.model_fields else f"remove {word}"
            if re.search(r"\.(ya?ml|json)$", word):
                because = f"{word} is the name of a file"
                fix = f"write the settings of the file, such as {example_of('plan')}"
            problems.append(Problem(part, text, allowed, because, fix, where))
        elif name in words or (equals and not value):
            twice = name in words
            fix = f"remove all but one {short}" if twice else f"write {short}=1"
            wrong = f"{short} is given twice" if twice else "no value follows the equals sign"
            problems.append(Problem(f"{part}.{name}", word, f"{short}=VALUE, once", wrong, fix, where))
        words[name] = resolve(value) if equals else True
    if problems:
        raise SpecError(problems)
    return words


@cache
def _names_and_numbers(part: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a word of names directly before their numbers, "tp8pp2", and of each name."""
    names = "|".join({*_long_names_of(part), *_long_names_of(part).values()})
    return re.compile(rf"(?<!\S)(?:(?:{names})\d+)+(?=[\s,]|$)"), re.compile(rf"({names})(\d+)")


@cache
def _flags_of_plans() -> Collection[str]:
    """Return the words of a plan that may stand without a value, in training or serving."""
    from flopcast.files.field_examples import MEANT
    from flopcast.spec.deployment import Deployment

    return {*Plan.model_fields, *Deployment.model_fields, *MEANT, "auto"} - {*NUMERIC}


def _joins_settings(part: str, value: str) -> bool:
    """Return whether a further setting follows the comma in a value: pp in the "8,pp=2" of "tp=8,pp=2"."""
    further = re.findall(r",(\w+)=", value)
    if not further:
        return False
    known = {*_long_names_of(part), *_long_names_of(part).values(), *Plan.model_fields}
    return not known.isdisjoint(further)


def in_long_names(document: Document, part: str, data: object) -> tuple[Document, object]:
    """Return a part of a job in long names, with the document of their lines. Other values do not change.

    Parameters
    ----------
    document : Document
        The document that contains `data`.
    part : one of `WITH_SHORT_NAMES`
        A plan may be a text, its short form.

    Raises
    ------
    SpecError
        A value is given under its short name and under its long name.
    """
    if isinstance(data, str) and part == "plan":
        return document, plan_words(data, document.where((part,)))
    if not isinstance(data, dict):
        return document, data
    names = _long_names_of(part)
    lines, problems = dict(document.lines), []
    renamed: dict[str, object] = {}
    for key, value in data.items():
        name = names.get(str(key), str(key))
        if name in renamed:
            allowed, because = f"either {name} or its short form, but not both", "both set the same field"
            where = document.where((part, key))
            problems.append(Problem(f"{part}.{key}", value, allowed, because, f"remove {key}", where))
        renamed[name] = value
        if (part, key) in lines:
            lines[part, name] = lines[part, key]
    if problems:
        raise SpecError(problems)
    return replace(document, lines=lines), renamed


def extended(base: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the other fields of its base. The sources of the entry come first.

    >>> extended({"era": "2026", "source": ["a"], "limit": 4}, {"era": "2024", "source": ["b"]})
    {'era': '2024', 'source': ['b', 'a'], 'limit': 4}
    """
    fields = {key: merged(base.get(key), value) for key, value in entry.items()}
    return {**base, **fields, "source": [*entry["source"], *base["source"]]}


def merged(base: object, changes: object) -> object:
    """Return `base` with the fields of `changes`.

    Mappings are merged, and a mapping of positions changes entries of a list; everything else is replaced.
    Fields of a device or host that `base` names change this entry of the catalogue.

    Examples
    --------
    >>> merged({"blocks": [{"count": 4, "dropout": 0.1}]}, {"blocks": {"0": {"count": 8}}})
    {'blocks': [{'count': 8, 'dropout': 0.1}]}
    """
    if not isinstance(changes, dict):
        return changes
    if isinstance(base, dict):
        return base | {key: merged(_as_base(key, base, value), value) for key, value in changes.items()}
    if isinstance(base, list) and all(k.isdigit() and int(k) < len(base) for k in map(str, changes)):
        by_position = {int(key): value for key, value in changes.items()}
        return [merged(v, by_position[i]) if i in by_position else v for i, v in enumerate(base)]
    return changes


def _as_base(key: str, holder: Mapping[str, object], changes: object) -> object:
    """Return the value of a key, but a named device or host whose fields are changed as a base."""
    value, is_changed = holder.get(key), isinstance(changes, dict) and not {"name", "base"} & changes.keys()
    return {"base": value} if key in ("device", "host") and isinstance(value, str) and is_changed else value


def without_entry(base: object, changes: object, document: Document, path: Path) -> Iterator[Problem]:
    """Yield a problem for each change of an entry that a list of `base` does not have.

    Parameters
    ----------
    base, changes : the arguments of `merged`
    document : gives the places of the changes
    path : the path of `base` in the document
    """
    if not isinstance(changes, dict):
        return
    if isinstance(base, dict):
        for key, value in changes.items():
            yield from without_entry(base.get(key), value, document, (*path, str(key)))
    if not isinstance(base, list):
        return
    for key, value in changes.items():
        if not str(key).isdigit():
            continue
        place = (*path, int(key))
        if int(key) < len(base):
            yield from without_entry(base[int(key)], value, document, place)
        else:
            last = len(base) - 1
            allowed = f"an entry from 0 to {last}" if last else "the entry 0"
            because, fix = f"{path[-1]} has {len(base)} entries here", f"write {last} in place of {key}"
            yield Problem(
                dotted(place), None, allowed, because, fix, document.where(place), "does not exist"
            )


def edited(data: object, parts: Sequence[str], value: object) -> object:
    """Return `data` with a value replaced; the name of an entry on the path to it becomes `{base: NAME}`.

    Parameters
    ----------
    data : object
        A mapping, a list, or the name of a catalogue entry. It is not changed.
    parts : sequence of str
        Keys on the way; digits choose an entry of a list.
    value : object

    Examples
    --------
    >>> edited({"cluster": "dgx-h100"}, ("cluster", "nodes"), 4)
    {'cluster': {'base': 'dgx-h100', 'nodes': 4}}
    """
    if not parts:
        return value
    key, *rest = parts
    if isinstance(data, list) and key.isdigit() and int(key) < len(data):
        return [edited(v, rest, value) if i == int(key) else v for i, v in enumerate(data)]
    holder = {"base": data} if isinstance(data, str) else data if isinstance(data, dict) else {}
    return holder | {key: edited(holder.get(key), rest, value)}


def edited_document(document: Document, changes: Sequence[str]) -> Document:
    """Return a job's document after changes such as "plan.tp=4". Errors of their values name the change.

    Raises
    ------
    SpecError
        The error lists all changes that are not KEY=VALUE.
    """
    data, problems = document.data, list[Problem]()
    for change in changes:
        path, equals, text = change.partition("=")
        parts = re.sub(r"\[(\d+)\]", r".\1", path.strip()).split(".")
        if not equals or not all(parts):
            problems.append(_not_a_change(change, document.mapping.get("run")))
            continue
        if parts[0] in WITH_SHORT_NAMES and isinstance(data, dict):
            part, *rest = parts
            document, renamed = in_long_names(document, part, data.get(part))
            data = data | {part: renamed}
            parts = [part, *(_long_names_of(part).get(name, name) for name in rest)]
        if "argument " in document.places.get(tuple(parts), ""):
            because = f"another change sets {path}, too"
            problems.append(Problem("argument", change, "one value", because, f"remove {change}"))
        with collected(problems):
            data = edited(data, parts, plain(text, f"argument {change}"))
        document = placed(document, tuple(parts), f"argument {change}")
    if problems:
        raise SpecError(problems)
    return replace(document, data=data)


def plain(text: str, name: str) -> object:
    """Return the plain value of a text on the command line in YAML, such as "8", "true" or "[1, 2]"."""
    return read_yaml(text.encode(), name).data


def placed(document: Document, path: Path, place: str, inner: Document | None = None) -> Document:
    """Return the document in which errors of the value at `path` name an option or argument, `place`.

    The old line numbers of the value are removed. `inner` is the document that contains its new ones.
    """
    size = len(path)
    lines = {known: line for known, line in document.lines.items() if known[:size] != path}
    places = {known: old for known, old in document.places.items() if known[:size] != path}
    if inner is not None:
        places |= {(*path, *known): f"{inner.name}:{line}" for known, line in inner.lines.items()}
    return replace(document, lines=lines, places={path: place} | places)


def _not_a_change(change: str, run: object) -> Problem:
    allowed, because = "KEY=VALUE, such as plan.tensor_parallel=4", "a change needs an equals sign"
    because = because if "." in change else f"there is no such file or model, and {because}"
    fix = f"remove {change}"
    if re.search(r"\.(ya?ml|json|toml|sh|csv|log)$", change):
        fix = f"check the path {change}, or remove it"
    elif key := re.fullmatch(r"([a-z]\w*\.[\w.]+)(?:[\s:]+(\S+))?", change):
        name = long_names(Plan).get(key[1].rpartition(".")[2], key[1].rpartition(".")[2])
        usual = example_of(name) or getattr(Plan.model_fields.get(name), "default", "")
        fix = f"write {key[1]}={key[2] or (usual if isinstance(usual, str) and usual else 2)}"
    if re.fullmatch(r"[\w.-]+:\d+", change):
        fix = f"write --cluster {change}"
    if re.fullmatch(r"[kmbt]|(thousand|million|billion|trillion)s?", change.lower()):
        because = "the shell has separated this letter or word from its number"
        name, number = next(iter(run.items())) if isinstance(run, dict) and run else ("tokens", 2)
        letter = "k" if change[:2] == "th" else change[0].upper()
        fix = f"join it to its number: write --{name} {number}{letter}"
    return Problem("argument", change, allowed, because, fix)
