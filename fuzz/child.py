"""A process that runs flopcast on one input after another, within limits of processor time and memory.

Answers: how did flopcast end on this input, what did it print, and which branches did it take?
Elsewhere: whether that is right (oracles.py).

The parent imports flopcast and reads what every command needs; `Child` forks it, so that an input pays for
itself alone. A child that dies, hangs or grows is replaced.
"""

import multiprocessing
import pkgutil
import resource
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from fuzz import branches
from fuzz.kinds import JOB, Input, kinds

MOST_CPU_S = 1.0
LONGEST_CPU_S = 8.0  # then it is stopped
MOST_BYTES = 500_000_000
INPUTS_OF_ONE_CHILD = 3000
WAIT_S = 120.0
CODE_OVER_TIME, CODE_DIED, CODE_BROKEN = 200, 201, 202
MANIFEST = '{"device": "NVIDIA H100 80GB HBM3", "tool_version": "1", "started": "now"}'
_FORK = multiprocessing.get_context("fork")


class OverTimeError(BaseException):
    """The input took too much processor time; no `Exception`, so that nothing holds it up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How one run ended: its exit code and texts, processor seconds, peak of the process, branches."""

    code: int
    out: str = ""
    err: str = ""
    cpu_s: float = 0.0
    peak_bytes: int = 0
    branches: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def warm_up() -> None:
    """Import all of flopcast, so that a branch has one number in every child, and run each command once."""
    import flopcast
    from flopcast import garbage

    for module in pkgutil.walk_packages(flopcast.__path__, "flopcast."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # it needs a library that is not installed
                import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in kinds().items():
            for path in kind.files[:1]:
                _run(folder, Input(kind=name, suffix=path.suffix, data=path.read_bytes()))
        _command(["predict", str(JOB), "--json"])
    branches.taken()
    garbage.collect_rarely()
    garbage.keep_all()


def _command(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    from flopcast.cli.main import main

    out, err = StringIO(), StringIO()
    sys.argv = ["flopcast", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("a command ends with an exit code")


def _check(one: Input) -> tuple[int, str, str]:
    """The same of an input that is called as a function."""
    from flopcast.errors import InfeasibleError, SpecError
    from fuzz.jobs import ALL_CHECKS

    try:
        broken = ALL_CHECKS[one.kind](one.data)
    except (SpecError, InfeasibleError) as error:
        return 1, "", str(error)
    except Exception as error:
        return 3, "", "".join(traceback.format_exception(error))
    return (CODE_BROKEN, "", "\n".join(broken)) if broken else (0, "kept", "")


def _file(folder: str, one: Input) -> str:
    """Write an input where its command reads it."""
    path = Path(folder, f"input{one.suffix}")
    if one.kind == "pack":
        path = Path(folder, "samples.csv")
        Path(folder, "manifest.json").write_text(MANIFEST, encoding="utf-8")
    if one.kind == "nsys":
        path = Path(folder, "input.sqlite")
        path.unlink(missing_ok=True)
        made = sqlite3.connect(path)
        with suppress(sqlite3.Error, UnicodeDecodeError, ValueError):
            made.executescript(one.data.decode())
            made.commit()
        made.close()
    else:
        path.write_bytes(one.data)
    return str(path)


def _run(folder: str, one: Input) -> Ended:
    """Run one input in this process."""
    kind, place = kinds()[one.kind], _file(folder, one)
    branches.taken()
    begin_s = time.process_time()
    signal.signal(signal.SIGPROF, _over)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_CPU_S)
    try:
        code, out, err = _command(kind.words(place, one.data, one.devices)) if kind.command else _check(one)
    except OverTimeError:
        code, out, err = CODE_OVER_TIME, "", "".join(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Ended(
        code=code,
        out=out.replace(f"{folder}/", ""),
        err=err.replace(f"{folder}/", ""),
        cpu_s=time.process_time() - begin_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        branches=branches.taken(),
    )


def _over(_: int, __: FrameType | None) -> None:
    raise OverTimeError


def serve(connection: Connection) -> None:
    """Run what arrives until the other side closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MOST_BYTES, used + 2 * MOST_BYTES))
    warnings.simplefilter("error")
    sys.stdin = StringIO()
    with tempfile.TemporaryDirectory() as folder, suppress(EOFError):
        while True:
            connection.send(_run(folder, connection.recv()))


class Child:
    """Runs inputs in a process that is started again when it dies, grows, or has run many."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._done = 0
        self.cpu_s = 0.0  # of all inputs so far

    def run(self, one: Input) -> Ended:
        """How flopcast ends on an input."""
        if self._process is None or self._done >= INPUTS_OF_ONE_CHILD:
            self._start()
        self._done += 1
        try:
            self._here.send(one)
            if self._here.poll(WAIT_S):
                ended: Ended = self._here.recv()
                self.cpu_s += ended.cpu_s
                if ended.code == CODE_OVER_TIME or ended.peak_bytes > MOST_BYTES:
                    self.end()
                return ended
            why = f"no answer within {WAIT_S:g} s"
        except (EOFError, ConnectionError):
            why = "the process died"
        self.end()
        return Ended(code=CODE_DIED, err=why)

    def _start(self) -> None:
        self.end()
        self._here, there = _FORK.Pipe()
        self._process = _FORK.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._done = 0

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._here.close()
            self._process.kill()
            self._process.join()
            self._process = None
