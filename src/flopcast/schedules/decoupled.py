"""Decoupled segments: every stage trains its own layers with synthetic labels.

The labels of a segment's outputs are synthetic, so that a stage needs no gradient from the next stage. A
stage reads its inputs like data, and sends none. A stage runs the forward and then the backward pass of
each micro-batch, keeps one micro-batch, and never waits, so a step takes as long as the slowest stage. The
loss of a segment against its labels, and the work that creates the inputs of a later segment, are not
counted.

References
----------
Karadağ and Topaloğlu, "Partitioned Neural Network Training via Synthetic Intermediate Labels",
arXiv:2403.11204.
"""

from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import AbstractSchedule, Order, alternate_all


class Decoupled(AbstractSchedule):
    """Every stage independently runs the forward and the backward pass of one micro-batch after another."""

    hands_on: ClassVar[bool] = False

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the same row of tasks for every stage.

        >>> order = Decoupled().order(stages=2, virtual=1, micro_batches=2)
        >>> [" ".join("FB"[k] + str(m) for k, m in zip(*row)) for row in zip(order.kind, order.micro_batch)]
        ['F0 B0 F1 B1', 'F0 B0 F1 B1']
        """
        kind, micro_batch = alternate_all([0] * stages, micro_batches)
        return Order(kind=kind, chunk=np.zeros_like(kind), micro_batch=micro_batch, hands_on=False)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return 1: the micro-batch whose backward pass follows."""
        kept: Counts = np.ones_like(stage + stages + virtual + micro_batches) * (chunk == 0)
        return kept

    def fills_after(self, stages: Counts, micro_batches: Counts) -> Counts:
        """Return 1, because a stage never keeps more than one micro-batch."""
        return np.minimum(micro_batches, 1)

    def transfers_waited(self, stages: Counts, virtual: Counts) -> Counts:
        """Return 0: stages send nothing."""
        return 0.0 * stages
