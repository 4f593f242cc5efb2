"""Experts that are alone on their rank: the products of one group are a dense product.

Answers: which items of experts have a group alone, in which plans, and which product is that?
Elsewhere: what products of several groups cost (the class "grouped_gemm" of kernels/), prices (price.py).

Most curves of groups were measured on whole layers of experts that serve, with permutation and activation
in their time; a rank with one expert multiplies one weight, as a dense MLP does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Single:
    """An item of experts, the dense product in its place, and the plans in which it is one: (plans, 1)."""

    item: Item
    dense: Item
    where: np.ndarray


def single_groups(items: Iterable[Item]) -> tuple[Single, ...]:
    """Return the items whose experts are alone on their rank in some plan of the batch."""
    found = []
    for item in items:
        if isinstance(item.work, GroupedMatmul):
            alone = np.asarray(item.work.groups <= 1.0)
            if alone.any():
                dense = replace(item, work=item.work.as_one_product())
                found.append(Single(item=item, dense=dense, where=alone))
    return tuple(found)


def to_price(items: Iterable[Item], singles: tuple[Single, ...]) -> tuple[Item, ...]:
    """Return the items that need a price: adds dense products, and omits groups if no plan has several."""
    replaced = {single.item for single in singles if single.where.all()}
    kept = (item for item in items if item not in replaced)
    return (*kept, *(single.dense for single in singles))
