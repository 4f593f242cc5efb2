"""Items one after the other: what the ends of a step take, where nothing overlaps.

Answers: how long do update, reduction and synchronisation take on each stage class?
Elsewhere: items that overlap (program.py), the prices themselves (cost/price.py).
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import ZERO, Floats, Integers
from flopcast.operators.item import Item


def serial_seconds(items: tuple[Item, ...], priced: Priced) -> Floats:
    """Return the sum of the items' own seconds, each times its number of executions.

    Returns
    -------
    array of shape (plans, stage classes)
        Plans of a batch differ in degrees and sizes, stages in the parameters that they hold. One row for
        each part of a job instead, where its parts differ (cost/parts.py).
    """
    total = sum((priced.of(item).alone_s * item.count for item in items), ZERO)
    shape = np.broadcast_shapes(total.shape, priced.programs.stages.multiplicity.shape)
    return np.broadcast_to(total, shape)


def stage_seconds(
    items: tuple[Item, ...], priced: Priced, stage_row: Integers, stage_class: Integers
) -> Floats:
    """Return these seconds for every stage, (stages,), from its row and its class."""
    each_s = serial_seconds(items, priced)
    found_s: Floats = each_s[np.minimum(stage_row, len(each_s) - 1), stage_class]
    return found_s
