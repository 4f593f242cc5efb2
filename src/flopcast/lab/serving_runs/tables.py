"""Tables of measured serving, recognised by their headers.

Answers: which runs does a file hold?
Elsewhere: the rows of each table (aiconfigurator.py), how well they are predicted (score.py).
"""

import csv
import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, cast

from flopcast.lab.serving_runs import aiconfigurator
from flopcast.lab.serving_runs.measured import ServingRun

Reader = Callable[[Mapping[str, str]], ServingRun]
READERS: dict[tuple[str, ...], Reader] = {aiconfigurator.HEADER: aiconfigurator.run_of}


def is_serving_table(path: Path) -> bool:
    """Return whether a file's first line is the header of a table of serving."""
    return _reader(path) is not None


def read_serving_runs(path: Path) -> tuple[ServingRun, ...]:
    """Return the runs of a table, in its order."""
    reader = _reader(path)
    if reader is None:
        return ()
    with _opened(path) as file:
        return tuple(reader(row) for row in csv.DictReader(file))


def _reader(path: Path) -> Reader | None:
    try:
        with _opened(path) as file:
            columns = set(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, EOFError, csv.Error):
        return None
    return next((reader for header, reader in READERS.items() if columns.issuperset(header)), None)


def _opened(path: Path) -> IO[str]:
    """Open a table as text, plain or packed."""
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")
