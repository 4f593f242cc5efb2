"""1F1B: a warm-up, then one forward and one backward pass in turn (arXiv:2104.04473, section 2.2.1)."""

from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import AbstractSchedule, Order, alternate_all


class OneForwardOneBackward(AbstractSchedule):
    """PipeDream-Flush. Stage s keeps at most `stages - s` micro-batches in flight.

    The number does not depend on the number of micro-batches in a step. GPipe, in contrast, keeps the
    activations of all micro-batches.
    """

    forwards_per_stage: ClassVar[int] = 1  # of the warm-up, for each stage that follows
    meets_one_neighbour: ClassVar[bool] = True

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order: a stage runs the forwards of its warm-up before its first backward."""
        warm_ups = [self.forwards_per_stage * (stages - 1 - stage) for stage in range(stages)]
        kind, micro_batch = alternate_all(warm_ups, micro_batches)
        return Order(kind=kind, chunk=np.zeros_like(kind), micro_batch=micro_batch)

    def fills_after(self, stages: Counts, micro_batches: Counts) -> Counts:
        """Return the number of micro-batches that fill the first stage: those of its warm-up and one
        more.
        """
        return np.minimum(micro_batches, self.forwards_per_stage * (stages - 1) + 1)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the number of micro-batches of the warm-up and one more, but at most all micro-batches."""
        filled = self.forwards_per_stage * (stages - 1 - stage) + 1
        return np.minimum(filled, micro_batches) * (chunk == 0)
