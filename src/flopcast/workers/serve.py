"""A worker process: each line of stdin is a task, each line of stdout its result, until stdin ends.

Answers: what runs in each process of process_executor.py?

A worker that loses its driver ends with the task at hand, which finds no reader. Ctrl-C is the driver's
affair.
"""

import json
import os
import signal
import sys


def main() -> None:
    """Serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # first: what is imported next takes a while
    from flopcast.workers.tasks import Task, done

    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints is talk
    try:
        for line in sys.stdin:
            answers.write(json.dumps(done(Task(**json.loads(line)))) + "\n")
            answers.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
