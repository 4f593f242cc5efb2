"""What every pipeline schedule must answer, without knowing a second.

Answers: in which order does a stage run its tasks, how many micro-batches does it keep in flight, how
long is a step of equal stages?
Elsewhere: when tasks really run (timeline/pipeline.py), what they keep (memory/).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers

FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Order:
    """Tasks of every stage in the order they run; arrays of shape (stages, tasks)."""

    kind: Integers  # FORWARD or BACKWARD
    chunk: Integers  # virtual stage
    micro_batch: Integers


class AbstractSchedule(ABC):
    """One pipeline schedule: pure functions of numbers of stages, chunks and micro-batches."""

    name: str

    @abstractmethod
    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """The tasks of every stage, each exactly once."""

    @abstractmethod
    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Micro-batches of `chunk` that a stage keeps at its fullest moment (arrays broadcast)."""

    def closed_form_s(
        self, busiest_s: Floats, sum_s: Floats, virtual: Counts, micro_batches: Counts
    ) -> Floats:
        """Seconds from the first forward to the last backward.

        `busiest_s`: forward and backward of one micro-batch on the slowest stage; `sum_s`: over all
        stages. The busiest stage works on every micro-batch; filling and draining costs the others
        once, divided by the number of chunks. Exact for equal stages and free transfers
        (arXiv:2104.04473, section 2.2); a lower bound for unequal ones.
        """
        return micro_batches * busiest_s + (sum_s - busiest_s) / virtual


def alternate(warm_up: int, forward: Integers, backward: Integers) -> tuple[Integers, Integers]:
    """Kinds and indices of: `warm_up` forwards, then forward and backward in turn, then the rest.

    `forward` and `backward` are the indices in their own order; returns arrays of both together.
    """
    total = len(forward)
    kind = np.empty(2 * total, dtype=np.intp)
    index = np.empty(2 * total, dtype=np.intp)
    steady = total - warm_up
    kind[:warm_up], index[:warm_up] = FORWARD, forward[:warm_up]
    middle = slice(warm_up, warm_up + 2 * steady, 2)
    kind[middle], index[middle] = FORWARD, forward[warm_up:]
    middle = slice(warm_up + 1, warm_up + 2 * steady, 2)
    kind[middle], index[middle] = BACKWARD, backward[:steady]
    kind[warm_up + 2 * steady :] = BACKWARD
    index[warm_up + 2 * steady :] = backward[steady:]
    return kind, index
