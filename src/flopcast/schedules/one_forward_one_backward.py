"""1F1B: a warm-up, then one forward and one backward in turn (arXiv:2104.04473, section 2.2.1)."""

from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import AbstractSchedule, Order, alternate


class OneForwardOneBackward(AbstractSchedule):
    """PipeDream-Flush. Stage s keeps at most `stages - s` micro-batches in flight.

    The number does not depend on the micro-batches of a step, unlike in GPipe, which keeps them all.
    """

    meets_one_neighbour: ClassVar[bool] = True

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order: stage s runs `stages - 1 - s` forwards before its first backward."""
        tasks = np.arange(micro_batches)
        rows = [alternate(min(stages - 1 - s, micro_batches), tasks, tasks) for s in range(stages)]
        kind = np.stack([kind for kind, _ in rows])
        return Order(
            kind=kind, chunk=np.zeros_like(kind), micro_batch=np.stack([index for _, index in rows])
        )

    def fills_after(self, stages: Counts, micro_batches: Counts) -> Counts:
        """Return the number of stages, after which the first stage is full."""
        return np.minimum(micro_batches, stages)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return `stages - stage`, but at most the number of micro-batches."""
        return np.minimum(stages - stage, micro_batches) * (chunk == 0)
