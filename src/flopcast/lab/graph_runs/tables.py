"""Tables of measured models that are not decoders, recognised by their headers.

Answers: which runs does a file hold?
Elsewhere: the rows of each table (timm.py), how well they are predicted (score.py).
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.lab.graph_runs import diffusion, mlperf, neusight, timm
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


def _by_row(runs_of: Callable[[Mapping[str, str]], Iterable[GraphRun]]) -> Reader:
    """Return the reader of a table whose rows say on what they were measured."""
    return lambda _path, rows, _given: tuple(run for row in rows for run in runs_of(row))


READERS: Mapping[tuple[str, ...], Reader] = {
    timm.INFERENCE: _of_timm,
    timm.TRAINING: _of_timm,
    neusight.HEADER: _by_row(neusight.runs_of),
    diffusion.HEADER: _by_row(diffusion.runs_of),
    mlperf.HEADER: _by_row(mlperf.runs_of),
}


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
    """Return the reader of a table; None of one that is not of graphs.

    Tables of MLPerf Training have one header, and are of graphs if all of their benchmarks are.
    """
    try:
        with opened(path) as file:
            rows = csv.DictReader(file)
            columns = set(rows.fieldnames or ())
            header = next((header for header in READERS if columns.issuperset(header)), None)
            if header is mlperf.HEADER and not mlperf.is_table_of_graphs(list(rows)):
                return None
    except (OSError, UnicodeDecodeError, EOFError, csv.Error):
        return None
    return None if header is None else READERS[header]
