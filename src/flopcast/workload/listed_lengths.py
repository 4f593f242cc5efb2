"""The micro-batches of every data-parallel rank, given a distribution of lengths.

Answers: which sequences are packed together, which ranks share a sequence, and which micro-batches does
each rank get?
Elsewhere: distributions (spec/length_distribution.py), the messages of shared sequences
(layers/context.py).

"mesh": sequences are packed, the longest that still fits first, up to the tokens of a context-parallel
group; groups get packs in rotation. Every sequence of a pack is divided over all ranks of the group, so
that keys and values of short sequences are sent over as many ranks as those of long sequences.

"by_length": a sequence that is too long for one rank is divided over the smallest number of neighbouring
ranks that can hold it. This number is a divisor of the data-parallel degree. Shorter sequences are packed
with others of their length. The most costly micro-batches are distributed first, each to the ranks with the
least so far.

References
----------
ByteScale, arXiv:2502.21231, sections 4 and 5: hybrid data parallelism and its balance.
"""

from collections.abc import Iterator
from heapq import heapify, heapreplace
from itertools import groupby

from flopcast.errors import Problem, SpecError
from flopcast.records import Record
from flopcast.spec.batch import MicroBatch, RankBatch
from flopcast.spec.divisors import divisors
from flopcast.spec.job import Job
from flopcast.spec.length_distribution import LengthDistribution

STEP, RANK = "batch.distribution.step_tokens", "batch.distribution.rank_tokens"


class _Piece(Record):
    """One micro-batch, the ranks that share it, and its FLOP on each of them."""

    micro_batch: MicroBatch
    rank_flop: float
    rank_tokens: float


def with_listed_lengths(job: Job) -> Job:
    """Return the job with a list of micro-batches instead of its distribution.

    Jobs without a distribution are not changed.

    The global batch becomes the number of listed micro-batches.

    Raises
    ------
    SpecError
        There are fewer sequences than ranks, or a sequence is too long for every group of ranks.

    Examples
    --------
    On four ranks, a sequence of four times the tokens that a rank can hold, and eight short sequences:

    >>> from flopcast.requests.job_files import load_catalog_job
    >>> from flopcast.spec.batch import Batch
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> distribution = LengthDistribution(lengths="8192:1,1024:8", step_tokens=16384, rank_tokens=2048)
    >>> plan = job.plan.model_copy(update={"data_parallel": 4, "micro_batch": 1})
    >>> batch = Batch(seq=8192, distribution=distribution)
    >>> spread = with_listed_lengths(job.model_copy(update={"plan": plan, "batch": batch}))
    >>> [(each.count, [(one.sequence_length or one.documents, one.shared_by, one.count)
    ...     for one in each.micro_batches]) for each in spread.batch.ranks], spread.plan.global_batch
    ([(4, [(8192, 4, 1), ((1024, 1024), 1, 1)])], 8)
    """
    distribution = job.batch.distribution
    if distribution is None:
        return job
    lists = _mesh(distribution, job) if distribution.sharing == "mesh" else _by_length(distribution, job)
    if not all(lists):
        allowed = f"enough tokens for all {len(lists)} data-parallel ranks"
        because = f"with these tokens, only {sum(map(bool, lists))} of the ranks get a micro-batch"
        raise SpecError(
            [Problem(STEP, distribution.step_tokens, allowed, because, f"change {STEP} to more")]
        )
    ranks: list[RankBatch] = []
    for pieces in lists:
        micro_batches = tuple(_in_runs(pieces))
        if ranks and ranks[-1].micro_batches == micro_batches:
            ranks[-1] = ranks[-1].model_copy(update={"count": ranks[-1].count + 1})
        else:
            ranks.append(RankBatch(micro_batches=micro_batches))
    longest = max(one.sequence_length or sum(one.documents) for each in ranks for one in each.micro_batches)
    number = sum(len(pieces) for pieces in lists)
    note = f"global_batch {number * job.plan.micro_batch}: all sequences of the given distribution"
    return job.model_copy(
        update={
            "batch": job.batch.model_copy(
                update={"sequence_length": longest, "ranks": tuple(ranks), "distribution": None}
            ),
            "plan": job.plan.model_copy(update={"global_batch": number * job.plan.micro_batch}),
            "assumptions": (*job.assumptions, note),
        }
    )


def _in_runs(pieces: list[_Piece]) -> Iterator[MicroBatch]:
    """Yield micro-batches in order, equal ones that follow each other as one entry."""
    place = 0
    while place < len(pieces):
        each = pieces[place].micro_batch
        end = place
        while end < len(pieces) and pieces[end].micro_batch == each:
            end += 1
        yield each.model_copy(update={"count": end - place})
        place = end


def _piece(job: Job, documents: tuple[int, ...], ranks: int) -> _Piece:
    """Return one micro-batch of these sequences, shared by so many ranks."""
    tokens, distribution = sum(documents), job.batch.distribution
    offloads = ranks > 1 or distribution is None or distribution.offload_short
    flop = job.model.forward_flop(tokens, causal=True, documents=documents) / ranks
    if len(documents) == 1:
        made = MicroBatch(sequence_length=tokens, shared_by=ranks, offloads=offloads)
    else:
        made = MicroBatch(documents=documents, offloads=offloads)
    return _Piece(micro_batch=made, rank_flop=flop, rank_tokens=tokens / ranks)


def _mesh(distribution: LengthDistribution, job: Job) -> list[list[_Piece]]:
    """Return the packs of every context-parallel group."""
    most = distribution.rank_tokens * job.plan.context_parallel
    left = dict(distribution.sequences)
    if max(left) > most:
        raise SpecError([_too_long(distribution, max(left), most, "context_parallel")])
    lists: list[list[_Piece]] = [[] for _ in range(job.plan.data_parallel)]
    turn = 0
    while left:
        documents: list[int] = []
        room = most
        for tokens in sorted(left, reverse=True):
            number = min(left[tokens], room // tokens)
            documents += [tokens] * number
            room -= number * tokens
            left[tokens] -= number
        left = {tokens: number for tokens, number in left.items() if number}
        lists[turn % len(lists)].append(_piece(job, tuple(documents), 1))
        turn += 1
    return lists


def _by_length(distribution: LengthDistribution, job: Job) -> list[list[_Piece]]:
    """Return the micro-batches of every data-parallel rank."""
    ranks, shared = job.plan.data_parallel, distribution.shared_rank_tokens or distribution.rank_tokens
    pieces: list[_Piece] = []
    for tokens, number in distribution.sequences:
        if tokens > distribution.rank_tokens:
            groups = [size for size in divisors(ranks) if size > 1 and size * shared >= tokens]
            if not groups:
                raise SpecError([_too_long(distribution, tokens, shared * ranks, "data_parallel")])
            pieces += [_piece(job, (tokens,), min(groups))] * number
            continue
        each = distribution.rank_tokens // tokens
        pieces += [_piece(job, (tokens,) * each, 1)] * (number // each)
        pieces += [_piece(job, (tokens,) * (number % each), 1)] if number % each else []
    by_flop = distribution.balance == "flop"
    lists: list[list[_Piece]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks

    def load(piece: _Piece) -> float:
        return piece.rank_flop if by_flop else piece.rank_tokens

    by_size = sorted(pieces, key=lambda one: (one.micro_batch.shared_by, load(one)), reverse=True)
    for size, alike in groupby(by_size, key=lambda one: one.micro_batch.shared_by):
        least = [(max(loads[first : first + size]), first) for first in range(0, ranks, size)]
        heapify(least)
        for piece in alike:
            before, start = least[0]
            after = before + load(piece)
            heapreplace(least, (after, start))
            for rank in range(start, start + size):
                lists[rank].append(piece)
                loads[rank] = after
    return lists


def _too_long(distribution: LengthDistribution, tokens: int, most: int, degree: str) -> Problem:
    """Return the error of a sequence that no group of ranks holds."""
    allowed = f"enough for sequences of {tokens} tokens"
    because = f"a group of ranks holds at most {most} tokens (rank_tokens · {degree})"
    return Problem(RANK, distribution.rank_tokens, allowed, because, f"change {RANK} to more")
