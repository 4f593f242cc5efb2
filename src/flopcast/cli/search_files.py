"""The files that `flopcast search` writes.

Answers: which file holds what, and which files are refused before the search starts?
Elsewhere: the command (search.py), its settings (requests/search_request.py).
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from flopcast.cli.options import writing
from flopcast.errors import Problem, SpecError
from flopcast.files.atomic_write import write_whole
from flopcast.search.find import SearchResult

DRAWINGS = (".html", ".svg")


def writers(files: Mapping[str, object]) -> Callable[[SearchResult], Iterator[Path]]:
    """Return a function that writes the requested files of a result; call this before the search.

    Raises
    ------
    SpecError
        The kind of a drawing is unknown, or no library can write Parquet.
    """
    problems = []
    paths = {name: path for name, path in files.items() if isinstance(path, Path)}
    if "plot" in paths and paths["plot"].suffix not in DRAWINGS:
        allowed = " or ".join(f"a file that ends with {ending}" for ending in DRAWINGS)
        problems.append(
            Problem(
                "--plot", str(paths["plot"]), allowed, "the ending chooses the format", "write front.html"
            )
        )
    if "parquet" in paths:
        from flopcast.files.tables import parquet_problem

        problems += parquet_problem(paths["parquet"])
    if problems:
        raise SpecError(problems)

    def write(found: SearchResult) -> Iterator[Path]:
        from flopcast.files.tables import write_csv, write_parquet
        from flopcast.render.search_drawing import as_html, as_svg
        from flopcast.render.search_json import as_rows
        from flopcast.render.search_text import as_text

        for name, path in paths.items():
            with writing(f"--{name}", path):
                if name == "plot":
                    drawn = as_svg(found) if path.suffix == ".svg" else as_html(found, as_text(found))
                    write_whole(path, drawn)
                else:
                    (write_csv if name == "csv" else write_parquet)(path, as_rows(found))
            yield path

    return write
