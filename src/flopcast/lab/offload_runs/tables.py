"""Tables of measured runs with states outside the devices, recognised by their headers.

Answers: which runs does a file hold?
Elsewhere: the rows of each table (one file a table), how well they are predicted (score.py).
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

from flopcast.lab.offload_runs import nvme, zero3
from flopcast.lab.offload_runs.measured import OffloadRun

RunOf = Callable[[Mapping[str, str], bool], OffloadRun]
READERS: Mapping[tuple[str, ...], RunOf] = {zero3.HEADER: zero3.run_of, nvme.HEADER: nvme.run_of}


def is_offload_table(path: Path) -> bool:
    """Return whether a file's first line is the header of a table of offloaded training."""
    return _reader(path) is not None


def read_offload_runs(path: Path, fitted: bool = True) -> tuple[OffloadRun, ...]:
    """Return the runs of a table, in its order, on machines with fitted rates or those of data sheets."""
    run_of = _reader(path)
    if run_of is None:
        return ()
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(run_of(row, fitted) for row in csv.DictReader(file))


def _reader(path: Path) -> RunOf | None:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns = set(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return next((run_of for header, run_of in READERS.items() if columns.issuperset(header)), None)
