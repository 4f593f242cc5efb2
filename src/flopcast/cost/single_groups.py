"""Ranks with a single expert, whose grouped GEMM is a dense GEMM.

Answers: which items of experts have a single group, in which plans, and which GEMM replaces them?
Elsewhere: products of several groups (the class "grouped_gemm" of kernels/), prices (price.py).

Most curves of grouped products were measured on whole expert layers of serving engines, with permutation
and activation. A rank with one expert multiplies one weight, like a dense MLP.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from flopcast.dtypes import all_of, any_of
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul
from flopcast.records import Record, replace


class Single(Record, eq=False):
    """An item of experts that a rank computes for a single expert in some plans.

    Attributes
    ----------
    item : Item
        The grouped product.
    dense : Item
        The dense product in its place, with the same FLOP and bytes.
    where : array of bool, shape (plans, 1)
        Plans in which a rank holds one expert.
    """

    item: Item
    dense: Item
    where: np.ndarray


def single_groups(items: Iterable[Item], kept: KeptResults = NOTHING_KEPT) -> tuple[Single, ...]:
    """Return the items that, in some plan of the batch, contain only one expert on each rank."""
    found = []
    for item in items:
        work = item.work
        if isinstance(work, GroupedMatmul) and any_of(work.groups <= 1.0):
            found.append(kept.of(("single", item), partial(_single, item, work)))
    return tuple(found)


def _single(item: Item, work: GroupedMatmul) -> Single:
    """Return the dense product in place of an item of experts."""
    return Single(
        item=item, dense=replace(item, work=work.as_one_product()), where=np.asarray(work.groups <= 1.0)
    )


def to_price(items: Iterable[Item], singles: tuple[Single, ...]) -> tuple[Item, ...]:
    """Return the items that need a price, with dense products, and without groups if no plan has several
    groups.
    """
    replaced = {single.item for single in singles if all_of(single.where)}
    kept = (item for item in items if item not in replaced)
    return (*kept, *(single.dense for single in singles))
