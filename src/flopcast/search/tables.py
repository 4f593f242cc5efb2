"""Tables of columns with one row for each plan. They are combined axis by axis, in parts of bounded length.

Answers: how does a table get another axis, and how is a long table split and combined again?
Elsewhere: the axes of a space (grid.py).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from flopcast.dtypes import Counts

Table = dict[str, Counts]  # columns of one length, (rows,)


def column_of(values: Sequence[float]) -> Counts:
    """Return the values of an axis."""
    return np.array(values, dtype=np.float64)


def joined_with(table: Table, name: str, values: Counts) -> Table:
    """Return the combinations of every row with every value of another axis; those of one row are
    adjacent.
    """
    rows = len(next(iter(table.values()))) if table else 1
    repeated = {column: np.repeat(given, len(values)) for column, given in table.items()}
    return repeated | {name: np.tile(values, rows)}


def each_with(tables: Iterable[Table], name: str, values: Counts, rows: int) -> Iterator[Table]:
    """Return tables with another axis, in parts that are not much longer than `rows`."""
    step = max(1, rows // len(values))
    return (joined_with(part, name, values) for table in tables for part in in_parts(table, step))


def rows_where(table: Table, mask: np.ndarray) -> Table:
    """Return the rows of a table that a mask keeps."""
    return {name: column[mask] for name, column in table.items()}


def in_parts(table: Table, rows: int) -> Iterator[Table]:
    """Yield a table in parts of this many rows."""
    length = len(next(iter(table.values())))
    for start in range(0, length, rows):
        yield {name: column[start : start + rows] for name, column in table.items()}


def regrouped(tables: Iterable[Table], rows: int) -> Iterator[Table]:
    """Yield the same rows in tables of `rows` rows; the last one may be shorter, and none is empty.

    Joining axes makes tables of very different lengths. Batches of equal length make full use of arrays
    without exceeding the memory.
    """
    waiting: list[Table] = []
    number = 0
    for table in tables:
        waiting.append(table)
        number += len(table["data_parallel"])
        if number >= rows:
            *full, rest = in_parts(stacked(waiting), rows)
            yield from full
            waiting, number = [rest], len(rest["data_parallel"])
    if number:
        yield stacked(waiting)


def stacked(tables: list[Table]) -> Table:
    """Return the concatenated tables."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
