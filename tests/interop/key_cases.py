"""Files with keys set to other values, and what a reader makes of them.

For every key that a reader counts as read, key_changes/FORMAT.txt has a file and another value that the key
may have. A line "@ FILE gpus=N KEY=VALUE …" names a right file with what is put into it; the lines below
give a key and its other value, both as YAML. A key may occur several times. What is set in goes on from the
line before. In flags.txt, of scripts of Megatron-LM, a line "@ FLAGS" is a script with more flags.
"""

from copy import deepcopy
from functools import cache
from math import prod

import yaml
from foreign_cases import FOREIGN
from megatron_cases import job_on, script_of

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.formats import parsed, read_kind
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.megatron.launch_script import launch_document
from flopcast.requests.job_files import job_of

CHANGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((FOREIGN.parent / "key_changes").glob("*.txt"))
}
CHANGES_OF_FLAGS = CHANGES.pop("flags")
LEFT_OUT = {  # a word of a context → flags of the small script that it goes without
    "tokenizer": ("--vocab-size",),
    "layers": ("--num-layers",),
    "length": ("--seq-length",),
    "neither": ("--bf16",),
    "fp16": ("--bf16",),
}
AXES = ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel")


def cases(table):
    """Every change of a table as (context, key, value), a context as the words behind "@"."""
    context, found = "", []
    for line in table.strip().replace("\n  ", " ").splitlines():
        if line.startswith("@"):
            context = line[1:].strip()
        else:
            key, _, value = line.partition(" ")
            found.append((context, key, value))
    return found


def put(data, key, value):
    """Set a dotted key in place; what stands in the way of a section is taken away."""
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            data[section] = {}
        data = data[section]
    data[last] = value


@cache
def plain(kind, name):
    """The data of a file of the folder."""
    return parsed((FOREIGN / kind / name).read_bytes(), name).data


def started(kind, context):
    """The data of a context, and what the command line says beside it: devices, a cluster."""
    name, *words = context.split()
    data, said = deepcopy(plain(kind, name)), {}
    for word in words:
        key, _, value = word.partition("=")
        if key in ("gpus", "cluster"):
            said[key] = value
        else:
            put(data, key, yaml.safe_load(value))
    return name, data, said


def outcome(kind, name, data, said):
    """The job and the notes of a file's data, or its faults; without devices, where `gpus` is 0."""
    bare, devices = kind == "deepspeed", int(said["gpus"]) or None
    try:
        document = read_kind(Document(name, data, {}), kind, ImportOptions(devices=devices, model=bare))
        nouns = {key: value for key, value in document.data.items() if key != "assumptions"}
        ranks = prod(nouns["plan"].get(axis, 1) for axis in AXES)
        nouns |= {"cluster": {"base": said.get("cluster", "dgx-h100"), "nodes": max(ranks // 8, 1)}}
        nouns |= {"model": "llama-3.1-8b", "batch": {"seq": 4096}} if bare else {}
        job = job_of(Document(name, nouns, {}))
    except SpecError as error:
        return "refused", tuple(sorted(str(problem) for problem in error.problems))
    return job, tuple(document.data["assumptions"])


@cache
def before(kind, context):
    """What a context is by itself."""
    return outcome(kind, *started(kind, context))


def after(kind, context, key, value):
    """What a context is with a key set to another value."""
    name, data, said = started(kind, context)
    put(data, key, yaml.safe_load(value))
    return outcome(kind, name, data, said)


def outcome_of_script(context, change=""):
    """As `outcome`, of a small script of Megatron-LM with flags; later ones count."""
    words = context.split()
    said = dict(word.split("=", 1) for word in words if word.startswith("cluster="))
    dropped = {flag: None for word in words for flag in LEFT_OUT.get(word, ())}
    flags = [word for word in words if word not in LEFT_OUT and not word.startswith("cluster=")]
    flags += ["--fp16"] if "fp16" in words else []
    small = {flag.removeprefix("--"): value for flag, value in dropped.items()}
    try:
        document = launch_document(script_of(" ".join([*flags, change]), **small), "run.sh")
        notes = tuple(document.data.pop("assumptions"))
        return job_on(document, said.get("cluster", "dgx-h100")), notes
    except SpecError as error:
        return "refused", tuple(sorted(str(problem) for problem in error.problems))
