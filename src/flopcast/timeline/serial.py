"""Items one after the other: what the ends of a step take, where nothing overlaps.

Answers: how long do update, reduction and synchronisation take on each stage class?
Elsewhere: items that overlap (program.py), the prices themselves (cost/price.py).
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import ZERO, Floats
from flopcast.operators.item import Item


def serial_seconds(items: tuple[Item, ...], priced: Priced) -> Floats:
    """Return the sum of the items' own seconds, each times its number of executions.

    Returns
    -------
    array of shape (plans, stage classes)
        Plans of a batch differ in degrees and sizes, stages in the parameters that they hold.
    """
    total = sum((priced.of(item).alone_s * item.count for item in items), ZERO)
    return np.broadcast_to(total, priced.programs.stages.multiplicity.shape)
