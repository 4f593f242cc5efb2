"""Screening of whole spaces: plans per second, seconds and memory of a process.

    .venv/bin/python -m benchmarks.search NAME

Prints one line of JSON. Everything counts from the start of the process but Python's own; seconds are those
of the processor, so that a busy machine says the same.
"""

import json
import resource
import sys
import time

from flopcast.jobs import job
from flopcast.library.curves import load_book
from flopcast.search.grid import batches, num_plans
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.job import Job

MANY = "256..8192:64"  # global batches: what a search asks that may choose its batch
PROBLEMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "llama": (
        {"model": "llama-3-70b", "cluster": "dgx-h100", "gpus": 512, "plan": "dp=512 gbs=1024"},
        {"gbs": 1024},
    ),
    "gpt3": (
        {"model": "gpt3-175b", "cluster": "dgx-a100", "gpus": 256, "plan": "dp=256 gbs=1536"},
        {"gbs": 1536, "schedule": "all"},
    ),
    "dense": (
        {"model": "gpt3-175b", "cluster": "dgx-a100", "gpus": 256, "plan": "dp=256 gbs=1536"},
        {"gbs": MANY, "zero": "0,1"},
    ),
    "experts": (
        {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 256, "plan": "dp=256 gbs=1024"},
        {"gbs": MANY, "zero": "0,1"},
    ),
}


def job_of(words: dict[str, object]) -> Job:
    """A job from words of the command line."""
    return job(**words)


def main(name: str) -> dict[str, float]:
    """Screen one space from the beginning."""
    words, space = PROBLEMS[name]
    job, asked = job_of(words), Space(**space)
    book = load_book(job.cluster)
    ready_s = time.process_time()
    question = Question(jobs=(job,), space=asked, objectives=("tokens_per_s",))
    found = TopCandidates().after_all(question, batches(job, asked), lambda _: book)
    screen_s = time.process_time() - ready_s
    return {
        "candidates": num_plans(job, asked),
        "possible": found.possible,
        "feasible": found.feasible,
        "ready_s": ready_s,
        "screen_s": screen_s,
        "process_s": time.process_time(),
        "candidates_per_s": found.candidates / screen_s,
        "possible_per_s": found.possible / screen_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
