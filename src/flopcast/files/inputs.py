"""Files that a user names, opened for reading: regular files, and standard input under the name "-".

Answers: may this path be read, and how much of it?
Elsewhere: packed files (unpacked.py), what the bytes mean (the readers).

Devices and named pipes are not opened, because a device may never end and a pipe may never begin.
"""

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, TextIO

from flopcast.files.nearest_names import nearest

PIPED = "-"
MOST_PIPED_BYTES = 2**27
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class Bounded:
    """A stream of at most `most_bytes` bytes. Reading more is an error, and not the end of the stream."""

    def __init__(self, raw: IO[bytes], most_bytes: int) -> None:
        self._raw, self._most_bytes, self._left_bytes = raw, most_bytes, most_bytes

    def read(self, number: int) -> bytes:
        """Return the next bytes, at most `number`; empty at the end.

        Raises
        ------
        OSError
            The stream holds more than `most_bytes`.
        """
        data = self._raw.read(min(number, self._left_bytes + 1))
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise OSError(too_long(self._most_bytes))
        return data


def too_long(most_bytes: int) -> str:
    """Return the message about a file with more bytes than its reader accepts."""
    return f"the file has more than {most_bytes} bytes, which is the limit for this kind of file"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file or, for "-", standard input, which can be opened several times.

    Raises
    ------
    OSError
        The path does not exist, may not be read, or is a folder, a device or a pipe; or standard input
        holds more than MOST_PIPED_BYTES.
    """
    if str(path) == PIPED:
        yield io.BytesIO(_piped(sys.stdin))
        return
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - closed below, after the check
    except ValueError as error:  # a zero byte
        raise OSError(str(error)) from None
    with file:
        kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
        if kind != stat.S_IFREG:
            name = KINDS.get(kind, "no file")
            raise OSError(
                f"the path is {name} instead of a regular file (to read a stream, pipe it into the "
                f"command and give {PIPED} as the path)"
            )
        yield file


def _without_waiting(path: str, flags: int) -> int:
    """Open a path as the system does, but without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@lru_cache(maxsize=1)
def _piped(stream: TextIO) -> bytes:
    """Return standard input, which is kept because it can be read only once and two jobs may name it."""
    data = stream.buffer.read(MOST_PIPED_BYTES + 1)
    if len(data) > MOST_PIPED_BYTES:
        raise OSError(too_long(MOST_PIPED_BYTES))
    return data


def exists(text: str) -> bool:
    """Return whether a file or folder of this name exists; False for invalid names."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def similar_files(path: Path, most: int = 1) -> list[Path]:
    """Return files with similar names in the folder of a missing file, the most similar first.

    Endings may differ.
    """
    try:
        others = sorted(path.parent.iterdir())
    except OSError:
        return []
    others = [each for each in others if each.is_file()]
    alike = [each for each in others if path.suffix in ("", each.suffix) or each.stem == path.stem]
    stems = {each.stem: path.with_name(each.name) for each in alike}
    return [stems[stem] for stem in nearest(path.stem, stems, most=most)]


def is_missing(text: str) -> bool:
    """Return whether there is no file or folder of this name.

    It is False for names that the system refuses, whose error is more precise than "missing", and for "-",
    the standard input.
    """
    try:
        os.stat(text)
    except FileNotFoundError:
        return text != PIPED
    except (OSError, ValueError):
        pass
    return False
