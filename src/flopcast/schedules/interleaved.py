"""Interleaved 1F1B: each stage holds several chunks of layers (arXiv:2104.04473, section 2.2.2).

The order is Megatron-LM's: micro-batches go through a chunk in groups of `stages`, so their number
must be a multiple of the number of stages.

One difference remains: if there are as many micro-batches as stages, Megatron-LM of 2021 and 2022 runs all
forward passes first. The memory of the first stage, which needs most, is the same in both cases.
"""

from typing import ClassVar, TypeVar

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import FORWARD, AbstractSchedule, Order, alternate_all

Number = TypeVar("Number", int, Counts)


def warm_up(stage: Number, stages: Number, virtual: Number) -> Number:
    """Return the number of forward passes that a pipeline stage runs before its first backward pass.

    A stage runs two of them for each stage that follows it, and `stages` for each of its chunks except the
    last. A step with few micro-batches may have fewer forward passes than this number.

    >>> [warm_up(stage, stages=4, virtual=2) for stage in range(4)]
    [10, 8, 6, 4]
    """
    return 2 * (stages - stage - 1) + (virtual - 1) * stages


class InterleavedOneForwardOneBackward(AbstractSchedule):
    """1F1B with `virtual` chunks per stage, which divides the bubble by this number.

    The bubble is (p - 1) / (v m) of the ideal step with p stages, v chunks and m micro-batches. Messages
    between stages are v times as many, and a stage keeps up to p (1 + (p - 1) / (p v)) micro-batches of
    activations instead of p (arXiv:2104.04473, section 2.2.2; arXiv:2205.05198, section 4.2.3).
    """

    groups_micro_batches: ClassVar[bool] = True
    least_chunks: ClassVar[int] = 2
    most_chunks: ClassVar[float] = np.inf
    filled_per_stage: ClassVar[float] = 4  # a warm-up needs fewer, and counts repeat in every round

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the order of all stages.

        Stage s starts with `warm_up` forwards, 2 (p - s - 1) + (v - 1) p, or with all forwards if there are
        fewer, and then alternates one forward and one backward. Forwards go through the chunks in groups of
        p micro-batches, backwards through the chunks from the last to the first.

        Returns
        -------
        Order
            Arrays of shape (stages, 2 · micro-batches · virtual).
        """
        warm_ups = [warm_up(stage, stages, virtual) for stage in range(stages)]
        kind, index = alternate_all(warm_ups, micro_batches * virtual)
        chunk = index % (stages * virtual) // stages
        return Order(
            kind=kind,
            chunk=np.where(kind == FORWARD, chunk, virtual - 1 - chunk),
            micro_batch=index // (stages * virtual) * stages + index % stages,
        )

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the number of forward passes of the warm-up and one more that belong to `chunk`.

        On the first stage, the sum over chunks is v p + p - 1: 1 + (p - 1) / (p v) times as much as under
        1F1B (arXiv:2205.05198, section 4.2.3).
        """
        total = micro_batches * virtual
        started = np.minimum(warm_up(stage, stages, virtual) + 1, total)
        group = stages * virtual
        rest = np.clip(started % group - chunk * stages, 0, stages)
        return (started // group * stages + rest) * (chunk < virtual)

    def gaps(self, virtual: Counts) -> Counts:
        """Return one gap per chunk: there is no gap after a forward pass of the steady phase
        (arXiv:2104.04473, 2.2).
        """
        return virtual
