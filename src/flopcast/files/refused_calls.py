"""Errors of calls such as flopcast.Plan(tp="a"), in the words of errors in files.

Elsewhere: what is wrong with each value (validate.py).
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

from flopcast.errors import Problem, SpecError
from flopcast.files.validate import faults_of
from flopcast.files.yaml_text import COMMAND_LINE, Document
from flopcast.records import replace


def refused_fields(
    noun: type[BaseModel], words: Sequence[object], fields: Mapping[str, object], error: Exception
) -> Exception:
    """Return the error of a call such as flopcast.Plan(tp="a"), in which numbers are in SI units."""
    name = noun.__name__
    if words:
        pairs = re.findall(r"(\w+)=(\S+)", str(words[0])) if isinstance(words[0], str) else []
        given = [f"{key}={value if value.isdecimal() else repr(value)}" for key, value in pairs]
        given += [f"{key}={value!r}" for key, value in fields.items()]
        because, fix = "the fields have no order", f"write {name}({', '.join(given) or 'NAME=VALUE, ...'})"
        return SpecError([Problem(name, words[0], "fields by their names", because, fix)])
    if not isinstance(error, ValidationError):
        return error
    if name.endswith("Job") and any(isinstance(each, (str, dict)) for each in fields.values()):
        because = "only flopcast.job reads names of the catalogue and texts"
        call = "flopcast.job" if name == "Job" else "flopcast.serving_job"
        fix = f"write {call}({', '.join(f'{key}={value!r}' for key, value in fields.items())})"
        return SpecError([Problem(name, dict(fields), "nouns such as flopcast.Model", because, fix)])
    document = Document(COMMAND_LINE, {}, {})
    faults = faults_of(error, noun, document, (name,), fields).values()
    return SpecError(
        replace(each, where="", fix=_as_argument(each.fix.replace(f"{name}.", ""), each.value))
        for each in faults
    )


def _as_argument(fix: str, value: object) -> str:
    """Return the fix of a value in a file as that of an argument of Python."""
    if structured := re.match(r'add (\w+)="[\[{]', fix):
        return f"add {structured[1]}, or take the whole part of a job that flopcast.job(...) returns"
    fix = re.sub(r'"(\d+)"', r"\1", fix)
    edit = re.match(r"set (\w+) to (?:a value such as )?([^\s,]+(?:,[^\s,]+)*)", fix)
    if edit is None or edit[2].startswith(('"', "[", "{")):
        return fix
    if edit[2] == "a":  # "set tp to a number" for one entry of a list
        return f"leave out {value!r}"
    new = {"true": "True", "false": "False"}.get(edit[2], edit[2])
    plain = new != edit[2] or re.fullmatch(r"[0-9]+(?:[.][0-9]+)?", new)
    return f"write {edit[1]}={new if plain else repr(new)}"
