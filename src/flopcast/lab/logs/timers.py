"""Timers in training logs: how long each part of a step took, on the fastest and the slowest rank.

Answers: how long did forward, backward, the reduction of gradients, the optimizer and the data loader take?
Elsewhere: printed steps (formats.py), the comparison of these parts with a prediction (lab/diagnosis).

Megatron-LM prints a block of lines behind a step: "(min, max) time across ranks (ms):", "max time across
ranks (ms):", or "times across ranks (ms):" with a line for each rank, as `--timing-log-option` says
(megatron/core/timers.py). GPT-NeoX, older Megatron-LM and DeepSpeed print "time (ms) | forward: 392.51 |".
"""

import re
from array import array
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from flopcast.lab.logs.formats import NUMBER, number

Part = Literal["data", "forward", "backward", "passes", "gradients", "parameters", "optimizer"]
PARTS: dict[str, Part] = {  # the timer's name, hyphens for blanks and underscores → the part of a step
    "batch-generator": "data",
    "batch-input": "data",
    "forward-compute": "forward",
    "forward": "forward",
    "backward-compute": "backward",
    "backward": "backward",
    "forward-backward": "passes",  # both, with the reduction of gradients and waiting for other stages
    "all-grads-sync": "gradients",
    "grads-all-reduce": "gradients",
    "grads-reduce-scatter": "gradients",
    "backward-params-all-reduce": "gradients",
    "backward-allreduce": "gradients",
    "params-all-gather": "parameters",
    "optimizer": "optimizer",
}
MOST_RECORDS = 1_000_000
WARM_UP_SHARE = 0.1
LONGEST_S = 1e6
_BLOCK = re.compile(r"^\s*(\(min, max\) time|max time|times) across ranks \(ms\)")
_PAIR = re.compile(rf"^\s+([a-z][\w-]*) \.+: \({NUMBER}, {NUMBER}\)")
_MOST = re.compile(rf"^\s+([a-z][\w-]*) \.+: {NUMBER}\s*$")
_NAME = re.compile(r"^\s+([a-z][\w-]*):\s*$")
_RANK = re.compile(rf"^\s+rank\s+(\d+): {NUMBER}\s*$")
_ROW = "time (ms) |"
_CELL = re.compile(rf"\s*([a-z][\w -]*?):\s*{NUMBER}\s*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedPart:
    """Seconds of one part of a step: medians over the printed steps without the first tenth.

    `least_s` is of the fastest rank and `most_s` of the slowest; both are the same where the log holds one
    number. `slowest_rank` is the rank that was slowest most often, if the log prints every rank.
    """

    part: Part
    least_s: float
    most_s: float
    num_records: int
    slowest_rank: int | None = None


@dataclass(eq=False, slots=True)
class _Rows:
    """What one timer printed: seconds of the fastest and the slowest rank; how often each was slowest."""

    least: "array[float]" = field(default_factory=lambda: array("d"))
    most: "array[float]" = field(default_factory=lambda: array("d"))
    slowest: dict[int, int] = field(default_factory=dict)

    def keep(self, least_s: float, most_s: float) -> None:
        if 0.0 <= least_s <= most_s < LONGEST_S and len(self.least) < MOST_RECORDS:
            self.least.append(least_s)
            self.most.append(most_s)


class TimerState:
    """The timers of a log while it is read, line by line."""

    def __init__(self) -> None:
        """Begin without timers."""
        self._rows: dict[str, _Rows] = {}
        self._in_block = False
        self._name, self._ranks = "", dict[int, float]()

    def take(self, line: str) -> None:
        """Read a line; most lines hold no timer."""
        if _ROW in line:
            for cell in line.partition(_ROW)[2].split("|"):
                if match := _CELL.match(cell):
                    self._keep(match[1], _seconds(match[2]), _seconds(match[2]))
        elif _BLOCK.match(line):
            self._end_ranks()
            self._in_block = True
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
        """Keep a timer of a known name; return what is known of it."""
        known = re.sub(r"[ _]", "-", name)
        if known not in PARTS:
            return None
        rows = self._rows.setdefault(known, _Rows())
        rows.keep(least_s, most_s)
        return rows

    def _end_ranks(self) -> None:
        """Keep the ranks of the last timer that listed them."""
        if self._ranks:
            slowest = max(self._ranks, key=lambda rank: self._ranks[rank])
            rows = self._keep(self._name, min(self._ranks.values()), self._ranks[slowest])
            if rows is not None:
                rows.slowest[slowest] = rows.slowest.get(slowest, 0) + 1
        self._name, self._ranks = "", {}

    def parts(self) -> tuple[TimedPart, ...]:
        """Return the parts that were timed; of several timers of one part, the longest counts."""
        self._end_ranks()
        found: dict[Part, TimedPart] = {}
        for name, rows in self._rows.items():
            if rows.least:
                part = _timed(PARTS[name], rows)
                if part.part not in found or found[part.part].most_s < part.most_s:
                    found[part.part] = part
        return tuple(found.values())


def _seconds(text: str) -> float:
    return 1e-3 * number(text)


def _timed(part: Part, rows: _Rows) -> TimedPart:
    first = min(int(np.ceil(WARM_UP_SHARE * len(rows.least))), len(rows.least) - 1)
    slowest = max(rows.slowest, key=lambda rank: rows.slowest[rank]) if rows.slowest else None
    return TimedPart(
        part=part,
        least_s=float(np.median(rows.least[first:])),
        most_s=float(np.median(rows.most[first:])),
        num_records=len(rows.least) - first,
        slowest_rank=slowest,
    )
