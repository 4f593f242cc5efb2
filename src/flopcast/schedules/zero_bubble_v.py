"""ZB-V: two chunks per stage in the shape of a V, and delayed weight gradients (arXiv:2401.10241, section
6).

Chunk 0 runs from the first stage to the last, and chunk 1 from the last to the first: chunk 0 of the last
stage sends its activations to chunk 1 of the same stage, and the first stage holds both the embedding and
the head. The first backward pass of a micro-batch therefore runs on the stage of its last forward pass, and
all stages hold as much as the first stage of 1F1B.

    schedule  bubble where F = B = W          held by every stage, in chunks of half a stage
    1F1B      (p - 1) (F + B + W)             2 p on the first stage
    ZB-V      0                               2 p

The order was made for F = B = W and at least 2 p - 1 micro-batches. If passes take different times, stages
wait for each other.

References
----------
Table of the authors of arXiv:2401.10241 (their demonstration of the schedules, T_F = T_B = T_W): bubble 0,
activations 1 times and messages twice those of 1F1B. PyTorch's `ScheduleZBVZeroBubble` runs the same order.
"""

from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT, AbstractVSchedule, Order

KINDS = {"F": FORWARD, "B": BACKWARD, "W": WEIGHT}


class ZeroBubbleV(AbstractVSchedule):
    """Two chunks per stage in the shape of a V, with the memory of 1F1B.

    Backward passes are divided into the gradient of the input (B) and that of the weights (W), which fills
    what would be bubbles.
    """

    chunks_because: ClassVar[str] = (
        "with ZB-V, each stage holds two chunks: one from the first half of the model, and one "
        "from the second half"
    )

    @property
    def skews_steps(self) -> bool:
        """Return True, because stages never finish a step at the same time."""
        return True

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order from runs of tasks, such as "F1 B1 W1", each repeated.

        >>> order = ZeroBubbleV().order(stages=2, virtual=2, micro_batches=3)
        >>> rows = zip(order.kind, order.chunk, order.micro_batch)
        >>> print("\\n".join(" ".join(f"{'FBW'[k]}{m}.{c}" for k, c, m in zip(*row)) for row in rows))
        F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 B2.0 W2.0
        F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 B1.0 B2.1 B2.0 W1.0 W2.1 W2.0
        """
        rows = [_row(stage, stages, micro_batches) for stage in range(stages)]
        kind, chunk, micro_batch = (np.stack(column) for column in zip(*rows, strict=True))
        return Order(kind=kind, chunk=chunk, micro_batch=micro_batch, folded=True)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return 2 p chunks on every stage. On later stages, more of them belong to chunk 1."""
        of_chunk = (2 * stages - stage - 1) * (chunk == 0) + (stage + 1) * (chunk == 1)
        return np.minimum(of_chunk, micro_batches) * (chunk < virtual)

    def transfers_waited(self, stages: Counts, virtual: Counts) -> Counts:
        """Return the transfers down and up the V and back, and a second time without the ends of the V."""
        return np.maximum(3.0 * stages - 4.0, 0.0)

    def unfilled_s(self, own_s: Floats, others_s: Floats, stages: Counts, micro_batches: Counts) -> Floats:
        """Return the time of F on other stages less the time of the first p F, and of W less that of p - 1
        more.

        The result is exact for equal stages with W ≤ F ≤ B: after the first, up to p micro-batches take B +
        W each, and up to p - 1 more take F + B each.
        """
        behind = np.concatenate([micro_batches - 1.0, np.maximum(micro_batches - stages, 0.0)], axis=1)
        waited_s: Floats = np.maximum(others_s - behind * own_s, 0.0).sum(axis=1, keepdims=True)
        return waited_s

    def bubble_s(self, forward_s: Floats, backward_s: Floats, weight_s: Floats) -> Floats:
        """Return max(F, B) minus the shortest pass, which is 0 if all three passes are equal.

        The formula is exact for W ≤ F ≤ B. We derived it from simulations of the order, because no paper
        states it. In other cases, it is an estimate.
        """
        longest = np.maximum(forward_s, backward_s)
        each_s: Floats = longest - np.minimum(np.minimum(forward_s, backward_s), weight_s)
        return each_s


def _row(stage: int, stages: int, micro_batches: int) -> tuple[Integers, Integers, Integers]:
    """Return the kinds, chunks and micro-batches of one stage.

    Each chunk's tasks of a kind go through the micro-batches in their order. The order is that of at least
    2 p - 1 micro-batches, of which a shorter step leaves those out that it does not have.
    """
    total, left = max(micro_batches, 2 * stages - 1), stages - stage
    runs = (
        ("F0", 2 * left - 1),
        ("F1 F0", stage),
        ("F1 B1 W1", left),
        ("F0 B0 W0 F1 B1 W1", total - 2 * stages + stage + 1),
        ("B0 W0 F1 B1 W1", left - 1),
        ("B0 B1", stage),
        ("B0 W0", left),
        ("W1", stage),
        ("W0", stage),
    )
    words = [word for run, times in runs for word in run.split() * times]
    turns: dict[str, int] = {}
    tasks = []
    for word in words:
        turn = turns[word] = turns.get(word, -1) + 1
        tasks.append((KINDS[word[0]], int(word[1]), turn))
    kind, chunk, micro_batch = np.array(
        [task for task in tasks if task[2] < micro_batches], dtype=np.intp
    ).T
    return kind, chunk, micro_batch
