"""Transfers between stages in an exact simulation: their durations, and which of them leave a node.

Answers: how long does the transfer after a forward or backward task take, for each hop?
Elsewhere: the times of transfers (chains.py), waits in the closed form (point_to_point.py).
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts, Floats, Integers
from flopcast.operators.item import Item
from flopcast.schedules.base import BACKWARD, FORWARD
from flopcast.timeline.chains import transfer_index
from flopcast.workload.program import Programs


def transfer_leaves_node(leaves: Integers) -> Integers:
    """Return, for each hop index, 1 if the transfer leaves its node, otherwise 0.

    `leaves` states the same for each boundary between stages.

    Forward, stage s sends to stage s + 1; backward to stage s - 1. With several chunks, the last stage
    sends to the first stage, which may be on another node.
    """
    stages = len(leaves)
    by_hop = np.zeros(1 + 2 * stages, dtype=np.intp)
    for kind in (FORWARD, BACKWARD):
        sender = np.arange(stages)
        boundary = (sender - 1) % stages if kind == BACKWARD else sender
        by_hop[transfer_index(np.full(stages, kind), sender)] = leaves[boundary]
    return by_hop


def transfer_seconds(priced: Priced, plan: int, leaves: Integers) -> Floats:
    """Return the durations by hop index.

    The tensors of one transfer (an activation, and possibly a mask) are sent one after the other.
    """
    each = np.array(
        [[_one_transfer_s(priced, plan, kind, crosses) for crosses in (0, 1)] for kind in (0, 1)]
    )
    kinds = (np.arange(len(leaves)) - 1) % 2
    transfer_s: Floats = each[kinds, leaves]
    transfer_s[0] = 0.0  # no hop
    widths = priced.programs.workload.sent_width
    if widths is not None:
        transfer_s *= _smaller(priced, widths[min(plan, len(widths) - 1)], leaves)
    return transfer_s


def _smaller(priced: Priced, width: Counts, leaves: Integers) -> Floats:
    """Return the seconds of each transfer over those of the widest cut, by hop index.

    A smaller message occupies its link for less time, and has the same latency.
    """
    stages = len(leaves) // 2
    ratio = np.ones(1 + 2 * stages)
    for kind in (FORWARD, BACKWARD):
        sender = np.arange(stages)
        boundary = (sender - 1) % stages if kind == BACKWARD else sender
        cut = np.where(width[boundary] > 0, width[boundary] / width.max(), 1.0)
        hop = transfer_index(np.full(stages, kind), sender)
        for crosses in (False, True):
            items = transfer_items(priced.programs, kind, crosses)
            uses = [priced.of(item).link for item in items]
            on_link = max((float(use.fraction.max()) for use in uses if use is not None), default=0.0)
            here = leaves[hop] == crosses
            ratio[hop] = np.where(here, 1.0 - on_link * (1.0 - cut), ratio[hop])
    return ratio


def _one_transfer_s(priced: Priced, plan: int, kind: int, crosses: int) -> float:
    """Return the seconds of one transfer forward or backward, inside a node or between nodes."""
    items = transfer_items(priced.programs, kind, crosses > 0)
    return sum(priced.seconds(item, plan) for item in items)


def transfer_items(programs: Programs, kind: int, crosses: bool) -> tuple[Item, ...]:
    """Return the items of one transfer.

    `kind` is FORWARD or BACKWARD; `crosses` states whether it leaves a node.
    """
    hop = programs.hop_across if crosses else programs.hop_inside
    return hop.backward if kind == BACKWARD else hop.forward
