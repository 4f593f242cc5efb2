"""One process that runs tasks: a copy of this process, or a new interpreter.

Answers: how does a worker of this machine start?
Elsewhere: its program (serve.py), the submission of tasks and the replacement of workers
(process_executor.py).

A copy (fork) starts in milliseconds and has all data of this process. A process with several threads,
including those of a library, must not be copied, because a lock of another thread would stay locked. macOS
does not support copies either. In these cases, a new interpreter starts, which takes half a second.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

import flopcast
from flopcast.workers.serve import print_to_stderr, serve

STDIN, ANSWERS = 0, 3  # numbers of the two files that a copy uses besides stdout and stderr
MOST_FILES = 1 << 16  # that a copy closes where the system does not list those that are open


class WorkerProcess(Protocol):
    """The common interface of `subprocess.Popen` and `ForkedProcess`."""

    pid: int
    stdin: IO[str] | None
    stdout: IO[str] | None

    def kill(self) -> None:
        """End the process at once, unless it has already ended."""

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code, which is negative if a signal ended
        it.
        """


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
        """End the process at once, unless it has already ended."""
        if self._exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code, negative if a signal ended it.

        Several threads may wait, although the system returns the status only once. If this process ignores
        SIGCHLD, the status is lost, and the process counts as killed.
        """
        with self._lock:  # several threads may wait for it, and it can be asked for its status once
            if self._exit_code is None:
                try:
                    self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                except ChildProcessError:  # this process ignores SIGCHLD, so that nobody knows the status
                    self._exit_code = -signal.SIGKILL
        return self._exit_code


def can_fork() -> bool:
    """Return whether this process can be copied."""
    return hasattr(os, "fork") and sys.platform != "darwin" and _num_threads() == 1


def _num_threads() -> int:
    """Return the number of threads, with those that libraries have started where the system lists them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the block ends, if the operating system supports this.

    An interrupt that arrives inside the block is delivered at its end, so that no worker is left half
    started.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_process() -> WorkerProcess:
    """Start a worker, if possible as a copy of this process.

    Raises
    ------
    OSError
        The system allows no further process or file.
    """
    return _forked() if can_fork() else _new_interpreter()


def _forked() -> ForkedProcess:
    """Return a copy of this process that serves tasks until its stdin ends."""
    tasks, to_worker = os.pipe()
    try:
        from_worker, answers = os.pipe()
    except OSError:
        _close(tasks, to_worker)
        raise
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it may be closed, or there is none
            stream.flush()  # or both processes would write what waits in it
    try:
        pid = os.fork()
    except OSError:
        _close(tasks, to_worker, from_worker, answers)
        raise
    if pid == 0:
        _serve_and_exit(tasks, answers)
    _close(tasks, answers)
    return ForkedProcess(
        pid=pid,
        stdin=os.fdopen(to_worker, "w", encoding="utf-8"),
        stdout=os.fdopen(from_worker, encoding="utf-8"),
    )


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def _serve_and_exit(tasks: int, answers: int) -> None:
    """Serve in a copy, and end it without whatever this process has planned for its own end.

    All other files are closed: a ledger would stay locked, and other workers would not see that the process
    that they work for has ended. Signals that this process handles end the copy, but for Ctrl-C.
    """
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.dup2(tasks, STDIN)
        print_to_stderr()
        os.dup2(answers, ANSWERS)
        _close_above(ANSWERS)
        sys.stdout = sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="replace")
        serve(os.fdopen(STDIN, encoding="utf-8"), os.fdopen(ANSWERS, "w", encoding="utf-8"))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _close_above(last: int) -> None:
    """Close every file with a higher number."""
    try:
        highest = max(map(int, os.listdir("/dev/fd")))
    except (OSError, ValueError):
        highest = MOST_FILES
    os.closerange(last + 1, highest + 1)


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
