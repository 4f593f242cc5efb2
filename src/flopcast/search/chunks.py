"""A search that is divided into independent chunks.

Answers: into which chunks is a search divided, and what does a chunk compute?
Elsewhere: how chunks are stored (chunk_text.py), which processes compute them (workers/), how the results
of chunks are combined (top_candidates.py, find.py).

The division of a question depends only on the question, and not on the workers: the same chunks, combined
in their order, give the same answer.
"""

from collections.abc import Callable, Iterator, Sequence

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import Record
from flopcast.search.evolved_plans import evolved
from flopcast.search.exact import Exact, play_each
from flopcast.search.grid import num_plans, plans_by_structure, plans_from
from flopcast.search.pruning import NO_INCUMBENTS, Incumbents
from flopcast.search.question import Question
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job

EVOLVED_PLANS = 5_000  # that evolution estimates on one cluster, about; progress is shown against it
CHUNK_PLANS = 16_384  # of one chunk at least, about: a fraction of a second of screening
LONG_CHUNK_PLANS = 65_536  # at most
ENOUGH_CHUNKS = 32  # of a space: more would share less of their work
BookOf = Callable[[Cluster], CurveBook]


class Chunk(Record):
    """Some plans of a space, as `grid.plans_from` counts them, on `Question.sized()[place]`.

    If evolution chooses the plans, one chunk is the whole space of a setting, and `number` is an expected
    number.
    """

    place: int
    structure: int
    first: int
    number: int


def chunks(question: Question, number: int | None = None) -> tuple[Chunk, ...]:
    """Return the chunks of a question, each of about this many plans, in the order of the space.

    If possible, the plans of one structure stay together, because they share much of their work. Without a
    number, the space determines the size of chunks.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.
    """
    if question.evolve:
        sized = tuple(question.sized())
        return tuple(
            Chunk(place=place, structure=0, first=0, number=EVOLVED_PLANS) for place in range(len(sized))
        )
    each = [plans_by_structure(job, question.space) for job in question.sized()]
    usual = min(max(sum(map(sum, each)) // ENOUGH_CHUNKS, CHUNK_PLANS), LONG_CHUNK_PLANS)
    return tuple(
        Chunk(place=place, structure=structure, first=first, number=some)
        for place, numbers in enumerate(each)
        for structure, first, some in _cuts(numbers, number or usual)
    )


def _cuts(numbers: Sequence[int], most: int) -> Iterator[tuple[int, int, int]]:
    """Yield parts of structures with this many plans: the structure, the offset in it, the number.

    >>> list(_cuts([4, 4, 3, 25, 1], 10))
    [(0, 0, 8), (2, 0, 3), (3, 0, 10), (3, 10, 10), (3, 20, 6)]
    """
    start, first, waiting = 0, 0, 0
    for structure, number in enumerate(numbers):
        if waiting and waiting + number > most:
            yield start, first, waiting
            waiting = 0
        if not waiting:
            start, first = structure, 0
        waiting += number
        while waiting > most:
            yield start, first, most
            first, waiting = first + most, waiting - most
    if waiting:
        yield start, first, waiting


def num_screened(question: Question) -> int:
    """Return the number of plans of a question. If evolution chooses plans, this is the expected number."""
    if question.evolve:
        return sum(chunk.number for chunk in chunks(question))
    return sum(num_plans(job, question.space) for job in question.jobs)


def screened(
    question: Question,
    chunk: Chunk,
    book_of: BookOf,
    kept: KeptResults = NOTHING_KEPT,
    before: Incumbents = NO_INCUMBENTS,
) -> TopCandidates:
    """Return the top candidates of a chunk.

    Parameters
    ----------
    question : Question
    chunk : Chunk
    book_of : function
        Returns the curves of a cluster.
    kept : KeptResults
        Results of earlier predictions with the same items.
    before : Incumbents
        Results of other chunks. Plans that these results rule out are not estimated. They do not change the
        final answer.
    """
    job = tuple(question.sized())[chunk.place]
    if question.evolve:
        *_, found = evolved(question, job, book_of, kept)
        return found
    parts = plans_from(job, question.space, chunk.structure, chunk.first, chunk.number)
    batches = ((job, plans) for plans in parts)
    return TopCandidates().after_all(question, batches, book_of, kept, before)


def played(jobs: Sequence[Job], book_of: BookOf, kept: KeptResults = NOTHING_KEPT) -> tuple[Exact, ...]:
    """Return the simulated jobs of one group."""
    found = dict(play_each(jobs, book_of, kept))
    return tuple(found[place] for place in range(len(jobs)))
