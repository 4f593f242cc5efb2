"""ZB-H1 and ZB-H2: delayed weight gradients fill the bubbles (arXiv:2401.10241, section 2).

Both run F and B in the order of 1F1B, but differ in the delay of W and in the number of forward passes of
the warm-up. The delay of W, in micro-batches, is the difference between the warm-up of the first stage and
that of its stage. All stages therefore hold equally many micro-batches.

    schedule  bubble                          held by every stage, first stage: all before their B
    1F1B      (p - 1) (F + B + W)             p on the first stage
    ZB-H1     (p - 1) (F + B - W)             p
    ZB-H2     (p - 1) (F + B - 2 W)           2 p - 1

F, B and W are seconds of one micro-batch on one stage. These bubbles assume that a step has at least as
many micro-batches as are held, and that W is no longer than F. A longer W fills no more of the bubble than
one that is as long as F.

References
----------
arXiv:2401.10241, sections 2.1 and 2.2, and Table 2.
"""

from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.records import dataclass
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT, AbstractSplitSchedule, Order


@dataclass(frozen=True, slots=True)
class ZeroBubble(AbstractSplitSchedule):
    """A schedule with `depth` forward passes of warm-up for each following stage: 1 for ZB-H1, 2 for
    ZB-H2.
    """

    filled_per_stage: ClassVar[float] = (
        4  # the longest warm-up and the longest delay need less than half each
    )

    depth: int

    @property
    def skews_steps(self) -> bool:
        """Return whether steps are skewed, as in ZB-H2, whose longer warm-up leaves no common end of a
        step.
        """
        return self.depth > 1

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order: the warm-up; then F, B and the W of `depth · stage` micro-batches before; then
        B and W; then W alone.

        >>> order = ZeroBubble(1).order(stages=2, virtual=1, micro_batches=3)
        >>> rows = zip(order.kind, order.micro_batch)
        >>> [" ".join("FBW"[kind] + str(m) for kind, m in zip(*row)) for row in rows]
        ['F0 F1 B0 W0 F2 B1 W1 B2 W2', 'F0 B0 F1 B1 W0 F2 B2 W1 W2']
        """
        rows = [
            _row(self.depth * (stages - 1 - stage), self.depth * stage, micro_batches)
            for stage in range(stages)
        ]
        kind, micro_batch = (np.stack(column) for column in zip(*rows, strict=True))
        return Order(kind=kind, chunk=np.zeros_like(kind), micro_batch=micro_batch)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the number of micro-batches before their B: those of the warm-up and one more, but at
        most all.
        """
        return np.minimum(self.depth * (stages - 1 - stage) + 1, micro_batches) * (chunk == 0)

    def transfers_waited(self, stages: Counts, virtual: Counts) -> Counts:
        """Return the transfers of two ways for ZB-H1, whose B return no earlier than those of 1F1B, and
        of one way for ZB-H2.
        """
        return (3.0 - self.depth) * (stages - 1.0)

    def unfilled_s(self, own_s: Floats, others_s: Floats, stages: Counts, micro_batches: Counts) -> Floats:
        """Return the time that W fill while the pipeline fills and drains, less the time of later
        micro-batches.

        The result is exact for equal stages: m micro-batches take p (F + B) + W + (m - 1) (B + max(F, W))
        until the bubble is filled.
        """
        filled_s, own_s = self.depth * _shorter(others_s), _shorter(own_s)
        waited_s: Floats = np.maximum(filled_s - (micro_batches - 1.0) * own_s, 0.0)
        return waited_s

    def bubble_s(self, forward_s: Floats, backward_s: Floats, weight_s: Floats) -> Floats:
        """Return F + B - depth · min(F, W), which is one W less for ZB-H1 and two for ZB-H2 (Table 2)."""
        each_s: Floats = forward_s + backward_s - self.depth * np.minimum(forward_s, weight_s)
        return each_s


def _shorter(passes_s: Floats) -> Floats:
    """Return W, but at most F: (plans, 2) → (plans, 1)."""
    shorter_s: Floats = passes_s.min(axis=1, keepdims=True)
    return shorter_s


def _row(warm_up: int, delay: int, micro_batches: int) -> tuple[Integers, Integers]:
    """Return the kinds and micro-batches of one stage.

    Behind its last forward a stage runs one W after every B, whatever the delay: it would wait otherwise.
    """
    first = min(warm_up, micro_batches)
    tasks = [(FORWARD, m) for m in range(first)]
    weights = 0
    for backward in range(micro_batches):
        forward = first + backward
        if forward < micro_batches:
            tasks.append((FORWARD, forward))
        tasks.append((BACKWARD, backward))
        if backward >= delay or forward >= micro_batches:
            tasks.append((WEIGHT, weights))
            weights += 1
    tasks += [(WEIGHT, m) for m in range(weights, micro_batches)]
    kind, micro_batch = np.array(tasks, dtype=np.intp).T
    return kind, micro_batch
