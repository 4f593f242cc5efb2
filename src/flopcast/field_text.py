"""Descriptions of classes and their fields, from docstrings: for the JSON Schema, errors and the reference.

Answers: what does a class describe, and what do its fields mean?
Elsewhere: the classes (spec/, layers/), the schema of what a file holds (strict_model.py).
"""

import inspect
import re
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

_ENTRY = re.compile(r"^([\w, ]+) : .*\n((?:    .*\n?)+)", flags=re.MULTILINE)  # of a docstring's attributes
_SECTION = re.compile(r"^\w+\n-+\n", flags=re.MULTILINE)


def field_text(noun: type[BaseModel], name: str) -> str:
    """Return the meaning of a field: its entry under "Attributes" in the docstring, or its description.

    The field `kind` of a model has only one value, and therefore no entry. Without a description, the text
    is "".
    """
    for owner in noun.__mro__:
        for entry in _ENTRY.finditer(inspect.cleandoc(vars(owner).get("__doc__") or "") + "\n"):
            if name in entry[1].replace(" ", "").split(","):
                return " ".join(entry[2].split())
    field = noun.model_fields[name]
    if get_origin(field.annotation) is Literal and get_args(field.annotation) == (field.default,):
        return f"Type of the entry: always {field.default!r} here."
    return field.description or ""


def noun_text(noun: type[BaseModel]) -> str:
    """Return the description of a model: its docstring up to the first section, with one line for each
    paragraph.
    """
    text = _SECTION.split(inspect.cleandoc(noun.__doc__ or ""))[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n")).strip()
