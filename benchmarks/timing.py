"""Processor seconds of calls and processes: what the benchmarks measure alike.

Answers: how many CPU seconds does a call, or a process from start to end, take?
Processor seconds are user and system time, which a busy machine changes less than wall time.
"""

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

RUNS = 5


def taken_s(call: Callable[[], object]) -> float:
    """Return the CPU seconds of one call in this process."""
    begin_s = time.process_time()
    call()
    return time.process_time() - begin_s


def process_s(
    command: Sequence[str], *, standard_input: str = "", extra_environment: Mapping[str, str] | None = None
) -> tuple[float, str]:
    """Return the CPU seconds of a process from start to end, and what it printed on stdout.

    Modules are compiled and kept, as after the first start. Other children of this process must not end
    meanwhile.

    Raises
    ------
    CalledProcessError
        The command failed; the error carries what it printed on stderr.
    """
    environment = keeping_compiled_modules() | dict(extra_environment or {})
    before_s = children_s()
    ended = subprocess.run(
        command, check=True, input=standard_input, capture_output=True, text=True, env=environment
    )
    return children_s() - before_s, ended.stdout


def keeping_compiled_modules() -> dict[str, str]:
    """Return the environment of a process that keeps the modules that it compiles."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def children_s() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def median_s(figure: Callable[[], float], runs: int = RUNS) -> float:
    """Return the median of several runs, after one run that is not counted."""
    figure()
    return statistics.median(figure() for _ in range(runs))
