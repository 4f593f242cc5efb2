"""Measurement of the storage of a folder, with temporary files that are written and read.

Answers: how fast can the drives or the file system of a folder be written and read?
Elsewhere: the other memories (lab/measure/tier_run.py), rows and the fields that they set
(lab/measure/tier_samples.py).

Several streams write files, because one stream does not saturate an array of drives.
"""

import os
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from flopcast.lab.measure.sampling_run import Unsupported, first_line
from flopcast.lab.measure.tier_run import MOST_STORAGE_S, TierEffort
from flopcast.lab.measure.tier_samples import STORAGE, TierSample, tier_key

STREAMS = 4
BLOCK_BYTES = 16 * 2**20
MOST_FREE_SHARE = 0.1  # of a folder's free space
Clock = Callable[[], float]


def measure_storage(
    folder: Path, device: str, effort: TierEffort, clock: Clock, done: Container[str] = ()
) -> Iterator[TierSample | Unsupported]:
    """Yield the samples of writing and reading files in a folder, unless both exist already.

    At most a tenth of the free space is written, and for at most ten seconds. The files have no names, so
    they disappear with the process, however it ends. Reading is measured only if the system can drop its
    cache of a file, because only then do the data come from the drives.
    """
    left = [tier_key(kind, str(folder)) for kind in STORAGE]
    if all(key in done for key in left):
        return
    try:
        free_bytes = shutil.disk_usage(folder).free
        each_bytes = int(min(effort.file_bytes, MOST_FREE_SHARE * free_bytes)) // STREAMS
        if each_bytes < BLOCK_BYTES:
            raise OSError(f"a tenth of the {free_bytes} free bytes is too small for a measurement")
        with ExitStack() as opened:
            files = [opened.enter_context(TemporaryFile(dir=folder, buffering=0)) for _ in range(STREAMS)]
            block = os.urandom(BLOCK_BYTES)  # no file system compresses it
            written = _all_streams(lambda file: _write(file, block, each_bytes, clock), files, clock)
            del left[0]
            yield _stored(STORAGE[0], written, folder, device)
            if not _drop_cache(files):
                raise OSError(f"the operating system {sys.platform} cannot drop a file from its page cache")
            read = _all_streams(lambda file: _read(file, clock), files, clock)
            left.clear()
            yield _stored(STORAGE[1], read, folder, device)
    except OSError as error:
        for key in left:
            yield Unsupported(key=key, why=first_line(error))


def _all_streams(
    work: Callable[[IO[bytes]], int], files: Iterable[IO[bytes]], clock: Clock
) -> tuple[int, float]:
    """Return the bytes that all streams moved together, and the seconds until the last stream ended."""
    start_s = clock()
    with ThreadPoolExecutor(STREAMS) as threads:
        moved_bytes = sum(threads.map(work, files))
    return moved_bytes, max(clock() - start_s, 1e-9)


def _stored(kind: str, moved: tuple[int, float], folder: Path, device: str) -> TierSample:
    size_bytes, seconds_s = moved
    return TierSample(
        device=device,
        kind=kind,
        folder=str(folder),
        size_bytes=size_bytes,
        repetitions_us=(seconds_s * 1e6,),
    )


def _write(file: IO[bytes], block: bytes, most_bytes: int, clock: Clock) -> int:
    """Write blocks until the size or the time is reached, wait for the drive, and return the bytes."""
    size_bytes, start_s = 0, clock()
    while size_bytes + len(block) <= most_bytes and clock() - start_s < MOST_STORAGE_S:
        size_bytes += file.write(block)
    os.fsync(file.fileno())
    return size_bytes


def _read(file: IO[bytes], clock: Clock) -> int:
    """Read the file from its beginning until its end or until the time is over; return the bytes."""
    file.seek(0)
    size_bytes, start_s = 0, clock()
    while clock() - start_s < MOST_STORAGE_S and (block := file.read(BLOCK_BYTES)):
        size_bytes += len(block)
    return size_bytes


def _drop_cache(files: Iterable[IO[bytes]]) -> bool:
    """Drop the system's cached pages of files on the drive; return whether the system can."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for file in files:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True
