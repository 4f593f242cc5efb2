"""The files that a user or a document names.

Answers: which file does a name in a document mean, what does it hold, and why can it not be read?
"""

from collections.abc import Callable
from pathlib import Path

from flopcast.errors import Problem, SpecError, shown, told_as
from flopcast.files.inputs import exists, opened, similar_files
from flopcast.files.yaml_text import MAX_BYTES, Document
from flopcast.records import replace

ReadFile = Callable[[Path, int], bytes]


def read_file(path: Path, most_bytes: int = MAX_BYTES, where: str = "") -> bytes:
    """Return the bytes of a file, at most `most_bytes` + 1, so that its reader can refuse larger files.

    "-" is standard input, which can be read several times: both jobs of a comparison may use it.
    `where` is the line of another file that names this one.

    Raises
    ------
    SpecError
        The file does not exist, may not be read, or is a folder, a device or a pipe.
    """
    try:
        with opened(path) as file:
            return file.read(most_bytes + 1)
    except OSError as error:
        raise SpecError([unreadable(path, error, where)]) from None


def unreadable(path: Path, error: OSError, where: str = "") -> Problem:
    """Return the problem of a file that cannot be opened, with the name of a similar file as its fix."""
    because = getattr(error, "strerror", None) or str(error)
    near = [] if exists(str(path)) else similar_files(path)
    fix = f"did you mean {near[0]}?" if near else "check the path"
    fix = "give a file in this folder" if isinstance(error, IsADirectoryError) else fix
    allowed, fault = "a file that exists and may be read", f"{shown(str(path))} cannot be read"
    return Problem("file", str(path), allowed, because, fix, where, fault)


def read_named(
    name: str, document: Document, at: tuple[str | int, ...], read: ReadFile, most: int
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
