"""Divisions of a model's blocks into stages with several chunks, none of which takes longer than a limit.

Answers: which division has the smallest sum of seconds, if no stage and no chunk may exceed a limit?
Elsewhere: the best limit and division (uneven_chunks.py), the seconds of slices (uneven_stages.py).

Along the model, chunk c of stage s has position c · stages + s. The c-th chunks of all stages form *round*
c. In a round, the chunk of a stage begins where the chunk of the previous stage ends. A dynamic program
goes over the stages. Its state is the first block of each round, and the block that each round has reached.
At the end, each round must end at the first block of the next round. States that cannot lead to a division
are dropped. These are states with a stage above the limit ("level"), and states with more remaining blocks
than the other stages can hold below the limit.

Rounds that hold only blocks of one kind form one *track*, because only the number of their blocks matters.
These blocks are divided over the chunks of the track as evenly as possible, late chunks first. Every other
round is a track of its own. The three dense blocks of DeepSeek-V3 are in the first round, so it has two
tracks for any number of chunks.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import combinations, pairwise

import numpy as np

from flopcast.dtypes import Flags, Floats, Integers
from flopcast.records import Record, replace
from flopcast.search.stage_chunks import INNER, LAST, ChunkDivision, Chunks, Tracks, by_number, counted
from flopcast.spec.rows import equal_rows

EVENNESS = 1e-6  # of a sum: of divisions that equal each other so far, the one with equal chunks
ROUNDING = 1e-9  # of a level: more than sums in another order differ by


Allowed = Callable[[int, Integers, Integers], Flags] | None  # None: a stage may hold any chunks


class _Paths(Record, eq=False):
    """States after a stage, each with the least weight that leads to it.

    `at` holds where rounds of their own began and where they have come to, (states, 2, rounds); `used` how
    many blocks the rounds between hold so far; `before` is the state of the stage before, (states,) both.
    """

    at: Integers
    used: Integers
    weight_s: Floats
    before: Integers


class _Between(Record, eq=False):
    """Total time of a stage's chunks in the rounds that are tracked together, by number of blocks.

    Seconds, weights and the longest chunk are (blocks + 1,), infinite where so many are none; `held` is
    (blocks + 1, chunks).
    """

    busy_s: Floats
    weight_s: Floats
    longest_s: Floats
    held: Integers


class Rounds(Record, eq=False):
    """Values that are computed once for all levels."""

    chunks: Chunks
    tracks: Tracks
    allowed: Allowed
    weight_s: Floats  # weights of chunks of the first round and of other rounds, (2, roles, cuts, cuts)
    start: _Paths
    between: tuple[_Between, ...]  # of every stage
    least_s: Floats  # of every stage, way of counting blocks, and number of blocks

    @classmethod
    def of(cls, chunks: Chunks, tracks: Tracks, allowed: Allowed) -> "Rounds":
        """Return the values for one plan."""
        weight_s = _weights(chunks, 1.0)
        like = _alike(chunks)
        least_s = {stage: _least_seconds(chunks, tracks, stage) for stage in set(like)}
        return cls(
            chunks=chunks,
            tracks=tracks,
            allowed=allowed,
            weight_s=weight_s,
            start=_start(chunks, tracks),
            between=_all_dealt(chunks, tracks, weight_s),
            least_s=np.stack([least_s[stage] for stage in like]),
        )

    def by_first_round(self) -> "Rounds":
        """Return a search whose `below` finds the division with the shortest first chunks.

        The first chunk of a stage fills and drains the pipeline. Its other chunks run while the pipeline is
        full.
        """
        weight_s = _weights(self.chunks, EVENNESS)
        return replace(self, weight_s=weight_s, between=_all_dealt(self.chunks, self.tracks, weight_s))

    def below(self, level_s: float, longest_s: float = np.inf) -> ChunkDivision | None:
        """Return the division with the least weight whose stages and chunks are within these limits.

        Parameters
        ----------
        level_s : float
            Largest number of seconds of a stage for one micro-batch.
        longest_s : float
            Largest number of seconds of one chunk.

        Returns
        -------
        ChunkDivision or None
            None if no division keeps both limits and the memory of every stage.
        """
        blocks = np.arange(self.least_s.shape[-1])
        most = np.where(self.least_s <= level_s, blocks, 0).max(axis=-1)  # (stages, ways of counting)
        taken = [self.start]
        for stage in range(self.chunks.stages):
            room = most[stage + 1 :].sum(axis=0)
            taken.append(self._after(taken[-1], stage, (level_s, longest_s), room))
            if not len(taken[-1].used):
                return None
        return self._division(taken)

    def _after(self, paths: _Paths, stage: int, most_s: tuple[float, float], room: Integers) -> _Paths:
        """Return the states after one more stage, with no more blocks left than there is room for."""
        (level_s, longest_s), between = most_s, self.between[stage]
        between_s = np.where(between.longest_s <= longest_s, between.busy_s, np.inf)
        row, here = np.arange(len(paths.used)), paths.at[:, 1]
        busy_s, weight_s = np.zeros(len(row)), paths.weight_s
        for place, number in enumerate(self.tracks.rounds):
            role, start = self.chunks.role(stage, number), here[:, place]
            each_s = self.chunks.chunk_s[role, start]
            may = (busy_s[:, None] + each_s <= level_s - between_s.min()) & (each_s <= longest_s)
            of, stop = np.nonzero(may & self._ends(paths.at[row, 0], place, stage))
            row, busy_s, here = row[of], busy_s[of] + each_s[of, stop], here[of]
            weight_s = weight_s[of] + self.weight_s[min(number, 1), role, start[of], stop]
            here[:, place] = stop
        least, most = self._more(paths.at[row, 0], here, paths.used[row], stage, room)
        most = np.minimum(most, _last_below(between_s, level_s - busy_s))
        of, more = _each_from(least, most)
        kept = busy_s[of] + between_s[more] <= level_s
        of, more = of[kept], more[kept]
        row, here, weight_s = row[of], here[of], weight_s[of] + between.weight_s[more]
        at = np.stack([paths.at[row, 0], here], axis=1)
        after = _Paths(at=at, used=paths.used[row] + more, weight_s=weight_s, before=row)
        if self.allowed is not None:
            after = _rows(after, np.flatnonzero(self.allowed(stage, *self._held(paths, after, stage))))
        return self._least(after)

    def _ends(self, begin: Integers, place: int, stage: int) -> Flags:
        """Return where the chunk of a separately tracked round may end, (states, cuts)."""
        left, stop = self.chunks.stages - 1 - stage, np.arange(self.chunks.blocks + 1)[None]
        end = self._end(begin, place)
        if end is None:
            return np.asarray((stop >= self.tracks.low) | (left > 0))
        is_last = place == self.tracks.alone - 1
        return np.asarray(stop == end[:, None] if left == 0 else stop <= end[:, None] - left + int(is_last))

    def _end(self, begin: Integers, place: int) -> Integers | None:
        """Return where a separately tracked round ends, (states,); None if that is left open.

        The round before those that are tracked together ends where these begin.
        """
        if self.tracks.together and place == self.tracks.leading - 1:
            return None
        is_last = place == self.tracks.alone - 1
        return np.full(len(begin), self.chunks.blocks) if is_last else begin[:, place + 1]

    def _least(self, paths: _Paths) -> _Paths:
        """Return the state of least weight of those that leave the same blocks to the same rounds."""
        if len(paths.used) < 2:
            return paths
        begin, here = paths.at[:, 0], paths.at[:, 1]
        columns = [
            (count[here] - count[begin]).sum(axis=1) + paths.used
            for count in counted(self.chunks, self.tracks)
        ]
        last = np.cumsum(self.chunks.runs)
        for place in range(self.tracks.alone):
            end, start = self._end(begin, place), here[:, place, None]
            left = (
                np.minimum(start, self.tracks.low)
                if end is None
                else np.clip(end[:, None], last - self.chunks.runs, last)
                - np.clip(start, last - self.chunks.runs, last)
            )
            columns += list(left.T)
        group, code = equal_rows(columns).group, paths.used.astype(np.int64)
        for column in (*begin.T, *here.T):
            code = code * (self.chunks.blocks + 1) + column
        order = np.lexsort((code, paths.weight_s, group))  # of equal weights, the lowest code
        chosen = order[np.flatnonzero(np.diff(group[order], prepend=-1))]
        return _rows(paths, chosen[np.argsort(code[chosen])])

    def _more(
        self, begin: Integers, here: Integers, used: Integers, stage: int, room: Integers
    ) -> tuple[Integers, Integers]:
        """Return how many blocks a stage may add to the rounds between: at least, at most, (states,) each.

        Of fewer, later stages could not hold the rest; after the last stage, rounds must meet.
        """
        tracks, blocks = self.tracks, self.chunks.blocks
        least, most = np.zeros_like(used), np.full_like(used, blocks)
        for count, later in zip(counted(self.chunks, tracks), room, strict=True):
            left = count[-1] - (count[here] - count[begin]).sum(axis=1) - used
            least = np.maximum(least, left - later)
        if tracks.together:
            start = here[:, tracks.leading - 1] if tracks.leading else 0
            stop = begin[:, tracks.leading] if tracks.trailing else blocks
            most = stop - start - used
            least = most if stage == self.chunks.stages - 1 else least
        return least, most

    def _held(self, before: _Paths, after: _Paths, stage: int) -> tuple[Integers, Integers]:
        """Return the first and the last block of a stage's chunks, (states, chunks) each."""
        tracks, blocks = self.tracks, self.chunks.blocks
        held = self.between[stage].held[after.used - before.used[after.before]]
        start, stop = np.full_like(held, tracks.low), tracks.low + held
        if not tracks.trailing and tracks.together and stage == self.chunks.stages - 1:
            start[:, -1], stop[:, -1] = blocks - held[:, -1], blocks
        parts = [
            np.hstack([own[:, : tracks.leading], between, own[:, tracks.leading :]])
            for own, between in ((before.at[after.before, 1], start), (after.at[:, 1], stop))
        ]
        return parts[0], parts[1]

    def _division(self, taken: Sequence[_Paths]) -> ChunkDivision:
        """Return the division of the best final state."""
        at, chunk_s, held = int(taken[-1].weight_s.argmin()), [], []
        for stage in reversed(range(self.chunks.stages)):
            before, after = taken[stage], _rows(taken[stage + 1], np.array([at]))
            start, stop = (side[0] for side in self._held(before, after, stage))
            chunk_s.append(self.chunks.chunk_s[self.chunks.roles(stage), start, stop])
            held.append(stop - start)
            at = int(after.before[0])
        each_s = np.stack(chunk_s)
        return ChunkDivision(
            held=np.stack(held[::-1]),
            slowest_s=float(each_s.sum(axis=1).max()),
            sum_s=float(each_s.sum()),
            longest_s=float(each_s.max()),
        )


def _start(chunks: Chunks, tracks: Tracks) -> _Paths:
    """Return a state for every way to begin the separate rounds; the first begins at the first block."""
    first = (0,) if tracks.leading else ()
    free = combinations(range(1, chunks.blocks + 1), tracks.alone - len(first))
    least = chunks.stages - 1  # blocks of a round: an end of the model may hold none
    begins = [
        (*first, *others)
        for others in free
        if all(high - low >= least for low, high in pairwise((*first, *others, chunks.blocks)))
        and (not tracks.trailing or (*first, *others)[tracks.leading] <= tracks.high)
    ]
    begin = np.array(begins, dtype=np.intp).reshape(len(begins), tracks.alone)
    nothing = np.zeros(len(begins), dtype=np.intp)
    at = np.stack([begin, begin], axis=1)
    return _Paths(at=at, used=nothing, weight_s=nothing.astype(np.float64), before=nothing)


def _weights(chunks: Chunks, others_ratio: float) -> Floats:
    """Return weights of chunks: of the first round, and of other rounds times a ratio."""
    most_s = chunks.chunk_s[np.isfinite(chunks.chunk_s)].max()
    weight_s = chunks.chunk_s * (1.0 + EVENNESS * chunks.chunk_s / most_s)
    return np.stack([weight_s, others_ratio * weight_s])


def _alike(chunks: Chunks) -> list[int]:
    """Return for every stage the number of an equivalent stage: all inner stages are equivalent."""
    inner = 1 if chunks.stages > 2 else 0
    return [0, *[inner] * (chunks.stages - 2), chunks.stages - 1]


def _all_dealt(chunks: Chunks, tracks: Tracks, weight_s: Floats) -> tuple[_Between, ...]:
    """Return the rounds between the first and the last for every stage."""
    like = _alike(chunks)
    between = {stage: _dealt(chunks, tracks, weight_s, stage) for stage in set(like)}
    return tuple(between[stage] for stage in like)


def _dealt(chunks: Chunks, tracks: Tracks, weight_s: Floats, stage: int) -> _Between:
    """Return the blocks of the rounds between on one stage, each on the fastest chunk, late ones first."""
    numbers = range(tracks.leading, tracks.leading + tracks.together)
    roles = [chunks.role(stage, number) for number in numbers]
    blocks, most = chunks.blocks, tracks.high - tracks.low
    count = np.arange(most + 1)
    start = {role: blocks - count if role == LAST else np.full_like(count, tracks.low) for role in roles}
    by_count = [chunks.chunk_s[role, start[role], start[role] + count].tolist() for role in roles]
    weights = [
        weight_s[min(number, 1), role, start[role], start[role] + count].tolist()
        for number, role in zip(numbers, roles, strict=True)
    ]
    held = [int(role == INNER) for role in roles]
    found = _Between(
        busy_s=np.full(blocks + 1, np.inf),
        weight_s=np.full(blocks + 1, np.inf),
        longest_s=np.full(blocks + 1, np.inf),
        held=np.zeros((blocks + 1, len(roles)), dtype=np.intp),
    )
    for total in range(sum(held), most + 1):
        each_s = [chunk_s[number] for chunk_s, number in zip(by_count, held, strict=True)]
        found.busy_s[total], found.longest_s[total] = sum(each_s), max(each_s, default=0.0)
        found.weight_s[total] = sum(chunk_s[number] for chunk_s, number in zip(weights, held, strict=True))
        found.held[total] = held
        if not roles or total == most:
            break
        after_s = [chunk_s[number + 1] for chunk_s, number in zip(by_count, held, strict=True)]
        held[len(held) - 1 - after_s[::-1].index(min(after_s))] += 1
    return found


def _least_seconds(chunks: Chunks, tracks: Tracks, stage: int) -> Floats:
    """Return the least seconds of a stage with this many blocks anywhere: (ways to count, blocks + 1)."""
    size = chunks.blocks + 1
    more = np.arange(size)[:, None] - np.arange(size)  # blocks of a further chunk
    roles = chunks.roles(stage).tolist()
    found = np.full((2, size), np.inf)
    for way, count in enumerate(counted(chunks, tracks)):
        added_s = {role: by_number(chunks.chunk_s[role], count)[more] for role in set(roles)}
        sums_s = np.where(np.arange(size) == 0, 0.0, np.inf)
        for role in roles:
            sums_s = np.where(more >= 0, sums_s + added_s[role], np.inf).min(axis=1)
        found[way] = sums_s
    return found


def _last_below(each_s: Floats, level_s: Floats) -> Integers:
    """Return the last place at which seconds may be at most `level_s`, (levels,); -1 if there is none.

    Rounding may make the place too large, but never too small.
    """
    least_s = np.minimum.accumulate(each_s[::-1])[::-1]
    return np.searchsorted(least_s, level_s + ROUNDING * np.abs(level_s), side="right") - 1


def _each_from(least: Integers, most: Integers) -> tuple[Integers, Integers]:
    """Return every whole number from `least` to `most` of each row, and the rows that they belong to."""
    number = np.maximum(most - least + 1, 0)
    row = np.repeat(np.arange(len(number)), number)
    return row, np.arange(len(row)) - (number.cumsum() - number - least)[row]


def _rows(paths: _Paths, rows: Integers) -> _Paths:
    """Return some of the states."""
    columns = {field.name: getattr(paths, field.name)[rows] for field in fields(_Paths)}
    return _Paths(**columns)
