"""Conversion of plain data to the classes of spec/, which parses units. Every error has its line.

Answers: is this mapping a valid Model, Cluster, … and if not, which fields are wrong?
Elsewhere: the faults of refused data (refused_data.py).
"""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from flopcast.errors import Problem, SpecError
from flopcast.files.field_paths import dotted
from flopcast.files.yaml_text import Document, Path
from flopcast.quantities import parse_quantity
from flopcast.units import units_of

PRICE = ("price", "device_usd_per_hour")  # a file may state the price alone
Noun = TypeVar("Noun", bound=BaseModel)


def build(noun: type[Noun], document: Document, data: object, path: Path = ()) -> Noun:
    """Validate `data`, which is at `path` in the document, as an instance of the class `noun`.

    Parameters
    ----------
    noun : type
        A frozen pydantic model.
    document : Document
        The document that gives the lines of faults. It may hold more than `data`.
    data : object
        Plain data (mappings, lists and scalars). Parts of it may already be validated models.
    path : tuple
        The path of `data` in the document. Faults write it before the name of a field: ("model",) gives
        "model.hidden".

    Raises
    ------
    SpecError
        The error lists all faults: wrong units, unknown keys, wrong types, and values out of range.
    """
    problems: list[Problem] = []
    converted = _convert(data, path, document, problems, units=())
    try:
        made = noun.model_validate(converted)
    except ValidationError as error:
        from flopcast.files.field_names import UNKNOWN_KEY
        from flopcast.files.refused_data import faults_of
        from flopcast.files.unit_faults import number_left

        faults = faults_of(error, noun, document, path, data)
        shown_first = {
            field
            for field, fault in faults.items()
            if fault.fault == UNKNOWN_KEY or number_left(str(fault.value)) <= 0
        }
        units = {problem.field: problem for problem in problems if problem.field not in shown_first}
        raise SpecError(
            (units | {field: faults[field] for field in faults if field not in units}).values()
        ) from None
    if problems:
        raise SpecError(problems)
    return made


def _convert(
    data: object, path: Path, document: Document, problems: list[Problem], units: tuple[str, ...]
) -> object:
    """Convert quantities to SI numbers wherever a key's name states a unit.

    The models of spec/ hold SI floats without units. The name of a field determines which units its text
    may have. Keys of a mapping whose names state no unit have the units of the mapping, so that
    `peak_flop_per_s: {bf16: 312 TFLOP/s}` works. After a fault, the other values are still checked.
    """
    if isinstance(data, dict):
        return {
            key: _convert(value, (*path, key), document, problems, units_of(str(key)) or units)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [_convert(v, (*path, i), document, problems, units) for i, v in enumerate(data)]
    if not units or data is None:
        return data
    try:
        return parse_quantity(str(data), units)
    except ValueError as error:
        from flopcast.files.unit_faults import number_left, unit_fault

        where, allowed = document.where(path), str(error)
        words = bool(path[:-1]) and document.where(path[:-1]) == where  # the option has several fields
        is_alone = path[-2:] == PRICE and path[:-1] in document.lines and path not in document.lines
        path = path[:-1] if is_alone else path
        because, fix = unit_fault(data, str(path[-1]), units, where, words=words)
        problems.append(Problem(dotted(path), data, allowed, because, fix, where=where))
        return number_left(str(data))
