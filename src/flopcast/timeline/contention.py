"""What compute loses to messages beside it.

Answers: which part of a message's time does the compute stream lose while the message runs?
Elsewhere: which messages run beside compute (`Item.overlapped`: workload/sharded.py, gradients.py), what
each takes alone (cost/price.py; contention is no part of a price).

A collective's kernels take multiprocessors and memory bandwidth from what runs beside them. While one runs
for c seconds, compute gets done what would take (1 - r) · c seconds alone, so that it ends r · c later. Of
a layer that computes for w seconds, and of equal ones in a row, the period is max(w + r · c, c): beside a
message that is longer than the compute, the loss costs nothing. It is charged when the message is launched,
wherever it stands in its queue.

On a stage of a pipeline, messages of the first or last micro-batch run beside whatever the stage does next,
and the other stages, to which that micro-batch is passed on, do not wait for it. Charged to its programs,
the loss would count once for every stage that the micro-batch still has to pass. So it is charged once, at
the end of the stage's own tasks: the stage is done when these and the loss are over, or the queue of
messages is, whichever is later. Megatron-Core has a setting for the same reason: it lets all stages reduce
when the first one does (`align_grad_reduce`, megatron/core/distributed).

r is the device's `collective_slowdown_fraction` times the stack's `contention.kernel_share`.
"""

import numpy as np

from flopcast.cost.prices import Priced
from flopcast.dtypes import ZERO, Counts, Flags
from flopcast.operators.item import Item
from flopcast.spec.plan import Plans
from flopcast.workload.program import WHEN


def executions(item: Item) -> Counts:
    """How often one execution of the item's entry runs it at every position: `count`, or 0."""
    return np.array(WHEN[item.when])[:, None, None] * item.count[None]


def lost_executions(item: Item, priced: Priced) -> Counts:
    """Executions of the item whose seconds compute loses, (positions, plans, classes).

    All 0 for what runs beside nothing. `ends_stage` says whether the program or its stage loses them.
    """
    if not item.overlapped:
        return ZERO[None]
    device = priced.cluster.node.device
    lost: Counts = executions(item) * (
        device.collective_slowdown_fraction * priced.programs.stack.contention.kernel_share
    )
    return lost


def lost_in_program(item: Item, priced: Priced) -> Counts:
    """Those of `lost_executions` that the compute of the program itself loses."""
    lost = lost_executions(item, priced)
    return np.where(ends_stage(item, priced.programs.plans)[None], 0.0, lost)


def ends_stage(item: Item, plans: Plans) -> Flags:
    """Plans in which what is lost to a message is charged at the end of the stage's tasks, (plans, 1)."""
    if not item.overlapped or item.when not in ("first", "last"):
        return np.zeros((1, 1), dtype=bool)
    return np.asarray(plans.pipeline_parallel > 1)
