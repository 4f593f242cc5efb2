"""What a process of the server does: a line of JSON is a request, lines of JSON are its answer.

Answers: which task answers which request, and what does a reader see where it fails?
Elsewhere: words of a request (words.py), how answers look (answers.py, refusals.py), who asks (pool.py).
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict

from flopcast.errors import InfeasibleError, SpecError
from flopcast.report.faults import BUG, INFEASIBLE, INPUT, LIMIT
from flopcast.ui import answers
from flopcast.ui.pool import Answer
from flopcast.ui.refusals import refusal

MOST_MEMORY_BYTES = 6 << 30  # of one process: a request that needs more fails by itself
TASKS: Mapping[str, Callable[..., tuple[str, str]]] = answers.TASKS


def answer(task: str, words: Mapping[str, object], told: Callable[[str], None]) -> Answer:
    """Return the answer to a request.

    Wrong input is answered with 400 and every error, a request that no plan satisfies with 422, and a
    defect of ours with 500; its traceback goes to stderr.
    """
    try:
        media, body = TASKS[task](words, told)
    except SpecError as error:
        return refusal(task, 400, INPUT, problems=error.problems)
    except InfeasibleError as error:
        return refusal(task, 422, INFEASIBLE, str(error))
    except MemoryError:
        return refusal(task, 422, LIMIT, "This request needs more memory than a request may use.")
    except Exception:
        import traceback

        traceback.print_exc()
        return refusal(task, 500, BUG, "This is a bug of flopcast; the log of the server has the details.")
    return Answer(status=200, media=media, body=body)


def main() -> None:
    """Answer lines from stdin until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends its processes itself
    _bound_memory()
    answers.warm()

    def say(data: Mapping[str, object]) -> None:
        sys.stdout.write(json.dumps(data) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        asked = json.loads(line)
        say(asdict(answer(asked["task"], asked["words"], lambda told: say({"told": told}))))


def _bound_memory() -> None:
    """Bound the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


if __name__ == "__main__":
    main()
