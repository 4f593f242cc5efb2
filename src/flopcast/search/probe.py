"""A first look at a space: a few plans from all over it, screened before all others.

Answers: which plan is a good one after a fraction of a second, and which losses must others beat?
Elsewhere: what follows from these losses (incumbents.py), the whole space (find.py,
workers/search_tasks.py).
"""

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.search.grid import plans_by_structure, plans_from
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.job import Job
from flopcast.spec.rows import rows_of

PROBED = 2048  # plans of each structure
WORTH_A_LOOK = 4096  # plans of a space; smaller ones are screened as soon as a part of them


def probed(
    question: Question, job: Job, book: CurveBook, kept: KeptResults = NOTHING_KEPT
) -> TopCandidates:
    """Return the best of a few plans on one cluster; counts are of these plans.

    Parameters
    ----------
    question : Question
    job : one of `Question.sized()`
    book : the curves of its cluster
    kept : as for `screen`
    """
    found = TopCandidates()
    numbers = plans_by_structure(job, question.space)
    if sum(numbers) < WORTH_A_LOOK:
        return found
    for place in _usual(job, question.space, numbers):
        step = -(-numbers[place] // PROBED)
        first = 0
        for plans in plans_from(job, question.space, place, 0, numbers[place]):
            rows = np.arange(-first % step, plans.size, step)
            first += plans.size
            found = found.after_all(question, [(job, rows_of(plans, rows))], lambda _: book, kept)
    return found


def _usual(job: Job, space: Space, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place of one structure with plans for each mode of recompute: the lowest ZeRO above 0."""
    found: dict[str, tuple[tuple[int, int], int]] = {}
    for place, plan in enumerate(space.structures(job)):
        if numbers[place]:
            rank = (plan.zero or 4, -numbers[place])
            word = plan.recompute_word
            if word not in found or rank < found[word][0]:
                found[word] = (rank, place)
    return tuple(place for _, place in found.values())
