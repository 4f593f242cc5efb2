"""Values and attributes as plain data for JSON.

Answers: how are numbers rounded, and attributes written, in all JSON of flopcast?
Elsewhere: which keys there are (report_json.py, serving_json.py, and the modules of other results).
A change of meaning raises FORMAT_VERSION.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from flopcast.units import nine_digits

FORMAT_VERSION = 1


def plain(value: object) -> object:
    """Return any value for JSON: floats have nine digits, and tuples are lists."""
    if isinstance(value, float):
        return nine_digits(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def fields_of(thing: Any, *names: str) -> dict[str, object]:  # noqa: ANN401 - any dataclass
    """Return attributes by name as `plain` values; without names, every field of a dataclass."""
    return {name: plain(getattr(thing, name)) for name in names or [each.name for each in fields(thing)]}


def unrounded(thing: Any, *names: str) -> dict[str, Any]:  # noqa: ANN401 - any object
    """Return attributes by name as they are."""
    return {name: getattr(thing, name) for name in names}
