"""The schedule of a plan as a user writes it: a name, or a table of tasks.

Answers: which schedules may a plan name?
Elsewhere: the schedules and all that they imply (schedules/), what they ask of a plan (rules.py,
rules_schedule.py).
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from flopcast.schedules import AUTO, SCHEDULES, UNSUPPORTED
from flopcast.schedules.custom import OwnSchedule

TABLE = ".csv"  # how the name of a table ends


def _names() -> tuple[str, ...]:
    """Return every name that a plan may write."""
    return (AUTO, *SCHEDULES, *UNSUPPORTED)


def _known(given: object) -> object:
    """Return one fault for a value that is neither a name nor a table, instead of one for each of them."""
    if isinstance(given, (OwnSchedule, dict)) or given in _names():
        return given
    words = ", ".join(map(repr, _names()))
    raise ValueError(f"{words}, or the name of a table of tasks that ends in {TABLE}")


def _or_file(schema: dict[str, Any]) -> None:
    """Make the schema accept a name of a schedule, or of a file with a table."""
    schema["anyOf"] = [
        {"type": "string", "enum": list(_names())},
        {"type": "string", "pattern": r"\.csv$", "description": "tasks of every stage, in order"},
    ]


Schedule = Annotated[str | OwnSchedule, BeforeValidator(_known), Field(json_schema_extra=_or_file)]
