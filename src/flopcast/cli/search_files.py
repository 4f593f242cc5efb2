"""The files that `flopcast search` writes: tables of all candidates, and a drawing of the front.

Answers: which files are written, and in which format?
Elsewhere: their contents (render/search_json.py, render/search_drawing.py and their neighbours).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from flopcast.cli.output_files import writing
from flopcast.errors import SpecError
from flopcast.files.atomic_write import write_whole

if TYPE_CHECKING:
    from flopcast.render.page.front import FrontDrawing


class Written(NamedTuple):
    """The content of the files that a search writes."""

    rows: Sequence[Mapping[str, object]]
    drawing: "FrontDrawing"
    heading: str
    text: str


def files_writer(files: Mapping[str, Path | None]) -> Callable[[Callable[[], Written]], None]:
    """Return a function that writes the requested files of a search. Request it before the search starts.

    Parameters
    ----------
    files : path by the name of its option: csv, parquet, plot; None for options that are not given

    Raises
    ------
    SpecError
        No library can write Parquet.
    """
    paths = {name: path for name, path in files.items() if path is not None}
    if "parquet" in paths:
        from flopcast.files.tables import parquet_problem

        if problems := parquet_problem(paths["parquet"]):
            raise SpecError(problems)

    def write(content: Callable[[], Written]) -> None:
        from flopcast.files.tables import write_csv, write_parquet

        if not paths:
            return
        made = content()
        for name, path in paths.items():
            with writing(f"--{name}", path):
                if name == "plot":
                    svg = path.suffix == ".svg"
                    drawn = made.drawing.svg() if svg else made.drawing.html(made.heading, made.text)
                    write_whole(path, drawn)
                else:
                    (write_csv if name == "csv" else write_parquet)(path, made.rows)
            click.echo(f"wrote {path}", err=True)

    return write
