"""Atomic writes. An interrupted write leaves the old file, and never a part of the new file.

Answers: how is a file written so that a crash leaves no partial file?
Elsewhere: files that grow line by line (lab/samples/packs.py), databases (workers/ledger.py).
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
        The folder does not exist, or does not permit writing.
    """
    with being_written(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)


@contextmanager
def being_written(path: Path, mode: str = "w", newline: str | None = None) -> Iterator[IO[Any]]:
    """Open a file for writing that replaces the file at `path` when the block ends.

    The content is written to a file in the same folder, whose name ends in PARTIAL, and is on the disk
    before the file is renamed. A path that is not a regular file (a device, a pipe) is written directly; a
    link is followed. If the disk is full, no partial file remains.

    Raises
    ------
    OSError
        The folder does not exist, or does not permit writing.
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
