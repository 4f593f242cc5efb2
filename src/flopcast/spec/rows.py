"""Equal rows of a batch of plans, whose results are computed only once.

Answers: which rows have equal values in some columns, and which row represents each group of equal rows?
Elsewhere: the batches of plans (plan.py).

Columns contain whole numbers, which are combined to one number for each row. If this number has few
possible values, rows are grouped without sorting. Otherwise, the numbers are sorted, which is ten times
faster than sorting rows.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import is_
from typing import TypeVar, cast

import numpy as np

from flopcast.dtypes import Counts, Integers, all_of
from flopcast.kept_results import PLAIN
from flopcast.records import Record, replace
from flopcast.spec.plan import Plans
from flopcast.spec.plan_fields import NUMERIC

Value = TypeVar("Value")

MOST_NUMBERS = 2**62  # that fit into an integer
SORTED_BEYOND = 16  # possible numbers a row: more take longer to go through than rows to sort
WORTH_ROWS = 2048  # plans: of fewer, arrays take less time than the objects that hold them
WORTH_GROUPS = 2  # plans for each split, on average


class EqualRows(Record, eq=False, kw_only=False):
    """Groups of equal rows: `first`, (groups,), is one row of each group, and `group`, (rows,), the group
    of each row.

    `values[first]` selects one row of each group, and `values[first][group]` restores all rows.
    """

    first: Integers
    group: Integers

    @property
    def size(self) -> int:
        """Return the number of groups."""
        return len(self.first)

    def holds(self, values: np.ndarray) -> bool:
        """Return whether an array is constant in every group.

        It has one value for each row, or one row for all.
        """
        return len(values) == 1 or all_of(values == values[self.first][self.group])


def equal_rows(columns: Sequence[np.ndarray]) -> EqualRows:
    """Return groups of rows that are equal in some columns of whole numbers, (rows,) each.

    Examples
    --------
    >>> found = equal_rows([np.array([2, 1, 2, 2]), np.array([8, 8, 8, 4])])
    >>> found.first.tolist(), found.group.tolist()
    ([1, 3, 0], [2, 0, 2, 1])
    """
    code: Integers = np.zeros(len(columns[0]), dtype=np.intp)
    if len(code) == 1:  # of a single plan
        return EqualRows(code, code)
    size = 1  # the code is a number below it
    for column in columns if len(code) else ():
        least = int(column[column.argmin()])  # in less time than `min`
        values = int(column[column.argmax()]) - least + 1
        if size * values > MOST_NUMBERS:
            code, size = _places(code)
            places, values = _places(column)
            code = code * values + places
        elif values > 1:
            code = code * values + (column - least).astype(np.intp)
        size *= values
    return of_equal_numbers(code, size)


def _places(column: np.ndarray) -> tuple[Integers, int]:
    """Return the place of every row among the distinct values of a column, and the number of these."""
    values, place = np.unique(column, return_inverse=True)
    return place.reshape(-1), len(values)


def of_equal_numbers(number: Integers, size: int) -> EqualRows:
    """Return groups of rows with equal whole numbers from 0 to `size` - 1, in the order of these numbers.

    Examples
    --------
    >>> found = of_equal_numbers(np.array([7, 3, 7]), 8)
    >>> found.first.tolist(), found.group.tolist()
    ([1, 0], [1, 0, 1])
    """
    rows = len(number)
    if size > SORTED_BEYOND * (rows + SORTED_BEYOND):
        _, first, group = np.unique(number, return_index=True, return_inverse=True)
        return EqualRows(first, group.reshape(-1))
    first = np.full(size, rows)
    first[number[::-1]] = np.arange(rows)[::-1]  # of equal numbers the last assignment counts
    there = first < rows
    return EqualRows(first[there], (there.cumsum() - 1)[number])


def runs(columns: Sequence[np.ndarray]) -> EqualRows:
    """Return runs of adjacent rows that are equal in some columns, (rows,) each, without sorting.

    Examples
    --------
    >>> found = runs([np.array([2, 2, 1, 2])])
    >>> found.first.tolist(), found.group.tolist()
    ([0, 2, 3], [0, 0, 1, 2])
    """
    begins = np.zeros(len(columns[0]), dtype=bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    group: Integers = begins.cumsum() - 1
    return EqualRows(np.flatnonzero(begins), group)


def of_equal_split(plans: Plans) -> EqualRows:
    """Return groups of plans whose layers are equal: degrees inside a stage, and the micro-batch."""
    seen = (
        plans.tensor_parallel,
        plans.context_parallel,
        plans.expert_parallel,
        plans.expert_tensor_parallel,
        plans.micro_batch,
    )
    return equal_rows([column[:, 0] for column in seen])


def of_equal_program(plans: Plans) -> EqualRows:
    """Return runs of adjacent plans that differ only in their global batch and share their programs."""
    return runs([getattr(plans, name)[:, 0] for name in NUMERIC if name != "global_batch"])


def distinct_splits(plans: Plans) -> EqualRows | None:
    """Return `of_equal_split` if computing layers once for each group saves time; otherwise None."""
    if plans.size < WORTH_ROWS:
        return None
    rows = of_equal_split(plans)
    return rows if WORTH_GROUPS * rows.size <= plans.size else None


def rows_of(plans: Plans, rows: Integers) -> Plans:
    """Return some plans of a batch, in the order of `rows`."""
    return replace(plans, **{name: getattr(plans, name)[rows] for name in NUMERIC})


def of_rows(values: Counts, rows: Integers) -> Counts:
    """Return the chosen rows of an array. A single row that applies to all rows does not change."""
    return values if len(values) == 1 else values[rows]


def arrays_of(value: object) -> Iterator[np.ndarray]:
    """Yield every array in a value: in tuples, and in fields of dataclasses."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from arrays_of(part)
    else:
        for name in _names(cast("Hashable", type(value))):
            yield from arrays_of(getattr(value, name))


def taken(value: Value, rows: Integers, made: dict[int, tuple[object, object]] | None = None) -> Value:
    """Return `value` with the chosen rows of its arrays. Parts without such arrays do not change.

    `made` contains the results by the identity of the originals, which share arrays and items.

    >>> taken((np.array([[1.0], [2.0]]), np.array([[3.0]])), np.array([1, 1, 0]))[0].tolist()
    [[2.0], [2.0], [1.0]]
    """
    return cast("Value", _taken(value, rows, {} if made is None else made))


def _taken(value: object, rows: Integers, made: dict[int, tuple[object, object]]) -> object:
    kind = type(value)
    if kind is tuple:
        each = cast("tuple[object, ...]", value)
        if PLAIN.issuperset(map(type, each)):
            return value
        return tuple([_taken(part, rows, made) for part in each])
    known = made.get(id(value))
    if known is not None:
        return known[1]
    new = value
    if kind is np.ndarray:
        array = cast("np.ndarray", value)
        new = array if len(array) == 1 else array.take(rows, axis=0)
    elif names := _names(cast("Hashable", kind)):
        old = [getattr(value, name) for name in names]
        parts = [part if type(part) in PLAIN else _taken(part, rows, made) for part in old]
        if not all(map(is_, old, parts)):
            new = kind(**dict(zip(names, parts, strict=True)))
    made[id(value)] = value, new
    return new


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, without those that it fills in itself; () for others."""
    if not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind) if field.init)
