"""A user's own order of tasks (spec/custom_schedule.py) as a schedule like any other."""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts
from flopcast.errors import InternalError
from flopcast.schedules.base import BACKWARD, FORWARD, AbstractSchedule, Order
from flopcast.spec.custom_schedule import KINDS, OwnSchedule


@dataclass(frozen=True, slots=True)
class CustomSchedule(AbstractSchedule):
    """The order that a table lists, of exactly its numbers of stages, chunks and micro-batches."""

    given: OwnSchedule

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the columns of the table.

        Raises
        ------
        InternalError
            The numbers are not the table's (spec/rules_schedule.py refuses such plans).
        """
        own = self.given
        if (stages, virtual, micro_batches) != (own.stages, own.chunks, own.micro_batches):
            asked = f"{stages} × {virtual} chunks and {micro_batches} micro-batches"
            raise InternalError(f"{own.name} is no order of {asked}")
        rows = [(KINDS.index(row.kind), row.chunk, row.micro_batch) for row in own.rows()]
        kind, chunk, micro_batch = np.array(rows, dtype=np.intp).T.reshape(3, stages, -1)
        return Order(kind=kind, chunk=chunk, micro_batch=micro_batch)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the number counted along the order, up to each stage's first backward."""
        own = self.given
        order = self.order(own.stages, own.chunks, own.micro_batches)
        before = np.cumsum(order.kind == BACKWARD, axis=1) == 0
        flying = (before & (order.kind == FORWARD) & (order.chunk == chunk)).sum(axis=1)
        counted: Counts = flying.astype(np.float64)[np.asarray(stage, dtype=np.intp)]
        return counted + 0.0 * (stages + virtual + micro_batches)
