"""Measured tables: CSV files, plain or gzipped, as columns of numbers.

Answers: which values does this file contain, and which of its rows cannot be read?
Elsewhere: what the columns mean (lab/calibration/). A bad row is left out and reported, and the good rows
are kept, because one broken line should not make a long sweep useless. Unreadable files are refused.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flopcast.dtypes import Floats
from flopcast.errors import Problem, SpecError, shown
from flopcast.files.tables import other_separator
from flopcast.files.unpacked import read_unpacked
from flopcast.records import Record

Cells = Sequence[str | None]
Mask = npt.NDArray[np.bool_]
MOST_BYTES = 1_000_000_000
TIMES = ("_us", "_ms", "_s")  # how names of columns of times end
ON_TOP = ("_notify_us",)  # what comes on top of another time may be 0


class MeasuredTable(Record, eq=False):
    """Columns of equal length, and the faults of the rows that were left out.

    `columns` are float64 arrays by name, (rows,); each fault in `problems` names the file and the line.
    """

    columns: dict[str, Floats]
    problems: tuple[Problem, ...]


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the cells of each row of a CSV file with a header; a row over several
    lines has the number of its last line.

    Raises
    ------
    SpecError
        The file cannot be read or decompressed, is too large, or has no header whose comma-separated
        names all differ.
    """
    names, lines, rows = _read(_text(path), path)
    for line, cells in zip(lines, rows, strict=True):
        yield line, _as_row(names, cells)


def _text(path: Path) -> str:
    """Return the text of a file."""
    try:
        return read_unpacked(path, MOST_BYTES).decode("utf-8-sig")  # editors put a mark before the header
    except OSError as error:
        raise SpecError([_unreadable(path, str(error))]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpecError([_unreadable(path, str(error), line)]) from None


def _read(text: str, path: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """Return the names of a file's columns, and the lines and cells of its rows, except blank rows."""
    lines, rows = _rows(text, path)
    names = rows[0] if rows else []
    because, fix = _header_fault([name for name in names if name])
    if because:
        raise SpecError([_unreadable(path, because, lines[0] if lines else 1, fix)])
    return names, lines[1:], rows[1:]


def _rows(text: str, path: Path) -> tuple[list[int], list[list[str]]]:
    """Return the lines and cells of all rows that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True)  # any ends of lines
    try:
        if '"' in text:  # a row may have several lines
            numbered = [(reader.line_num, cells) for cells in reader]
            lines, rows = [line for line, _ in numbered], [cells for _, cells in numbered]
        else:
            rows = list(reader)
            lines = list(range(1, len(rows) + 1))
    except csv.Error as error:  # a field longer than any number
        raise SpecError([_unreadable(path, str(error), reader.line_num)]) from None
    return [line for line, cells in zip(lines, rows, strict=True) if cells], list(filter(None, rows))


def _as_row(names: list[str], cells: list[str]) -> dict[str, str]:
    """Return cells by name like `csv.DictReader`: missing cells are None, extra cells are under None."""
    row: dict[Any, Any] = dict(zip(names, cells, strict=False))
    row |= dict.fromkeys(names[len(cells) :])
    return row | ({None: cells[len(names) :]} if len(cells) > len(names) else {})


def _header_fault(names: list[str]) -> tuple[str, str]:
    """Return why a header is refused, and the fix; "" if it is valid."""
    if not names:
        return "the file has no header", "add a first line with the names of the columns"
    between, commas = other_separator(names[0] if len(names) == 1 else ",")
    if between:
        return between, commas
    twice = sorted(name for name, number in Counter(names).items() if number > 1)
    if not twice:
        return "", ""
    if any(name[:1].isdecimal() for name in twice):
        return "the first line contains values", "add a line with the names of the columns above it"
    because = f"the header contains these columns twice: {', '.join(twice)}"
    return because, f"rename or remove one of the two columns {twice[0]}"


def read_columns(path: Path) -> MeasuredTable:
    """Return the columns of a file as numbers; rows with empty cells or with times that are not positive
    are skipped.

    A column whose first value is a word becomes one column "name=word" of 0 and 1 for each word, so that
    a condition on a word is a condition on a number. Columns are times if their names end in _us, _ms or
    _s; a time that is added to another time may be 0.

    Raises
    ------
    SpecError
        As for `read_rows`; a bad row never raises an error.
    """
    text = _text(path)
    names, lines, rows = list[str](), list[int](), list[list[str]]()
    table = _plain_columns(text)
    is_plain = table is not None
    if table is None:
        names, lines, rows = _read(text, path)
        table = dict(zip(names, zip_longest(*rows), strict=False))
        table |= {name: (None,) * len(rows) for name in names if name not in table}
    words = _words(table)
    columns, good = _columns(table, words)
    if not is_plain:
        good &= np.fromiter(map(len, rows), np.intp, len(rows)) <= len(names)
    problems = []
    for number in np.flatnonzero(~good).tolist():
        row: dict[Any, Any] = {name: cells[number] for name, cells in table.items()}
        line = number + 2  # behind the header
        if not is_plain:
            row, line = _as_row(names, rows[number]), lines[number]
        problems.append(bad_row(path, line, row, _why(row, words)))
    kept = {name: values[good] for name, values in columns.items()} if good.any() else {}
    return MeasuredTable(columns=kept, problems=tuple(problems))


def _plain_columns(text: str) -> dict[str, Cells] | None:
    """Return the cells of each column if every row is one line and all rows have equally many cells; None
    for other texts.

    Splitting the whole text at once is several times as fast as creating a list for each row.

    >>> _plain_columns("m,n\\n1,2\\n3,4\\n")
    {'m': ['1', '3'], 'n': ['2', '4']}
    >>> _plain_columns("m,n\\n1\\n3,4\\n") is None
    True
    """
    lines = text.removesuffix("\n").split("\n")
    names = lines[0].split(",")
    is_read_otherwise = any(sign in f"\n{text}" for sign in ('"', "\r", ", ", "\n ")) or not all(lines)
    is_faulty = len(set(names)) < len(names) or any(_header_fault(names))
    is_ragged = {line.count(",") for line in lines} != {len(names) - 1}
    if is_read_otherwise or is_faulty or is_ragged or max(map(len, lines)) > csv.field_size_limit():
        return None
    cells = ",".join(lines[1:]).split(",") if len(lines) > 1 else []
    return {name: cells[number :: len(names)] for number, name in enumerate(names)}


def _words(table: dict[str, Cells]) -> dict[str, list[str]]:
    """Return the columns that contain words, judged by their first row, with their sorted words."""
    names = [
        name
        for name, cells in table.items()
        if name and cells and not name.endswith(TIMES) and as_number(cells[0]) is None
    ]
    return {name: sorted({cell for cell in set(table[name]) if cell}) for name in names}


def _columns(table: dict[str, Cells], words: dict[str, list[str]]) -> tuple[dict[str, Floats], Mask]:
    """Return the columns that contain numbers, and a mask of the rows that are valid in all of them."""
    columns: dict[str, Floats] = {}
    good: Mask = np.ones(max(map(len, table.values()), default=0), dtype=bool)
    for name, cells in table.items():
        if name in words:
            place: dict[str | None, int] = {word: at for at, word in enumerate(words[name])}
            places = place | {None: -1, "": -1}
            at = np.fromiter(map(places.__getitem__, cells), np.intp, len(cells))
            columns |= {f"{name}={word}": (at == place[word]).astype(np.float64) for word in place}
            continue
        values = columns[name] = _floats(cells)
        good &= np.isfinite(values)
        if name.endswith(TIMES):
            good &= (values >= 0) if name.endswith(ON_TOP) else (values > 0)
    return columns, good


def _floats(cells: Cells) -> Floats:
    """Return a column as numbers; cells that are not numbers become NaN."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return np.array([as_number(cell) for cell in cells], np.float64)  # of None it makes NaN


def as_number(text: str | None) -> float | None:
    """Return the number in a cell; None if there is none."""
    try:
        return float(text or "")
    except ValueError:
        return None


def _why(row: dict[str, str], words: dict[str, list[str]]) -> str:
    numbers = {name: text for name, text in row.items() if name not in words}
    if any(name is None or as_number(text) is None for name, text in numbers.items()):
        return "a number in every column"
    return (
        "times above 0"
        if all(math.isfinite(float(text)) for text in numbers.values())
        else "finite numbers"
    )


def bad_row(path: Path, line: int, row: Mapping[str, object], allowed: str) -> Problem:
    """Return the fault of one row, with its file and line."""
    because = "flopcast ignores this row and uses the other rows"
    fix = "correct or remove the row, or measure again: flopcast measure repeats rows that it had to ignore"
    return Problem(
        "row", ",".join(str(value) for value in row.values()), allowed, because, fix, where=f"{path}:{line}"
    )


def _unreadable(path: Path, why: str, line: int = 0, fix: str = "") -> Problem:
    """Return the fault of a file that is not a table; `line` is where it shows, or 0."""
    allowed, fix = (
        "a CSV file, plain or .gz",
        fix or f"choose a CSV file that exists{' and is readable' * path.exists()}",
    )
    where, fault = f"{path}:{line}" if line else "", f"{shown(str(path))} cannot be read"
    return Problem("file", str(path), allowed, why, fix, where=where, fault=fault)
