"""Traces of Nsight Systems, exported to SQLite (`nsys export --type sqlite`).

Answers: which kernels ran when, in which NVTX range were they launched, and in which step?
Elsewhere: classes and totals (lab/calibration/trace.py), samples (lab/calibration/traced_shapes.py).

Kernels have the ids of their names in StringIds; a launch (CUPTI_ACTIVITY_KIND_RUNTIME) with the same
process and correlation id gives the thread and the time; the innermost NVTX range of that thread at this
time is the operator. Ranges of torch's `emit_nvtx(record_shapes=True)` state the name, sequence number
and sizes: "aten::mm, seq = 7, op_id = 9, sizes = [[4096, 1024], [1024, 8]]". Ranges named like "step 12"
or "iteration12" are steps. Nsight does not record the sizes of NCCL's messages.

Tables exist only if something was recorded, and columns differ between versions (a kernel's process, the
id of a range's text). Missing columns are not queried. Times are nanoseconds. References: Nsight Systems,
"SQLite Export Schema Reference" (docs.nvidia.com/nsight-systems); the texts of ranges:
torch/csrc/profiler/standalone/nvtx_observer.cpp and util.cpp.
"""

import math
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from io import SEEK_END
from pathlib import Path

import numpy as np

from flopcast.errors import Problem, SpecError
from flopcast.files.inputs import opened, too_long
from flopcast.lab.calibration.trace import Trace, Words
from flopcast.lab.traces.columns import Launched, TracedSteps, traced
from flopcast.records import Record

MOST_BYTES = 1 << 36
S_PER_NS = 1e-9
KERNELS, LAUNCHES, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
COPIES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "memset"}
PUSH_POP, START_END = 59, 60  # NVTX event types
PROCESS_SHIFT = 24  # a global thread id is its process's, and 24 bits of the thread
_STEP = re.compile(
    r"(?:ProfilerStep#|(?:train(?:ing)?[_ ])?(?:step|iteration|iter)[ _#:]*)(\d+)$", re.IGNORECASE
)
_ENGINE = re.compile(r"autograd::engine::evaluate_function|backward", re.IGNORECASE)
_PART = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SIZES = re.compile(r", sizes = (\[.*?\])(?:, input_op_ids = .*)?$")
# start, end, name (the number of its text), device, queue, correlation and process of one event
Row = tuple[int, int, int, int, int, int, int]


class _Range(Record, kw_only=False):
    """One NVTX range of one thread; times are in nanoseconds."""

    start: int
    end: int
    text: str
    number: int


def read_nsys(path: Path) -> Trace:
    """Return the trace in a file, for the device that ran the most kernels. The file is opened read-only.

    Raises
    ------
    SpecError
        It does not exist, is not an SQLite database, is damaged, or holds no kernel.
    """
    try:
        with opened(path) as file:
            if file.seek(0, SEEK_END) > MOST_BYTES:
                raise OSError(too_long(MOST_BYTES))
    except OSError as error:
        raise SpecError([_fault(path, error.strerror or str(error), "check the path")]) from None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            return _trace(path, database)
    except sqlite3.Error as error:
        raise SpecError([_fault(path, str(error), "export it again: nsys export --type sqlite")]) from None


def _trace(path: Path, database: sqlite3.Connection) -> Trace:
    """Return kernels, copies, launches and ranges, joined."""
    tables = _tables(database)
    if missing := {KERNELS, "StringIds"} - tables.keys():
        because = f"the file has no table {' and '.join(sorted(missing))}"
        fix = "run nsys with --trace=cuda,nvtx, and export the new report"
        raise SpecError([_fault(path, because, fix)])
    if lacking := {"start", "end"} - tables[KERNELS]:
        raise SpecError(
            [_fault(path, f"{KERNELS} has no column {sorted(lacking)}", "export the report again")]
        )
    words = Words()
    rows = [*_kernels(database, tables[KERNELS], words)]
    for table, name in COPIES.items():
        rows += _activities(database, table, tables.get(table, set()), words.number(name))
    if not rows:
        raise SpecError(
            [
                _fault(
                    path, "the report contains no kernels", "profile a part of the run in which kernels run"
                )
            ]
        )
    ranges = _ranges(database, tables.get(RANGES, set()))
    launches = _launches(database, tables.get(LAUNCHES, set()), "globalPid" in tables[KERNELS])
    joined = _Joined(words, ranges, launches)
    return traced(path.name, joined.launched(rows), _steps(ranges), ())


def _tables(database: sqlite3.Connection) -> dict[str, set[str]]:
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')}
        for name in names
        if '"' not in name
    }


def _kernels(database: sqlite3.Connection, columns: set[str], words: Words) -> Iterator[Row]:
    """Yield kernels with their full name, or with the short one if an export has no other."""
    names = dict(database.execute("SELECT id, value FROM StringIds"))
    key = next((name for name in ("demangledName", "shortName", "mangledName") if name in columns), "0")
    for start, end, name, *rest in database.execute(_selected(KERNELS, columns, key)):
        yield (start, end, words.number(str(names.get(name, name))), *rest)


def _activities(database: sqlite3.Connection, table: str, columns: set[str], name: int) -> Iterator[Row]:
    """Yield copies and fills, all under one name; none if the table is absent."""
    if {"start", "end"} <= columns:
        for start, end, _, *rest in database.execute(_selected(table, columns, "0")):
            yield (start, end, name, *rest)


def _selected(table: str, columns: set[str], name: str) -> str:
    """Return the query of one table of activities, with 0 for columns that this version lacks."""
    wanted = ("deviceId", "streamId", "correlationId", "globalPid")
    rest = ", ".join(_whole(column) if column in columns else "0" for column in wanted)
    times = f"{_whole('start')}, {_whole('end')}"
    return f'SELECT {times}, {name}, {rest} FROM {table} WHERE "end" > start ORDER BY start'


def _whole(column: str) -> str:
    return f'COALESCE(CAST("{column}" AS INTEGER), 0)'


def _launches(
    database: sqlite3.Connection, columns: set[str], by_process: bool
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the thread and start of each launch, by process and correlation id.

    If kernels do not state their process, it is 0 for all. Ids of several processes may then collide, and
    the last one is used.
    """
    if not {"start", "globalTid", "correlationId"} <= columns:
        return {}
    wanted = ", ".join(_whole(column) for column in ("globalTid", "correlationId", "start"))
    query = f"SELECT {wanted} FROM {LAUNCHES} WHERE correlationId > 0"
    return {
        ((thread >> PROCESS_SHIFT) * by_process, correlation): (thread, start)
        for thread, correlation, start in database.execute(query)
    }


def _ranges(database: sqlite3.Connection, columns: set[str]) -> dict[int, list[_Range]]:
    """Return closed ranges by thread, ordered by start; their text is in the row or in StringIds."""
    if not {"start", "end", "globalTid"} <= columns:
        return {}
    named = [name for name, column in (("text", "text"), ("value", "textId")) if column in columns]
    text = f"COALESCE({', '.join([*named, repr('')])})" if named else "''"
    joined = "LEFT JOIN StringIds ON StringIds.id = textId" if "textId" in columns else ""
    kinds = f"AND eventType IN ({PUSH_POP}, {START_END})" if "eventType" in columns else ""
    query = (
        f"SELECT {_whole('globalTid')}, {_whole('start')}, {_whole('end')}, {text} FROM {RANGES} {joined}"
        f' WHERE "end" IS NOT NULL AND "end" > start {kinds} ORDER BY start, "end" DESC'
    )
    ranges: dict[int, list[_Range]] = defaultdict(list)
    for number, (thread, start, end, label) in enumerate(database.execute(query)):
        ranges[thread].append(_Range(start, end, str(label), number))
    return ranges


def _steps(ranges: Mapping[int, list[_Range]]) -> TracedSteps:
    """Return ranges that are named as steps; if a number occurs several times, its longest range counts."""
    longest: dict[int, _Range] = {}
    for one in (each for of_thread in ranges.values() for each in of_thread):
        if match := _STEP.match(one.text.strip()):
            number = int(match.group(1))
            before = longest.get(number)
            if before is None or one.end - one.start > before.end - before.start:
                longest[number] = one
    numbers = sorted(longest)
    return TracedSteps(
        number=np.array(numbers, dtype=np.intp),
        start_s=np.array([longest[n].start * S_PER_NS for n in numbers]),
        end_s=np.array([longest[n].end * S_PER_NS for n in numbers]),
    )


class _Joined(Record, eq=False, kw_only=False):
    """Kernels with the facts of their launches: the operator's range, the pass, the time."""

    words: Words
    ranges: Mapping[int, list[_Range]]
    launches: Mapping[tuple[int, int], tuple[int, int]]

    def launched(self, rows: list[Row]) -> Launched:
        """Return all rows as columns; the operator is the innermost named range that is not a step.

        Nsight Systems does not record dtypes, groups and message sizes, so they are marked as unknown.
        """
        around = self._around(rows)
        labels = [_label(stack) for stack in around]
        start_ns, end_ns, kernel, device, queue, _, _ = (
            np.array(column) for column in zip(*rows, strict=True)
        )
        moments = [self._launch(row) for row in rows]
        absent = np.zeros(len(rows), dtype=np.intp)
        unknown = np.full(len(rows), math.nan)
        return Launched(
            words=self.words,
            kernel=kernel,
            operator=np.array([self.words.number(name) for name, _, _ in labels]),
            shapes=np.array([self.words.number(shapes) for _, shapes, _ in labels]),
            dtypes=absent,
            group=absent,
            collective=absent,
            call=np.array([number for _, _, number in labels]),
            backward=np.array([_in_backward(stack) for stack in around]),
            queue=queue,
            device=device,
            start_s=start_ns * S_PER_NS,
            end_s=end_ns * S_PER_NS,
            launch_s=np.array([math.nan if moment is None else moment[1] * S_PER_NS for moment in moments]),
            message_bytes=unknown,
            ranks=unknown,
        )

    def _launch(self, row: Row) -> tuple[int, int] | None:
        """Return the thread and time of a kernel's launch."""
        return self.launches.get((row[6] >> PROCESS_SHIFT, row[5]))

    def _around(self, rows: list[Row]) -> list[tuple[_Range, ...]]:
        """Return the ranges around each kernel's launch, outermost first; empty without a known launch."""
        around: list[tuple[_Range, ...]] = [()] * len(rows)
        by_thread: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, row in enumerate(rows):
            if launch := self._launch(row):
                by_thread[launch[0]].append((launch[1], at))
        for thread, moments in by_thread.items():
            for at, stack in _stacks(sorted(moments), self.ranges.get(thread, [])):
                around[at] = stack
        return around


def _stacks(
    moments: Iterable[tuple[int, int]], ranges: list[_Range]
) -> Iterator[tuple[int, tuple[_Range, ...]]]:
    """Yield the ranges that are open at each moment, in order of time; ranges may overlap partly."""
    opened: list[_Range] = []
    place = 0
    for moment, at in moments:
        while place < len(ranges) and ranges[place].start <= moment:
            opened.append(ranges[place])
            place += 1
        opened = [one for one in opened if one.end >= moment]
        yield at, tuple(opened)


def _label(stack: tuple[_Range, ...]) -> tuple[str, str, int]:
    """Return operator, sizes and number of the innermost range that is not a step; else "", "", -1."""
    for one in reversed(stack):
        if one.text and not _STEP.match(one.text.strip()):
            sizes = _SIZES.search(one.text)
            return _PART.split(one.text, maxsplit=1)[0], sizes.group(1) if sizes else "", one.number
    return "", "", -1


def _in_backward(stack: tuple[_Range, ...]) -> int:
    """Return 1 if a surrounding range is of the backward pass, 0 if none is, -1 without a range."""
    if not stack:
        return -1
    return int(any(_ENGINE.search(one.text) for one in stack))


def _fault(path: Path, because: str, fix: str) -> Problem:
    return Problem("trace", str(path), "a report of Nsight Systems exported to SQLite", because, fix)
