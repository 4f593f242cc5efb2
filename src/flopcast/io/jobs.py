"""Job files: one YAML or JSON mapping that names or describes model, cluster, plan, stack and batch.

Answers: which job does this file, or this command line, ask for?
Where a whole noun is expected, a text names a catalogue entry ("perlmutter:32" = 32 nodes of it), and a
mapping with `base: NAME` is that entry with fields changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from flopcast.errors import Problem, SpecError
from flopcast.io import catalog
from flopcast.io.validate import build
from flopcast.io.yaml_text import Document, read_yaml, resolve
from flopcast.spec.checks import check
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack

NOUNS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "model": ("models", Model),
    "stack": ("stacks", Stack),
    "site": ("sites", Site),
    "cluster": ("clusters", Cluster),
}


def load_job(path: Path) -> Job:
    """Read, complete and check a job file.

    Raises
    ------
    SpecError
        The file cannot be read, or the job contradicts itself; every fault with its line.
    """
    document = read_yaml(read_file(path), str(path))
    return job_of(document)


def read_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises
    ------
    SpecError
        It does not exist, is a folder, or may not be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise SpecError(
            [
                Problem(
                    field="file",
                    value=str(path),
                    allowed="a file that exists and may be read",
                    because=error.strerror or type(error).__name__,
                    fix="check the path",
                )
            ]
        ) from None


def job_of(document: Document) -> Job:
    """The job that a document describes, checked."""
    job = unchecked_job(document)
    problems = check(job)
    if problems:
        raise SpecError(_with_lines(problems, document))
    return job


def unchecked_job(document: Document) -> Job:
    """The job that a document describes, each noun valid by itself."""
    if not isinstance(document.data, dict):
        raise SpecError([_not_a_mapping(document)])
    problems: list[Problem] = []
    data = dict(document.data)
    if isinstance(data.get("plan"), str):
        data["plan"] = plan_words(data["plan"], document.where(("plan",)))
    for key in NOUNS:
        if key in data:
            try:
                data[key] = _noun(key, data[key], document)
            except SpecError as error:
                problems += error.problems
                data.pop(key)
    try:
        job = build(Job, document, data)
    except SpecError as error:
        told = {problem.field.split(".")[0] for problem in problems}
        problems += [p for p in error.problems if p.field not in told]
        raise SpecError(problems) from None
    if problems:
        raise SpecError(problems)
    return job


def plan_words(text: str, where: str = "") -> dict[str, object]:
    """A plan's short form, "tp=8 pp=4 mbs=1 gbs=1024 sp", as a mapping; a word alone means true."""
    words: dict[str, object] = {}
    problems = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if name in words or (equals and not value):
            problems.append(
                Problem(
                    where=where,
                    field=f"plan.{name}",
                    value=word,
                    allowed="each name once, as name=value",
                    because="a plan has one value for each degree",
                    fix=f"write {name}=1" if equals else f"keep one {name}",
                )
            )
        words[name] = resolve(value) if equals else True
    if problems:
        raise SpecError(problems)
    return words


def _noun(key: str, data: object, document: Document) -> object:
    kind, noun = NOUNS[key]
    where = document.where((key,))
    if isinstance(data, str):
        name, _, count = data.partition(":") if key == "cluster" else (data, "", "")
        return _named(key, kind, name, where, int(count) if count.isdigit() else None)
    if not isinstance(data, dict) or "base" not in data:
        parts = catalog.with_parts(data) if key == "cluster" else data
        return build(noun, document, parts, (key,))
    base_name = str(data["base"])
    if base_name not in catalog.names(kind):
        raise SpecError([catalog.unknown_name(kind, base_name, f"{key}.base", where)])
    base = catalog.document(kind, base_name)
    changes = {name: value for name, value in data.items() if name != "base"}
    nodes = changes.pop("nodes", None) if key == "cluster" else None
    merged = _merge(base.data, changes)
    merged = catalog.with_parts(merged, nodes) if key == "cluster" else merged
    lines = base.lines | {path[1:]: line for path, line in document.lines.items() if path[:1] == (key,)}
    return build(noun, Document(document.name, merged, lines), merged)


def _named(key: str, kind: str, name: str, where: str, nodes: int | None) -> object:
    if name not in catalog.names(kind):
        raise SpecError([catalog.unknown_name(kind, name, key, where)])
    if key == "cluster":
        return catalog.cluster(name, nodes)
    load: Callable[[str], object] = getattr(catalog, key)
    return load(name)


def _merge(base: object, changes: object) -> object:
    """`base` with the fields of `changes`; mappings are merged, everything else is replaced."""
    if isinstance(base, dict) and isinstance(changes, dict):
        return base | {key: _merge(base.get(key), value) for key, value in changes.items()}
    return changes


def _with_lines(problems: tuple[Problem, ...], document: Document) -> list[Problem]:
    return [replace(problem, where=document.where(tuple(problem.field.split(".")))) for problem in problems]


def _not_a_mapping(document: Document) -> Problem:
    return Problem(
        where=document.where(()),
        field="document",
        value=document.data,
        allowed="a mapping with model, cluster, plan, stack and batch",
        because="a job has named parts",
        fix="see: flopcast schema",
    )


def load_catalog_job(name: str) -> Job:
    """A job file that ships with flopcast, by its path without ending: "paper/…"."""
    place = catalog.folder("jobs").joinpath(f"{name}.yaml")
    if not place.is_file():
        raise SpecError([catalog.unknown_name("jobs", name)])
    return job_of(read_yaml(place.read_bytes(), f"catalog/jobs/{name}.yaml"))
