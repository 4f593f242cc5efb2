"""The interface of pipeline schedules. A schedule contains only the order of tasks, and no times.

Answers: in which order does a stage run its tasks, how many micro-batches does it keep in flight, and how
often does it wait for its neighbours?
Elsewhere: the times of tasks (timeline/pipeline.py), the estimated time of a step
(timeline/closed_form.py), the memory of tasks (memory/), the layers of a chunk (workload/stages.py).

A *task* is one pass of one chunk over one micro-batch. Stage 0 holds the embedding. Chunk c of stage s has
the number c · stages + s in the order of the model, so that activations pass through all stages once for
each chunk. If chunks are folded, every other chunk runs in the opposite direction, from the last stage to
the first.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from flopcast.dtypes import Counts, Flags, Floats, Integers, distinct
from flopcast.records import Record

FORWARD, BACKWARD, WEIGHT = 0, 1, 2  # with WEIGHT tasks, BACKWARD gives the input's gradient only


def along_the_model(stages: int, virtual: int, folded: bool) -> Integers:
    """Return the position of every chunk in the model, (stages, virtual stages).

    Successive chunks are on successive stages. If `folded`, they go from the first stage to the last and
    back (the V of arXiv:2401.10241, section 6).

    >>> along_the_model(3, 2, folded=False).tolist(), along_the_model(3, 2, folded=True).tolist()
    ([[0, 3], [1, 4], [2, 5]], [[0, 5], [1, 4], [2, 3]])
    """
    rows = np.arange(stages * virtual).reshape(virtual, stages)
    if folded:
        rows[1::2] = rows[1::2, ::-1].copy()
    return rows.T


class Order(Record, eq=False):
    """Tasks of every stage in their order; arrays of shape (stages, tasks).

    Every stage has 2 · chunks · micro-batches tasks, or 3 · chunks · micro-batches if the backward pass is
    split. Messages between two stages are sent and received in this order, because no tag distinguishes
    them.
    """

    kind: Integers  # FORWARD, BACKWARD or WEIGHT
    chunk: Integers  # virtual stage
    micro_batch: Integers
    folded: bool = False  # chunks go down the stages and back up, not round them
    hands_on: bool = True  # stages send each other activations and gradients
    paired: Flags | None = None  # forwards that run together with the B and the W behind them; None: none

    @property
    def number(self) -> Integers:
        """Return the position of every chunk along the model, (stages, chunks)."""
        return along_the_model(self.kind.shape[0], int(self.chunk.max()) + 1, self.folded)

    @property
    def alone(self) -> Flags:
        """Return the forward passes and B that run without a partner, if the schedule has pairs;
        otherwise nothing.
        """
        if self.paired is None:
            return np.zeros(self.kind.shape, dtype=bool)
        together = self.paired.copy()
        together[:, 1:] |= self.paired[:, :-1]
        lone: Flags = ~together & (self.kind != WEIGHT)
        return lone

    @property
    def turn(self) -> Integers:
        """Return, for each task, the number of earlier tasks of the same kind and chunk on its stage.

        Turn 0 of a chunk sets its gradients, and its last turn completes them, whichever micro-batches
        these are: the backward passes of GPipe begin with the last one.
        """
        of = self.kind * (self.chunk.max() + 1) + self.chunk
        turn = np.zeros(of.shape, dtype=np.intp)
        for value in distinct(of):
            same = of == value
            turn[same] = (same.cumsum(axis=1) - 1)[same]
        return turn


class AbstractSchedule(ABC):
    """One pipeline schedule: pure functions of numbers of stages, chunks and micro-batches.

    A plan states its key in SCHEDULES. The class has all properties of a schedule that other modules use,
    so no other module tests its name.

    Attributes
    ----------
    meets_one_neighbour
        Between two tasks, a stage exchanges messages with only one neighbour: first its output, then its
        next input.
    splits_backward
        Weight gradients are separate tasks (workload/split.py).
    blocks_because
        Why messages must not block their sender under this schedule, whatever the stack does under other
        schedules; "" if they may block. If messages were posted together between tasks, they could wait for
        later tasks: ZB-H2 would deadlock, and so may the order of a user.
    folds_chunks
        Chunks run from the first stage to the last and back (workload/stages.py), instead of always from
        the first to the last.
    skews_steps
        A stage begins its next step before other stages have ended the current one. Stages then exchange
        norms and overflow flags after the update, which is undone in the rare case that a flag forbids it
        (arXiv:2401.10241, section 4). Without this, ZB-H2 is not faster than ZB-H1.
    groups_micro_batches
        Chunks process micro-batches in groups of the number of stages.
    hands_on
        Stages send each other activations and gradients, and wait for them.
    pairs_passes
        Some forward passes run together with a backward pass of another micro-batch (`Order.paired`).
    mirrors_half
        The second half of the stages holds the chunks of the first half, and its micro-batches come from
        the other end (spec/mirrored.py).
    micro_batches_per_stage
        Smallest number of micro-batches of a step for each stage.
    filled_per_stage
        After how many micro-batches for each stage a step holds as much memory as it ever does.
    least_chunks, most_chunks, chunks_because
        Smallest and largest number of chunks of a stage, and the reason for the largest number if several
        are possible.
    """

    meets_one_neighbour: ClassVar[bool] = False
    blocks_because: ClassVar[str] = ""
    folds_chunks: ClassVar[bool] = False
    groups_micro_batches: ClassVar[bool] = False
    hands_on: ClassVar[bool] = True
    pairs_passes: ClassVar[bool] = False
    mirrors_half: ClassVar[bool] = False
    micro_batches_per_stage: ClassVar[int] = 0
    filled_per_stage: ClassVar[float] = np.inf
    least_chunks: ClassVar[int] = 1
    most_chunks: ClassVar[float] = 1
    chunks_because: ClassVar[str] = ""

    @property
    def splits_backward(self) -> bool:
        """Return whether weight gradients are separate tasks."""
        return False

    @property
    def skews_steps(self) -> bool:
        """Return whether a stage begins its next step before other stages have ended the current one."""
        return False

    def takes_chunks(self, virtual: Counts) -> Flags:
        """Return a mask of plans for which the schedule allows this number of chunks on a stage."""
        return np.asarray((virtual >= self.least_chunks) & (virtual <= self.most_chunks))

    @abstractmethod
    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Return the tasks of every stage.

        Each task occurs once, forward before backward, and the order has no deadlock.
        """

    @abstractmethod
    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Return the micro-batches of `chunk` that a stage keeps at its fullest moment (arrays broadcast).

        This is the start of the stage's first backward pass. Afterwards, every forward pass follows a
        backward pass. The sum over chunks is the largest number that the stage ever keeps. The division
        over chunks changes later, which matters only if chunks keep unequal amounts.

        Returns
        -------
        array, broadcast from the arguments
            The result is 0 for a chunk that a plan does not have.
        """

    def fills_after(self, stages: Counts, micro_batches: Counts) -> Counts:
        """Return a number of micro-batches after which a step holds as much memory as it ever does.

        Memory is then computed for the shorter step. The default of `filled_per_stage` gives the number of
        the whole step, which is always correct.
        """
        return np.minimum(micro_batches, self.filled_per_stage * stages)

    def gaps(self, virtual: Counts) -> Counts:
        """Return the number of tasks between which a stage waits for messages that are posted together.

        The default is two: after the forward and after the backward pass. Schedules whose messages delay no
        stage do not use it.
        """
        return 2.0 * virtual

    def transfers_waited(self, stages: Counts, virtual: Counts) -> Counts:
        """Return the number of pairs of a forward and a backward transfer on the critical path of a step.

        The number holds for stacks whose transfers delay no stage.

        By default, these are the transfers from the first chunk to the last one and back, because compute
        hides the messages of all other micro-batches. Other orders have more such transfers, as counted in
        steps with equal stages.
        """
        return stages * virtual - 1.0


class AbstractSplitSchedule(AbstractSchedule):
    """A schedule whose weight gradients are separate tasks: F, B and W (arXiv:2401.10241, section 2).

    B sends the input's gradient to the previous stage; only the stage's own W waits for the rest. The
    programs of a plan with such a schedule are split (workload/split.py).
    """

    blocks_because: ClassVar[str] = (
        "zero-bubble schedules overlap transfers with weight gradients, but on this stack, "
        "transfers block the sender"
    )

    @property
    def splits_backward(self) -> bool:
        """Return True."""
        return True

    @abstractmethod
    def unfilled_s(self, own_s: Floats, others_s: Floats, stages: Counts, micro_batches: Counts) -> Floats:
        """Return the extra seconds that the busiest stage waits if there are too few micro-batches.

        Parameters
        ----------
        own_s, others_s : arrays (plans, 2)
            F and W of one micro-batch, through all chunks of the busiest stage, and of all others together.
        stages, micro_batches : arrays (plans, 1)
        """

    @abstractmethod
    def bubble_s(self, forward_s: Floats, backward_s: Floats, weight_s: Floats) -> Floats:
        """Return the seconds that every other stage adds to the work of the busiest stage; their sum is at
        least 0.

        Parameters
        ----------
        forward_s, backward_s, weight_s
            F, B and W of one micro-batch through all chunks of a stage (arrays broadcast).
        """


class AbstractVSchedule(AbstractSplitSchedule):
    """A schedule with two chunks on each stage: chunk 0 runs from the first stage to the last, and chunk 1
    from the last to the first.

    Stage 0 holds the first and the last chunk, and therefore both the embedding and the head.
    """

    folds_chunks: ClassVar[bool] = True
    least_chunks: ClassVar[int] = 2
    most_chunks: ClassVar[float] = 2
    filled_per_stage: ClassVar[float] = 4  # the ways down and up the stages take less than two each


def alternate(warm_up: int, forward: Integers, backward: Integers) -> tuple[Integers, Integers]:
    """Return kinds and indices of tasks: `warm_up` forwards, then alternating forwards and backwards, then
    the rest.

    `forward` and `backward` are the indices of both kinds in order. The returned arrays contain both.

    Examples
    --------
    >>> kind, index = alternate(1, np.arange(3), np.arange(3))
    >>> " ".join("FB"[k] + str(i) for k, i in zip(kind, index))
    'F0 F1 B0 F2 B1 B2'
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


def alternate_all(warm_ups: Iterable[int], total: int) -> tuple[Integers, Integers]:
    """Return kinds and indices of `total` forwards and backwards in order, shape (stages, 2 total).

    `warm_ups` are the forwards of each stage before its first backward; no stage has more than `total`.
    """
    tasks = np.arange(total)
    rows = [alternate(min(warm_up, total), tasks, tasks) for warm_up in warm_ups]
    return np.stack([kind for kind, _ in rows]), np.stack([index for _, index in rows])
