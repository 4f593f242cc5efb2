"""Items that run one after the other at the end of a step, where nothing overlaps.

Answers: how long do update, reduction and synchronisation take on each stage class?
Elsewhere: items that overlap (program.py), prices (cost/price.py).
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import ZERO, Floats, Integers
from flopcast.operators.item import Item


def serial_seconds(items: tuple[Item, ...], priced: Priced) -> Floats:
    """Return the sum of the seconds of the items, each times its number of executions.

    Returns
    -------
    array of shape (plans, stage classes)
        Plans of a batch differ in degrees and sizes, and stages in their parameters. If the parts of a job
        have different speeds (cost/parts.py), each part has a row.
    """
    total = sum((priced.of(item).alone_s * item.count for item in items), ZERO)
    shape = np.broadcast_shapes(total.shape, priced.programs.stages.multiplicity.shape)
    return np.broadcast_to(total, shape)


def stage_seconds(
    items: tuple[Item, ...], priced: Priced, stage_row: Integers, stage_class: Integers
) -> Floats:
    """Return the seconds of every stage, (stages,), given its row and its class."""
    each_s = serial_seconds(items, priced)
    found_s: Floats = each_s[np.minimum(stage_row, len(each_s) - 1), stage_class]
    return found_s
