"""DualPipeV: two chunks per stage in the shape of a V; a forward and a backward pass run together.

As in ZB-V, chunk 0 runs from the first stage to the last, and chunk 1 from the last to the first. In the
steady phase, a stage runs the forward pass of one chunk *together* with the whole backward pass of the
other. Both begin when both inputs have arrived, and both results are sent when both have ended. If the
stack overlaps them (workload/exchange_overlap.py), the all-to-alls of one pass run concurrently with the
kernels of the other. Forward and backward passes without a partner wait for their all-to-alls. W are
separate tasks only while the pipeline fills and drains.

    schedule    bubble, P = 2 p chunks along the model       held by every stage, in chunks
    1F1B        (P - 1) (F + B)                               P, on P stages
    DualPipeV   (P / 2 - 1) (F&B + B - 3 W)                   P + 1

Here B is the whole backward of a chunk and F&B a pair. A stage that runs a pair one task after the other
takes F + B for it.

References
----------
arXiv:2412.19437, section 3.2.1 and Table 2; the table of github.com/deepseek-ai/DualPipe, which also
describes the V, an idea of Qi, Wan, Huang and Lin ("cut in half", February 2025). PyTorch's
`ScheduleDualPipeV` runs the same order.
"""

from collections import deque
from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT, AbstractVSchedule, Order


class DualPipeV(AbstractVSchedule):
    """Two chunks per stage in the shape of a V, with pairs of a forward and a backward pass.

    It needs at least two micro-batches for each stage, so that the steady phase begins.
    """

    pairs_passes: ClassVar[bool] = True
    micro_batches_per_stage: ClassVar[int] = 2
    chunks_because: ClassVar[str] = (
        "with DualPipeV, each stage holds two chunks: one from the first half of the model, and "
        "one from the second half"
    )

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order with its pairs: a marked forward task, and the tasks B and W after it.

        >>> order = DualPipeV().order(stages=1, virtual=2, micro_batches=3)
        >>> columns = zip(order.kind[0], order.micro_batch[0], order.chunk[0], order.paired[0])
        >>> " ".join(f"{'(' if pair else ''}{'FBW'[kind]}{m}.{chunk}" for kind, m, chunk, pair in columns)
        'F0.0 F0.1 F1.0 B0.1 W0.1 (F1.1 B0.0 W0.0 (F2.0 B1.1 W1.1 (F2.1 B1.0 W1.0 B2.1 W2.1 B2.0 W2.0'
        """
        rows = [_row(stage, stages, micro_batches) for stage in range(stages)]
        kind, chunk, micro_batch, paired = (np.stack(column) for column in zip(*rows, strict=True))
        return Order(
            kind=kind, chunk=chunk, micro_batch=micro_batch, folded=True, paired=paired.astype(bool)
        )

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return 2 p chunks at the first backward pass. Later pairs also hold the chunk that they begin."""
        last = stage == stages - 1  # which begins one forward more before its first backward
        of_chunk = (2 * stages - stage - 1 + last) * (chunk == 0) + (stage + 1) * (chunk == 1)
        held: Counts = np.minimum(of_chunk, micro_batches) * (chunk < virtual)
        return held

    def transfers_waited(self, stages: Counts, virtual: Counts) -> Counts:
        """Return the transfers down and up the V and back.

        With more than two stages, pairs wait for more transfers.

        The number is exact if the times of passes have the ratio of those of a block.
        """
        waited: Counts = np.where(stages > 2, 6.0 * stages - 7.0, 4.0 * stages - 4.0)
        return waited

    def unfilled_s(self, own_s: Floats, others_s: Floats, stages: Counts, micro_batches: Counts) -> Floats:
        """Return 0: a step has at least two micro-batches for each stage."""
        return np.zeros_like(micro_batches)

    def bubble_s(self, forward_s: Floats, backward_s: Floats, weight_s: Floats) -> Floats:
        """Return F&B + B - 3 W of one chunk, which is half of a stage, with B as the whole backward.

        The result is exact if F, B and W are equal. Otherwise, it is too long by less than one F and W, for
        any number of stages.
        """
        each_s: Floats = (forward_s + 2.0 * backward_s - weight_s) / 2.0
        return each_s


class _Row:
    """The tasks of one stage as they are added, with the turn of each kind and chunk."""

    def __init__(self) -> None:
        self.tasks: list[tuple[int, int, int, bool]] = []  # kind, chunk, micro-batch, first of a pair
        self.turns: dict[tuple[int, int], int] = {}
        self.delayed: deque[int] = deque()  # chunks whose W is to come

    def run(self, kind: int, chunk: int, *, paired: bool = False) -> None:
        """Add the next task of a kind and chunk."""
        turn = self.turns[kind, chunk] = self.turns.get((kind, chunk), -1) + 1
        self.tasks.append((kind, chunk, turn, paired))

    def backward(self, chunk: int, *, delays: bool) -> None:
        """Add a backward task whose W task follows directly or is delayed."""
        self.run(BACKWARD, chunk)
        if delays:
            self.delayed.append(chunk)
        else:
            self.run(WEIGHT, chunk)

    def weight(self) -> None:
        """Add the W that was delayed first, if one is left."""
        if self.delayed:
            self.run(WEIGHT, self.delayed.popleft())

    def pair(self, forward: int, backward: int, *, together: bool = True) -> None:
        """Add the forward of one chunk and the whole backward of the other."""
        self.run(FORWARD, forward, paired=together)
        self.backward(backward, delays=False)


def _row(stage: int, stages: int, micro_batches: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the kinds, chunks and micro-batches of one stage, and which tasks begin a pair.

    Each chunk's tasks of a kind go through the micro-batches in their order. The order is that of at least
    2 p micro-batches, of which a shorter step leaves those out that it does not have.
    """
    total, left, row = max(micro_batches, 2 * stages), stages - 1 - stage, _Row()
    for _ in range(2 * left):
        row.run(FORWARD, 0)
    for _ in range(stage + 1):
        row.run(FORWARD, 0)
        row.run(FORWARD, 1)
    for _ in range(left):
        row.backward(1, delays=True)
        row.weight()
        row.run(FORWARD, 1)
    for turn in range(total - 2 * stages + stage + 1):
        row.pair(0, 1, together=turn > 0 or left > 0)  # else two tasks: a shorter bubble
        row.pair(1, 0)
    for _ in range(left):
        row.backward(1, delays=False)
        row.pair(1, 0)
    for turn in range(2 * (stage + 1)):  # the second half of these backwards delays its W
        row.backward(1 - turn % 2, delays=turn > stage)
    for _ in range(left):
        row.weight()
        row.backward(0, delays=True)
    for _ in range(stage + 1):
        row.weight()
    kept = [task for task in row.tasks if task[2] < micro_batches]
    kind, chunk, micro_batch, first = np.array(kept, dtype=np.intp).T
    behind = np.append(kind, [FORWARD, FORWARD])
    whole = (behind[1:-1] == BACKWARD) & (behind[2:] == WEIGHT)  # neither was left out
    return kind, chunk, micro_batch, first * whole
