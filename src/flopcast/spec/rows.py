"""Equal rows of a batch of plans: what is computed once and used for all of them.

Answers: which rows have equal values in some columns, and which row stands for each of these groups?
Elsewhere: the batches (plan.py), what depends on which columns (those who ask).

Columns hold whole numbers. Each is turned into places among its own values, all of them into one number a
row: sorting one number is ten times faster than sorting rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.spec.plan import Plans
from flopcast.spec.plan_fields import NUMERIC


@dataclass(frozen=True, eq=False, slots=True)
class EqualRows:
    """Groups of rows: `first` is a row of each group, (groups,); `group` that of every row, (rows,).

    `values[first][group]` has the values of the group's first row in every row.
    """

    first: Integers
    group: Integers

    @property
    def size(self) -> int:
        """Return the number of groups."""
        return len(self.first)

    def holds(self, values: np.ndarray) -> bool:
        """Return whether an array over rows, or with one row for all, is constant in every group."""
        return len(values) == 1 or bool((values == values[self.first][self.group]).all())


def equal_rows(columns: Sequence[np.ndarray]) -> EqualRows:
    """Return groups of rows that are equal in some columns of whole numbers, (rows,) each.

    Examples
    --------
    >>> found = equal_rows([np.array([2, 1, 2, 2]), np.array([8, 8, 8, 4])])
    >>> found.first.tolist(), found.group.tolist()
    ([1, 3, 0], [2, 0, 2, 1])
    """
    code: Integers = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        if len(values) > 1:
            code = code * len(values) + place.reshape(-1)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return EqualRows(first, group.reshape(-1))


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


def rows_of(plans: Plans, rows: Integers) -> Plans:
    """Return some plans of a batch, in the order of `rows`."""
    return replace(plans, **{name: getattr(plans, name)[rows] for name in NUMERIC})


def of_rows(values: Counts, rows: Integers) -> Counts:
    """Return some rows of an array; a single row that stands for all is kept."""
    return values if len(values) == 1 else values[rows]
