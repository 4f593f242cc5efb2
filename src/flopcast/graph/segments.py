"""Repeating parts in a sequence of operators, and the operators at which it is divided into equal layers.

Answers: which stretches of a sequence consist of equal consecutive parts, and where does each part begin?
Elsewhere: the check that parts are equal, including their tensors (model_of_graph.py).

The sequence is a list of numbers, and operators of equal kind and shape have equal numbers. In a stretch
with period p, each number equals the number p positions later. Parts begin at the position within the
period at which the least memory crosses the border.
"""

from collections import Counter

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.records import Record

LEAST_SPARED = 8  # operators that counting equal parts once must spare
MOST_PERIODS = 48  # periods that are tried in a stretch
MOST_RUNS = 10


class Run(Record):
    """A run of `count` equal parts of `period` operators each, from position `start` on.

    The run ends before position start + count · period.
    """

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Return the position after the last part."""
        return self.start + self.period * self.count


def repeated_runs(signatures: Integers, crossing_bytes: Floats) -> list[Run]:
    """Return runs of equal parts, in order and without overlap.

    Parameters
    ----------
    signatures : numbers of the operators, (operators,)
    crossing_bytes : bytes of the tensors that live across the border before each operator, (operators + 1,)

    Examples
    --------
    >>> numbers = np.array([9, *[1, 2, 3, 4, 5] * 4, 8])
    >>> repeated_runs(numbers, np.ones(23))
    [Run(start=1, period=5, count=4)]
    """
    found = list[Run]()
    stretches = [(0, len(signatures))]
    while stretches and len(found) < MOST_RUNS:
        first, last = stretches.pop()
        run = _best(signatures[first:last], crossing_bytes[first : last + 1])
        if run is None:
            continue
        placed = Run(start=first + run.start, period=run.period, count=run.count)
        found += _in_parts(placed, signatures, crossing_bytes)
        stretches += [(first, placed.start), (placed.end, last)]
    return sorted(found, key=lambda run: run.start)


def _best(signatures: Integers, crossing_bytes: Floats) -> Run | None:
    """Return the run that saves the most operators in a stretch, or None if no run saves enough."""
    best, spared_most = None, LEAST_SPARED - 1
    for period in _periods(signatures):
        equal = np.flatnonzero(np.diff(np.r_[0, signatures[:-period] == signatures[period:], 0]))
        for begin, end in equal.reshape(-1, 2).tolist():
            count = (end - begin + period) // period
            if count < 2 or period * (count - 1) <= spared_most:
                continue
            best = _with_best_phase(begin, end - begin + period, period, crossing_bytes)
            spared_most = period * (best.count - 1)
    return best


def _in_parts(run: Run, signatures: Integers, crossing_bytes: Floats) -> list[Run]:
    """Return the run, or the runs in each of its parts if a part itself contains equal parts.

    In a vision tower, every eighth layer may have no attention windows: such a part of eight layers
    contains seven equal layers.
    """
    end = run.start + run.period
    inner = _best(signatures[run.start : end], crossing_bytes[run.start : end + 1])
    if inner is None:
        return [run]
    starts = range(run.start + inner.start, run.end, run.period)
    return [Run(start=start, period=inner.period, count=inner.count) for start in starts]


def _periods(signatures: Integers) -> list[int]:
    """Return the most frequent distances between equal operators, the shortest first."""
    order = np.argsort(signatures, kind="stable")
    gaps = np.diff(order)[np.diff(signatures[order]) == 0]
    common = Counter(gaps.tolist()).most_common(MOST_PERIODS)
    return sorted(period for period, times in common if times > 1 or period >= LEAST_SPARED)


def _with_best_phase(begin: int, length: int, period: int, crossing_bytes: Floats) -> Run:
    """Return the run whose parts begin where the least memory crosses; The run may lose one part."""
    most = length // period
    best, least = Run(start=begin, period=period, count=most), np.inf
    for phase in range(min(period, length - period + 1)):
        count = (length - phase) // period
        if count < max(2, most - 1):
            break
        size = float(crossing_bytes[begin + phase]) * (1.0 if count == most else 1.0 + 1e-9)
        if size < least:
            best, least = Run(start=begin + phase, period=period, count=count), size
    return best
