"""Processes that tests start. Each ends, with everything it started, when the test leaves its block."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

LIMIT_S = 120
END_S = 10  # a killed process is gone after a moment


@contextlib.contextmanager
def child(words, **options):
    """A running process. It and its descendants are killed when the block ends, also by a failure."""
    with subprocess.Popen([*map(str, words)], start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            end(process)


def ran(words, *, limit_s=LIMIT_S, check=False, input=None, **options):
    """Run a command to its end and keep what it printed; a command that takes longer fails the test.

    `subprocess.run` kills the command alone when its time is over, and then waits for ever where a process
    that the command started holds the pipes. Here all of them are killed.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    pipes["stdin"] = subprocess.DEVNULL if input is None else subprocess.PIPE
    with child(words, **pipes | options) as process:
        out, err = process.communicate(input, timeout=limit_s)
    ended = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        assert ended.returncode == 0, (words, out, err)
    return ended


def end(process):
    """Kill a process, its group and its descendants, those of other sessions too."""
    started = below(process.pid)
    for kill, pid in ((os.killpg, process.pid), *((os.kill, one) for one in started)):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    process.wait()
    last_s = time.monotonic() + END_S
    while any(map(runs, started)) and time.monotonic() < last_s:
        time.sleep(0.001)


def below(pid):
    """Children of a process, and theirs; none where the system does not list them."""
    try:
        children = [
            int(each)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for each in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [*children, *(one for each in children for one in below(each))]


def runs(pid):
    """Whether a process is alive: it exists, and is no zombie that waits for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
