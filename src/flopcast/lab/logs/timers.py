"""Timers in training logs: the duration of each part of a step on the fastest and the slowest rank.

Answers: how long did forward, backward, the reduction of gradients, the optimizer and the data loader take,
and in which steps? How long did checkpoints and evaluations take?
Elsewhere: printed steps (formats.py), the comparison of these parts with a prediction (lab/diagnosis).

Megatron-LM prints a block of lines after a step: "(min, max) time across ranks (ms):", "max time across
ranks (ms):", or "times across ranks (ms):" with a line for each rank, depending on `--timing-log-option`
(megatron/core/timers.py). Checkpoints and evaluations have separate blocks, and the time of an iteration
excludes them (megatron/training/training.py, `interval-time`). GPT-NeoX, older Megatron-LM and DeepSpeed
print "time (ms) | forward: 392.51 |". DeepSpeed reduces gradients inside its backward timer, and prints
zeros for timers that a pipeline does not use.
"""

import re
from array import array
from collections.abc import Iterable
from typing import Literal

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.lab.logs.formats import NUMBER, log_table, number
from flopcast.records import Record, field

Part = Literal[
    "data",
    "forward",
    "backward",
    "reducing_backward",  # with the reduction of gradients
    "passes",  # forward and backward, with the reduction of gradients and waiting for other stages
    "gradients",
    "further_gradients",  # of weights that ranks or stages share, after the others
    "parameters",
    "optimizer",
    "checkpoints",
    "evaluation",
]
PARTS: dict[str, Part] = {  # the timer's name, hyphens for blanks and underscores → the part of a step
    timer: part for part, timers in log_table()["timers"].items() for timer in timers.split()
}
OF_A_NEWER_RELEASE = "all-grads-sync"  # inside "forward-backward", and "params-all-gather" in "optimizer"
MOST_RECORDS = 1_000_000
WARM_UP_SHARE = 0.1
LONGEST_S = 1e6
_CUE = "across ranks (ms)"
_BLOCK = re.compile(r"^\s*(\(min, max\) time|max time|times) across ranks \(ms\)")
_PAIR = re.compile(rf"^\s+([a-z][\w-]*) \.+: \({NUMBER}, {NUMBER}\)")
_MOST = re.compile(rf"^\s+([a-z][\w-]*) \.+: {NUMBER}\s*$")
_NAME = re.compile(r"^\s+([a-z][\w-]*):\s*$")
_RANK = re.compile(rf"^\s+rank\s+(\d+): {NUMBER}\s*$")
_ROW = "time (ms) |"
_CELL = re.compile(rf"\s*([a-z][\w -]*?):\s*{NUMBER}\s*$")


class Timer(Record, eq=False):
    """The printed values of one timer; all arrays have shape (records,).

    `step` is the last step printed before the timer. `least_s` belongs to the fastest rank and `most_s`
    to the slowest; both are the same if the log holds one number. `slowest_rank` is the rank that was
    slowest most often, if the log prints every rank.
    """

    name: str
    part: Part
    step: Counts
    least_s: Floats
    most_s: Floats
    slowest_rank: int | None = None


class TimedPart(Record):
    """Median seconds of one part of a step. The fields have the same meaning as those of `Timer`."""

    name: str
    part: Part
    least_s: float
    most_s: float
    slowest_rank: int | None = None


def parts_in(timers: Iterable[Timer], steps: Counts) -> dict[Part, TimedPart]:
    """Return the parts that timers show in some steps. If several timers measure one part, the longest
    counts.

    Parameters
    ----------
    steps : numbers of steps, in any order; a timer that printed in none of them counts as a whole, without
        its first tenth
    """
    found: dict[Part, TimedPart] = {}
    for timer in timers:
        used = np.isin(timer.step, steps)
        if not used.any():
            used = np.arange(len(timer.step)) >= min(WARM_UP_SHARE * len(timer.step), len(timer.step) - 1)
        most_s = float(np.median(timer.most_s[used]))
        if timer.part not in found or found[timer.part].most_s < most_s:
            found[timer.part] = TimedPart(
                name=timer.name,
                part=timer.part,
                least_s=float(np.median(timer.least_s[used])),
                most_s=most_s,
                slowest_rank=timer.slowest_rank,
            )
    return found


class _Rows(Record, eq=False, frozen=False, kw_only=False):
    """One timer's values: steps, seconds of the fastest and of the slowest rank, the slowest rank."""

    step: "array[float]" = field(default_factory=lambda: array("d"))
    least: "array[float]" = field(default_factory=lambda: array("d"))
    most: "array[float]" = field(default_factory=lambda: array("d"))
    slowest: dict[int, int] = field(default_factory=dict)

    def keep(self, step: int, least_s: float, most_s: float) -> None:
        possible = 0.0 <= least_s <= most_s < LONGEST_S and most_s > 0.0
        if possible and len(self.step) < MOST_RECORDS:
            self.step.append(step)
            self.least.append(least_s)
            self.most.append(most_s)


class TimerState:
    """The timers of a log while it is read, line by line."""

    def __init__(self) -> None:
        """Start without timers."""
        self._rows: dict[str, _Rows] = {}
        self._in_block, self._step = False, 0
        self._name, self._ranks = "", dict[int, float]()

    def take(self, line: str, step: int) -> None:
        """Read one line of a log.

        Parameters
        ----------
        line : str
            Most lines hold no timer. They leave the state unchanged, except that they end a block.
        step : int
            The last printed step, to which the timers belong.
        """
        if _ROW in line:
            self._step = step
            for cell in line.partition(_ROW)[2].split("|"):
                if match := _CELL.match(cell):
                    self._keep(match[1], _seconds(match[2]), _seconds(match[2]))
        elif _CUE in line and _BLOCK.match(line):
            self._end_ranks()
            self._in_block, self._step = True, step
        elif self._in_block:
            self._take_in_block(line)

    def _take_in_block(self, line: str) -> None:
        """Read a line of a block, or end the block."""
        if pair := _PAIR.match(line):
            self._keep(pair[1], _seconds(pair[2]), _seconds(pair[3]))
        elif most := _MOST.match(line):
            self._keep(most[1], _seconds(most[2]), _seconds(most[2]))
        elif rank := _RANK.match(line):
            self._ranks[int(rank[1])] = _seconds(rank[2])
        elif name := _NAME.match(line):
            self._end_ranks()
            self._name = name[1]
        elif line.strip():
            self._end_ranks()
            self._in_block = False

    def _keep(self, name: str, least_s: float, most_s: float) -> _Rows | None:
        """Keep a timer with a known name; return the description of this timer."""
        known = re.sub(r"[ _]", "-", name)
        if known not in PARTS:
            return None
        rows = self._rows.setdefault(known, _Rows())
        rows.keep(self._step, least_s, most_s)
        return rows

    def _end_ranks(self) -> None:
        """Keep the ranks of the last timer that listed them."""
        if self._ranks:
            slowest = max(self._ranks, key=lambda rank: self._ranks[rank])
            rows = self._keep(self._name, min(self._ranks.values()), self._ranks[slowest])
            if rows is not None:
                rows.slowest[slowest] = rows.slowest.get(slowest, 0) + 1
        self._name, self._ranks = "", {}

    def timers(self) -> tuple[Timer, ...]:
        """Return every timer that printed a time."""
        self._end_ranks()
        return tuple(_timer(name, rows) for name, rows in self._rows.items() if rows.step)


def _seconds(text: str) -> float:
    return 1e-3 * number(text)


def _timer(name: str, rows: _Rows) -> Timer:
    slowest = max(rows.slowest, key=lambda rank: rows.slowest[rank]) if rows.slowest else None
    step, least_s, most_s = (np.array(column) for column in (rows.step, rows.least, rows.most))
    return Timer(
        name=name, part=PARTS[name], step=step, least_s=least_s, most_s=most_s, slowest_rank=slowest
    )
