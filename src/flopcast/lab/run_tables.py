"""Reader of tables of measured runs, which are recognised by their headers.

Answers: does a file hold this table, and which runs does it contain?
Elsewhere: the tables of each kind and their scores (measured_tables.py), one file for each table
(serving_runs/, offload_runs/, graph_runs/), tables of training runs (published/table.py).
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from flopcast.errors import FlopcastError
from flopcast.files.unpacked import read_unpacked
from flopcast.files.yaml_text import read_yaml
from flopcast.records import Record

Row = Mapping[str, str]
Run = TypeVar("Run")
MOST_BYTES = 2**28  # of a table when unpacked


class ReadOptions(Record):
    """The inputs of a reader in addition to the file.

    `fitted` states whether machines have the rates that were fitted to their runs, or those of data
    sheets; `measured_on` holds facts that a table of graphs does not state itself (`TableFacts` of
    graph_runs/timm.py).
    """

    fitted: bool = True
    measured_on: object = None


USUAL = ReadOptions()


class RunTable(Record, Generic[Run], eq=False, slots=False):
    """One table: the columns that identify it, and the conversion of its rows to runs.

    `fits` states whether rows belong to this table if another table has the same columns.
    """

    header: tuple[str, ...]
    runs_of: Callable[[Path, Sequence[Row], ReadOptions], Iterable[Run]]
    fits: Callable[[Sequence[Row]], bool] | None = None

    def holds(self, path: Path) -> bool:
        """Return whether a file holds this table; False if it cannot be read."""
        try:
            with opened(path) as file:
                rows = csv.DictReader(file)
                is_this = set(rows.fieldnames or ()).issuperset(self.header)
                return is_this and (self.fits is None or self.fits(list(rows)))
        except (OSError, UnicodeDecodeError, EOFError, csv.Error):
            return False

    def read(self, path: Path, options: ReadOptions = USUAL) -> tuple[Run, ...]:
        """Return the runs of a file, in its order."""
        with opened(path) as file:
            return tuple(self.runs_of(path, list(csv.DictReader(file)), options))


class RunBlocks(Record, Generic[Run], eq=False, slots=False):
    """A YAML file with blocks of columns and rows: which data are blocks, and which runs they hold."""

    blocks_of: Callable[[Any], Sequence[Any]]
    runs_of: Callable[[Sequence[Any]], Iterable[Run]]

    def holds(self, path: Path) -> bool:
        """Return whether a file has such blocks; False if it cannot be read."""
        return bool(self._blocks(path))

    def read(self, path: Path, _options: ReadOptions = USUAL) -> tuple[Run, ...]:
        """Return the runs of a file, in its order."""
        return tuple(self.runs_of(self._blocks(path)))

    def _blocks(self, path: Path) -> Sequence[Any]:
        if path.suffix not in (".yaml", ".yml"):
            return ()
        try:
            return self.blocks_of(read_yaml(read_unpacked(path, MOST_BYTES), str(path)).data)
        except (OSError, FlopcastError):
            return ()


def by_row(run_of: Callable[[Row], Run]) -> Callable[[Path, Sequence[Row], ReadOptions], Iterable[Run]]:
    """Return a reader for a table with one run per row."""
    return lambda _path, rows, _options: (run_of(row) for row in rows)


def opened(path: Path) -> IO[str]:
    """Return the text of a table, plain or compressed.

    Raises
    ------
    OSError
        It is not a regular file, cannot be read, or has more than MOST_BYTES.
    """
    return io.StringIO(read_unpacked(path, MOST_BYTES).decode(), newline="")
