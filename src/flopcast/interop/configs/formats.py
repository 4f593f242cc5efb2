"""All foreign formats, and how the format of a file is recognised.

Answers: which program does this file belong to, and which function reads it?
Elsewhere: the meaning of its keys (one file for each format), flopcast's own job files and Hugging Face
configs (requests/sources.py). A format is recognised by keys that no other format has; if several fit, the
user must name one.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import product
from typing import Any

from flopcast.errors import Problem, SpecError, spec_error, told_as
from flopcast.files.nearest_names import nearest
from flopcast.files.package_table import read_table, read_text
from flopcast.files.yaml_text import Document, decoded, read_yaml
from flopcast.interop.configs.config_reader import LAUNCHER, NO_SUCH_KEY, SLIP
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.configs.keys import Keys, flattened, keys_of
from flopcast.interop.configs.python_text import read_python
from flopcast.interop.configs.toml_text import read_toml
from flopcast.interop.configs.trainer_commands import trainer_document
from flopcast.interop.configs.unsupported_programs import (
    BY_HAND,
    has,
    program_of_command,
    refusal,
    unread_program,
)
from flopcast.records import Record, replace

FEWEST_SIGNS = 2
LEAST_KNOWN_FRACTION = 0.4  # of a file's keys, from which a format is proposed
MOST_UNKNOWN_FRACTION = 0.4  # if more of a file's keys are unknown, it belongs to another program
NO_FIT = (-2.0, 0)
FUNCTIONS = ("read", "renamed", "prepared", "merged")  # of a format's module
RESULTS = {"mean_ttft_ms", "time_to_first_token"}  # keys of the results of benchmarks of servers


class ConfigFormat(Record):
    """A format: its description, its reader, and dotted keys (`signs`) that identify it.

    A sign with "=" is a key whose value begins with the text after it. `helper` is a script, in this
    folder, that writes such a file for programs whose settings are code. `renamed` gives keys their usual
    spelling, and `prepared` gives them the values that the program computes or takes from elsewhere;
    `merged` merges several files into one. `keys` is the table of its keys, if it is not a file in tables/.
    """

    description: str
    read: Callable[[JobReader], None]
    signs: str
    helper: str = ""
    renamed: Callable[[Document], Document] = lambda document: document
    prepared: Callable[[Document, ImportOptions], Document] = lambda document, _: document
    merged: Callable[[Sequence[Document]], Document] | None = None
    keys: Keys | None = None


def _format(name: str, row: Mapping[str, Any]) -> ConfigFormat:
    """Return a format, whose functions stand in the module of its name."""
    module = import_module(f"{__package__}.{name.replace('-', '_')}")
    functions = {each: getattr(module, each) for each in FUNCTIONS if hasattr(module, each)}
    return ConfigFormat(**row, **functions)


KINDS: Mapping[str, ConfigFormat] = {
    name: _format(name, row) for name, row in read_table(__package__, "tables/formats.yaml").items()
}


def parsed(raw: bytes, name: str) -> Document:
    """Return the plain data of a foreign file: TOML, Python or a script by its suffix, or else YAML."""
    if name.lower().endswith(".py"):
        if program := program_of_command(" ".join(decoded(raw, name).split())):
            raise SpecError([refusal(Document(name, None, {(): 1}), program)])
        return read_python(raw, name)
    if name.lower().endswith(".sh") and (started := trainer_document(raw, name)):
        return started
    return read_toml(raw, name) if name.lower().endswith(".toml") else read_yaml(raw, name)


def kind_of(document: Document) -> str | None:
    """Return the format that knows the most keys of a file, or None if none knows enough.

    A format is a candidate if the file has some of its signs. Many unknown keys mean that the file belongs
    to a program without a reader.

    Raises
    ------
    SpecError
        Several formats fit equally well, no format fits because the name of a section is misspelt, or the
        file belongs to a known program without a reader.
    """
    program = unread_program(document.data)
    if program:
        raise SpecError([refusal(document, program)])
    names = _best(document)
    if len(names) > 1:
        allowed = "a file whose keys match only one format"
        because = "the keys of this file match both formats"
        raise SpecError([_fault(document, "format", " or ".join(names), allowed, because)])
    if not names and (slip := _misspelt_section(document)):
        raise SpecError([slip])
    return names[0] if names else None


def _misspelt_section(document: Document) -> Problem | None:
    """Return the fault of a section with a misspelt name, if a format fits after this name is corrected."""
    sections = [key for key, inner in document.mapping.items() if isinstance(inner, dict)]
    for name, key in product(KINDS, sections):
        keys = KINDS[name].keys or keys_of(name)
        for right in nearest(key, {each.split(".")[0] for each in keys.read.split()}, least_ratio=SLIP):
            mended = {right if each == key else each: value for each, value in document.mapping.items()}
            if right != key and _fit(replace(document, data=mended), name) != NO_FIT:
                because, fix = NO_SUCH_KEY.format(keys.program), f"did you mean {right}?"
                allowed, at = f"a section of {keys.program}", document.where((key,))
                return Problem(key, None, allowed, because, fix, where=at, fault="is not known")
    return None


def _best(document: Document) -> list[str]:
    """Return the formats that fit a file best; empty if none fits."""
    fits = {name: _fit(document, name) for name in KINDS}
    best = max(fits.values())
    return [name for name, fit in fits.items() if fit == best != NO_FIT]


def _fit(document: Document, name: str) -> tuple[float, int]:
    """Return how well a format fits a file: minus the share of unknown keys, then the number of signs."""
    kind = KINDS[name]
    data = kind.renamed(document).data
    signs = _signs(data, kind.signs)
    certain = any("=" in sign and _has(data, sign) for sign in kind.signs.split())  # the program is named
    if signs < FEWEST_SIGNS and not certain:
        return NO_FIT
    unknown = 1 - _known_fraction(data, kind.keys or keys_of(name))
    return (-unknown, signs) if unknown <= MOST_UNKNOWN_FRACTION or certain else NO_FIT


def _known_fraction(data: object, keys: Keys) -> float:
    """Return the fraction of a file's keys that a format knows."""
    names = [".".join(map(str, path)) for path, _ in flattened(data)]
    return sum(keys.knows(name) or keys.is_section(name) for name in names) / len(names)


def _way_out(document: Document) -> str:
    """Return the fix for a file that no format fits: name the format with the most signs, if any."""
    best, parts = _most_similar(document), {"model", "cluster", "plan"}
    if isinstance(document.data, dict):
        if len(parts & document.data.keys()) > 1:
            return "leave out --kind, because the file is a job file"
        if {"Model", "Cluster", "Plan", "MODEL"} & document.data.keys():
            return "write the keys in small letters, such as model and cluster"
        if "weight_map" in document.data:
            return f"give the config.json beside {document.name}, which lists only files of weights"
        if {"hidden_size", "num_hidden_layers"} <= document.data.keys():
            return f'add "model_type": "llama" to {document.name}, if the layers are those of Llama'
    if best and _known_fraction(document.data, KINDS[best].keys or keys_of(best)) >= LEAST_KNOWN_FRACTION:
        return f"run flopcast predict {document.name} --kind {best}"
    inside = ((key, inner) for key, inner in document.mapping.items() if isinstance(inner, dict))
    nested = next((key for key, inner in inside if len(parts & inner.keys()) > 1), "")
    return f"remove the key {nested}, and write the keys below it at the top level" if nested else BY_HAND


def _most_similar(document: Document) -> str:
    """Return the format with the most signs in a file; "" if no format has a sign in it."""
    counts = {name: _signs(document.data, kind.signs) for name, kind in KINDS.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else ""


def _nearest(document: Document) -> str:
    """Return how many keys of a file the format with the most signs knows; "" without any sign."""
    best = _most_similar(document)
    if not best:
        return ""
    keys = KINDS[best].keys or keys_of(best)
    names = [".".join(map(str, path)) for path, _ in flattened(document.data)]
    known = sum(keys.knows(key) for key in names)
    return f" (the most similar format, {best}, has {known} of the {len(names)} keys)"


def joined(documents: Sequence[Document], kind: str | None = None) -> tuple[Document, str]:
    """Merge several files of a job; return the merged document and its format.

    Raises
    ------
    SpecError
        The files have no format that allows several files.
    """
    several = [name for name, one in KINDS.items() if one.merged]
    fit = kind if kind in several else next((name for name in several if _joins(name, documents)), None)
    if fit is None:
        first, *others = documents
        names = ", ".join(document.name for document in others)
        allowed = f"one file (several only in the formats {', '.join(several)})"
        because = "in all other formats, one file describes the whole job"
        fix = f"remove {names}, or write changes of the job as KEY=VALUE"
        near = [name for name in several if name == _most_similar(first)]
        fix = f"add --kind {near[0]}" if near and not kind else fix
        raise spec_error(names, names, allowed, because, fix, first.name, "cannot be given after this file")
    merged = KINDS[fit].merged
    return (merged(documents) if merged else documents[0]), fit


def _joins(name: str, documents: Sequence[Document]) -> bool:
    """Return whether several files together form a job of a format."""
    data: dict[str, object] = {}
    for document in map(KINDS[name].renamed, documents):
        data |= document.data if isinstance(document.data, dict) else {}
    return _best(replace(documents[0], data=data)) == [name]


def helper_text(kind: str) -> str:
    """Return the program that writes a file of this format, to run where the other program is installed."""
    return read_text(__package__, KINDS[kind].helper)


def known_kind(kind: str | None, document: Document) -> str:
    """Return the requested format, or the format of the file.

    Raises
    ------
    SpecError
        The format does not exist, or the file has no known format.
    """
    name = kind or kind_of(document)
    if name in KINDS:
        if kind and _fit(document, kind) == NO_FIT and (best := _best(document)) and len(best) == 1:
            fault, fix = "is not the format of this file", f"write {best[0]} in place of {kind}"
            because = f"its keys are those of {KINDS[best[0]].description}"
            allowed, where = KINDS[kind].description, document.where(())
            raise spec_error("format", kind, allowed, because, fix, where, fault)
        return str(name)
    from flopcast.interop.serving.sources import DESCRIPTIONS  # only a fault needs its names

    allowed = ", ".join(["megatron", *KINDS, *DESCRIPTIONS])
    because = "flopcast has no format with this name"
    if not name:
        because = f"no format that flopcast reads has enough of the keys of this file{_nearest(document)}"
    where = "argument --kind" if name else document.where(())
    near = difflib.get_close_matches(str(name), [*KINDS, *DESCRIPTIONS], n=1, cutoff=0.7)
    fix = f"did you mean {near[0]}?" if near else _way_out(document)
    if isinstance(document.data, dict) and RESULTS & document.data.keys():
        fix = f"compare the result with a prediction: --model NAME --engine vllm --log {document.name}"
    fault = "" if name else "is not recognised"
    raise spec_error("format", name, allowed, because, fix, where=where, fault=fault)


def read_kind(document: Document, kind: str, options: ImportOptions) -> Document:
    """Return the job that a file of this format describes.

    Raises
    ------
    SpecError
        The file is not a mapping, or its keys have faults; every fault is reported with its line.
    """
    if not isinstance(document.data, dict) or not document.data:
        because = f"flopcast reads this file as {KINDS[kind].description}, but the file has no keys"
        found, allowed = document.data, "keys with values"
        raise SpecError([_fault(document, "document", found, allowed, because, "has no keys")])
    one = KINDS[kind]
    keys = one.keys or keys_of(kind)
    launcher = document.data.get(LAUNCHER)
    script = str(launcher.get("program")) if isinstance(launcher, dict) else ""
    if keys.program_of_scripts and script.endswith(".py"):
        keys = replace(keys, program=keys.program_of_scripts)
    reader = JobReader(one.prepared(one.renamed(document), options), keys, options)
    one.read(reader)
    with told_as(lambda problem: _in_syntax(problem, document.name)):
        return reader.made()


def _in_syntax(problem: Problem, name: str) -> Problem:
    """Return a fault whose fix is written as a file with this name writes values.

    >>> _in_syntax(Problem("a", "x", "true or false", "", "write false"), "x.py").fix
    'write False'
    >>> _in_syntax(Problem("a", 7, "full, none", "", "did you mean full?"), "x.toml").fix
    'write "full"'
    """
    fix = problem.fix
    if name.endswith(".py"):
        fix = re.sub(r"^write (true|false)$", lambda found: f"write {found[1].title()}", fix)
    is_bare = name.endswith((".py", ".toml", ".json")) and type(problem.value) in (int, float, bool)
    if is_bare and not problem.fault:
        fix = re.sub(r"^(?:did you mean|write|choose .* such as) ([a-z][\w.-]*)\??$", _quoted, fix)
    return problem if fix == problem.fix else replace(problem, fix=fix)


def _quoted(fix: re.Match[str]) -> str:
    return fix[0] if fix[1] in ("true", "false", "name") else f'write "{fix[1]}"'


def _signs(data: object, signs: str) -> int:
    return sum(_has(data, sign) for sign in signs.split())


def _has(data: object, sign: str) -> bool:
    """Return whether a key exists, with the beginning of its value if the sign has one."""
    key, _, start = sign.partition("=")
    if not has(data, key):
        return False
    for part in key.split(".") if start else ():
        data = data[part] if isinstance(data, dict) else None
    return not start or str(data).startswith(start)


def _fault(
    document: Document, field: str, value: object, allowed: str, because: str, fault: str = ""
) -> Problem:
    where, fix = document.where(()), _way_out(document)
    return Problem(field, value, allowed, because, fix, where=where, fault=fault)
