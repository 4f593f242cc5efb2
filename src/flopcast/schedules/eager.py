"""Eager 1F1B: a warm-up twice as long, so that transfers are not waited for (arXiv:2211.05322)."""

from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import AbstractSchedule, Order, alternate


class EagerOneForwardOneBackward(AbstractSchedule):
    """1F1B that runs ahead: stage s keeps at most `2 (stages - s) - 1` micro-batches in flight.

    Under 1F1B a micro-batch's way to the last stage and back must fit into the work on those in flight, so
    that every transfer is waited for. Here as many more lie ready as there are stages behind.
    """

    blocks_because: ClassVar[str] = "a stage cannot run ahead of one that takes its messages one by one"

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order: stage s runs `2 (stages - 1 - s)` forwards before its first pair of F and B."""
        tasks = np.arange(micro_batches)
        rows = [alternate(min(2 * (stages - 1 - s), micro_batches), tasks, tasks) for s in range(stages)]
        kind = np.stack([kind for kind, _ in rows])
        return Order(
            kind=kind, chunk=np.zeros_like(kind), micro_batch=np.stack([index for _, index in rows])
        )

    def fills_after(self, stages: Counts, micro_batches: Counts) -> Counts:
        """Return the smallest number that fills the first stage: all but one of twice the stages."""
        return np.minimum(micro_batches, 2 * stages - 1)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return `2 (stages - stage) - 1`, but at most the number of micro-batches."""
        return np.minimum(2.0 * (stages - stage) - 1.0, micro_batches) * (chunk == 0)
