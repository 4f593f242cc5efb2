"""The schedule of a plan as a user writes it: a name, or a table of tasks.

Answers: which schedules may a plan name, what do their names imply for programs?
Elsewhere: the orders themselves (schedules/), a user's own (custom_schedule.py), what they ask of a plan
(rules.py, rules_schedule.py).
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from flopcast.spec.custom_schedule import OwnSchedule

Word = Literal[
    "auto", "1f1b", "eager_1f1b", "interleaved_1f1b", "gpipe", "zb_h1", "zb_h2", "zb_v", "dualpipe"
]
SPLIT = ("zb_h1", "zb_h2", "zb_v")  # weight gradients are tasks of their own (arXiv:2401.10241)
CHUNKED = ("interleaved_1f1b", "zb_v")  # several chunks a stage
TABLE = ".csv"  # how the name of a table ends


def _known(given: object) -> object:
    """Return one fault for a value that is neither a name nor a table, instead of one for each of them."""
    if isinstance(given, (OwnSchedule, dict)) or given in get_args(Word):
        return given
    words = ", ".join(map(repr, get_args(Word)))
    raise ValueError(f"{words}, or the name of a table of tasks that ends in {TABLE}")


def _or_file(schema: dict[str, Any]) -> None:
    """Make the schema accept a name of a schedule, or of a file with a table."""
    schema["anyOf"] = [
        {"type": "string", "enum": list(get_args(Word))},
        {"type": "string", "pattern": r"\.csv$", "description": "tasks of every stage, in order"},
    ]


Schedule = Annotated[Word | OwnSchedule, BeforeValidator(_known), Field(json_schema_extra=_or_file)]


def splits_backward(schedule: str | OwnSchedule) -> bool:
    """Return whether weight gradients are separate tasks."""
    return schedule.splits_backward if isinstance(schedule, OwnSchedule) else schedule in SPLIT


def sends_ahead(schedule: str | OwnSchedule) -> bool:
    """Return whether messages never block their sender, whatever the stack does under other schedules.

    Posted together in the gaps between tasks, messages of such orders would wait for tasks that they put
    there: ZB-H2 would deadlock, and so may a user's own order.
    """
    return isinstance(schedule, OwnSchedule) or schedule in (*SPLIT, "eager_1f1b")
