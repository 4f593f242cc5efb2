"""Searches on a Dask cluster, for tests: `python on_a_cluster.py KIND ADDRESS [LEDGER]` prints JSON.

`asked`: the digest of a search, and the errors where workers have another program, or none, or die.
`lines`: a search with a ledger, one line for each part that is done. `gone`: the error where the scheduler,
whose process id follows, is killed.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

from distributed import Client
from small_search import digest, question, quiet, search

from flopcast.errors import SpecError
from flopcast.search.chunk_text import question_text
from flopcast.workers import dask_executor
from flopcast.workers.dask_executor import DaskExecutor
from flopcast.workers.ledger import open_ledger
from flopcast.workers.run import answer

NUM_PLANS = 2  # of a chunk


def asked(address):
    """One search, how many work at it, and the errors."""
    executor = DaskExecutor(address)
    told = digest(answer(search(NUM_PLANS), executor, None, quiet))
    size = executor.size
    executor.close()
    return {"digest": told, "size": size, "faults": faults(address)}


def lines(address, path):
    """One search with a ledger: first what it found, then a line a part, last the digest."""
    with open_ledger(Path(path), question_text(question()), "test") as ledger:
        print(json.dumps({"found": ledger.found}), flush=True)
        executor = DaskExecutor(address)
        told = answer(search(NUM_PLANS), executor, ledger, tell)
        executor.close()
    return {"digest": digest(told)}


def tell(progress):
    """A line that a part is done."""
    if progress.done:
        print("{}", flush=True)


def faults(address):
    """Errors by their cause."""
    return {
        "another program": of_task(address, another_program()),
        "no flopcast": of_task(address, absent()),
        "death": of_task(address, lambda told, program: os._exit(1)),
    }


def of_task(address, task):
    """The error where workers do this instead of their task."""
    executor, dask_executor.done_elsewhere = DaskExecutor(address), task
    executor.submit(search(1000).tasks[0])
    return error_of(executor)


def error_of(executor):
    """The error where the next result is awaited."""
    try:
        return executor.next_done()
    except SpecError as error:
        return str(error)
    finally:
        executor.close()


def gone(address, scheduler):
    """The error where the scheduler ends during a search."""
    executor = DaskExecutor(address)
    for task in search(NUM_PLANS).tasks:
        executor.submit(task)
    executor.next_done()
    os.kill(int(scheduler), signal.SIGKILL)
    return error_of(executor)


def another_program():
    """The task as a driver with other files asks for it."""
    right = dask_executor.done_elsewhere
    return lambda told, program: right(told, "other")


def absent():
    """What no worker can import, as another machine's package."""
    module = ModuleType("package_of_another_machine")
    exec("def done(told, program): pass", module.__dict__)
    sys.modules[module.__name__] = module
    return module.done


if __name__ == "__main__":
    kind, where, *more = sys.argv[1:]
    with Client(where) as client:
        client.wait_for_workers(2)
    print(json.dumps({"asked": asked, "lines": lines, "gone": gone}[kind](where, *more)))
