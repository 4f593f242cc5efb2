"""Tables of plain rows, written as CSV, or as Parquet if polars or pyarrow is installed.

Answers: how does a list of rows become a file that a spreadsheet or a data frame reads, and does a file
separate its cells by characters other than commas?
Elsewhere: the contents of rows (render/search_json.py), reading tables (lab/published/table.py).
"""

import csv
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from flopcast.errors import Problem
from flopcast.files.atomic_write import write_whole

Rows = Sequence[Mapping[str, object]]
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
LIBRARIES = ("polars", "pyarrow")  # any of them writes Parquet


def other_separator(header: str) -> tuple[str, str]:
    """Return why a header without commas has one column, and the fix; "" if it has no other separators.

    >>> other_separator("stage;kind")
    ('semicolons separate the cells', 'write decimal points, and write commas in place of the semicolons')
    >>> other_separator("stage,kind"), other_separator("stage")
    (('', ''), ('', ''))
    """
    found = [word for sign, word in SEPARATORS.items() if sign in header and "," not in header]
    if not found:
        return "", ""
    fix = f"write decimal points, and write commas in place of the {found[0]}"
    return f"{found[0]} separate the cells", fix


def write_csv(path: Path, rows: Rows) -> None:
    """Write rows below a header with their keys. All rows must have the keys of the first row.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def parquet_problem(path: Path) -> list[Problem]:
    """Return the fault that no library can write Parquet, or an empty list if a library can.

    The libraries are optional (`pip install 'flopcast[data]'`). The check looks for them without importing
    them.
    """
    if any(find_spec(name) for name in LIBRARIES):
        return []
    return [
        Problem(
            field="--parquet",
            value=str(path),
            allowed=f"no value, unless {' or '.join(LIBRARIES)} is installed",
            because="flopcast writes Parquet with one of these libraries",
            fix="pip install 'flopcast[data]', or write --csv",
        )
    ]


def write_parquet(path: Path, rows: Rows) -> None:
    """Write rows as one table with the first library of `LIBRARIES` that is installed.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    if find_spec("polars"):
        import_module("polars").DataFrame(columns).write_parquet(path)
        return
    table = import_module("pyarrow").table(columns)
    import_module("pyarrow.parquet").write_table(table, path)
