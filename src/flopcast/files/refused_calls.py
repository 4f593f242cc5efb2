"""Errors of calls such as flopcast.Plan(tp="a"), in the words of errors in files.

Elsewhere: the fault of each value (refused_data.py).
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

from flopcast.errors import MISSING, Problem, SpecError
from flopcast.files.refused_data import faults_of
from flopcast.files.yaml_text import COMMAND_LINE, Document
from flopcast.fixes import Fix, in_words
from flopcast.quantities import parse_quantity
from flopcast.records import replace
from flopcast.units import units_of


def refused_fields(
    noun: type[BaseModel], words: Sequence[object], fields: Mapping[str, object], error: Exception
) -> Exception:
    """Return the error of a call such as flopcast.Plan(tp="a"), in which numbers are in SI units."""
    name = noun.__name__
    if words:
        pairs = re.findall(r"(\w+)=(\S+)", str(words[0])) if isinstance(words[0], str) else []
        given = [f"{key}={value if value.isdecimal() else repr(value)}" for key, value in pairs]
        given += [f"{key}={value!r}" for key, value in fields.items()]
        because = f"{name} takes no positional arguments"
        fix = f"write {name}({', '.join(given) or 'NAME=VALUE, ...'})"
        return SpecError([Problem(name, words[0], "fields by their names", because, fix)])
    if not isinstance(error, ValidationError):
        return error
    if name.endswith("Job") and any(isinstance(each, (str, dict)) for each in fields.values()):
        because = "only flopcast.job accepts texts and names of catalogue entries"
        call = "flopcast.job" if name == "Job" else "flopcast.serving_job"
        fix = f"write {call}({', '.join(f'{key}={value!r}' for key, value in fields.items())})"
        return SpecError(
            [Problem(name, dict(fields), "objects of flopcast such as flopcast.Model", because, fix)]
        )
    document = Document(COMMAND_LINE, {}, {})
    faults = faults_of(error, noun, document, (name,), fields).values()
    return SpecError(replace(each, where="", fix=_as_argument(each)) for each in faults)


def _as_argument(problem: Problem) -> str:
    """Return the fix of a value in a file as that of an argument of Python."""
    for name, value in [*problem.edits, {}][0].items():
        new = {"true": "True", "false": "False"}.get(in_words(value), in_words(value))
        new = f"{parse_quantity(new, units):g}" if (units := units_of(name)) else new
        if new.startswith(('"', "[", "{")) or isinstance(value, dict):
            text = f"{name}, or take the whole part of a job that flopcast.job(...) returns"
            return f"add {text}" if problem.fault == MISSING else problem.fix
        plain = new != in_words(value) or re.fullmatch(r"[0-9]+(?:[.][0-9]+)?", new)
        if name.isidentifier() and problem.fix.startswith(("set ", "add ")):
            verb = "add" if problem.fault == MISSING else "write"
            return Fix(f"{verb} {name}={new if plain else repr(new)}", ({name: value},))
    return f"leave out {problem.value!r}" if problem.fix.endswith(" to a number") else problem.fix
