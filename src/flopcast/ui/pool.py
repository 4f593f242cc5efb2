"""Processes that answer requests, so that a slow one neither blocks the server nor outlives its time.

Answers: which process handles a request, how many requests may wait, and what happens if a request takes
too long or its process ends?
Elsewhere: the work of the processes (worker.py), the answers of the server (app.py).

A request to a process is a line of JSON. The answer consists of lines of JSON and a text. The last of
these lines states the number of bytes of the text, which is long and therefore not quoted again. A
process that exceeds its time, stops answering or ends is replaced, and no other answer depends on it.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from flopcast.records import Record

MOST_LINE_BYTES = 16 << 20
OnProgress = Callable[[str], None]
Gone = Callable[[], Awaitable[bool]]


async def never_gone() -> bool:
    """Return that a client still waits for its answer."""
    return False


class Answer(Record):
    """The answer to a request: an HTTP status, a media type and a text."""

    status: int
    media: str
    body: str


class BusyError(Exception):
    """Too many requests are waiting; the client should try again later."""


class GoneError(Exception):
    """The client disconnected while its request waited for a process."""


class TooLongError(Exception):
    """A request exceeded its limit of wall-clock time, including waiting, because the machine is busy."""


class BrokenError(Exception):
    """A process ended without an answer, for example because it ran out of memory."""


class _ServerProcess(Record, eq=False, frozen=False, kw_only=False, slots=False):
    """One process, which starts at its first request."""

    process: asyncio.subprocess.Process | None = None

    async def ask(self, line: bytes, on_progress: OnProgress) -> Answer:
        """Send a request and wait for its answer; progress goes to `on_progress`.

        Raises
        ------
        BrokenError
            The process ended, or its answer cannot be read.
        """
        process = await self._started()
        if process.stdin is None or process.stdout is None:
            raise BrokenError
        try:
            process.stdin.write(line)
            await process.stdin.drain()
            while True:
                answered = json.loads(await process.stdout.readline() or b"null")
                if answered is None:
                    raise BrokenError
                if "progress" not in answered:
                    body = await process.stdout.readexactly(answered["num_bytes"])
                    return Answer(status=answered["status"], media=answered["media"], body=body.decode())
                on_progress(answered["progress"])
        except (EOFError, OSError, ValueError) as error:
            raise BrokenError from error

    async def _started(self) -> asyncio.subprocess.Process:
        if self.process is None or self.process.returncode is not None:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "flopcast.ui.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MOST_LINE_BYTES,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"},
            )
        return self.process

    async def end(self) -> None:
        """End the process, even if it is still working."""
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Pool:
    """A fixed number of processes, and a limit on the number of requests that may wait for one."""

    def __init__(self, size: int, most_waiting: int) -> None:
        """Start without a process.

        Parameters
        ----------
        size : number of processes; at least two, because long requests leave one free for short ones
        most_waiting : largest number of requests that wait for a process
        """
        size = max(size, 2)
        self._most_waiting, self._waiting = most_waiting, 0
        self._all = [_ServerProcess() for _ in range(size)]
        self._idle: asyncio.LifoQueue[_ServerProcess] = asyncio.LifoQueue()  # caches of the last are warm
        for worker in self._all:
            self._idle.put_nowait(worker)
        self._long = asyncio.Semaphore(size - 1)

    async def ask(
        self,
        task: str,
        words: Mapping[str, object],
        cpu_limit_s: float,
        limit_s: float,
        *,
        long: bool = False,
        on_progress: OnProgress = lambda _: None,
        gone: Gone = never_gone,
    ) -> Answer:
        """Return the answer of a process.

        Parameters
        ----------
        task : a name of work.TASKS
        words : plain data
        cpu_limit_s : processor time that the task may use; the process itself enforces it
        limit_s : wall-clock time from now on, including waiting
        long : whether the request takes seconds; such requests leave one process free for others
        on_progress : called with messages about the progress
        gone : returns whether the client has disconnected; asked when a process is free

        Raises
        ------
        BusyError, GoneError, TooLongError, BrokenError
        """
        if self._waiting >= self._most_waiting:
            raise BusyError
        request = {"task": task, "words": words, "cpu_limit_s": cpu_limit_s}
        line = json.dumps(request).encode() + b"\n"
        try:
            room = self._long if long else contextlib.nullcontext()
            async with asyncio.timeout(limit_s), room, self._worker(gone) as worker:
                return await worker.ask(line, on_progress)
        except TimeoutError as error:
            raise TooLongError from error

    @contextlib.asynccontextmanager
    async def _worker(self, gone: Gone) -> AsyncIterator[_ServerProcess]:
        """Yield an idle process; the process is ended if its answer was not read."""
        self._waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            if await gone():
                raise GoneError
            yield worker
        except GoneError:
            raise
        except BaseException:
            await asyncio.shield(worker.end())
            raise
        finally:
            self._idle.put_nowait(worker)

    async def end(self) -> None:
        """End every process."""
        for worker in self._all:
            await worker.end()
