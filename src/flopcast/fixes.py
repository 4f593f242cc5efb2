"""Fixes of errors: the edits of the input that correct it, as sentences and as data.

Answers: which fields does a fix change, to which values, and how does a sentence say so?
Elsewhere: errors (errors.py), whether the job accepts the value of a fix (requests/problem_places.py).
"""

import re
from collections.abc import Mapping, Sequence

Edit = Mapping[str, object]  # fields, as the sentence of a fix names them, and their new values


class Fix(str):
    """A sentence that states how to correct the input, and the same edits as data.

    `edits` are alternatives; the field of an error itself may be named "". `part` is the part of the wrong
    value that the new value replaces, or "" if it replaces the whole value. `is_example` states whether a
    new value is only one example of many allowed values.

    >>> fix = set_to({"zero": 0}, {"optimizer": "adamw"}, "choose another stack")
    >>> print(fix, fix.edits, sep="; ")
    set zero to 0, or optimizer to adamw, or choose another stack; ({'zero': 0}, {'optimizer': 'adamw'})
    """

    edits: tuple[Edit, ...]
    part: str
    is_example: bool

    def __new__(
        cls, text: str, edits: Sequence[Edit] = (), part: str = "", is_example: bool = False
    ) -> "Fix":
        """Return a fix of a sentence and the edits that it states."""
        fix = super().__new__(cls, text)
        fix.edits, fix.part, fix.is_example = tuple(edits), part, is_example
        return fix


def set_to(*ways: Edit | str, **values: object) -> Fix:
    """Return the fix that sets fields to new values, or that offers alternatives, which may be sentences.

    >>> print(set_to(tensor_parallel=4, stage_layers=(3, 5), sequence_parallel=True))
    set tensor_parallel to 4, stage_layers to 3,5 and sequence_parallel to true
    """
    alternatives = [way for way in (*ways, values) if way]
    texts: list[str] = []
    edits: list[Edit] = []
    after_edit = False  # "set" stands once for alternatives that follow each other
    for way in alternatives:
        if isinstance(way, str):
            texts.append(way)
            edits += edits_of(way)
        else:
            texts.append(_assignments(way) if after_edit else f"set {_assignments(way)}")
            edits.append(way)
        after_edit = not isinstance(way, str)
    return Fix(", or ".join(texts), edits, getattr(alternatives[0], "part", ""))


def _assignments(edit: Edit) -> str:
    *others, last = (f"{name} to {in_words(value)}" for name, value in edit.items())
    return f"{', '.join(others)} and {last}" if others else last


def edits_of(fix: str) -> tuple[Edit, ...]:
    """Return the edits that a fix states, or () if it does not edit single values."""
    return fix.edits if isinstance(fix, Fix) else ()


def only_value(fix: str) -> str:
    """Return the value of a fix that only sets one field, as a user writes it; "" for other fixes."""
    edit = edits_of(fix)[0] if len(edits_of(fix)) == 1 else {}
    return in_words(*edit.values()) if len(edit) == 1 and fix == set_to(edit) else ""


def with_names(fix: str, names: Mapping[str, str]) -> str:
    """Return a fix with other names of the fields that it sets; "add samples: 1" adds an option --samples.

    >>> print(with_names(set_to(zero=1), {"zero": "zero_stage"}))
    set zero_stage to 1
    """
    if not isinstance(fix, Fix):
        return fix
    text = str(fix)
    for name, new in names.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?= to )", new, text).replace(
            f"add {name}: ", f"add {new} "
        )
    edits = [{names.get(name, name): value for name, value in edit.items()} for edit in fix.edits]
    return Fix(text, edits, fix.part, fix.is_example)


def with_text(fix: str, text: str) -> str:
    """Return a fix with another sentence and the same edits."""
    return Fix(text, fix.edits, fix.part, fix.is_example) if isinstance(fix, Fix) else text


def with_gpus_as(fix: str, words: str) -> str:
    """Return a fix whose option --gpus is replaced by words, in which "{}" stands for its number.

    >>> with_gpus_as("set dp to 8, or use --gpus 16", "change its cluster to {} devices")
    'set dp to 8, or change its cluster to 16 devices'
    """
    return with_text(fix, re.sub(r"use --gpus (\d+)", lambda found: words.format(found[1]), fix))


def such_as(name: str, value: object) -> Fix:
    """Return the fix that sets a field to a usual value, as one of many that are allowed."""
    return Fix(f"set {name} to a value such as {value}", ({name: value},), is_example=True)


def write(value: object, name: str = "") -> Fix:
    """Return the fix that writes another value of a field, as NAME=VALUE if it has a name."""
    return Fix(f"write {name}={value}" if name else f"write {value}", ({name: value},))


def anew(text: str) -> Fix:
    """Return the fix that replaces a whole text of several words."""
    return Fix(f'write "{text}"', ({"": text},))


def in_place(right: object, wrong: object) -> Fix:
    """Return the fix that replaces a wrong value, or a part of it."""
    return Fix(f"write {right} in place of {wrong}", ({"": right},), str(wrong))


def in_words(value: object) -> str:
    """Return a value as a user writes it."""
    if isinstance(value, (list, tuple)):
        text = (", " if isinstance(value, list) else ",").join(map(in_words, value))
        return f"[{text}]" if isinstance(value, list) else text
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {in_words(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_within(fix: Fix | str, allowed: str) -> bool:
    """Return whether the number that a fix proposes is at most the largest one that is allowed.

    >>> is_within(such_as("samples", 52000), "a whole number from 1 to 10,000")
    False
    """
    most = re.search(r" to ([\d,]*\d)$", allowed)
    values = [str(value) for edit in getattr(fix, "edits", ())[:1] for value in edit.values()]
    if not most or not values or not values[0].isdecimal():
        return True
    return int(values[0]) <= int(most[1].replace(",", ""))
