"""Rows of a batch of plans that are alike: what is worked out once and handed to all of them.

Answers: which rows have equal values in some columns, and which row stands for each of these groups?
Elsewhere: the batches (plan.py), what depends on which columns (those who ask).

Columns hold whole numbers. Each is turned into places among its own values, all of them into one number a
row: sorting one number is ten times faster than sorting rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.spec.plan import NUMERIC, Plans


@dataclass(frozen=True, eq=False, slots=True)
class Alike:
    """Groups of rows: `first` is a row of each group, (groups,); `group` that of every row, (rows,)."""

    first: Integers
    group: Integers

    @property
    def size(self) -> int:
        """How many groups."""
        return len(self.first)

    def holds(self, values: np.ndarray) -> bool:
        """Whether an array over rows, or with one row for all of them, is the same inside every group."""
        return len(values) == 1 or bool((values == values[self.first][self.group]).all())


def alike(columns: Sequence[np.ndarray]) -> Alike:
    """Rows that are equal in all of some columns of whole numbers, (rows,) each.

    Examples
    --------
    >>> found = alike([np.array([2, 1, 2, 2]), np.array([8, 8, 8, 4])])
    >>> found.first.tolist(), found.group.tolist()
    ([1, 3, 0], [2, 0, 2, 1])
    """
    code: Integers = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        if len(values) > 1:
            code = code * len(values) + place.reshape(-1)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return Alike(first, group.reshape(-1))


def runs(columns: Sequence[np.ndarray]) -> Alike:
    """Neighbours that are equal in all of some columns, (rows,) each: no sorting, one group for each run.

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
    return Alike(np.flatnonzero(begins), group)


def of_equal_split(plans: Plans) -> Alike:
    """Plans whose layers see the same: degrees inside a stage, and the micro-batch."""
    seen = (
        plans.tensor_parallel,
        plans.context_parallel,
        plans.expert_parallel,
        plans.expert_tensor_parallel,
        plans.micro_batch,
    )
    return alike([column[:, 0] for column in seen])


def of_equal_program(plans: Plans) -> Alike:
    """Neighbours that differ in their global batch alone: the same programs, run more or less often."""
    return runs([getattr(plans, name)[:, 0] for name in NUMERIC if name != "global_batch"])


def rows_of(plans: Plans, rows: Integers) -> Plans:
    """Some plans of a batch, in the order of `rows`."""
    return replace(plans, **{name: getattr(plans, name)[rows] for name in NUMERIC})


def of_rows(values: Counts, rows: Integers) -> Counts:
    """Some rows of an array; one row that stands for all of them stays alone."""
    return values if len(values) == 1 else values[rows]
