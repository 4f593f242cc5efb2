"""Tables of measured serving, recognised by their headers or columns.

Answers: which runs does a file hold?
Elsewhere: the rows of each table (one file a table), how well they are predicted (score.py).
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flopcast.lab.serving_runs import aiconfigurator, apex, mlenergy, mlperf, offloads, replays
from flopcast.lab.serving_runs.measured import ServingRun, opened

Rows = Iterable[Mapping[str, str]]
Reader = Callable[[Path, Rows], tuple[ServingRun, ...]]


def _by_row(run_of: Callable[[Mapping[str, str]], ServingRun]) -> Reader:
    """Return the reader of a table that has a run in each row."""
    return lambda _, rows: tuple(run_of(row) for row in rows)


READERS: dict[tuple[str, ...], Reader] = {
    aiconfigurator.HEADER: _by_row(aiconfigurator.run_of),
    mlenergy.HEADER: _by_row(mlenergy.run_of),
    mlperf.HEADER: _by_row(mlperf.run_of),
    apex.HEADER: apex.runs_of,
    replays.HEADER: replays.runs_of,
}


def is_serving_table(path: Path) -> bool:
    """Return whether a file's first line is the header of a table of serving."""
    return _reader(path) is not None or _is_list_of_blocks(path)


def read_serving_runs(path: Path) -> tuple[ServingRun, ...]:
    """Return the runs of a table, in its order."""
    reader = _reader(path)
    if reader is None:
        return offloads.runs_of_blocks(path) if _is_list_of_blocks(path) else ()
    with opened(path) as file:
        return reader(path, csv.DictReader(file))


def _is_list_of_blocks(path: Path) -> bool:
    """Return whether a file is YAML with blocks of measured rates (offloads.py)."""
    return path.suffix in (".yaml", ".yml") and bool(offloads.blocks_of(path))


def _reader(path: Path) -> Reader | None:
    try:
        with opened(path) as file:
            columns = set(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, EOFError, csv.Error):
        return None
    return next((reader for header, reader in READERS.items() if columns.issuperset(header)), None)
