"""GPipe: all forward passes, then all backward passes (arXiv:1811.06965, section 2.3).

Backward passes begin with the last micro-batch of the forward passes, as in figure 2c of the paper. The
bubble is that of 1F1B. However, memory grows with the number of micro-batches of a step.
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import AbstractSchedule, Order, alternate


class GPipe(AbstractSchedule):
    """A stage keeps the activations of every micro-batch until its last forward pass has ended."""

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the same order on every stage: all forwards first, then backwards in reverse order.

        Parameters
        ----------
        stages, virtual, micro_batches : int
            `virtual` is 1: GPipe has one chunk on each stage.

        Returns
        -------
        Order
            Arrays of shape (stages, 2 · micro-batches).
        """
        tasks = np.arange(micro_batches)
        kind, index = alternate(micro_batches, tasks, tasks[::-1])
        shape = (stages, len(kind))
        return Order(
            kind=np.broadcast_to(kind, shape),
            chunk=np.zeros(shape, dtype=np.intp),
            micro_batch=np.broadcast_to(index, shape),
        )

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the number of all micro-batches, for every stage."""
        return (micro_batches + 0.0 * stage) * (chunk == 0)
