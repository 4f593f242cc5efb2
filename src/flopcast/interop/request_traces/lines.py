"""Lines of a file, plain or gzipped, in chunks of bounded size.

Answers: which lines does a file have, and which numbers do they have?
Elsewhere: the meaning of the lines (csv_rows.py, json_rows.py).
"""

from collections.abc import Iterator
from pathlib import Path

from flopcast.errors import SpecError, spec_error
from flopcast.files.unpacked import unpacked
from flopcast.records import Record

CHUNK_BYTES = 1 << 22
MOST_LINE_BYTES = 1 << 24  # a conversation of many turns in full text
MOST_BYTES = 1 << 40


class Lines(Record, kw_only=False):
    """Consecutive lines without their ends."""

    first: int  # number of the first line in the file, from 1
    texts: list[str]


def chunks(path: Path, field: str) -> Iterator[Lines]:
    """Yield the lines of a file, chunk by chunk.

    Parameters
    ----------
    path : Path
    field : str
        The name of the file in error messages, such as "traffic.trace".

    Raises
    ------
    SpecError
        The file cannot be read, is not text, or has a line of more than MOST_LINE_BYTES bytes.
    """
    first, rest = 1, b""
    try:
        with unpacked(path, MOST_BYTES) as file:
            while data := file.read(CHUNK_BYTES):
                whole, end, rest = (rest + data).rpartition(b"\n")
                if len(rest) > MOST_LINE_BYTES:
                    raise _long_line(path, field, first + whole.count(b"\n") + len(end))
                if end:
                    lines = Lines(first, _decoded(whole, path, field, first).split("\n"))
                    first += len(lines.texts)
                    yield lines
            if rest:
                yield Lines(first, [_decoded(rest, path, field, first)])
    except OSError as error:
        allowed, fix = "a file that can be read", "check the path, and that the file is complete"
        if isinstance(error, FileNotFoundError):
            fix = "check the path, because this file does not exist"
        raise spec_error(field, str(path), allowed, str(error), fix, where=str(path)) from None


def _decoded(data: bytes, path: Path, field: str, first: int) -> str:
    """Return bytes as text, without the carriage returns of line ends and a byte order mark."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + data[: error.start].count(b"\n")
        because, fix = "the file is not text", "save the file as UTF-8"
        raise spec_error(field, str(path), "UTF-8 text", because, fix, where=f"{path}:{line}") from None
    return text.removeprefix("\ufeff").replace("\r", "")


def _long_line(path: Path, field: str, line: int) -> SpecError:
    allowed = f"lines of at most {MOST_LINE_BYTES} bytes"
    because, fix = "each line is one request", "write each request on a separate line"
    return spec_error(field, str(path), allowed, because, fix, where=f"{path}:{line}")
