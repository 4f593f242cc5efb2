"""A schedule that a user describes in a CSV file.

Each row is a task, and the rows of a stage are in the order in which they run.

Answers: which schedule does this file contain, and which lines are wrong?
Elsewhere: whether the order can run (schedules/custom.py) and fits the plan (spec/rules_schedule.py).

The first line names the columns, in any order: stage, kind (F, B, or W), micro_batch and, if stages have
several chunks, chunk. Rows of different stages may alternate.
"""

import csv
from collections.abc import Iterator

from flopcast.errors import Problem, SpecError
from flopcast.files.named_files import ReadFile, read_named
from flopcast.files.nearest_names import nearest
from flopcast.files.yaml_text import Document
from flopcast.records import replace
from flopcast.schedules.custom import KINDS, Row, faults, schedule_of_rows, schedule_problem
from flopcast.spec.plan_fields import TABLE

NEEDED, OPTIONAL = ("stage", "kind", "micro_batch"), ("chunk",)
MOST_BYTES = 20_000_000
MOST_FAULTS = 20  # of one file: the rest mostly repeats them
MOST_NUMBER = 100_000  # nor as large a stage, chunk or micro-batch: larger ones are typing errors


def with_schedule(plan: object, document: Document, read: ReadFile) -> object:
    """Return a plan with the schedule that is read from its table. A plan without a table does not change.

    Parameters
    ----------
    plan : a mapping in long names; other values are returned unchanged
    document : a relative path in a job file begins at the folder of the file, and one on the command line
        at the current folder
    read : returns the bytes of a file, given its path and a limit; at most one byte more than the limit

    Raises
    ------
    SpecError
        The file cannot be read, or its tasks cannot run. Every fault has its line.
    """
    name = plan.get("schedule") if isinstance(plan, dict) else None
    if not isinstance(plan, dict) or not isinstance(name, str) or not name.endswith(TABLE):
        return plan
    path, raw = read_named(name, document, ("plan", "schedule"), read, MOST_BYTES)
    rows = tuple(_rows(_text(raw, str(path)), str(path)))
    problems = faults(rows)
    if problems:
        raise SpecError([replace(each, where=each.where or f"{path}:1") for each in problems[:MOST_FAULTS]])
    return plan | {"schedule": schedule_of_rows(name, rows)}


def _text(raw: bytes, name: str) -> list[str]:
    """Return the lines of a text file that is not too large."""
    if len(raw) > MOST_BYTES:
        allowed = f"a file of at most {MOST_BYTES} bytes"
        raise SpecError(
            [
                schedule_problem(
                    name, "a larger file", allowed, "flopcast reads the whole file", "use fewer tasks"
                )
            ]
        )
    try:
        return raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = schedule_problem(
            f"{name}:{line}",
            "other bytes",
            "UTF-8 text",
            "a table of tasks is a text file",
            "save it as CSV",
        )
        raise SpecError([fault]) from None


def _rows(lines: list[str], name: str) -> Iterator[Row]:
    """Return the tasks of a table in order; all faults of its cells are raised together."""
    numbered = [(number, cells) for number, cells in enumerate(csv.reader(lines), 1) if cells]
    first, names = numbered[0] if numbered else (1, [""])
    columns = [cell.strip() for cell in names]
    if sorted({*columns, *OPTIONAL}) != sorted({*NEEDED, *OPTIONAL}) or len(set(columns)) < len(columns):
        wanted = ",".join(NEEDED)
        allowed = f"{wanted}, and also chunk if stages have several chunks"
        because = "the first line contains the names of the columns"
        from flopcast.files.tables import other_separator

        between, commas = other_separator(columns[0] if len(columns) == 1 else ",")
        lacking = [column for column in NEEDED if column not in columns]
        fix = f"write {wanted}"
        if lacking and set(columns) <= {*NEEDED, *OPTIONAL}:
            fix = f"add {' and '.join(lacking)} to the first line, and the values to each row"
        if between:
            because, fix = between, commas
        elif columns[0].isdecimal():
            because, fix = f"line {first} contains values", f"add the line {wanted} above line {first}"
        elif len(lacking) == 1 and (near := nearest(lacking[0], {*columns} - {*NEEDED, *OPTIONAL})):
            fix = f"write {lacking[0]} in place of {near[0]} in line {first}"
        fault = schedule_problem(f"{name}:{first}", ",".join(columns), allowed, because, fix)
        raise SpecError([fault])
    read = [_row(columns, [cell.strip() for cell in cells], f"{name}:{at}") for at, cells in numbered[1:]]
    problems = [problem for row in read if not isinstance(row, Row) for problem in row]
    if problems:
        raise SpecError(problems[:MOST_FAULTS])
    return (row for row in read if isinstance(row, Row))


def _row(columns: list[str], cells: list[str], where: str) -> Row | list[Problem]:
    if len(cells) != len(columns):
        allowed = f"{len(columns)} cells"
        return [
            schedule_problem(
                where,
                ",".join(cells),
                allowed,
                "each row has one cell for each column",
                f"write {allowed} in this row",
            )
        ]
    named = {"chunk": "0"} | dict(zip(columns, cells, strict=True))
    problems = [
        schedule_problem(
            where,
            f"{name}: {text}",
            "a whole number from 0",
            "the value is not a whole number",
            _count_fix(name, text),
        )
        for name, text in named.items()
        if name != "kind" and not _is_count(text)
    ]
    if named["kind"] not in KINDS:
        because = (
            "F is a forward pass, B is a backward pass (or only its input gradients), and W computes "
            "weight gradients"
        )
        problems.append(
            schedule_problem(
                where, f"kind: {named['kind']}", ", ".join(KINDS), because, "set kind to F, B or W"
            )
        )
    if problems:
        return problems
    stage, chunk, micro_batch = (int(named[name]) for name in ("stage", "chunk", "micro_batch"))
    return Row(stage=stage, kind=named["kind"], chunk=chunk, micro_batch=micro_batch, where=where)


def _count_fix(name: str, text: str) -> str:
    """Return the fix of a cell that is not a whole number from 0."""
    from flopcast.slips import meant

    right = meant(text, "a whole number from 0")
    return f"write {right} in place of {text}" if right else f"set {name} to 0, or to another whole number"


def _is_count(text: str) -> bool:
    """Return whether a text is a whole number of a size that a plan may have."""
    return text.isascii() and text.isdecimal() and len(text) < len(str(MOST_NUMBER))
