"""The job that a command line describes: by a file, or by model, cluster, plan and stack, with changes.

Answers: which document do these words stand for, and where was each of its values given?
Elsewhere: edits of documents (library/edits.py), what makes a document a job (job_files.py), the options of
the command line (cli/options.py).
Later words win: options replace what the file says, KEY=VALUE changes both. `--gpus` then sizes the
cluster, and `--price` tells what its devices cost, whoever named it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from flopcast.errors import InfeasibleError, Problem, SpecError
from flopcast.files.inputs import exists
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.library import catalog
from flopcast.library.edits import edited_document, long_names, merged, placed
from flopcast.requests.job_files import COMMAND_LINE, USUAL, job_of, read_file
from flopcast.requests.sources import FileOptions, assuming, is_path, read_source, refuse_values, with_model
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job

LONGEST_USUAL = 8192  # tokens
USUAL_LENGTH = 2048  # tokens, where the model does not say: GPT-3's (arXiv:2005.14165, section 2.1)
OPTION = re.compile(r"--([a-z]+)\b(?!-)")  # of the command line
Read = TypeVar("Read")


def job_from(job: str | None, changes: tuple[str, ...], **named: object) -> Job:
    """Return the checked job that the arguments describe; arguments as of `read_from`."""
    return read_from(job, changes, job_of, **named)


def read_from(
    job: str | None, changes: tuple[str, ...], read: Callable[[Document], Read], **named: object
) -> Read:
    """Return the result of `read` for the document that the arguments describe.

    Parameters
    ----------
    job : str or None
        A path, or the first change if no file is given: an argument with "=" is a change.
    changes : tuple of str
        "KEY=VALUE", applied in order. Paths among them are further files of the job, such as those that
        GPT-NeoX merges.
    read : callable
        Makes a job of a document, and checks it.
    named : object
        The values of `OPTIONS` by name, None where an option was not given.

    Raises
    ------
    SpecError
        Every fault of the file or the arguments.
    """
    if job is not None and "=" in job and not exists(job):  # no file: it is the first change
        changes, job = (job, *changes), None
    document, stated = Document(COMMAND_LINE, {}, {}), None
    if not job:
        refuse_values(file_options(named, changes))
    if job:
        further = tuple(change for change in changes if "=" not in change and exists(change))
        changes = tuple(change for change in changes if change not in further)
        source = read_source(job, file_options(named, changes), further)
        document, stated = source.document, source.devices
        named = named | ({"model": None} if source.has_model else {})
    if not isinstance(document.data, dict):
        return read(document)
    model, site = named["model"] or document.data.get("model"), named["site"]
    if isinstance(model, str) and is_path(model):
        document, named["model"] = with_model(document, model), None
    if isinstance(site, Path):
        given = read_yaml(read_file(site), str(site))
        data = (document.data if isinstance(document.data, dict) else {}) | {"site": given.data}
        document = placed(replace(document, data=data), ("site",), given.name, given)
    return read_request(document, changes, read, stated, **named)


def read_request(
    document: Document,
    changes: tuple[str, ...],
    read: Callable[[Document], Read],
    stated: int | None = None,
    **named: object,
) -> Read:
    """Return the same as `read_from` for a document that is already read; names are never paths.

    Parameters
    ----------
    stated : int or None
        How many devices a launch script states.
    """
    document = _with_options(document, **named)
    document, mistyped = _tried(document, lambda given: edited_document(given, changes))
    gpus = _unsized(document, stated) if named["gpus"] is None else named["gpus"]
    if stated is not None and gpus == stated and not _cluster(document):
        gpus = None  # the file's plan counts them, and there is no cluster to size
    document, unsized = _tried(document, lambda given: _with_gpus(given, gpus))
    document = _with_price(document, named.get("price"), anew=False)
    problems = (*unsized, *mistyped)
    if mistyped:  # what the changes would have mended is no fault
        raise SpecError(problems)
    try:
        made = read(_with_defaults(document))
    except SpecError as error:
        others = [each for each in error.problems if not (unsized and each.field == "plan")]
        raise SpecError([*problems, *others]) from None  # how many devices a plan fills is then no question
    except InfeasibleError:
        if problems:  # no plan is possible on what was not meant
            raise SpecError(problems) from None
        raise
    if problems:
        raise SpecError(problems)
    return made


def _tried(
    document: Document, step: Callable[[Document], Document]
) -> tuple[Document, tuple[Problem, ...]]:
    """Return the document after a step; on faults, the unchanged document and these, so that others
    follow.
    """
    try:
        return step(document), ()
    except SpecError as error:
        return document, error.problems


def _with_options(document: Document, **named: object) -> Document:
    """Return the document with the parts that options replace."""
    data = dict(document.data) if isinstance(document.data, dict) else {}
    for key in ("model", "stack", "cluster", "plan"):
        if named[key] is not None:
            data[key] = named[key]
            document = placed(document, (key,), f"--{key}")
    if named["seq"] is not None:
        data["batch"] = _others(data.get("batch")) | {"sequence_length": named["seq"]}
        document = placed(document, ("batch", "sequence_length"), "--seq")
    document = _with_price(replace(document, data=data), named.get("price"), anew=True)
    data = dict(document.data) if isinstance(document.data, dict) else data
    return replace(document, data=data)


def _with_price(document: Document, price: object, anew: bool) -> Document:
    """Return the document with the price of a device, whoever names the cluster.

    In place of what a file says (`anew`), but not of a later KEY=VALUE.
    """
    cluster = _cluster(document)
    if price is None or not isinstance(document.data, dict) or not cluster:
        return document
    if "price" in cluster and not anew:
        return document
    stated = price if str(price)[:1].isalpha() else {"device_usd_per_hour": price}
    changed = document.data | {"cluster": cluster | {"price": stated}}
    return placed(replace(document, data=changed), ("cluster", "price"), "--price")


def _others(batch: object) -> dict[str, object]:
    """Return what a batch states in addition to the length of its sequences."""
    if not isinstance(batch, dict):
        return {}
    long = long_names(Batch)
    return {key: value for key, value in batch.items() if long.get(key, key) != "sequence_length"}


def without_options(problem: Problem) -> Problem:
    """Return a fault without command line: with arguments of Python, or fields of a request.

    The place is left out where the field says it.

    >>> told = without_options(
    ...     Problem(where="--seq", field="batch.seq", value=0, allowed="", because="", fix="see --seq"))
    >>> told.where, told.fix
    ('argument seq', 'see seq')
    """
    option = OPTION.fullmatch(problem.where)
    named = option is not None and problem.field.partition(".")[0] == option[1]
    where = OPTION.sub(r"argument \1", problem.where).replace(COMMAND_LINE, "arguments")
    told = {
        name: OPTION.sub(r"\1", getattr(problem, name)) for name in ("field", "allowed", "because", "fix")
    }
    return replace(problem, where="" if named else where, **told)


def file_options(named: Mapping[str, object], changes: Sequence[str]) -> FileOptions:
    """Return what the arguments say that another program's file may leave open: devices, model, format.

    A cluster that is named without a size counts whole, where nothing else tells the devices.
    """
    gpus, model, kind = named["gpus"], named["model"], named.get("file_kind")
    clusters = [change.removeprefix("cluster=") for change in changes if change.startswith("cluster=")]
    name, _, nodes = str([named["cluster"], *clusters][-1]).partition(":")
    devices, whole = gpus if isinstance(gpus, int) else None, None
    if devices is None and catalog.known("clusters", name):
        if nodes.isdecimal():
            devices = int(nodes) * catalog.cluster(name).node.devices
        elif not nodes:
            whole = catalog.cluster(name).num_devices
    return FileOptions(
        devices=devices,
        whole=whole,
        model=model if isinstance(model, str) else None,
        kind=kind if isinstance(kind, str) else None,
        arguments=_several(named.get("arg")),
        environment=_several(named.get("env")),
    )


def _several(words: object) -> tuple[str, ...]:
    """Return the values of an option that may be given several times; empty if it was not given."""
    return tuple(map(str, words)) if isinstance(words, (tuple, list)) else ()


def _with_defaults(document: Document) -> Document:
    """Return the document with defaults for stack and sequence length, which become assumptions."""
    data = document.data
    if not isinstance(data, dict):
        return document
    notes = []
    if "stack" not in data:
        data = data | {"stack": USUAL["stack"]}
        notes.append(f"stack {data['stack']}")
    if "batch" not in data:
        length = _usual_length(data.get("model"))
        data = data | {"batch": {"sequence_length": length}}
        notes.append(f"sequence_length {length}")
    return assuming(replace(document, data=data), tuple(notes))


def _usual_length(model: object) -> int:
    """Return the default sequence length: that of the model's training, up to 8192."""
    own = _by_name(model)
    base = str(own.get("base"))
    data = merged(catalog.document("models", base).data, own) if catalog.known("models", base) else own
    known = data if isinstance(data, dict) else {}
    length = known.get("context_length") or known.get("learned_positions")
    if isinstance(length, int) and not isinstance(length, bool) and length > 0:
        return min(length, LONGEST_USUAL)
    return USUAL_LENGTH


def _by_name(noun: object) -> dict[str, object]:
    """Return a noun of a job as a mapping; a name becomes the `base` of one; anything else is empty."""
    return {"base": noun} if isinstance(noun, str) else noun if isinstance(noun, dict) else {}


def _cluster(document: Document) -> dict[str, object]:
    """Return the cluster as a base with changes; without a base if it is described, or missing."""
    return _by_name(document.data.get("cluster")) if isinstance(document.data, dict) else {}


def _unsized(document: Document, stated: int | None) -> int | None:
    """Return the devices that a launch script states, if the cluster is named without a size."""
    cluster = _cluster(document)
    sized = "base" not in cluster or ":" in str(cluster["base"]) or "nodes" in cluster
    return None if sized else stated


def _with_gpus(document: Document, gpus: object) -> Document:
    """Return the cluster with as many nodes as `gpus` need, or a part of one node.

    They win over a number of nodes; other changes of the cluster stay.
    """
    if gpus is None or not isinstance(document.data, dict):
        return document
    if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1:
        raise SpecError([_gpus_fault(gpus, "a whole number above 0", "devices are counted")])
    cluster = _cluster(document)
    if "base" not in cluster:
        raise SpecError([_gpus_fault(gpus, "a named --cluster", "--gpus counts devices of a known node")])
    name = str(cluster["base"]).partition(":")[0]
    if catalog.known("clusters", name) is None:
        return document  # told with the other faults of the job
    per_node = catalog.cluster(name).node.devices
    if gpus > per_node and gpus % per_node:
        allowed = f"a multiple of {per_node}, the devices of a node of {name}, or less than a node"
        below = gpus // per_node * per_node
        fix = f"set --gpus to {below} or {below + per_node}"
        raise SpecError([_gpus_fault(gpus, allowed, "jobs on several nodes use whole nodes", fix)])
    part = {"nodes": 1, "groups": {"0": {"node": {"devices": gpus}}}}
    size = part if gpus < per_node else {"nodes": gpus // per_node}
    changed = document.data | {"cluster": merged(cluster, {"base": name} | size)}
    return replace(document, data=changed, places=document.places | {("cluster",): "--gpus"})


def _gpus_fault(
    gpus: object, allowed: str, because: str, fix: str = "change --gpus or --cluster"
) -> Problem:
    """Return the problem of a number of devices; click cannot check it, as it depends on the cluster."""
    return Problem(field="--gpus", value=gpus, allowed=allowed, because=because, fix=fix)
