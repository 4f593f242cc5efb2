"""What a process of the server does: a line of JSON is a request, lines of JSON are its answer.

Answers: which task answers which request, and what does a reader see where it fails?
Elsewhere: words of a request (words.py), how answers look (answers.py), who asks (pool.py).
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping

from flopcast.errors import InfeasibleError, Problem, SpecError
from flopcast.ui import answers

MOST_MEMORY_BYTES = 6 << 30  # of one process: a request that needs more fails by itself
TASKS: Mapping[str, Callable[..., tuple[str, str]]] = answers.TASKS
JSON, HTML = "application/json", "text/html"


def answer(task: str, words: Mapping[str, object], told: Callable[[str], None]) -> dict[str, object]:
    """The fields of a `pool.Answer`.

    Wrong input is 400 with every fault; what no plan satisfies 422; a defect of ours 500, told on stderr.
    """
    try:
        media, body = TASKS[task](words, told)
    except SpecError as error:
        return _failed(task, 400, error.problems, "")
    except InfeasibleError as error:
        return _failed(task, 422, (), str(error))
    except MemoryError:
        return _failed(task, 422, (), "This needs more memory than a request may use.")
    except Exception:
        import traceback

        traceback.print_exc()
        return _failed(task, 500, (), "This is a bug of flopcast; the server's log says more.")
    return {"status": 200, "media": media, "body": body}


def _failed(task: str, status: int, problems: tuple[Problem, ...], said: str) -> dict[str, object]:
    """An answer that tells faults, in the form of those that tell results."""
    data = task in answers.OF_DATA
    body = answers.faults_as_json(problems, said) if data else answers.faults_as_html(problems, said)
    return {"status": status, "media": JSON if data else HTML, "body": body}


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
        say(answer(asked["task"], asked["words"], lambda told: say({"told": told})))


def _bound_memory() -> None:
    """Bound the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


if __name__ == "__main__":
    main()
