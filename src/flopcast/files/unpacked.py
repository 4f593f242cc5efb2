"""Files of other programs, which may be gzipped. The first bytes show whether they are.

Answers: which bytes does a measured file hold, and why can it not be read?
Elsewhere: what the bytes mean (lab/samples, lab/logs, lab/traces, interop/request_traces), the report of an
error; files that a user writes (requests/job_files.py), which are never packed.

A file whose name ends in .gz must be an archive. If it does not begin as an archive (RFC 1952, section
2.3.1), it was truncated or renamed, and is refused. A packed file may hold a thousand times its own length,
so limits apply to the unpacked bytes.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path
from typing import IO, cast

from flopcast.files.inputs import Bounded, opened, too_long

MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20


@contextmanager
def unpacked(path: Path, most_bytes: int) -> Iterator[Bounded]:
    """Open a file whose bytes are unpacked while they are read.

    Raises
    ------
    OSError
        The file is not a regular file, may not be read, is damaged, or holds more than `most_bytes` when
        unpacked. The error is raised when the file is opened or read. Its text contains only the reason.
    """
    try:
        with opened(path) as raw:
            packed = raw.read(len(MAGIC)) == MAGIC
            if path.suffix == ".gz" and not packed:
                raise OSError(
                    f"the file is not a gzip archive, although its name ends in {path.suffix}: download it"
                    " again, or rename it"
                )
            if not packed and raw.seek(0, SEEK_END) > most_bytes:
                raise OSError(too_long(most_bytes))
            raw.seek(0)
            yield Bounded(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if packed else raw, most_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise OSError(getattr(error, "strerror", None) or str(error)) from None


def read_unpacked(path: Path, most_bytes: int) -> bytes:
    """Return all bytes of a file that holds at most `most_bytes`.

    Raises
    ------
    OSError
        The file has one of the faults for which `unpacked` raises this error, or holds more than
        `most_bytes`.
    """
    with unpacked(path, most_bytes) as file:
        # one read would take memory for the most
        return b"".join(iter(lambda: file.read(CHUNK_BYTES), b""))
