"""Items that ask the same of all plans of equal split: priced once, handed to all of them.

Answers: which items of a batch are the same wherever layers see the same, and what is their price for every
plan?
Elsewhere: prices themselves (price.py), which plans have equal splits (spec/rows.py).

Nothing is declared: an item counts as the same where every array of its work, and the group of its ranks,
has one value for all plans of a split. So a new term that hangs on more is priced plan by plan, unasked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from flopcast.cost.placement import Group, axis_group
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import HostWork, Item
from flopcast.spec.plan import Plans
from flopcast.spec.rows import Alike, of_equal_split, of_rows

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
Work = AbstractOperator | AbstractMessage | HostWork


@dataclass(frozen=True, eq=False, slots=True)
class PricedOnce:
    """The same items, those of equal splits with one row for each of these; and the groups of their ranks.

    `items` stand in the order asked; `narrowed` says which have rows of splits. `groups` are by axis, of
    plans and of splits.
    """

    items: tuple[Item, ...]
    narrowed: tuple[bool, ...]
    rows: Alike
    groups: dict[tuple[str, bool], Group]


def priced_once(items: Sequence[Item], plans: Plans, devices_per_node: int) -> PricedOnce:
    """Narrow items to the rows that have to be priced."""
    rows = of_equal_split(plans)
    groups: dict[tuple[str, bool], Group] = {}
    for axis in {item.work.axis for item in items if isinstance(item.work, AbstractMessage)}:
        group = axis_group(axis, plans, devices_per_node)
        groups[axis, False] = group
        if rows.holds(group.inside) and rows.holds(group.nodes):
            groups[axis, True] = Group(
                inside=of_rows(group.inside, rows.first), nodes=of_rows(group.nodes, rows.first)
            )
    few = rows.size < plans.size
    narrowed = tuple(few and _is_alike(item, rows, groups) for item in items)
    found = tuple(_of(item, rows) if narrow else item for item, narrow in zip(items, narrowed, strict=True))
    return PricedOnce(found, narrowed, rows, groups)


def _is_alike(item: Item, rows: Alike, groups: dict[tuple[str, bool], Group]) -> bool:
    """Whether all plans of a split ask the same of an item."""
    work = item.work
    if isinstance(work, AbstractMessage) and (work.axis, True) not in groups:
        return False
    return not isinstance(work, HostWork) and all(rows.holds(value) for value in _arrays(work).values())


def _of(item: Item, rows: Alike) -> Item:
    """An item with one row for each split."""
    few = {name: of_rows(value, rows.first) for name, value in _arrays(item.work).items()}
    work = replace(cast("DataclassInstance", item.work), **few)
    return replace(item, work=cast("Work", work))


def _arrays(work: Work) -> dict[str, np.ndarray]:
    """Every array of an operator or a message, by its field."""
    values = {field.name: getattr(work, field.name) for field in fields(cast("DataclassInstance", work))}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
