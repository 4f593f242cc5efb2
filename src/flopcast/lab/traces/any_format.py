"""Traces of any known profiler.

Answers: which reader does a trace file need?
Elsewhere: the readers (kineto.py, nsys.py).
"""

from pathlib import Path

from flopcast.lab.calibration.trace import Trace
from flopcast.lab.traces.kineto import read_kineto
from flopcast.lab.traces.nsys import read_nsys

DATABASES = (".sqlite", ".sqlite3", ".db")


def read_trace(path: Path) -> Trace:
    """Read a trace: a file with a suffix of SQLite comes from Nsight Systems, and any other file from
    torch.profiler.

    Raises
    ------
    SpecError
        As for `read_kineto` and `read_nsys`.
    """
    return (read_nsys if path.suffix in DATABASES else read_kineto)(path)
