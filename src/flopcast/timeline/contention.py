"""What compute loses to messages beside it.

Answers: which part of a message's time does the compute stream lose while the message runs?
Elsewhere: which messages run beside compute (`Item.overlapped`: workload/sharded.py, gradients.py), what
each takes alone (cost/price.py; contention is no part of a price).

A collective's kernels take multiprocessors and memory bandwidth from what runs beside them. While one runs
for c seconds, compute gets done what would take (1 - r) · c seconds alone, so that it ends r · c later. Of
a layer that computes for w seconds, and of equal ones in a row, the period is max(w + r · c, c): beside a
message that is longer than the compute, the loss costs nothing. It is charged when the message is launched,
wherever it stands in its queue.

r is the device's `collective_slowdown_fraction` times the stack's `contention.kernel_share`.
"""

from flopcast.cost.price import Priced
from flopcast.operators.item import Item


def slowdown_fraction(item: Item, priced: Priced) -> float:
    """Seconds of compute lost to one second of the item; 0 for all that runs beside nothing."""
    if not item.overlapped:
        return 0.0
    device = priced.cluster.node.device
    return device.collective_slowdown_fraction * priced.programs.stack.contention.kernel_share
