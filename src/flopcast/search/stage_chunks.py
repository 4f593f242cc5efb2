"""Chunks of pipeline stages: their times, the groups of their rounds, and a division of blocks.

Answers: which roles do chunks have, and which rounds contain only one kind of blocks?
Elsewhere: the division with the smallest sum of seconds (stage_division.py).
"""

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.records import Record

FIRST, INNER, LAST = range(3)  # chunks by what they hold besides blocks


class Chunks(Record, eq=False):
    """Seconds of chunks, by role and by blocks.

    Attributes
    ----------
    chunk_s : array of shape (roles, cuts, cuts)
        Seconds of one micro-batch on a chunk of the blocks between two cuts; infinite if no such chunk is
        allowed.
    runs : tuple of int
        Number of blocks of each run of equal blocks.
    stages, virtual : int
        Number of stages, and of chunks on each stage.
    """

    chunk_s: Floats
    runs: tuple[int, ...]
    stages: int
    virtual: int

    @property
    def blocks(self) -> int:
        """Return the number of blocks of the model."""
        return sum(self.runs)

    def role(self, stage: int, chunk: int) -> int:
        """Return the role of a chunk, which states whether it contains the embedding or the head."""
        if (stage, chunk) == (0, 0):
            return FIRST
        return LAST if (stage, chunk) == (self.stages - 1, self.virtual - 1) else INNER

    def roles(self, stage: int) -> Integers:
        """Return the role of each chunk of a stage, (chunks,)."""
        return np.array([self.role(stage, number) for number in range(self.virtual)])

    def slowest_s(self, layers: tuple[int, ...]) -> float:
        """Return the seconds of the slowest stage, given the number of blocks of every chunk in the
        order of the model.
        """
        stops = np.cumsum(layers)
        number = np.arange(len(layers))
        role = [self.role(*divmod(one, self.stages)[::-1]) for one in number.tolist()]
        each_s = self.chunk_s[role, stops - layers, stops]
        return float(each_s.reshape(self.virtual, self.stages).sum(axis=0).max())

    def least_s(self) -> float:
        """Return the least sum of the seconds of all chunks over all divisions."""
        sums_s = np.where(np.arange(self.blocks + 1) == 0, 0.0, np.inf)
        for number in range(self.stages * self.virtual):
            role = self.role(number % self.stages, number // self.stages)
            sums_s = (sums_s[:, None] + self.chunk_s[role]).min(axis=0)
        return float(sums_s[-1])


class Tracks(Record, eq=False):
    """`leading` and `trailing` rounds have their own tracks; the rounds between form a single track.

    The rounds between contain only blocks of the run from `low` to before `high`.
    """

    leading: int
    trailing: int
    together: int
    low: int
    high: int

    @property
    def alone(self) -> int:
        """Return the number of rounds that are tracked separately."""
        return self.leading + self.trailing

    @property
    def rounds(self) -> tuple[int, ...]:
        """Return the number of rounds."""
        all_rounds = self.alone + self.together
        return (*range(self.leading), *range(all_rounds - self.trailing, all_rounds))


def tracks_of(runs: tuple[int, ...], stages: int, virtual: int) -> Tracks:
    """Return the tracks of the rounds.

    Every chunk except the first and the last contains a block, so n blocks before the largest run are in
    the first n + 1 chunks.

    Examples
    --------
    >>> [tracks_of(runs, 4, 4).alone for runs in ((61,), (3, 58), (1,) * 61)]
    [0, 1, 4]
    """
    place = int(np.argmax(runs))
    before, after = sum(runs[:place]), sum(runs[place + 1 :])
    leading, trailing = (rest // stages + 1 if rest else 0 for rest in (before, after))
    if leading + trailing >= virtual:
        leading, trailing = virtual, 0
    together = virtual - leading - trailing
    return Tracks(
        leading=leading, trailing=trailing, together=together, low=before, high=before + runs[place]
    )


def counted(chunks: Chunks, tracks: Tracks) -> tuple[Integers, Integers]:
    """Return the number of blocks before every boundary, (cuts,), and the number of those in the largest
    run.
    """
    cuts = np.arange(chunks.blocks + 1)
    return cuts, np.clip(cuts, tracks.low, tracks.high) - tracks.low


def by_number(chunk_s: Floats, count: Integers) -> Floats:
    """Return the least seconds of a chunk by its number of blocks, given the blocks before every cut."""
    held = count - count[:, None]
    start, stop = np.nonzero(held >= 0)
    order = np.argsort(held[start, stop], kind="stable")
    numbers, first = np.unique(held[start, stop][order], return_index=True)
    each_s = np.full(len(count), np.inf)
    each_s[numbers] = np.minimum.reduceat(chunk_s[start, stop][order], first)
    return each_s


class ChunkDivision(Record, eq=False):
    """The blocks of every chunk, and the seconds by which divisions are compared.

    Attributes
    ----------
    held : array of int, shape (stages, chunks)
    slowest_s, sum_s, longest_s : float
        Seconds of the slowest stage, of all stages together, and of the longest chunk.
    """

    held: Integers
    slowest_s: float
    sum_s: float
    longest_s: float

    def step_s(self, micro_batches: int) -> float:
        """Return the step time in closed form."""
        others_s = self.sum_s - self.slowest_s
        return float(micro_batches * self.slowest_s + others_s / self.held.shape[1])

    @property
    def cuts(self) -> tuple[Integers, Integers]:
        """Return the first and the last block of every chunk, (stages, chunks) each."""
        stop = self.held.T.ravel().cumsum().reshape(self.held.T.shape).T
        return stop - self.held, stop
