"""The fronts that evolution finds, against those of whole spaces: hypervolumes and numbers of plans.

    .venv/bin/python -m benchmarks.evolved_fronts [NAME ...]     the spaces of `python -m benchmarks search`

Objectives are tokens per second and memory. The reference of a hypervolume is ten percent worse than the
worst of the enumerated front in both.
"""

import sys
import time

import numpy as np

from benchmarks.search import PROBLEMS, job_of
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.search.evolved_plans import evolved
from flopcast.search.grid import batches
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates


def hypervolume(losses: np.ndarray, reference: np.ndarray) -> float:
    """Return the volume of losses that are worse than one of the rows and better than the reference.

    Parts of rows that are worse than the reference count as nothing.

    >>> hypervolume(np.array([[1.0, 3.0], [2.0, 2.0], [9.0, 1.0]]), np.array([4.0, 4.0]))
    5.0
    """
    inside = losses[(losses < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    if inside.shape[1] == 1:
        return float(reference[0] - inside.min())
    rows = inside[np.argsort(inside[:, -1], kind="stable")]
    heights = np.diff(np.append(rows[:, -1], reference[-1]))
    return sum(
        float(height) * hypervolume(rows[: place + 1, :-1], reference[:-1])
        for place, height in enumerate(heights)
        if height > 0
    )


def compared(name: str) -> str:
    """One row about a space."""
    words, space = PROBLEMS[name]
    job, asked = job_of(words), Space(**space)
    book = load_book(job.cluster)
    question = Question(jobs=(job,), space=asked, objectives=("tokens_per_s", "memory"))
    started_s = time.process_time()
    every = TopCandidates().after_all(question, batches(job, asked), lambda _: book)
    between_s = time.process_time()
    *_, found = evolved(question, job, lambda _: book, KeptResults(4096))
    ended_s = time.process_time()
    known, own = (np.array([one.losses for one in each.on_front]) for each in (every, found))
    reference = 1.1 * known.max(axis=0)
    ratio = hypervolume(own, reference) / hypervolume(known, reference)
    slower = own[:, 0].min() / known[:, 0].min() - 1
    values = (name, f"{every.possible:,}", f"{found.possible:,}", f"{ratio:.2%}", f"{slower:.2%}")
    seconds = (f"{between_s - started_s:.0f} s", f"{ended_s - between_s:.0f} s")
    return f"| {' | '.join((*values, *seconds))} |"


if __name__ == "__main__":
    for problem in sys.argv[1:] or PROBLEMS:
        print(compared(problem), flush=True)
