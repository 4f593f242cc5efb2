"""A worker process: each line of stdin is a task, and each line of stdout is its result, until stdin ends.

Answers: what runs in each process of process_executor.py?
Elsewhere: how such a process starts (worker_process.py).

A worker whose driver has ended also ends after its current task. Only the driver handles Ctrl-C.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import TextIO

from flopcast.garbage import collect_rarely, keep_all


def serve(lines: Iterable[str], answers: TextIO) -> None:
    """Run the task of each line and write a line with the result, until there are no more lines or nobody
    reads the results.

    A line holds the result and the seconds of processor time that it took.
    """
    from flopcast.workers.tasks import Task, done

    keep_all()
    try:
        for line in lines:
            start_s = time.process_time()
            result = done(Task(**json.loads(line)))
            answers.write(json.dumps([result, time.process_time() - start_s]) + "\n")
            answers.flush()
    except BrokenPipeError:
        os._exit(0)


def print_to_stderr() -> None:
    """Redirect the output of tasks to stderr, or discard it if there is no stderr, so that it does not mix
    with results.
    """
    if sys.__stderr__ is None:  # closed when this process started; its number may be that of another file
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(2, 1)


def main() -> None:
    """Run the tasks that arrive on stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # first: what is imported next takes a while
    collect_rarely()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    print_to_stderr()
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
