"""The work of a server process: a request is one line of JSON, and its answer is lines of JSON and a text.

Answers: which task handles which request, and what does the user see if it fails?
Elsewhere: parameters of a request (request_fields.py), form of answers (responses.py, error_responses.py),
processes (pool.py).
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flopcast.errors import InfeasibleError, SpecError
from flopcast.garbage import collect_rarely, keep_all
from flopcast.records import replace
from flopcast.render.error_json import BUG, INFEASIBLE, INPUT, LIMIT
from flopcast.ui import responses
from flopcast.ui.error_responses import refusal, with_whole_texts
from flopcast.ui.pool import Answer
from flopcast.ui.request_fields import with_field_names

MOST_MEMORY_BYTES = 6 << 30  # of one process: a request that needs more fails by itself
OF_FILES = ("page.upload", "file.job", "file.report")
TASKS: Mapping[str, Callable[..., tuple[str, str]]] = responses.TASKS


def answer(task: str, words: Mapping[str, object], on_progress: Callable[[str], None]) -> Answer:
    """Return the answer to a request. Its error messages name fields where the command line would name
    options.

    The status is 400 for wrong input, with every error, 422 if no plan is feasible, and 500 for a bug in
    flopcast, whose traceback goes to stderr.
    """
    made = _answer(task, words, on_progress)
    shows_own_text = task in OF_FILES  # of the user's file, or in a file that the command line writes too
    return made if shows_own_text else replace(made, body=with_field_names(made.body))


def _answer(task: str, words: Mapping[str, object], on_progress: Callable[[str], None]) -> Answer:
    try:
        media, body = TASKS[task](words, on_progress)
    except SpecError as error:
        return refusal(task, 400, INPUT, problems=with_whole_texts(error.problems, words))
    except InfeasibleError as error:
        return refusal(task, 422, INFEASIBLE, str(error), changes=error.changes)
    except MemoryError:
        return refusal(task, 422, LIMIT, "This request needs more memory than a request may use.")
    except Exception:
        import traceback

        traceback.print_exc()
        return refusal(task, 500, BUG, "This is a bug of flopcast; the log of the server has the details.")
    return Answer(status=200, media=media, body=body)


class OverTimeError(BaseException):
    """Raised when a request has used up its processor time; `except Exception` does not catch it."""


def _timed_answer(request: Mapping[str, Any], on_progress: Callable[[str], None]) -> Answer:
    """Return the answer to a request, with a limit of processor time if the system supports it.

    Wall-clock time depends on how busy the machine is; processor time depends on the request alone.
    """
    if not hasattr(signal, "setitimer"):  # Windows
        return answer(request["task"], request["words"], on_progress)
    signal.signal(signal.SIGPROF, _over_time)
    signal.setitimer(signal.ITIMER_PROF, float(request["cpu_limit_s"]))
    try:
        try:
            return answer(request["task"], request["words"], on_progress)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    except OverTimeError:
        message = (
            f"This request needs more than {request['cpu_limit_s']:.0f} s of processor time. Ask for less."
        )
        return refusal(request["task"], 422, LIMIT, message)


def _over_time(*_: object) -> None:
    """End the current request.

    Raises
    ------
    OverTimeError
        In every case.
    """
    raise OverTimeError


def main() -> None:
    """Answer lines from stdin until it ends.

    The process ignores Ctrl-C, because the server ends it, and it bounds its own memory. It loads curves
    and the catalogue before the first request. Progress is written as lines of JSON before the answer.
    The answer is a line of JSON that states the number of bytes of the text, followed by the text.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends its processes itself
    _bound_memory()
    collect_rarely()
    responses.warm()
    keep_all()

    def say(data: Mapping[str, object], text: bytes = b"") -> None:
        sys.stdout.buffer.write(json.dumps(data).encode() + b"\n" + text)
        sys.stdout.buffer.flush()

    for line in sys.stdin:
        request = json.loads(line)
        made = _timed_answer(request, lambda text: say({"progress": text}))
        body = made.body.encode()
        say({"status": made.status, "media": made.media, "num_bytes": len(body)}, body)


def _bound_memory() -> None:
    """Limit the memory of this process if the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


if __name__ == "__main__":
    main()
