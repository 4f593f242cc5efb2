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
from flopcast.io.edits import merged, plan_mapping
from flopcast.io.validate import build
from flopcast.io.yaml_text import Document, read_yaml
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

    Parameters
    ----------
    path : Path
        YAML or JSON, whatever its ending.

    Returns
    -------
    Job
        One that keeps every rule: it can be predicted.

    Raises
    ------
    SpecError
        The file cannot be read, or the job contradicts itself; every fault with its line.
    """
    document = read_yaml(read_file(path), str(path))
    return job_of(document)


def read_file(path: Path) -> bytes:
    """The bytes of a file: the only place where a job's path is opened.

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
    """The job that a document describes, checked.

    Raises
    ------
    SpecError
        Faults of its nouns, or, where each is right by itself, every rule that they break together.

    Examples
    --------
    >>> job = job_of(Document("example", {
    ...     "model": "megatron-1.7b", "cluster": "selene:2", "stack": "megatron-2022",
    ...     "batch": {"seq": 2048}, "plan": "dp=16 gbs=64"}, {}))
    >>> job.cluster.num_devices, job.plan.num_micro_batches
    (16, 4)
    """
    job = unchecked_job(document)
    problems = check(job)
    if problems:
        raise SpecError(_with_lines(problems, document))
    return job


def unchecked_job(document: Document) -> Job:
    """The job that a document describes, each noun valid by itself.

    Nouns are built one after the other, so that a fault in one does not hide those of the others; a
    noun that failed is not told as missing too.

    Raises
    ------
    SpecError
        Every fault of every noun. Rules between them are not asked.
    """
    if not isinstance(document.data, dict):
        raise SpecError([_not_a_mapping(document)])
    problems: list[Problem] = []
    data = dict(document.data)
    try:
        document, data["plan"] = plan_mapping(document, data.get("plan", {}))
    except SpecError as error:
        problems += error.problems
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


def _noun(key: str, data: object, document: Document) -> object:
    """A model, cluster, stack or site in one of three forms: a name, a base with changes, a description."""
    kind, noun = NOUNS[key]
    where = document.where((key,))
    if isinstance(data, str):
        name, _, count = data.partition(":") if key == "cluster" else (data, "", "")
        return _named(key, kind, name, where, int(count) if count.isdigit() else None)
    if not isinstance(data, dict) or "base" not in data:
        parts = catalog.with_parts(data) if key == "cluster" else data
        return build(noun, document, parts, (key,))
    base_name, nodes = str(data["base"]), None
    changes = {name: value for name, value in data.items() if name != "base"}
    if key == "cluster":
        base_name, _, count = base_name.partition(":")
        nodes = changes.pop("nodes", int(count) if count.isdigit() else None)
    if base_name not in catalog.names(kind):
        raise SpecError([catalog.unknown_name(kind, base_name, f"{key}.base", where)])
    base = catalog.document(kind, base_name).data
    if key == "model":
        changes = _with_blocks(base, changes, document)
    made = merged(base, changes)
    return build(noun, document, catalog.with_parts(made, nodes) if key == "cluster" else made, (key,))


def _with_blocks(base: object, changes: dict[str, object], document: Document) -> dict[str, object]:
    """`num_layers` as the number of blocks, of a model whose blocks are all equal."""
    if "num_layers" not in changes:
        return changes
    blocks = base.get("blocks") if isinstance(base, dict) else None
    own = changes.get("blocks", {})
    if not isinstance(blocks, list) or len(blocks) != 1 or not isinstance(own, dict):
        path = ("model", "num_layers")
        raise SpecError(
            [
                Problem(
                    where=document.where(path),
                    field=".".join(path),
                    value=changes["num_layers"],
                    allowed="only where all blocks of the base are equal",
                    because="it would be unclear which of them to repeat",
                    fix="change blocks instead",
                )
            ]
        )
    rest = {name: value for name, value in changes.items() if name != "num_layers"}
    return rest | {"blocks": merged(own, {"0": {"count": changes["num_layers"]}})}


def _named(key: str, kind: str, name: str, where: str, nodes: int | None) -> object:
    if name not in catalog.names(kind):
        raise SpecError([catalog.unknown_name(kind, name, key, where)])
    if key == "cluster":
        return catalog.cluster(name, nodes)
    load: Callable[[str], object] = getattr(catalog, key)
    return load(name)


def _with_lines(problems: tuple[Problem, ...], document: Document) -> list[Problem]:
    return [replace(problem, where=document.where(tuple(problem.field.split(".")))) for problem in problems]


def _not_a_mapping(document: Document) -> Problem:
    """The fault of an empty file, a list, or a text that happens to be YAML."""
    return Problem(
        where=document.where(()),
        field="document",
        value=document.data,
        allowed="a mapping with model, cluster, plan, stack and batch",
        because="a job has named parts",
        fix="see: flopcast schema",
    )


def load_catalog_job(name: str) -> Job:
    """A job file that ships with flopcast, by its path without ending: "paper/…".

    Raises
    ------
    SpecError
        No such file, or a fault in it.
    """
    place = catalog.folder("jobs").joinpath(f"{name}.yaml")
    if not place.is_file():
        raise SpecError([catalog.unknown_name("jobs", name)])
    return job_of(read_yaml(place.read_bytes(), f"catalog/jobs/{name}.yaml"))
