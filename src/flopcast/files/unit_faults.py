"""Faults of a quantity of a job: why its unit is refused, and the edit that corrects it.

Elsewhere: other wrong values (field_faults.py), quantities that are allowed (units.py).
"""

import re

from flopcast.files.field_examples import DIMENSIONS, EXAMPLES
from flopcast.files.field_names import ARGUMENT
from flopcast.fixes import Fix
from flopcast.meant_quantities import meant_quantity
from flopcast.quantities import PREFIXES, parse_quantity
from flopcast.units import units_of

BEGINS_WITH_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+))")
NO_UNIT = "the number has no unit"


def unit_fault(
    data: object, name: str, units: tuple[str, ...], where: str, *, words: bool
) -> tuple[str, str]:
    """Return why a quantity is refused, and the edit that gives it one of the units."""
    example = EXAMPLES.get(name, "") if units_of(name) == units else ""  # in a mapping, any key
    example = "" if example.startswith("{") else example
    right = meant_quantity(str(data), units, example)
    number = BEGINS_WITH_NUMBER.match(str(data))
    written = str(data)[number.end() :].strip() if number else ""
    if "USD/h" not in units or right or number is None or written == "%":
        right = right or _in_unit(number[1] if number else "", written, units, example)
        text = f"write {name}: {right}"
        if where.startswith(ARGUMENT):
            text = f'write {where.removeprefix(ARGUMENT).partition("=")[0]}="{right}"'
        if is_option(where):  # of one value, or of words such as those of --traffic
            is_own = where.lstrip("-").replace("-", "_") == name.removesuffix("_w")
            in_words = words and "USD/h" not in units and not is_own
            word = f"{name}={right.replace(' ', '')}"
            text = f"write {word} in {where}" if in_words else f'write {where} "{right}"'
        fix = Fix(text, ({name: right},), is_example=not number)
        if not number:
            return "the value does not begin with a number", fix
        return f"{written!r} is not a unit of {DIMENSIONS[units[0]]}" if written else NO_UNIT, fix
    because = "prices are in US dollars per hour of one device, and flopcast knows no exchange rates"
    return because, "convert the price to USD/h"


def _in_unit(number: str, written: str, units: tuple[str, ...], example: str) -> str:
    """Return a number with the right unit and the written prefix, or an example of another size.

    >>> [_in_unit(number, "GHz", ("B/s", "bit/s"), "50 GB/s") for number in ("450", "450000")]
    ['450 GB/s', '50 GB/s']
    """
    example = example or f"1 {units[0]}"
    prefix = written[:1] if written[:1] in "kMGTP" else ""
    size = parse_quantity(example, units)
    same = f"{number} {prefix}{units[0]}"
    ratio = float(number or 0) * PREFIXES[prefix] / size
    keeps = 0.01 < ratio < 100 and written != "%" and not (written and units[0] == "s")
    return same if keeps else example


def number_left(text: str) -> float:
    """Return the number with which validation continues after a wrong unit.

    This is 1, or the written number if it is not positive, so that its sign is reported too.
    """
    number = BEGINS_WITH_NUMBER.match(text)
    return min(float(number[1]), 0.0) if number and float(number[1]) <= 0 else 1.0


def is_option(where: str) -> bool:
    """Return whether a place is an option of the command line that holds only this value."""
    return where.startswith("--") and where != "--plan"
