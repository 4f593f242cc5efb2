"""Tables of steps: a header such as "step,seconds", then a row for each step.

Answers: which numbers of a step do the columns of a CSV file hold?
Elsewhere: lines that frameworks print (formats.py). Only columns whose names state their unit are read.
"""

import math
import re
from collections.abc import Iterator, Sequence

from flopcast.lab.logs.formats import KEYS, NUMBER, Fields, number, scaled
from flopcast.meant_quantities import meant_quantity
from flopcast.quantities import parse_quantity

COLUMNS = KEYS | scaled("columns")  # name of a column, without underscores → field and scale
_MISSING = ("", "-", "na", "n/a", "none", "null")  # nan is a number
_TIMES = ("s", "min", "h")
_NOT_COMMA = re.compile(r"[;\t]")  # a separator beside which a comma is a decimal one


def columns_of(line: str) -> tuple[tuple[str, float], ...]:
    """Return the field and the scale of each column of the table whose header a line is.

    Columns of other names have no field. The result is empty if no column is the time of a step.

    >>> columns_of("step,loss,seconds"), columns_of("1,2.5,7.1")
    ((('step', 1.0), ('', 1.0), ('step_time_s', 1.0)), ())
    """
    cells = [cell.replace("_", " ").lower() for cell in _cells(line)]
    columns = tuple(COLUMNS.get(cell, ("", 1.0)) for cell in cells)
    return columns if len(cells) > 1 and "step_time_s" in dict(columns) else ()


def row_of(line: str, columns: Sequence[tuple[str, float]]) -> Fields:
    """Return the numbers in a row of a table with these columns, with NaN for other texts. Return nothing
    for other lines.
    """
    cells = _cells(line)
    known = [(*column, cell) for column, cell in zip(columns, cells, strict=False) if column[0]]
    numeric = [re.fullmatch(NUMBER, cell) is not None for *_, cell in known]
    if len(cells) != len(columns) or not any(numeric):
        return {}
    return {
        field: number(cell) * scale if is_number else math.nan
        for (field, scale, cell), is_number in zip(known, numeric, strict=True)
    }


def wrong_cells(
    line: str, header: str, columns: Sequence[tuple[str, float]]
) -> Iterator[tuple[str, str, str]]:
    """Yield the column, the text and the number that it means for each cell of a row that holds a text.

    A missing value is no text. The number is "" if none is certain.

    >>> [*wrong_cells("3,7200ms", "step,seconds", columns_of("step,seconds"))]
    [('seconds', '7200ms', '7.2')]
    """
    cells = _cells(line)
    if len(cells) != len(columns) or columns_of(line):
        return
    for name, (field, scale), cell in zip(_cells(header), columns, cells, strict=True):
        if field and cell.lower() not in _MISSING and not re.fullmatch(NUMBER, cell):
            right = meant_quantity(cell, _TIMES) if field == "step_time_s" else ""
            yield name, cell, f"{parse_quantity(right, _TIMES) / scale:.10g}" if right else ""


def _cells(line: str) -> list[str]:
    """Return the cells of a line; commas are decimal ones in a line with semicolons or tabs.

    >>> _cells("1, 7.05"), _cells("1;7,05")
    (['1', '7.05'], ['1', '7.05'])
    """
    others = _NOT_COMMA.split(line.strip())
    cells = [cell.replace(",", ".") for cell in others] if len(others) > 1 else line.split(",")
    return [cell.strip().strip("\"'") for cell in cells]
