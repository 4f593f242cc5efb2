"""One process that does tasks: a copy of this process, or a new interpreter.

Answers: how does a worker of this machine start?
Elsewhere: what it does (serve.py), who hands out tasks and replaces workers (process_executor.py).

A copy (fork) starts in milliseconds and has all that this process has read and worked out. A process with
several threads must not be copied, since a lock of another thread would stay locked, and macOS does not
support it: a new interpreter, which needs half a second, takes its place.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

import flopcast
from flopcast.workers.serve import serve


class WorkerProcess(Protocol):
    """What `subprocess.Popen` and `ForkedProcess` have in common."""

    pid: int
    stdin: IO[str] | None
    stdout: IO[str] | None

    def kill(self) -> None:
        """End the process at once; nothing happens if it has ended."""

    def wait(self) -> int:
        """Wait for its end and return its exit code, negative if a signal ended it."""


class ForkedProcess:
    """A copy of this process that serves tasks."""

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str]) -> None:
        """Take over a child that this process has just made, and its pipes."""
        self.pid = pid
        self.stdin: IO[str] | None = stdin
        self.stdout: IO[str] | None = stdout
        self._exit_code: int | None = None
        self._lock = threading.Lock()

    def kill(self) -> None:
        """End the process at once; nothing happens if it has ended."""
        if self._exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end and return its exit code, negative if a signal ended it."""
        with self._lock:  # several threads may wait for it, and it can be asked for its status once
            if self._exit_code is None:
                self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._exit_code


def can_fork() -> bool:
    """Return whether this process can be copied."""
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def start_process() -> WorkerProcess:
    """Start a worker, as a copy of this process if that is possible."""
    return _forked() if can_fork() else _new_interpreter()


def _forked() -> ForkedProcess:
    """Return a copy of this process that serves tasks until its stdin ends."""
    tasks, to_worker = os.pipe()
    from_worker, answers = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both processes would write what waits in it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if pid == 0:
        _serve_and_exit(tasks, answers, before)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(tasks)
    os.close(answers)
    return ForkedProcess(
        pid=pid,
        stdin=os.fdopen(to_worker, "w", encoding="utf-8"),
        stdout=os.fdopen(from_worker, encoding="utf-8"),
    )


def _serve_and_exit(tasks: int, answers: int, mask: set[int | signal.Signals]) -> None:
    """Serve in a copy, and end it without whatever this process has planned for its own end.

    All other files are closed: a ledger would stay locked, and other workers would not see that the process
    that they work for has ended.
    """
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.dup2(tasks, 0)
        os.dup2(2, 1)  # what a task prints must not mix with results
        os.dup2(answers, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        sys.stdout = sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="replace")
        serve(os.fdopen(0, encoding="utf-8"), os.fdopen(3, "w", encoding="utf-8"))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _new_interpreter() -> "subprocess.Popen[str]":
    """Return a worker process with this package on its path and one thread for its matrices."""
    package = str(Path(flopcast.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "flopcast.workers.serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )
