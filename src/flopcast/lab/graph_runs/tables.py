"""Tables of measured models that are no decoders, recognised by their headers.

Answers: which runs does a file hold?
Elsewhere: the rows of each table (timm.py), how well they are predicted (score.py).
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.lab.graph_runs import timm
from flopcast.lab.graph_runs.measured import GraphRun
from flopcast.lab.serving_runs.measured import opened

Rows = list[dict[str, str]]
Reader = Callable[[Path, Rows, "timm.TableFacts | None"], tuple[GraphRun, ...]]


def _of_timm(path: Path, rows: Rows, given: timm.TableFacts | None) -> tuple[GraphRun, ...]:
    table = given or timm.table_facts(path)
    if table is None:
        devices = ", ".join(timm.DEVICES)
        raise spec_error(
            "--runs",
            str(path),
            f"a name such as timm_benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv; devices: {devices}",
            "the columns of the table do not say device, precision and software",
            "change the name of the file, or add --device and --precision",
        )
    name = path.name.split(".", 1)[0].removeprefix("timm_benchmark-")
    return tuple(timm.runs_of(table, name, rows))


READERS: Mapping[tuple[str, ...], Reader] = {timm.INFERENCE: _of_timm, timm.TRAINING: _of_timm}


def is_graph_table(path: Path) -> bool:
    """Return whether a file's first line is the header of a table of graphs."""
    return _reader(path) is not None


def read_graph_runs(path: Path, given: timm.TableFacts | None = None) -> tuple[GraphRun, ...]:
    """Return the runs of a table, in its order; `given` stands in for what the file's name says.

    Raises
    ------
    SpecError
        Neither the name of the file nor `given` says on what the runs were measured.
    """
    reader = _reader(path)
    if reader is None:
        return ()
    with opened(path) as file:
        return reader(path, list(csv.DictReader(file)), given)


def _reader(path: Path) -> Reader | None:
    try:
        with opened(path) as file:
            columns = set(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, EOFError, csv.Error):
        return None
    return next((reader for header, reader in READERS.items() if columns.issuperset(header)), None)
