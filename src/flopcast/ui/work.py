"""What a process of the server does: a line of JSON is a request, lines of JSON are its answer.

Answers: which task answers which request, and what does a reader see where it fails?
Elsewhere: words of a request (words.py), how answers look (answers.py, refusals.py), who asks (pool.py).
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

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


class OverTimeError(BaseException):
    """A request used up its processor time; no handler of ordinary errors may take it for one of them."""


def _timed_answer(asked: Mapping[str, Any], told: Callable[[str], None]) -> Answer:
    """Return the answer to a request, whose processor time is limited where the system can.

    Time on the clock says how busy a machine is. Processor time says how much a request asks for.
    """
    if not hasattr(signal, "setitimer"):  # Windows
        return answer(asked["task"], asked["words"], told)
    signal.signal(signal.SIGPROF, _over_time)
    signal.setitimer(signal.ITIMER_PROF, float(asked["cpu_limit_s"]))
    try:
        try:
            return answer(asked["task"], asked["words"], told)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    except OverTimeError:
        message = (
            f"This request needs more than {asked['cpu_limit_s']:.0f} s of processor time. Ask for less."
        )
        return refusal(asked["task"], 422, LIMIT, message)


def _over_time(*_: object) -> None:
    """End the request that runs.

    Raises
    ------
    OverTimeError
        Always.
    """
    raise OverTimeError


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
        say(asdict(_timed_answer(asked, lambda told: say({"told": told}))))


def _bound_memory() -> None:
    """Bound the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


if __name__ == "__main__":
    main()
