"""Logs of nccl-tests and rccl-tests (all_reduce_perf, all_gather_perf, …) as users have them.

Answers: which collective took how long for which message, on how many ranks and nodes, and is the log
consistent?
Elsewhere: fits to these logs (lab/calibration/collective_files.py).

A log may contain several runs, prefixes of mpirun or srun, lines of NCCL in between, and old or new
columns, and it may end anywhere. nccl-tests prints the size of the full array, as operators/messages.py
counts it: the gathered result of an all-gather, the full input of one rank of a reduce-scatter or
all-to-all, the sent data of a send-receive. If the column `count` shows that a log prints the share of
one rank (if count · element equals the size although the count is that of one rank), the size is
multiplied by the number of ranks.

Every row is checked: busbw must equal size / time times the share of the message that crosses a link
(cost/collectives/formulas.py), within 2 % and the rounding of its two decimals; the printed average must
be the average of the rows. Units: time in µs, rates in GB/s = 1e9 bytes/s. Sources:
github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/*.cu; github.com/ROCm/rccl-tests.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.errors import Problem, SpecError
from flopcast.files.unpacked import read_unpacked
from flopcast.lab.samples.columns import as_number
from flopcast.records import Record
from flopcast.units import Number

MOST_BYTES = 200_000_000
WORST_ERROR = 0.02
GB, US = 1e9, 1e-6
PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_receive",
}
ELEMENTS = {
    "int8": 1, "uint8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
SHARED = ("all_gather", "reduce_scatter", "all_to_all")  # whose count is one rank's
_PREFIX = re.compile(r"^\s*(?:\[[^\]]*\]\s*<std(?:out|err)>:?|\[\d+\]:?|\d+:)\s?")
_INNER = re.compile(r"\[\d+\](?=\s)")  # of a launcher that marks what each write brings, not each line
_PROGRAM = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
_RANK = re.compile(r"\bRank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?P[iI][dD]\s+\d+\s+on\s+(\S+)\s+device\s+\d+")
_AVERAGE = re.compile(r"\bAvg bus bandwidth\s*:\s*([\d.]+)")
_FAILED = re.compile(r"\bOut of bounds values\s*:\s*(\d+)\s+FAILED")
_HEADER = ("size", "count", "type")


class CollectiveRow(Record):
    """One message size of one run, either out of place or in place (the result replaces the input).

    `message_bytes` follows operators/messages.py; `ranks` and `nodes` are those of one group if a run was
    split into concurrent groups. `busbw_bytes_per_s` is the printed value, for the reader; `time_s` is
    the measured value.
    """

    collective: str
    message_bytes: float
    ranks: int
    nodes: int
    dtype: str
    in_place: bool
    time_s: float
    busbw_bytes_per_s: float
    line: int


class CollectiveLog(Record):
    """The usable rows, and the faults and doubts, each with its line."""

    rows: tuple[CollectiveRow, ...]
    problems: tuple[Problem, ...]


def read_nccl_tests(path: Path, collective: str = "") -> CollectiveLog:
    """Return the log of a file, plain or .gz.

    Parameters
    ----------
    collective : the measured collective, a name of `PROGRAMS`, if the file and its name do not state it

    Raises
    ------
    SpecError
        The file cannot be read, is too large for a log, or has no usable row.
    """
    try:
        text = read_unpacked(path, MOST_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise SpecError([_unusable(str(path), str(error), "check the path")]) from None
    in_name = next((name for name in PROGRAMS if name in path.name), "")
    return nccl_tests_log(text, path.name, collective or in_name)


def nccl_tests_log(text: str, name: str, collective: str = "") -> CollectiveLog:
    """Return the log of a text.

    Raises
    ------
    SpecError
        It has no usable row. The faults of its rows are also reported.
    """
    reading = _NcclState(name, PROGRAMS.get(collective, collective))
    for number, line in enumerate(text.splitlines(), start=1):
        reading.take(number, _INNER.sub(" ", _PREFIX.sub("", line)))
    reading.close()
    if not reading.rows:
        raise SpecError([*reading.problems, _unusable(name, "the file contains no usable row of results")])
    return CollectiveLog(rows=tuple(reading.rows), problems=tuple(reading.problems))


class _NcclState:
    """The state of reading. A run begins with its line "nThread", or with ranks that follow rows."""

    def __init__(self, name: str, collective: str) -> None:
        self.name, self.collective = name, collective
        self.rows: list[CollectiveRow] = []
        self.problems: list[Problem] = []
        self.devices: list[tuple[int, int, str]] = []  # rank, group, host
        self.columns: Sequence[str] = ()
        self.printed: list[Number] = []  # bus bandwidths of this run, as its average counts them
        self.open = False  # rows without their average yet

    def take(self, number: int, line: str) -> None:
        """Read one line."""
        words = line.replace("#", " # ", 1).split() if line.lstrip().startswith("#") else line.split()
        # a page that a log is pasted on may eat the mark
        entries = words[1:] if words[:1] == ["#"] else words
        if match := _PROGRAM.search(line):
            self.collective = PROGRAMS.get(match.group(1), match.group(1))
        if match := _RANK.search(line):
            self._device(int(match.group(1)), int(match.group(2) or 0), match.group(3))
        elif entries[:1] == ["nThread"]:
            self._run_begins()
        elif match := _AVERAGE.search(line):
            self._average(number, float(match.group(1)))
        elif match := _FAILED.search(line):
            because = "nccl-tests reports wrong results of the collective for this run"
            self._report(number, "Out of bounds values", match.group(1), "0", because, "measure again")
        elif tuple(entries[:3]) == _HEADER:
            self.columns = entries
        elif len(words) > 3 and words[0].isdecimal() and words[1].isdecimal() and words[2] in ELEMENTS:
            self._row(number, words)

    def close(self) -> None:
        """End the text or a run; rows without their average were truncated."""
        if self.open:
            because = (
                "the line 'Avg bus bandwidth' at the end of the run is missing, so rows of larger"
                " messages may be missing too"
            )
            self._report(
                0,
                "run",
                self.collective,
                "a whole run",
                because,
                "check that the log has all message sizes that you need",
            )
        self.open, self.printed = False, []

    def _run_begins(self) -> None:
        """Begin a run with new ranks and average; the collective and columns stay until they change."""
        self.close()
        if self.rows or not self.devices:
            self.devices = []

    def _device(self, rank: int, group: int, host: str) -> None:
        """Read a rank of the run; a rank that follows rows is the first rank of another run."""
        if self.printed:
            self.close()
            self.devices = []
        self.devices.append((rank, group, host))

    def _average(self, number: int, printed: Number) -> None:
        """End the rows of a run: their average must equal the printed one."""
        mean = sum(self.printed) / len(self.printed) if self.printed else 0.0
        if self.printed and abs(printed - mean) > WORST_ERROR * mean + 0.01:
            because = f"the mean of the rows is {mean:.2f} GB/s, so some rows are missing or were changed"
            self._report(
                number,
                "Avg bus bandwidth",
                printed,
                "the mean of the rows' busbw",
                because,
                "give the whole log",
            )
        self.open, self.printed = False, []

    def _row(self, number: int, words: Sequence[str]) -> None:
        columns = self.columns or DEFAULT_COLUMNS.get(len(words), ())
        if len(words) != len(columns):
            because = f"the row has {len(words)} entries for {len(columns)} columns, so it was truncated"
            self._report(number, "row", " ".join(words), "a whole row", because, "give the whole log")
            return
        self.open = True
        for in_place in (False, True):
            self._half(number, words, columns, in_place)

    def _half(self, number: int, words: Sequence[str], columns: Sequence[str], in_place: bool) -> None:
        """Read the out-of-place or the in-place half of a row; "N/A" means that it was not measured."""
        places = [place for place, name in enumerate(columns) if name == "time"]
        if len(places) <= in_place:
            return
        at = places[in_place]
        figures = [as_number(word) for word in words[at : at + 3]]
        wrong = words[at + 3] if at + 3 < len(words) else "N/A"
        if None in figures:
            return
        time_us, _, busbw = (figure or 0.0 for figure in figures)
        self.printed.append(busbw)
        if columns[at + 3 : at + 4] == ["#wrong"] and wrong not in ("0", "N/A"):
            because = (
                "nccl-tests reports wrong results for this row, so its time is not the time of a correct"
                " collective"
            )
            self._report(
                number,
                "#wrong",
                wrong,
                "0",
                because,
                "repair the network or the library, and measure again",
            )
        elif self._usable(number, words, time_us):
            size_bytes = self._message_bytes(words)
            self._check(number, words, (size_bytes, time_us, busbw))
            ranks, nodes = self._group()
            self.rows.append(
                CollectiveRow(
                    collective=self.collective,
                    message_bytes=size_bytes,
                    ranks=ranks,
                    nodes=nodes,
                    dtype=words[2],
                    in_place=in_place,
                    time_s=time_us * US,
                    busbw_bytes_per_s=busbw * GB,
                    line=number,
                )
            )

    def _usable(self, number: int, words: Sequence[str], time_us: Number) -> bool:
        """Return whether a row is consistent, else report its faults; 0 bytes show only the latency."""
        if words[0] == "0" or time_us <= 0:
            return False
        ranks = sorted(rank for rank, _, _ in self.devices)
        if self.collective not in PROGRAMS.values():
            because = (
                f"the log names {self.collective!r}" if self.collective else "the log names no collective"
            )
            fix = (
                "add --collective all_reduce, or name the file after the program, such as"
                " all_reduce_perf.log"
            )
            self._report(number, "collective", self.collective, ", ".join(PROGRAMS), because, fix)
        elif len(ranks) < 2:
            because = "the log has fewer than two lines '# Rank … device', one for each rank"
            self._report(number, "ranks", len(ranks), "at least 2", because, "give the log with its header")
        elif ranks != list(range(len(ranks))):
            because = (
                "a rank is listed twice or not at all: either each process ran its own test, or a part of"
                " the header is missing"
            )
            fix = "build nccl-tests with MPI=1, run it again, and give the whole log"
            self._report(number, "ranks", _few(ranks), "0, 1, 2, … each once", because, fix)
        else:
            return True
        return False

    def _group(self) -> tuple[int, int]:
        """Return the ranks and nodes of the first group, or of the whole job if it was not split."""
        first = min(group for _, group, _ in self.devices)
        hosts = [host for _, group, host in self.devices if group == first]
        return len(hosts), len(set(hosts))

    def _message_bytes(self, words: Sequence[str]) -> float:
        """Return the printed size, multiplied by the number of ranks if it is one rank's share."""
        size, count = int(words[0]), int(words[1])
        ranks, _ = self._group()
        is_share = self.collective in SHARED and ranks > 1 and count * ELEMENTS[words[2]] == size
        return float(size * ranks if is_share else size)

    def _check(self, number: int, words: Sequence[str], row: tuple[Number, Number, Number]) -> None:
        """Report a row whose bus bandwidth does not follow from its size and time."""
        size_bytes, time_us, busbw = row
        ranks, _ = self._group()
        bus_ratio = FORMULAS[self.collective].share(np.array(float(ranks))).item()
        expected = bus_ratio * size_bytes / (time_us * US) / GB
        if abs(busbw - expected) > WORST_ERROR * expected + 0.006:
            because = f"size and time imply {expected:.2f} GB/s for {self.collective} on {ranks} ranks"
            fix = "check that the header lists every rank and names the right program"
            self._report(
                number,
                "busbw",
                f"{busbw} of {' '.join(words[:3])}",
                "within 2 % of the value that follows from size and time",
                because,
                fix,
            )

    def _report(self, number: int, field: str, value: object, allowed: str, because: str, fix: str) -> None:
        """Report a fault with its line, unless the previous row already had it."""
        where = f"{self.name}:{number}" if number else self.name
        problem = Problem(field, value, allowed, because, fix, where=where)
        last = self.problems[-1] if self.problems else None
        if last is None or (last.field, last.value, last.because) != (field, value, because):
            self.problems.append(problem)


_HALF = ("time", "algbw", "busbw", "#wrong")
DEFAULT_COLUMNS: dict[int, Sequence[str]] = {  # by their number, where a log has lost its header
    11: (*_HEADER, *_HALF, *_HALF),
    12: (*_HEADER, "redop", *_HALF, *_HALF),
    13: (*_HEADER, "redop", "root", *_HALF, *_HALF),
}


WHOLE_LOG = "give the whole output of a program such as all_reduce_perf, with its header"


def _few(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, list(ranks)[:6])) + ", …"


def _unusable(value: str, because: str, fix: str = WHOLE_LOG) -> Problem:
    return Problem("log", value, "the output of nccl-tests or rccl-tests", because, fix)
