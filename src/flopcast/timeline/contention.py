"""What compute loses to messages beside it.

Answers: which part of a message's time does the compute stream lose while the message runs?
Elsewhere: which messages run beside compute (`Item.overlapped`: workload/sharded.py, gradients.py), what
each takes alone (cost/price.py; contention is no part of a price).

A collective's kernels take multiprocessors and memory bandwidth from what runs beside them. While one runs
for c seconds, compute gets done what would take (1 - r) · c seconds alone, so that it ends r · c later. Of
a layer that computes for w seconds, and of equal ones in a row, the period is max(w + r · c, c): beside a
message that is longer than the compute, the loss costs nothing. It is charged when the message is launched,
wherever it stands in its queue.

On a stage of a pipeline, messages of the first or last micro-batch go on beside whatever the stage does
next, and the other stages, to which that micro-batch is passed on, do not wait for it. Charged to its
programs, the loss would count once for every chunk that it still has to pass; so every micro-batch of the
stage bears an equal part.

r is the device's `collective_slowdown_fraction` times the stack's `contention.kernel_share`.
"""

import numpy as np

from flopcast.cost.prices import Priced
from flopcast.dtypes import ZERO, Counts
from flopcast.operators.item import Item
from flopcast.spec.cluster import Device
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.program import WHEN


def lost_executions(item: Item, priced: Priced) -> Counts:
    """Executions of the item whose seconds the compute of a program loses, (positions, plans, classes).

    All 0 for what runs beside nothing.
    """
    if not item.overlapped:
        return ZERO[None]
    plans = priced.programs.plans
    executed = np.array(WHEN[item.when])[:, None, None] * item.count[None]
    if item.when in ("first", "last"):
        alike = item.count[None] / plans.num_micro_batches[None]
        executed = np.where(plans.pipeline_parallel[None] > 1, alike, executed)
    device = priced.cluster.node.device
    lost: Counts = executed * (
        device.collective_slowdown_fraction * priced.programs.stack.contention.kernel_share
    )
    return lost


def hangs_on_micro_batches(plans: Plans, device: Device, stack: Stack) -> np.ndarray:
    """Plans whose programs hang on how many micro-batches there are, (plans, 1)."""
    held_up = device.collective_slowdown_fraction * stack.contention.kernel_share > 0
    hangs: np.ndarray = (plans.pipeline_parallel > 1) & held_up
    return hangs
