"""Compute time that is lost to messages running at the same time.

Answers: which part of a message's time does the compute stream lose while the message runs?
Elsewhere: which messages overlap with compute (`Item.overlapped`: workload/sharded.py,
workload/gradient_reduction.py), the time of each message alone (cost/price.py; contention is not part of
a price).

The kernels of a collective take multiprocessors and memory bandwidth from compute. While a collective runs
for c seconds, compute does the work of (1 - r) · c seconds, and therefore ends r · c later. Consecutive
equal layers that compute for w seconds have a period of max(w + r · c, c): if the message is longer than
the compute, the loss costs nothing. The loss is charged when the message is launched, wherever it is in its
queue.

On a pipeline stage, messages of the first or last micro-batch overlap with the next work of the stage. The
other stages, which receive that micro-batch, do not wait for these messages. If the loss were charged to
the programs, it would count once for every stage that the micro-batch still has to pass. So it is charged
once, at the end of the stage's own tasks. The stage ends when its tasks and the loss have ended, or when
its queue of messages is empty, whichever is later. Megatron-Core has a setting for the same reason: it lets
all stages reduce when the first one does (`align_grad_reduce`, megatron/core/distributed).

r is the device's `collective_slowdown_fraction` times the stack's `contention.kernel_share`.
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import ZERO, Counts, Flags
from flopcast.operators.item import Item
from flopcast.spec.plan import Plans
from flopcast.workload.program import WHEN


def executions(item: Item) -> Counts:
    """Return the number of executions of an item at each position: `count` or 0.

    The array has a single position if the item runs in every micro-batch.
    """
    if item.when == "every":
        return item.count[None]
    return np.array(WHEN[item.when])[:, None, None] * item.count[None]


def lost_executions(item: Item, priced: Priced) -> Counts:
    """Return the executions of a message that delay compute by their seconds, (positions, plans, classes).

    They are 0 for items that do not overlap with compute. With `ends_stage`, the stage, and not the
    program, loses the time.
    """
    if not item.overlapped:
        return ZERO[None]
    device = priced.cluster.node.device
    lost: Counts = executions(item) * (
        device.collective_slowdown_fraction * priced.programs.stack.contention.kernel_share
    )
    return lost


def lost_in_program(item: Item, priced: Priced) -> Counts:
    """Return the part of `lost_executions` that is charged to the program and not to the end of the
    stage.
    """
    lost = lost_executions(item, priced)
    return np.where(ends_stage(item, priced.programs.plans)[None], 0.0, lost)


def ends_stage(item: Item, plans: Plans) -> Flags:
    """Return a mask of plans that charge the loss at the end of the stage's tasks, (plans, 1)."""
    if not item.overlapped or item.when not in ("first", "last"):
        return np.zeros((1, 1), dtype=bool)
    return np.asarray(plans.pipeline_parallel > 1)
