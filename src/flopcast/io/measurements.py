"""Measured tables: CSV files, plain or gzipped, as columns of numbers.

Answers: what does this file say, and which of its rows cannot be read?
"""

import csv
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flopcast.dtypes import Floats
from flopcast.errors import Problem, SpecError
from flopcast.io.jobs import read_file


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Measured:
    """Columns of equal length, and the faults of the rows that were left out."""

    columns: dict[str, Floats]
    problems: tuple[Problem, ...]


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and row of a CSV file with a header.

    Raises
    ------
    SpecError
        The file cannot be read or decompressed, or has no header.
    """
    raw = read_file(path)
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SpecError([_unreadable(path, str(error))]) from None
    reader = csv.DictReader(io.StringIO(text))
    if not reader.fieldnames:
        raise SpecError([_unreadable(path, "it has no header")])
    for row in reader:
        yield reader.line_num, row


def read_columns(path: Path) -> Measured:
    """The columns of a file as numbers; rows with gaps or times that are not positive are left out.

    A column whose first value is a word becomes one column "name=word" of 0 and 1 for each word.
    """
    rows = list(read_rows(path))
    words = _words(rows)
    kept: dict[str, list[float]] = {}
    problems: list[Problem] = []
    for line, row in rows:
        numbers, why = _numbers(row, words)
        if why:
            problems.append(_bad_row(path, line, row, why))
            continue
        for name, value in numbers.items():
            kept.setdefault(name, []).append(value)
    return Measured(
        columns={name: np.array(values) for name, values in kept.items()}, problems=tuple(problems)
    )


def _words(rows: list[tuple[int, dict[str, str]]]) -> dict[str, list[str]]:
    """Columns of words, by the first row, and the words that stand in them."""
    names = [name for name, value in (rows[0][1].items() if rows else ()) if not _is_number(value)]
    return {name: sorted({row[name] for _, row in rows if row.get(name)}) for name in names}


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _numbers(row: dict[str, str], words: dict[str, list[str]]) -> tuple[dict[str, float], str]:
    """The row's numbers, or what they should be."""
    numbers: dict[str, float] = {}
    for name, text in row.items():
        if name in words:
            numbers |= {f"{name}={word}": float(text == word) for word in words[name]}
        elif name is None or not _is_number(text):
            return {}, "a number in every column"
        else:
            numbers[name] = float(text)
            if name.endswith(("_us", "_ms", "_s")) and not 0 < numbers[name] < np.inf:
                return {}, "times above 0"
    return numbers, ""


def _unreadable(path: Path, why: str) -> Problem:
    return Problem(
        field="file", value=str(path), allowed="a CSV file, plain or .gz", because=why, fix="check the file"
    )


def _bad_row(path: Path, line: int, row: dict[str, str], allowed: str) -> Problem:
    return Problem(
        where=f"{path}:{line}",
        field="row",
        value=",".join(str(value) for value in row.values()),
        allowed=allowed,
        because="the row was left out, the others are kept",
        fix="mend or remove the row",
    )
