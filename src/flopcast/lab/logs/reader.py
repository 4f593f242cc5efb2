"""Reader of training logs: converts a text, or a file of any length, to a Log.

Answers: which steps and which memory did this run print, and what does it state about its job? If nothing
can be read, why not?
Elsewhere: the content of a line (formats.py, facts.py), which steps are steady (log.py), the comparison
with a prediction (prediction_check.py).

Files are read line by line; the reader keeps eight numbers per printed step, for at most MOST_RECORDS
steps, and four numbers per rank. Colours and carriage returns are removed. A last line without a line end
may be incomplete, so its last word is not read, except in a table of steps. If several ranks print steps,
the reader follows the rank that prints the most. A step printed twice in a row counts once; a falling step
number is a restart.
"""

import io
import math
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import IO

import numpy as np

from flopcast.errors import Problem, SpecError, told_as
from flopcast.files.inputs import Bounded
from flopcast.files.unpacked import unpacked
from flopcast.lab.logs.facts import (
    facts_of_line,
    memory_of_line,
    rank_inside,
    recompute_of_line,
    split_rank,
)
from flopcast.lab.logs.formats import FORMATS, NUM_STEPS, RUNTIME, TABLE, Fields
from flopcast.lab.logs.log import Log, LoggedSteps, RankMemory, SkippedRow
from flopcast.lab.logs.table import columns_of, row_of, wrong_cells
from flopcast.lab.logs.timers import TimerState
from flopcast.records import replace

MOST_SHOWN = 40  # characters of a wrong text in an error
MOST_RECORDS = 1_000_000
MOST_EVENTS = 10_000
MOST_SKIPPED = 100  # skipped steps that are kept, and wrong cells that are reported
CHUNK_BYTES = 1 << 20
MOST_BYTES = 1 << 32
MOST_LINE_BYTES = 1 << 16  # the start of a longer line is passed over
MOST_UNBROKEN_BYTES = 1 << 26
LIMITS = (1e-12, 1e24)  # seconds, rates and counts of any step, in SI units
LONGEST_STEP_S = 1e7  # four months
NAMES = tuple(field.name for field in fields(LoggedSteps))
UNLABELLED = -1
_ENDS = re.compile(rb"([\r\n]+)")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SAVES = re.compile(r"\bsav(?:ing|ed?)\b.{0,40}\bcheckpoint", re.IGNORECASE)
_EVALUATES = re.compile(
    r"\b(?:validation|eval(?:uation)?)[ _](?:loss|results?)|^\s*evaluating\b", re.IGNORECASE
)
_HINTS = ("step", "iter", "loss", "tokens", "samples", "elapsed", "time", "flops", "s/it")


def read_log(text: str, name: str) -> Log:
    """Return the log in a text.

    Parameters
    ----------
    text : the text that a framework printed, from one or all ranks
    name : the log's name in faults and reports

    Raises
    ------
    SpecError
        The text is empty, is not text, holds no line of a known format, or holds only lines with unusable
        numbers.
    """
    start = text.strip()[:MOST_SHOWN]
    with told_as(lambda problem: replace(problem, value=start) if problem.value == name else problem):
        return _read(_lines(io.BytesIO(text.encode("utf-8", errors="replace"))), name)


def read_log_file(path: Path) -> Log:
    """Read a log from a plain or .gz file in bounded memory, like `read_log`.

    Raises
    ------
    SpecError
        As for `read_log`; or the file is not a regular file, cannot be read, is damaged, or has more than
        MOST_BYTES or a line of more than MOST_UNBROKEN_BYTES.
    """
    try:
        with unpacked(path, MOST_BYTES) as file:
            return _read(_lines(file), path.name, str(path))
    except OSError as error:
        allowed = "a file that exists and may be read"
        fix = "check the path"
        if path.is_file():
            fix = "make the file readable, or give only the part of the log that contains steps"
        raise SpecError([_fault(str(path), allowed, str(error), fix)]) from None


def _lines(file: IO[bytes] | Bounded) -> Iterator[tuple[int, str]]:
    """Yield lines without line ends and colours, and their numbers from 1.

    The last word of an unfinished last line is removed, except in a table. A carriage return ends a line
    but does not increase the number.

    Raises
    ------
    OSError
        A line is longer than MOST_UNBROKEN_BYTES.
    """
    rest, unbroken_bytes, number, is_table = b"", 0, 1, False
    while chunk := file.read(CHUNK_BYTES):
        *whole, rest = _ENDS.split(rest + chunk)
        unbroken_bytes = len(rest) if whole else unbroken_bytes + len(chunk)
        if unbroken_bytes > MOST_UNBROKEN_BYTES:
            raise OSError(f"a line is longer than {MOST_UNBROKEN_BYTES} bytes, so the file is not a log")
        rest = rest if len(rest) <= MOST_LINE_BYTES else b""
        for line, ends in zip(whole[::2], whole[1::2], strict=True):
            is_table = is_table or (number == 1 and bool(columns_of(_plain(line))))
            yield number, _plain(line)
            number += ends.count(b"\n")
    yield number, _plain(rest) if is_table else "".join(_plain(rest).rsplit(None, 1)[:-1])


def _plain(raw: bytes) -> str:
    """Return text without colours; bytes that are not UTF-8 become a replacement character."""
    text = raw.decode("utf-8", errors="replace")
    return _COLOUR.sub("", text) if "\x1b" in text else text


class _LogState:
    """The state of reading a log, the only mutable object of this module."""

    def __init__(self) -> None:
        self.rows: dict[str, array[float]] = {name: array("d") for name in FORMATS}
        self.pending: dict[tuple[str, int], Fields] = {}
        self.num_bad = dict.fromkeys(FORMATS, 0)
        self.memory: dict[int, dict[str, float]] = {}
        self.facts: dict[str, int] = {}
        self.recompute: str | None = None
        self.timers = TimerState()
        self.columns: tuple[tuple[str, float], ...] = ()  # of a table of steps, after its header
        self.header = ""
        self.skipped: list[SkippedRow] = []
        self.wrong: list[tuple[int, str, str, str]] = []  # line, column, cell and number of wrong cells
        self.cues = [(cue, name, known) for name, known in FORMATS.items() for cue in known.cues]
        self.saved_after: dict[float, None] = {}
        self.evaluated_after: dict[float, None] = {}
        self.nearest, self.nearest_score, self.last_step = "", 0, 0.0
        self.num_lines, self.number = 0, 1
        self.nearest_number = self.bad_number = self.binary_number = 0  # 0: there is no such line

    def take(self, number: int, line: str) -> None:
        """Read one line: a step, or otherwise memory and facts, which may share a line.

        Parameters
        ----------
        number : int
            Number of the line in the file, for messages.
        line : str
            The line without colours, with the label of its rank if there is one.
        """
        self.number = number
        self.num_lines += bool(line.strip())
        if "\0" in line and not self.binary_number:
            self.binary_number = number
        labelled, line = split_rank(line)
        self.facts |= facts_of_line(line)
        self.recompute = recompute_of_line(line) or self.recompute
        if sizes := memory_of_line(line):
            self._keep_memory(labelled if (rank := rank_inside(line)) is None else rank, sizes)
        is_step = self._take_step(labelled, line)
        self.timers.take(line, int(self.last_step))
        if not is_step:
            self._note_event(line)
            self._remember_nearest(line)

    def _take_step(self, labelled: int | None, line: str) -> bool:
        """Read a line of a step; return whether the line is one."""
        if is_first := self.num_lines == 1 and not self.columns:
            self.columns, self.header = columns_of(line), line
        elif self.columns and (wrong := [*wrong_cells(line, self.header, self.columns)]):
            self.wrong += [(self.number, *each) for each in wrong[: MOST_SKIPPED - len(self.wrong)]]
            return True
        elif self.columns and (numbers := row_of(line, self.columns)):
            self._keep_step(TABLE, UNLABELLED, numbers, line)
            return True
        for cue, name, known in self.cues:
            if cue in line and (line_read := known.read(line)):
                key = (name, UNLABELLED if labelled is None else labelled)
                pending = self.pending.pop(key, {}) | line_read.fields
                if line_read.complete:
                    self._keep_step(*key, pending, line)
                else:
                    self.pending[key] = pending
                return True
        if self.columns and line.strip() and not columns_of(line) and not is_first:
            self._skip(TABLE, line, f"one of the {len(self.columns)} columns of the row has no number")
        return False

    def _note_event(self, line: str) -> None:
        """Remember the last step before a line about a checkpoint or an evaluation."""
        for rule, steps in ((_SAVES, self.saved_after), (_EVALUATES, self.evaluated_after)):
            if len(steps) < MOST_EVENTS and rule.search(line):
                steps[self.last_step] = None

    def _keep_memory(self, rank: int | None, sizes: dict[str, float]) -> None:
        kept = self.memory.setdefault(UNLABELLED if rank is None else rank, {})
        for name, size in sizes.items():
            kept[name] = max(size, kept.get(name, 0.0))

    def _skip(self, name: str, line: str, because: str) -> None:
        self.num_bad[name] += 1
        self.bad_number = self.bad_number or self.number
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(SkippedRow(self.number, line.strip()[:MOST_SHOWN], because))

    def _keep_step(self, name: str, rank: int, numbers: Fields, line: str) -> None:
        """Keep a record if its numbers are within LIMITS and no time is zero; a zero rate is missing."""
        rows = self.rows[name]
        if numbers.get(NUM_STEPS) and RUNTIME in numbers:
            numbers["step_time_s"] = numbers[RUNTIME] / numbers[NUM_STEPS]
        wrong = [key for key, value in numbers.items() if value != 0 and not LIMITS[0] < value < LIMITS[1]]
        if wrong or not 0 < numbers.get("step_time_s", 1.0) < LONGEST_STEP_S:
            key = wrong[0] if wrong else "step_time_s"
            state = "is missing or not finite" if not math.isfinite(numbers[key]) else "is impossible"
            self._skip(name, line, f"{key.replace('_', ' ').removesuffix(' s')} {state}")
        elif len(rows) < MOST_RECORDS * (1 + len(NAMES)):
            counted = {"step": len(rows) / (1 + len(NAMES)) + 1}  # where steps have no number
            known = counted | {key: value for key, value in numbers.items() if value or key == "step"}
            self.last_step = known["step"]
            rows.append(float(rank))
            rows.extend(known.get(field, math.nan) for field in NAMES)

    def _remember_nearest(self, line: str) -> None:
        """Keep the line that resembles a step most, and show it if no step is found."""
        if not any(self.rows.values()):
            low = line[:1000].lower()
            score = sum(hint in low for hint in _HINTS) * any(letter.isdigit() for letter in low)
            if score > self.nearest_score:
                self.nearest, self.nearest_score = line.strip()[:160], score
                self.nearest_number = self.number


def _read(lines: Iterable[tuple[int, str]], name: str, place: str = "") -> Log:
    reading = _LogState()
    for each in lines:
        reading.take(*each)
    faults = [_wrong_cell(place or name, *each) for each in reading.wrong]
    framework = next((one for one, rows in reading.rows.items() if rows), TABLE)
    if not (num_good := len(reading.rows[framework]) // (1 + len(NAMES))) and not faults:
        raise SpecError([_nothing(reading, place or name)])
    if faults or reading.num_bad[framework] > num_good:
        raise SpecError([*faults, *(_bad_row(place or name, each) for each in reading.skipped)])
    rows = np.array(reading.rows[framework]).reshape(-1, 1 + len(NAMES))
    kept = _followed(rows)
    facts = reading.facts
    if framework == "deepspeed-profiler" and {"micro_batch", "data_parallel"} <= facts.keys():
        facts["global_batch"] = facts["micro_batch"] * facts["data_parallel"]  # it times one micro-batch
    return Log(
        name=name,
        framework=framework,
        steps=LoggedSteps(**{field: kept[:, 1 + place] for place, field in enumerate(NAMES)}),
        memory=tuple(
            RankMemory(rank=None if rank == UNLABELLED else rank, **sizes)
            for rank, sizes in sorted(reading.memory.items())
        ),
        **{name: size for name, size in facts.items() if name != "data_parallel"},
        recompute=reading.recompute,
        num_bad=reading.num_bad[framework],
        skipped=tuple(reading.skipped),
        num_repeated=len(rows) - len(kept),
        timers=reading.timers.timers(),
        saved_after=tuple(reading.saved_after),
        evaluated_after=tuple(reading.evaluated_after),
    )


def _followed(rows: np.ndarray) -> np.ndarray:
    """Return the records of the rank that printed the most (the lowest rank if several did), without
    repeated steps.

    Parameters
    ----------
    rows : (records, 1 + fields)
        Rank, then the fields of Steps, with the step's number first.
    """
    ranks, counts = np.unique(rows[:, 0], return_counts=True)
    mine: np.ndarray = rows[rows[:, 0] == ranks[np.argmax(counts)]]
    new: np.ndarray = mine[np.concatenate([[True], np.diff(mine[:, 1]) != 0])]
    return new


def _wrong_cell(name: str, number: int, column: str, cell: str, right: str) -> Problem:
    """Return the fault of a text where a table of steps has a number."""
    fix = f"write {right}" if right else "write the number of this step, or remove the row"
    because = f"the column {column} holds numbers without a unit"
    return replace(_fault(name, "numbers", because, fix, number), field=f"log: {column}", value=cell)


def _bad_row(name: str, row: SkippedRow) -> Problem:
    """Return the fault of an unusable row of a log that has other faults or hardly any usable row."""
    allowed = "a step with a time above 0"
    fault = _fault(name, allowed, row.because, "write the measured numbers, or remove the row", row.line)
    return replace(fault, value=row.text)


def _nothing(reading: _LogState, name: str) -> Problem:
    """Return why no step was found: an empty log, no text, unusable numbers, or an unknown format."""
    if not reading.num_lines:
        because = "the log is empty, or has no complete line"
        fix = "give the lines that the run printed for its steps, each with its line end"
        return _fault(name, "a log with printed steps", because, fix, 1)
    allowed = "a training log in one of these formats:\n" + "\n".join(
        f"    {one}: {known.example}" for one, known in FORMATS.items()
    )
    bad = sum(reading.num_bad.values())
    if bad:
        because = f"each of the {bad} printed steps has a negative, infinite or nan value"
        fix, number = "give the log of a run whose training steps succeeded", reading.bad_number
        return _fault(name, "a log with times above 0", because, fix, number)
    if reading.binary_number:
        because, fix = "the file is not text: this line contains a zero byte", "give the log as UTF-8 text"
        return _fault(name, allowed, because, fix, reading.binary_number)
    nearest = f"; the most similar line is: {reading.nearest}" if reading.nearest else ""
    if reading.columns:
        because = "every row below the header lacks a number in one of these columns"
        allowed = "a table with the number and the time of each step"
        return _fault(name, allowed, because, "write numbers there", 2)
    if name.endswith(".csv"):
        because = "the header has no column with one of these names, which state the unit of the step time"
        allowed = "a table with a column seconds, milliseconds, step_time_s or step_time_ms"
        fix = "in the header, write seconds or milliseconds in place of the name of this column"
        if re.search(r"min|hour", reading.header):
            fix = "convert the times to seconds, and call their column seconds in the header"
        return _fault(name, allowed, because, fix, 1)
    because = f"no line of the file describes a training step{nearest}"
    fix = 'write the steps to a CSV file: first the line "step,seconds", then lines such as "10,7.05"'
    fix += ", or give the output of the rank that prints steps, which is often the last rank"
    return _fault(name, allowed, because, fix, reading.nearest_number or 1)


def _fault(value: str, allowed: str, because: str, fix: str, number: int = 0) -> Problem:
    where = f"{value}:{number}" if number else ""
    return Problem("log", value, allowed, because, fix, where=where)
