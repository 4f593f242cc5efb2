"""Keys of job files that are indented below a value because the line of their section is missing.

Answers: which section has these keys?
Elsewhere: all other errors in the syntax (files/yaml_faults.py).
"""

import re

from pydantic import BaseModel

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.field_paths import OF_FILES
from flopcast.files.refused_data import names_at
from flopcast.files.yaml_text import TWICE, Document, decoded, read_yaml
from flopcast.records import replace
from flopcast.spec.job import Job

LINE = re.compile(r"(?:indented below )?line (\d+)(?:, which already has a value| is less indented than)")
KEY = re.compile(r"\s*(?:- )?[\"']?(\w+)[\"']?:")
INNER = re.compile(r"[{,]\s*[\"']?(\w+)[\"']?:")
END_OF_LINE = re.compile(r"\r\n?|[\n\x85\u2028\u2029]")  # YAML 1.1, section 4.2


def _kinds() -> tuple[type[BaseModel], ...]:
    """Return what a job file may describe; only files need it, and its import takes milliseconds."""
    from flopcast.spec.serving_job import ServingJob

    return Job, ServingJob


def read_job(raw: bytes, name: str) -> Document:
    """Return the document of a job file.

    Raises
    ------
    SpecError
        See `read_yaml`. The fix of a missing section names the section.
    """
    try:
        return _with_sections_apart(read_yaml(raw, name))
    except SpecError as error:
        rows = END_OF_LINE.split(decoded(raw, name))
        raise SpecError(_with_section(each, rows) for each in error.problems) from None


def _with_section(problem: Problem, rows: list[str]) -> Problem:
    """Return the error of a file; its fix adds the line of a section if this line is missing."""
    above, line = LINE.search(problem.because), int(problem.where.rpartition(":")[2])
    begin = line if problem.fault == TWICE else int(above[1]) + 1 if above else 0
    section = missing_section(rows, begin) if begin else ""
    return replace(problem, fix=f"add {section}: above line {begin}") if section else problem


def _with_sections_apart(document: Document) -> Document:
    """Return a job file; raise an error if the line of a section is indented as a key of another."""
    data, kinds = document.data if isinstance(document.data, dict) else {}, _kinds()
    sections = {name for kind in kinds for name in kind.model_fields}
    for section, inside in data.items():
        known = {"base"}.union(*(names_at(kind, (section,)) for kind in kinds))
        for part in inside if isinstance(inside, dict) and len(known) > 1 else ():
            if inside[part] is None and part in sections - known:
                line = document.lines[section, part]
                raise spec_error(
                    f"{section}.{part}",
                    None,
                    f"{part} as a section of its own",
                    f"line {line} is indented like the keys of {section}",
                    f"remove the indentation of line {line}",
                    document.where((section, part)),
                    f"is not a key of {section}",
                )
    return document


def missing_section(rows: list[str], line: int) -> str:
    """Return the missing section to which the keys after a line belong; "" if there is none.

    >>> missing_section(["model: gpt2", "  base: dgx-h100", "  nodes: 2"], 2)
    'cluster'
    """
    indents = [len(row) - len(row.lstrip()) for row in rows]
    own, at = indents[line - 1], line - 1
    end = next((i for i in range(at, len(rows)) if rows[i].strip() and indents[i] < own), len(rows))
    keys = [found[1] for i in range(at, end) if indents[i] == own and (found := KEY.match(rows[i]))]
    if keys and all(map(str.isdecimal, keys)):  # entries of a list by their number
        keys = (
            INNER.findall(rows[at])[:1]
            or [found[1] for row in rows[line:] if (found := KEY.match(row))][:1]
        )
    path: list[str] = []
    least = next((indents[i] for i in range(at - 1, -1, -1) if rows[i].strip() and indents[i] < own), 0)
    for row, indent in zip(rows[at - 1 :: -1], indents[at - 1 :: -1], strict=True):
        if row.strip() and indent < least and (found := KEY.match(row)):
            path, least = [found[1], *path], indent
    given = {found[1] for row in rows if (found := KEY.match(row))}
    kinds = _kinds()
    for kind in reversed(kinds) if "engine" in given else kinds:
        for name in names_at(kind, tuple(path)):
            inside = {*names_at(kind, (*path, name)), *OF_FILES.get((*path, name), ())}
            if name not in given and keys and inside.issuperset(keys):
                return name
    return ""
