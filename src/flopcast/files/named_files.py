"""The files that a document names.

Answers: which file does a name in a document mean, and what does it hold?
"""

from collections.abc import Callable
from pathlib import Path

from flopcast.errors import told_as
from flopcast.files.yaml_text import Document
from flopcast.records import replace


def read_named(
    name: str, document: Document, at: tuple[str | int, ...], read: Callable[[Path, int], bytes], most: int
) -> tuple[Path, bytes]:
    """Return the path of a file that a document names at a path, and the content of this file.

    Parameters
    ----------
    name : relative to the job file that states it, or, on the command line, to the current folder
    read : reads the bytes of a path, at most `most` + 1
    """
    parents = [at[:depth] for depth in range(len(at), 0, -1)]
    in_file = any(path in document.lines for path in parents)
    moved = any(path in document.places for path in parents)
    path = Path(document.name).parent / name if in_file and not moved else Path(name)
    with told_as(lambda problem: replace(problem, where=problem.where or document.where(at))):
        return path, read(path, most)
