"""Requests of one part of a trace, and their faults.

Answers: are these times and lengths possible, and which line is wrong?
Elsewhere: reading them (csv_rows.py, json_rows.py), joining parts (reader.py).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from flopcast.dtypes import Flags, Floats, Integers
from flopcast.errors import Problem
from flopcast.records import Record, field

MOST_SHOWN = 10  # faulty lines that one error names
NO_TIME = float("nan")


class Rows(Record, eq=False):
    """Requests in the order of their lines, arrays of shape (rows,) unless stated.

    `after` and `keep` are None, and `segments` is 0 everywhere, if requests have no conversations and no
    shared prefixes. `names` are the names that the file gives to arrivals, prompt and output tokens.
    """

    lines: Integers  # the number of the line of each request
    arrival_s: Floats  # not a number where the trace has no times
    prompt_tokens: Integers
    output_tokens: Integers
    segments: Integers  # number of segments that each prompt begins with
    segment_ids: Integers  # (segments of all,)
    segment_tokens: Integers  # (segments of all,)
    after: Integers | None = None  # the row of the turn before, -1 if none
    keep: Integers | None = None  # the segment that keeps the context, -1 if none
    names: Mapping[str, str] = field(default_factory=dict)


class Rules(Record):
    """The rules for the requests of a trace."""

    path: Path
    field: str  # what errors call the trace
    longest_tokens: int | None  # of prompt and output together; None if there is no limit


def row_problems(rows: Rows, rules: Rules, before_s: float) -> list[Problem]:
    """Return at most MOST_SHOWN faults of the rows.

    Parameters
    ----------
    rows : Rows
    rules : Rules
    before_s : float
        The arrival of the request before these rows; minus infinity if there is none, NaN if it has no
        time.
    """
    return list(_problems(rows, rules, before_s))[:MOST_SHOWN]


def _problems(rows: Rows, rules: Rules, before_s: float) -> Iterator[Problem]:
    untimed = np.isnan(rows.arrival_s)
    if np.isnan(before_s):
        fix = "give either every request of the trace an arrival time, or no request"
        because = "earlier requests of the trace have no arrival time"
        yield from _named(~untimed, rows, rules, "arrival", "no time", because, fix, rows.arrival_s)
    elif np.isfinite(before_s) or not untimed.all():
        named = rows.names.get("arrival", "an arrival time")
        fix, because = f"add {named} to this request", "other requests of the trace have an arrival time"
        yield from _named(untimed, rows, rules, "arrival", "a time", because, fix)
    for name, values in (("prompt_tokens", rows.prompt_tokens), ("output_tokens", rows.output_tokens)):
        because = "a request has at least one token of prompt and of output"
        fix = "write at least 1 in this cell, or remove the line if the request failed"
        yield from _named(values < 1, rows, rules, name, "at least 1", because, fix, values)
    previous_s = np.concatenate([[before_s], rows.arrival_s[:-1]])
    fix = "sort the lines of the trace by time"
    because = "the requests of a trace must be in the order of their arrival"
    late = rows.arrival_s < previous_s
    negative, allowed = late & (rows.arrival_s < 0), "a number of at least 0"
    yield from _named(negative, rows, rules, "arrival", allowed, because, fix, rows.arrival_s)
    late &= ~negative
    yield from _named(
        late,
        rows,
        rules,
        "arrival",
        "a time that is not before that of the previous line",
        because,
        fix,
        rows.arrival_s,
    )
    if rules.longest_tokens is not None:
        context = rows.prompt_tokens + rows.output_tokens
        allowed = f"at most {rules.longest_tokens} tokens of prompt and output"
        because = "this is the context length of the model"
        fix = "remove the request, or serve a model with a longer context"
        over = context > rules.longest_tokens
        yield from _named(over, rows, rules, "length", allowed, because, fix, context)


def _named(
    wrong: Flags,
    rows: Rows,
    rules: Rules,
    name: str,
    allowed: str,
    because: str,
    fix: str,
    values: Floats | Integers | None = None,
) -> Iterator[Problem]:
    """Yield a problem for each wrong row, up to MOST_SHOWN."""
    for row in np.flatnonzero(wrong)[:MOST_SHOWN].tolist():
        where = f"{rules.path}:{rows.lines[row]}"
        named = f"{rules.field} {rows.names.get(name, name)}"
        fault = "is missing" if values is None else ""
        value = None if values is None else values[row].item()
        yield Problem(named, value, allowed, because, fix, where=where, fault=fault)
