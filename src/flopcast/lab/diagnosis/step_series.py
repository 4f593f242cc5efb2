"""Patterns in the step times of a run: pauses, and steps that become slower.

Answers: which steps took much longer than their neighbours, how regular are they, and did the run slow down
at once or gradually?
Elsewhere: step times of a log (lab/logs/log.py), what the patterns mean (diagnose.py).

A pause is a record that exceeds the running median by PAUSE_RATIO and by PAUSE_SIGMAS of the usual scatter.
To detect that a run becomes slower, the module compares medians of at most MOST_BINS bins of the other
records.
"""

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.records import Record

WINDOW = 21  # records of the running median
PAUSE_RATIO, PAUSE_SIGMAS = 1.15, 6.0
FEWEST_RECORDS = 8
MOST_BINS = 200
LEAST_RISE = 0.03  # of a step: less is no slowing
LEAST_SHARE = 0.6  # of the scatter around one level that a slower level must explain
STEADY_SHARE = 0.7  # of pauses whose distance is a multiple of the usual one
SCALE = 1.4826  # of a median absolute deviation, to a standard deviation


class Pauses(Record):
    """Records that took much longer than their neighbours.

    `place` holds their indices, `steps` their numbers, and `extra_s` the additional time compared with
    their neighbours; all have shape (pauses,).
    """

    place: Integers
    steps: Counts
    extra_s: Floats

    @property
    def every(self) -> int | None:
        """Return the number of steps between pauses if it is regular, and None otherwise."""
        return _regular(self.steps)

    def part(self, chosen: np.ndarray) -> "Pauses":
        """Return some of the pauses; `chosen` is a mask, (pauses,)."""
        return Pauses(place=self.place[chosen], steps=self.steps[chosen], extra_s=self.extra_s[chosen])


class Slowing(Record):
    """A run whose steps become slower, from `before_s` to `after_s`.

    `since_step` is the step at which the level changed, and `place` is its record; both are None if the
    steps became slower gradually. `lost_s` is the time that the slowing adds to a mean step, compared
    with earlier steps.
    """

    before_s: float
    after_s: float
    since_step: int | None
    place: int | None
    lost_s: float


def running_level(times_s: Floats) -> Floats:
    """Return the running median of step times, (records,)."""
    half = min(WINDOW, len(times_s)) // 2
    padded = np.pad(times_s, half, mode="reflect") if half else times_s
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    level_s: Floats = np.median(windows, axis=1)
    return level_s


def pauses_of(steps: Counts, times_s: Floats) -> Pauses:
    """Return the pauses of a run; none if it has fewer than FEWEST_RECORDS records.

    Parameters
    ----------
    steps, times_s : (records,), numbers and seconds of the steady records, in order

    Examples
    --------
    >>> times_s = np.where(np.arange(1, 101) % 20 == 0, 3.0, 1.0)
    >>> found = pauses_of(np.arange(1.0, 101.0), times_s)
    >>> found.every, found.steps.tolist(), found.extra_s.tolist()
    (20, [20.0, 40.0, 60.0, 80.0, 100.0], [2.0, 2.0, 2.0, 2.0, 2.0])
    """
    if len(times_s) < FEWEST_RECORDS:
        return Pauses(place=np.zeros(0, dtype=np.intp), steps=np.zeros(0), extra_s=np.zeros(0))
    level_s = running_level(times_s)
    extra_s = times_s - level_s
    sigma_s = SCALE * float(np.median(np.abs(extra_s)))
    long = np.flatnonzero(extra_s > np.maximum((PAUSE_RATIO - 1.0) * level_s, PAUSE_SIGMAS * sigma_s))
    return Pauses(place=long, steps=steps[long], extra_s=extra_s[long])


def _regular(steps: Counts) -> int | None:
    """Return the usual distance between numbers, if most distances are multiples of it."""
    distances = np.diff(steps)
    distances = distances[distances > 0]
    if len(distances) < 2:
        return None
    usual, counts = np.unique(distances, return_counts=True)
    each = float(usual[np.argmax(counts)])
    multiples = np.isclose(distances / each, np.round(distances / each)) & (distances >= each)
    enough = multiples.mean() >= STEADY_SHARE and counts.max() >= 2 and each > 1
    return int(each) if enough else None


def slowing_of(steps: Counts, times_s: Floats) -> Slowing | None:
    """Return how a run slows down; None if it does not, or if it has fewer than FEWEST_RECORDS records.

    One level, two levels and a line are compared by the sum of absolute differences, which single records
    hardly change. Of two levels and a line, the better one is returned.

    Examples
    --------
    >>> steps = np.arange(1.0, 101.0)
    >>> found = slowing_of(steps, np.where(steps > 60, 1.3, 1.0))
    >>> found.since_step, found.before_s, found.after_s
    (61, 1.0, 1.3)
    >>> slowing_of(steps, 1.0 + 0.004 * steps).since_step is None
    True
    >>> slowing_of(steps, np.ones(100)) is None
    True
    """
    if len(times_s) < FEWEST_RECORDS:
        return None
    parts = np.array_split(np.arange(len(times_s)), min(len(times_s), MOST_BINS))
    binned_s = np.array([np.median(times_s[part]) for part in parts])
    starts = np.array([part[0] for part in parts])
    level = _off(binned_s, np.full(len(binned_s), np.median(binned_s)))
    split, two_levels = _best_split(binned_s)
    line, along = _line(binned_s)
    if level <= 0.0 or min(two_levels, line) > LEAST_SHARE * level:
        return None
    since: int | None
    place: int | None
    if two_levels <= line:
        first = int(starts[split])
        before_s, after_s = float(np.median(times_s[:first])), float(np.median(times_s[first:]))
        since, place = int(steps[first]), first
        lost_s = (after_s - before_s) * (len(times_s) - first) / len(times_s)
    else:
        before_s, after_s, since, place = float(along[0]), float(along[-1]), None, None
        lost_s = (after_s - before_s) / 2.0
    if after_s < (1.0 + LEAST_RISE) * before_s:
        return None
    return Slowing(before_s=before_s, after_s=after_s, since_step=since, place=place, lost_s=lost_s)


def _off(values_s: Floats, model_s: Floats) -> float:
    return float(np.abs(values_s - model_s).sum())


def _best_split(values_s: Floats) -> tuple[int, float]:
    """Return the index that divides values into the best two levels, each of a tenth or more."""
    least = max(2, len(values_s) // 10)
    found = {}
    for place in range(least, len(values_s) - least + 1):
        sides = (values_s[:place], values_s[place:])
        found[place] = sum(_off(side, np.full(len(side), np.median(side))) for side in sides)
    best = min(found, key=lambda place: found[place])
    return best, found[best]


def _line(values_s: Floats) -> tuple[float, Floats]:
    """Return the absolute differences from a line through the medians of the outer thirds, and the line."""
    third = len(values_s) // 3
    low_s, high_s = float(np.median(values_s[:third])), float(np.median(values_s[-third:]))
    slope = (high_s - low_s) / (len(values_s) - third)
    middle = np.arange(len(values_s)) - (len(values_s) - 1) / 2.0
    line_s: Floats = (low_s + high_s) / 2.0 + slope * middle.astype(np.float64)
    return _off(values_s, line_s), line_s
