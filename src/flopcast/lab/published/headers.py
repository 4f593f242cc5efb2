"""Headers of run tables, and the meaning of their columns.

Answers: what kind of table has this header, and which fact does each column state?
Elsewhere: reading the cells (table.py), the facts themselves (lab/validation/run.py).

A table from another source needs one entry in headers.yaml. Facts that all rows share and that the table
therefore omits (device, framework) are in `common`. They come from the text that accompanies the table. If
one cell of a column holds several facts, `translate` first rewrites the row into the columns of
`PUBLISHED`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.lab.published.mlperf import published_row
from flopcast.records import Record, field

Place = tuple[str, str]  # part of a Run ("" is the run itself) and field
GIB = 2.0**30
MLPERF = "MLPerf Training"  # whose cells hold several facts


class Column(Record):
    """One column: the field for its value, and the factor from its unit to SI."""

    to: Place
    unit_factor: float = 1.0


class Header(Record):
    """One kind of table, identified by the columns `marks`, all of which must be present.

    `columns` are the columns that are read; a column in `derived` gives a fact only if the column of this
    fact is empty. `passive` columns cannot change the job: they state the origin of a row or follow from
    other columns; any other column with a value is listed in the assumptions of its row. `common` holds
    facts of every row. `refused` is the reason why rows of this kind cannot be scored. `translate`
    rewrites a row into the columns of `columns`; None if the table already has these columns.
    """

    marks: tuple[str, ...]
    columns: Mapping[str, Column]
    derived: Mapping[str, Column] = field(default_factory=dict)
    common: Mapping[Place, object] = field(default_factory=dict)
    passive: frozenset[str] = frozenset()
    refused: str = ""
    translate: Callable[[Mapping[str, str]], dict[str, str]] | None = None


def _columns(parts: Mapping[str, str], units: Mapping[str, float]) -> dict[str, Column]:
    """Return the columns of parts of a run: each word is a field and its column, or the name of both."""
    words = ((part, word.partition("=")) for part, named in parts.items() for word in named.split())
    columns = ((part, field, column or field) for part, (field, _, column) in words)
    return {
        column: Column(to=(part, field), unit_factor=units.get(column, 1.0))
        for part, field, column in columns
    }


def _header(name: str, table: Mapping[str, Any]) -> Header:
    """Return a kind of table; entries that it lacks are those of its base."""
    row = {**table.get(table[name].get("base", ""), {}), **table[name]}
    units = row.get("units", {})
    return Header(
        marks=tuple(row["marks"].split()),
        columns=_columns(row["columns"], units),
        derived=_columns(row.get("derived", {}), units),
        common={
            (part, field): value
            for part, facts in row.get("common", {}).items()
            for field, value in facts.items()
        },
        passive=frozenset(row.get("passive", "").split()),
        refused=row.get("refused", ""),
        translate=published_row if name == MLPERF else None,
    )


MEMORY = ("observed", "memory_bytes")
_TABLE = read_table(__package__, "headers.yaml")
HEADERS: Mapping[str, Header] = {name: _header(name, _TABLE) for name in _TABLE}
PUBLISHED = HEADERS["published runs"]


def header_of(columns: tuple[str, ...]) -> Header | None:
    """Return the kind of table with these columns: the first kind whose marks are all present."""
    return next((kind for kind in HEADERS.values() if set(kind.marks) <= set(columns)), None)


def edits_of_header(near: Mapping[str, str]) -> str:
    """Return the edits that give a header its columns; `near` maps each to the one that means it, or to "".

    >>> edits_of_header({"step_time_s": "step_ms", "seq_len": ""})
    'write step_time_s, in seconds, in place of step_ms, add a column seq_len'
    """
    edits = [
        f"write {mark}{', in seconds,' * other.endswith('_ms')} in place of {other}"
        for mark, other in near.items()
        if other
    ]
    lacking = [mark for mark, other in near.items() if not other]
    add = "add the columns" if lacking[1:] else "add a column"
    return ", ".join([*edits, *([f"{add} {', '.join(lacking)}"] if lacking else [])])
