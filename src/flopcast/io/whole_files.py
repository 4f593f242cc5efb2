"""Files that are whole or as they were: what breaks a write off leaves no part of a file under its name.

Answers: how is a file written so that no reader, and no crash, ever sees a part of it?
Elsewhere: files that grow line by line (io/samples/packs.py), databases (io/workers/ledger.py).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PARTIAL = ".partial"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, as `being_written` does.

    Raises
    ------
    OSError
        The folder does not exist, or cannot be written to.
    """
    with being_written(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)


@contextmanager
def being_written(path: Path, mode: str = "w", newline: str | None = None) -> Iterator[IO[Any]]:
    """A file to write, which takes its name when the block ends; what stood there stands until then.

    The content is written beside its place, in a file of the same name and PARTIAL, and is on the disk
    before it is renamed. A place that is no regular file (a device, a pipe) is written directly, and a link
    leads to the file that it names. A full disk leaves no partial file behind.

    Raises
    ------
    OSError
        The folder does not exist, or cannot be written to.
    """
    encoding = None if "b" in mode else "utf-8"
    if path.exists() and not path.is_file():
        with path.open(mode, encoding=encoding, newline=newline) as file:
            yield file
        return
    path = path.resolve() if path.is_symlink() else path
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open(mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
