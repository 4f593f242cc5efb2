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
from flopcast.io.workers import on_ray
from flopcast.io.workers.ledger import open_ledger
from flopcast.io.workers.on_ray import OnRay
from flopcast.io.workers.run import answer
from flopcast.search.chunk_text import question_text

NUM_PLANS = 2  # of a chunk


def found(address):
    """One search, and how many work at it."""
    crew = OnRay(address)
    told = digest(answer(search(NUM_PLANS), crew, None, quiet))
    size = crew.size
    crew.close()
    return {"digest": told, "size": size}


def lines(address, path):
    """One search with a ledger: first what it found, then a line a part, last the digest."""
    with open_ledger(path, question_text(question()), "test") as ledger:
        print(json.dumps({"found": ledger.found}), flush=True)
        crew = OnRay(address)
        told = answer(search(NUM_PLANS), crew, ledger, tell)
        crew.close()
    return {"digest": digest(told)}


def tell(progress):
    """A line that a part is done."""
    print("{}", file=sys.__stdout__, flush=True)


def faults(address):
    """Messages by what is wrong."""
    return {
        "another program": of_task(address, lambda told, program: on_ray.done_elsewhere(told, "other")),
        "no flopcast": of_task(address, absent()),
        "death": of_task(address, lambda told, program: os._exit(1)),
        "another version": of_version(address),
    }


def of_task(address, task):
    """What is told where workers do this instead of their task."""
    crew = OnRay(address)
    crew._task = ray.remote(max_retries=1)(task)
    crew.submit(search(1000).tasks[0])
    try:
        return crew.next_done()
    except SpecError as error:
        return str(error)
    finally:
        crew.close()


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
        return OnRay(address).size
    except SpecError as error:
        return str(error)


if __name__ == "__main__":
    kind, where, *more = sys.argv[1:]
    print(json.dumps({"found": found, "lines": lines, "faults": faults}[kind](where, *map(Path, more))))
