"""Division of blocks over stages with several chunks: even stages first, then even chunks.

Answers: of all ways to divide a model's blocks over the chunks of all stages, which has the shortest step?
Elsewhere: one chunk per stage, time and memory of slices (uneven_stages.py), divisions within a limit
(stage_division.py).

In closed form, a step takes micro-batches · slowest stage + sum of other stages / chunks per stage,
independently of how the time of a stage is divided over its chunks. However, the chunks of one round run at
the same time on neighbouring stages, and the fixed order waits for the longest chunk: a stage with chunks
of 0 and 7 blocks delays neighbours with 4 and 4. Among all divisions whose slowest stage is within 1 % of
the best, the method therefore takes the division with the shortest longest chunk. If there are several, it
takes the one with the shortest first chunks, which fill and drain the pipeline.
"""

import numpy as np

from flopcast.dtypes import Floats, levels
from flopcast.search.stage_chunks import ChunkDivision, Chunks, tracks_of
from flopcast.search.stage_division import EVENNESS, Allowed, Rounds

GROWTH = (1.01, 1.05, 1.2, 2.0)  # of the mean stage: levels below which a first division is looked for
WORTH_RATIO = 1.01  # how much slower a stage may be for chunks that are more even
MOST_TRACKS = 2  # more would be more states than are worth their time


def best_chunks(
    chunks: Chunks, micro_batches: int, allowed: Allowed, most_s: float = np.inf
) -> ChunkDivision | None:
    """Return the division with the shortest step in closed form, or one with more even chunks that is
    almost as fast.

    Parameters
    ----------
    chunks : Chunks
    allowed : returns whether a stage may hold some chunks, (states,), given the stage and the blocks at
        which its chunks begin and end, (states, chunks) each; None if every stage may hold any chunks
    most_s : largest useful seconds of the slowest stage

    Returns
    -------
    Division or None
        None if no allowed division has a slowest stage below twice the mean, or if rounds form more than
        MOST_TRACKS separate tracks.
    """
    tracks, least_s = tracks_of(chunks.runs, chunks.stages, chunks.virtual), chunks.least_s()
    if tracks.alone > MOST_TRACKS or not np.isfinite(least_s):
        return None
    rounds = Rounds.of(chunks, tracks, allowed)
    fastest = _fastest(rounds, least_s / chunks.stages, most_s * (1.0 + EVENNESS))
    if fastest is None:
        return None
    best = _traded(rounds, fastest, micro_batches, least_s)
    return _most_even(rounds.by_first_round(), best, least_s / (chunks.stages * chunks.virtual))


def _fastest(rounds: Rounds, mean_s: float, most_s: float) -> ChunkDivision | None:
    low_s, found = mean_s * (1.0 - EVENNESS), None
    for growth in GROWTH:
        found = rounds.below(min(mean_s * growth, most_s))
        if found is not None or mean_s * growth >= most_s:
            break
        low_s = mean_s * growth
    just = False  # asked just below what was found: where that is the fastest, this is the proof
    while found is not None and found.slowest_s * (1.0 - EVENNESS) > low_s:
        just = not just
        level_s = found.slowest_s * (1.0 - EVENNESS) if just else (low_s + found.slowest_s) / 2.0
        better = rounds.below(level_s)
        if better is None:
            low_s = level_s
        else:
            found = better
    return found


def _traded(rounds: Rounds, fastest: ChunkDivision, micro_batches: int, least_s: float) -> ChunkDivision:
    """Return the best division if a slower stage may allow a smaller sum."""
    virtual, lowest_s, best = rounds.chunks.virtual, fastest.slowest_s, fastest
    level_s = (best.step_s(micro_batches) - least_s / virtual) / (micro_batches - 1.0 / virtual)
    while level_s > lowest_s * (1.0 + EVENNESS):
        found = rounds.below(level_s)
        if found is None:
            break
        best = min(best, found, key=lambda one: one.step_s(micro_batches))
        rest_s = (found.sum_s - lowest_s) / virtual  # none below this level has a smaller sum
        if micro_batches * lowest_s + rest_s >= best.step_s(micro_batches) * (1.0 - EVENNESS):
            break
        level_s = found.slowest_s * (1.0 - EVENNESS)
    return best


def _most_even(rounds: Rounds, best: ChunkDivision, mean_s: float) -> ChunkDivision:
    """Return the division with the shortest longest chunk among those with about equally fast stages.

    Of several such divisions it is the one with the least weight in `rounds`. A mean chunk takes at least
    `mean_s`.
    """
    level_s = best.slowest_s * WORTH_RATIO
    even = rounds.below(best.slowest_s * (1.0 + EVENNESS), best.longest_s * (1.0 + EVENNESS)) or best
    longest_s = _levels(rounds.chunks, mean_s, best.longest_s)
    low, high = -1, len(longest_s) - 1  # none keeps below number `low`; `even` keeps below `high`
    while high - low > 1:
        middle = (low + high) // 2
        found = rounds.below(level_s, float(longest_s[middle]))
        if found is None:
            low = middle
        else:
            even, high = found, int(np.searchsorted(longest_s, found.longest_s))
    while (found := rounds.below(even.slowest_s * (1.0 - EVENNESS), even.longest_s)) is not None:
        even = found
    return even


def _levels(chunks: Chunks, least_s: float, most_s: float) -> Floats:
    """Return the limits to try for the longest chunk: seconds of single chunks in this range, in order."""
    each_s = chunks.chunk_s[np.isfinite(chunks.chunk_s)]
    return levels(each_s[(each_s >= least_s * (1.0 - EVENNESS)) & (each_s <= most_s)])
