"""Types of plan fields: degrees with two names, schedules, and lists and modes that can be written as one
text.

Answers: which forms of a field do files and the command line accept, and how does the schema describe them?
Elsewhere: the fields themselves (plan.py), the forms of recompute (recompute.py), the schedules
(schedules/).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic.fields import FieldInfo

from flopcast.schedules import AUTO, SCHEDULES
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec import recompute as recompute_words
from flopcast.spec.layer_strategies import layers_word
from flopcast.spec.offload import offload_word
from flopcast.spec.outer import Outer
from flopcast.spec.shards import shards_word

TABLE = ".csv"  # how the name of a table of tasks ends
RUN = re.compile(r"(\d+)[x×](\d+)")  # a number that stands several times
MOST_IN_FULL = 16  # numbers of a list that an error message writes one by one
SHORTEST_RUN = 3  # of equal numbers, that is written as one
MOST_ENTRIES = 4096  # of one list: no model has more chunks
OptimizerName = Literal[
    "adamw", "adamw_8bit", "adamw_fp8", "adamw_4bit", "adafactor", "lion", "lion_8bit", "muon",
    "sgd", "sgd_momentum",
]  # fmt: skip
RankOrder = Literal[
    "tp-cp-dp-pp", "tp-cp-pp-dp", "tp-dp-cp-pp", "tp-dp-pp-cp", "tp-pp-cp-dp", "tp-pp-dp-cp",
    "cp-tp-dp-pp", "cp-tp-pp-dp", "cp-dp-tp-pp", "cp-dp-pp-tp", "cp-pp-tp-dp", "cp-pp-dp-tp",
    "dp-tp-cp-pp", "dp-tp-pp-cp", "dp-cp-tp-pp", "dp-cp-pp-tp", "dp-pp-tp-cp", "dp-pp-cp-tp",
    "pp-tp-cp-dp", "pp-tp-dp-cp", "pp-cp-tp-dp", "pp-cp-dp-tp", "pp-dp-tp-cp", "pp-dp-cp-tp",
]  # fmt: skip

ALWAYS_SHOWN = ("micro_batch", "global_batch", "precision")  # in a plan's short form
WORDS: dict[str, Callable[[Any], str]] = {  # of fields that a plan writes as one word
    "offload": offload_word,
    "shards": shards_word,
    "layers": layers_word,
    "outer": Outer.text,
}
DEGREES = (  # whose product is the number of devices of a plan, the freest first
    "data_parallel", "pipeline_parallel", "context_parallel", "tensor_parallel", "peers",
)  # fmt: skip
OF_REPLICA = ("tensor_parallel", "pipeline_parallel", "context_parallel")  # whose product is its ranks
NUMERIC = (  # what may vary inside a batch of plans; all other fields are structure
    "data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_stages",
    "micro_batch", "global_batch", "data_shard", "expert_parallel", "expert_tensor_parallel",
)  # fmt: skip


def _listed(given: object) -> object:
    """Return the entries of a list of numbers that is written as one text, or as one number.

    In a text, "6x11" stands for eleven times 6. Square brackets around it have no meaning.
    """
    if not isinstance(given, str):
        return (given,) if isinstance(given, int) else given
    words = given.removeprefix("[").removesuffix("]").split(",")
    counted = [RUN.fullmatch(word.strip()) for word in words]
    counts = [int(run[2]) if run else 1 for run in counted]
    if 0 in counts or sum(counts) > MOST_ENTRIES:
        return tuple(words)
    entries = [run[1] if run else word for word, run in zip(words, counted, strict=True)]
    return tuple(entry for entry, count in zip(entries, counts, strict=True) for _ in range(count))


def with_runs(values: Sequence[int]) -> str:
    """Return a list of numbers as a text in which a word such as "3x8" stands for three or more equal
    neighbours.

    A plan reads the text as the same list. Zeros are written one by one, because YAML reads "0x3" as a
    hexadecimal number.

    >>> with_runs((6,) * 11 + (5,)), with_runs((0, 1, 1, 2, 2, 2, 0))
    ('6x11,5', '0,1,1,2x3,0')
    """

    def words() -> Iterator[str]:
        for value, equal in groupby(values):
            times = len(list(equal))
            counted = value > 0 and times >= SHORTEST_RUN
            yield from (f"{value}x{times}",) if counted else (str(value),) * times

    return ",".join(words())


def written_list(values: Sequence[int]) -> str:
    """Return a list of numbers for an error message. A long list has the form of `with_runs`.

    >>> written_list((0, 2, 2, 2, 0)), written_list((2,) * 32)
    ('0,2,2,2,0', '2x32')
    """
    return with_runs(values) if len(values) > MOST_IN_FULL else ",".join(map(str, values))


Numbers = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_listed)]


def degree(long_name: str, short_name: str, least: int = 1) -> int:
    """Return a field for whole numbers from `least` on, with two names."""
    info: int = Field(default=least, ge=least, validation_alias=AliasChoices(long_name, short_name))
    return info


def numbers() -> Numbers:
    """Return a field for a list of whole numbers, which users write as an array or with commas."""
    info: Numbers = Field(default=(), json_schema_extra=_or_commas)
    return info


def tensor_degree(given: dict[str, int]) -> int:
    """Return the tensor-parallel degree if it is a number, by which experts are divided by default."""
    return given.get("tensor_parallel", 1)


def short_name(name: str, field: FieldInfo) -> str:
    """Return the field's second name, if it has one."""
    choices = field.validation_alias
    return str(choices.choices[-1]) if isinstance(choices, AliasChoices) else name


def _or_commas(schema: dict[str, Any]) -> None:
    """Make the schema of a list of numbers accept an array, a text with commas, or one number."""
    array = {key: schema.pop(key) for key in ("type", "items")}
    word = {"type": "string", "pattern": r"^[0-9]+([x×][0-9]+)?(,[0-9]+([x×][0-9]+)?)*$"}
    schema["anyOf"] = [array, word, array["items"]]


def or_short_form(schema: dict[str, Any]) -> None:
    """Make the schema of recompute accept a mode, or the short form that includes its fields."""
    short = {"type": "string", "pattern": recompute_words.PATTERN}
    schema["anyOf"] = [{"type": schema.pop("type", "string"), "enum": schema.pop("enum")}, short]


def _names() -> tuple[str, ...]:
    return (AUTO, *SCHEDULES)


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
        {
            "type": "string",
            "pattern": r"\.csv$",
            "description": ("List of the tasks of each stage, in the order in which the stage runs them."),
        },
    ]


Schedule = Annotated[str | OwnSchedule, BeforeValidator(_known), Field(json_schema_extra=_or_file)]
