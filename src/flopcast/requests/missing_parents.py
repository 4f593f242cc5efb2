"""Keys of job files that are indented below a value because the line of their section is missing.

Answers: which section has these keys?
Elsewhere: all other errors in the syntax (files/yaml_faults.py).
"""

import re

from pydantic import BaseModel

from flopcast.errors import SpecError
from flopcast.files.validate import OF_FILES, names_at
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.records import replace
from flopcast.spec.job import Job
from flopcast.spec.serving_job import ServingJob

LINE = re.compile(r"(?:indented below )?line (\d+)(?:, which already has a value| is less indented than)")
KEY = re.compile(r"\s*(?:- )?[\"']?(\w+)[\"']?:")
INNER = re.compile(r"[{,]\s*[\"']?(\w+)[\"']?:")


def read_job(raw: bytes, name: str) -> Document:
    """Return the document of a job file.

    Raises
    ------
    SpecError
        As `read_yaml`; the fix of a missing section names it.
    """
    try:
        return read_yaml(raw, name)
    except SpecError as error:
        problem = error.problems[0]
        above = LINE.search(problem.because)
        section = missing_section(raw.decode().split("\n"), int(above[1]) + 1) if above else ""
        if not above or not section:
            raise
        fix = f"add {section}: above line {int(above[1]) + 1}"
        raise SpecError([replace(problem, fix=fix)]) from None


def missing_section(rows: list[str], line: int) -> str:
    """Return the section that has the keys from a line on, and that the file lacks; "" if none has.

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
    least = indents[at - 1]
    for row, indent in zip(rows[at - 1 :: -1], indents[at - 1 :: -1], strict=True):
        if row.strip() and indent < least and (found := KEY.match(row)):
            path, least = [found[1], *path], indent
    given = {found[1] for row in rows if (found := KEY.match(row))}
    nouns: tuple[type[BaseModel], ...] = (Job, ServingJob)
    for noun in reversed(nouns) if "engine" in given else nouns:
        for name in names_at(noun, tuple(path)):
            inside = {*names_at(noun, (*path, name)), *OF_FILES.get((*path, name), ())}
            if name not in given and keys and inside.issuperset(keys):
                return name
    return ""
