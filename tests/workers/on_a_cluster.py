"""Searches on a Ray cluster, for tests: `python on_a_cluster.py KIND ADDRESS [LEDGER]` prints JSON.

`found`: the digest of a search. `lines`: the same with a ledger, one line for each part that is done.
`faults`: what is told of workers of another program, workers that die, and a driver of another version.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import ray
from small_search import digest, question, quiet, search

from flopcast.errors import SpecError
from flopcast.search.chunk_text import question_text
from flopcast.workers import ray_executor
from flopcast.workers.ledger import open_ledger
from flopcast.workers.ray_executor import RayExecutor
from flopcast.workers.run import answer

NUM_PLANS = 2  # of a chunk


def found(address):
    """One search, and how many work at it."""
    executor = RayExecutor(address)
    told = digest(answer(search(NUM_PLANS), executor, None, quiet))
    size = executor.size
    executor.close()
    return {"digest": told, "size": size}


def lines(address, path):
    """One search with a ledger: first what it found, then a line a part, last the digest."""
    with open_ledger(path, question_text(question()), "test") as ledger:
        print(json.dumps({"found": ledger.found}), flush=True)
        executor = RayExecutor(address)
        told = answer(search(NUM_PLANS), executor, ledger, tell)
        executor.close()
    return {"digest": digest(told)}


def tell(progress):
    """A line that a part is done."""
    print("{}", file=sys.__stdout__, flush=True)


def faults(address):
    """Messages by what is wrong."""
    return {
        "another program": of_task(
            address, lambda told, program: ray_executor.done_elsewhere(told, "other")
        ),
        "no flopcast": of_task(address, absent()),
        "death": of_task(address, lambda told, program: os._exit(1)),
        "another version": of_version(address),
    }


def of_task(address, task):
    """What is told where workers do this instead of their task."""
    executor = RayExecutor(address)
    executor._task = ray.remote(max_retries=1)(task)
    executor.submit(search(1000).tasks[0])
    try:
        return executor.next_done()
    except SpecError as error:
        return str(error)
    finally:
        executor.close()


def absent():
    """What no worker can import, as another machine's package."""
    module = ModuleType("package_of_another_machine")
    exec("def done(told, program): pass", module.__dict__)
    sys.modules[module.__name__] = module
    return module.done


def of_version(address):
    """What is told where another Ray asks."""
    ray.__version__ = "2.0.0"
    try:
        return RayExecutor(address).size
    except SpecError as error:
        return str(error)


if __name__ == "__main__":
    kind, where, *more = sys.argv[1:]
    print(json.dumps({"found": found, "lines": lines, "faults": faults}[kind](where, *map(Path, more))))
