"""Measured tables: CSV files, plain or gzipped, as columns of numbers.

Answers: what does this file say, and which of its rows cannot be read?
Elsewhere: what the columns mean (calibration/). A bad row is left out and told, the good ones are kept:
a long sweep is not thrown away for one broken line. A file that cannot be read at all is refused.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flopcast.dtypes import Floats
from flopcast.errors import Problem, SpecError
from flopcast.io.samples.pack_faults import bad_row
from flopcast.io.samples.unpacked import read_unpacked

MOST_BYTES = 1_000_000_000
TIMES = ("_us", "_ms", "_s")  # how names of columns of times end
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
ON_TOP = ("_notify_us",)  # what comes on top of another time may be 0


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Measured:
    """Columns of equal length, and the faults of the rows that were left out.

    `columns` are float64 arrays by name, (rows,); each fault in `problems` names file and line.
    """

    columns: dict[str, Floats]
    problems: tuple[Problem, ...]


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and row of a CSV file with a header; a row that goes over several lines has its last.

    Raises
    ------
    SpecError
        The file cannot be read or decompressed, is too large, or has no header of columns between commas
        whose names all differ.
    """
    try:
        text = read_unpacked(path, MOST_BYTES).decode("utf-8-sig")  # editors put a mark before the header
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([_unreadable(path, str(error))]) from None
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    fault = _header_fault([name for name in reader.fieldnames or () if name])
    if fault:
        raise SpecError([_unreadable(path, fault)])
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:  # a field longer than any number
        raise SpecError([_unreadable(path, f"line {reader.line_num}: {error}")]) from None


def _header_fault(names: list[str]) -> str:
    """What is wrong with a header; nothing where it is one."""
    if not names:
        return "it has no header"
    separators = [word for sign, word in SEPARATORS.items() if len(names) == 1 and sign in names[0]]
    if separators:
        return f"its cells are separated by {separators[0]}, not by commas"
    twice = sorted(name for name, number in Counter(names).items() if number > 1)
    return f"columns stand twice in its header: {', '.join(twice)}" if twice else ""


def read_columns(path: Path) -> Measured:
    """The columns of a file as numbers; rows with gaps or times that are not positive are left out.

    A column whose first value is a word becomes one column "name=word" of 0 and 1 for each word, so that
    a condition on a word is one on a number. Columns are times where their names end in _us, _ms or _s; the
    part of a time that comes on top of another may be 0.

    Raises
    ------
    SpecError
        As `read_rows`; never for a bad row.
    """
    rows = list(read_rows(path))
    words = _words(rows)
    kept: dict[str, list[float]] = {}
    problems: list[Problem] = []
    for line, row in rows:
        numbers, why = _numbers(row, words)
        if why:
            problems.append(bad_row(path, line, row, why))
            continue
        for name, value in numbers.items():
            kept.setdefault(name, []).append(value)
    return Measured(
        columns={name: np.array(values) for name, values in kept.items()}, problems=tuple(problems)
    )


def _words(rows: list[tuple[int, dict[str, str]]]) -> dict[str, list[str]]:
    """Columns of words, by the first row, and the words that stand in them, sorted."""
    first = rows[0][1].items() if rows else ()
    names = [name for name, value in first if name and not name.endswith(TIMES) and not _is_number(value)]
    return {name: sorted({row[name] for _, row in rows if row.get(name)}) for name in names}


def _is_number(text: str | None) -> bool:
    """What `float` reads; a gap is none."""
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _numbers(row: dict[str, str], words: dict[str, list[str]]) -> tuple[dict[str, float], str]:
    """The row's numbers and "", or nothing and what the row should hold."""
    numbers: dict[str, float] = {}
    for name, text in row.items():
        if name in words:
            numbers |= {f"{name}={word}": float(text == word) for word in words[name]}
        elif name is None or not _is_number(text):
            return {}, "a number in every column"
        else:
            numbers[name] = float(text)
            if not math.isfinite(numbers[name]):
                return {}, "finite numbers"
            if name.endswith(TIMES) and numbers[name] <= 0 and not _is_nothing_on_top(name, numbers):
                return {}, "times above 0"
    return numbers, ""


def _is_nothing_on_top(name: str, numbers: dict[str, float]) -> bool:
    """Whether a part that may be 0 is 0."""
    return name.endswith(ON_TOP) and numbers[name] == 0


def _unreadable(path: Path, why: str) -> Problem:
    """The fault of a file that is no table at all."""
    return Problem(
        field="file", value=str(path), allowed="a CSV file, plain or .gz", because=why, fix="check the file"
    )
