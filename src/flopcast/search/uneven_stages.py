"""The division of blocks over stages with the shortest step that memory allows.

Answers: which division of a model's blocks into stages fits, and has the shortest estimated step?
Elsewhere: the closed form (timeline/closed_form.py), the first division if blocks do not divide evenly
(spec/divisors.py), the plans that are refined (refine.py).

Stages differ because two of them contain the embedding and the head (a head with 128,000 words takes as
long as several blocks), because kinds of blocks differ, and because an early stage keeps more micro-batches
than a late stage. Time and memory are computed for every slice that a stage may hold
(workload/candidate_stages.py). A dynamic program over cuts then finds the best division exactly: for each
limit of the slowest stage, it finds the division with the smallest sum, and then takes the limit with the
shortest step. The method does not assume linear costs.

Several chunks per stage couple the rounds (uneven_chunks.py).
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price
from flopcast.dtypes import Flags, Floats, Integers, levels
from flopcast.kept_results import NOTHING_KEPT, KeptResults, content
from flopcast.memory.peak import memory_on
from flopcast.records import Record, field
from flopcast.schedules.custom import OwnSchedule
from flopcast.search.memory_limit import within_memory
from flopcast.search.stage_chunks import FIRST, INNER, LAST, ChunkDivision, Chunks
from flopcast.search.uneven_chunks import best_chunks
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.job import Job
from flopcast.spec.plan import one_plan
from flopcast.spec.rows import equal_rows
from flopcast.timeline.closed_form import micro_batch_seconds
from flopcast.workload.candidate_stages import CandidateStages
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise

MOST_BLOCKS = 128  # as the deepest model of the catalogue has: slices grow with the square of blocks
EVENNESS = 1e-6  # of a sum: of divisions that equal each other so far, the one with equal stages


def balanced_stages(
    job: Job,
    book: CurveBook,
    headroom_fraction: float | None = 1.0,
    kept: KeptResults = NOTHING_KEPT,
    slower_ratio: float = np.inf,
) -> tuple[int, ...] | None:
    """Return the blocks of every chunk that make the step of the job's plan shortest, in closed form.

    Parameters
    ----------
    job : a job whose plan has several stages; its `stage_layers` are not used
    book : curves of the job's cluster
    headroom_fraction : fraction of the device's memory that a stage may use; None means as much as fits
        (memory/verdict.py)
    kept : layers and prices of earlier predictions
    slower_ratio : largest ratio of the slowest stage to that of the plan's division, for several chunks. 1
        means that the plan's division fits

    Returns
    -------
    tuple of int or None
        `stage_layers`; None if no division fits, or if the case is not supported: a split backward pass, a
        user's own schedule, a single stage, more than MOST_BLOCKS blocks, or chunks with too many kinds of
        blocks.
    """
    plan, blocks = job.plan, job.model.num_blocks
    own = isinstance(plan.schedule, OwnSchedule) or plan.order_rule.splits_backward
    stages, virtual = plan.pipeline_parallel, plan.virtual_stages
    if own or stages == 1 or blocks > MOST_BLOCKS or stages * virtual > blocks + 2:
        return None
    plain = job.model_copy(update={"plan": plan.model_copy(update={"stage_layers": ()})})
    if virtual > 1:
        held = _in_chunks(plain, book, headroom_fraction, kept, (_own_division(job), slower_ratio))
    else:
        held = _in_stages(plain, book, headroom_fraction, kept)
    return None if held is None else tuple(held.T.ravel().tolist())


def _own_division(job: Job) -> tuple[int, ...]:
    """Return the blocks of every chunk of the job's plan, or of nearly equal chunks if it lists none."""
    plan = job.plan
    chunks = plan.pipeline_parallel * plan.virtual_stages
    return plan.stage_layers or divided_over_chunks(job.model.num_blocks, chunks)


def _in_stages(
    job: Job, book: CurveBook, headroom_fraction: float | None, kept: KeptResults
) -> Integers | None:
    """Return the number of blocks of every stage, (stages, 1)."""
    busy_s = busy_seconds(job, book, headroom_fraction, kept)
    cuts = best_cuts(busy_s, job.plan.num_micro_batches)
    return None if cuts is None else np.diff(cuts)[:, None]


def _in_chunks(
    job: Job,
    book: CurveBook,
    headroom_fraction: float | None,
    kept: KeptResults,
    most: tuple[tuple[int, ...], float],
) -> Integers | None:
    """Return the number of blocks of every chunk, (stages, chunks).

    `most` is a division, and how much slower than its slowest stage a stage may be; it fits if that is 1.
    """
    plan, dealt = job.plan, _by_cuts(job.model.num_blocks)
    programs = _programs(job, dealt.slices, kept)
    alone_s = _seconds(programs, job, book, kept)
    waits_s = alone_s[-1]  # for its transfers, however many chunks a stage has
    alone_s = alone_s - waits_s * (1.0 - 1.0 / plan.virtual_stages)
    kind = programs.stages.of(0).chunk_class[:, 0][dealt.row]
    along = np.diagonal(kind[INNER], 1).tolist()  # the model, block by block
    chunks = Chunks(
        chunk_s=np.append(alone_s, np.inf)[dealt.row],
        runs=tuple(len(list(run)) for _, run in groupby(along)),
        stages=plan.pipeline_parallel,
        virtual=plan.virtual_stages,
    )
    room = _MemoryLimit(job=job, headroom_fraction=headroom_fraction, chunks=chunks, kind=kind, kept=kept)
    layers, slower_ratio = most
    most_s, micro = chunks.slowest_s(layers) * slower_ratio, plan.num_micro_batches
    key = ("chunks", content(chunks), micro, most_s)
    (found,) = kept.of(key, lambda: (best_chunks(chunks, micro, None, most_s),))
    if found is not None and slower_ratio == 1.0 and layers == tuple(found.held.T.ravel().tolist()):
        return found.held
    if found is not None and not room.holds(found):
        found = best_chunks(chunks, micro, room.fits, most_s)
    return None if found is None else found.held


def busy_seconds(
    job: Job, book: CurveBook, headroom_fraction: float | None = 1.0, kept: KeptResults = NOTHING_KEPT
) -> Floats:
    """Return the seconds of one micro-batch for every stage and slice, as `best_cuts` reads them.

    Returns
    -------
    array of shape (stages, cuts, cuts)
        Seconds; infinite if a slice does not fit on the stage, or no slice lies between two cuts.
    """
    dealt = _by_cuts(job.model.num_blocks)
    programs = _programs(job, dealt.slices, kept)
    slice_s = _seconds(programs, job, book, kept)
    roles = np.array([FIRST, *[INNER] * (job.plan.pipeline_parallel - 2), LAST])
    each = zip(roles, _fits(programs, range(len(roles)), job, headroom_fraction), strict=True)
    busy = [np.append(np.where(fits, slice_s, np.inf), np.inf)[dealt.row[role]] for role, fits in each]
    return np.stack(busy)


def best_cuts(busy_s: Floats, micro_batches: int) -> Integers | None:
    """Return the cuts of the division with the shortest step: `micro_batches` · slowest + others.

    Parameters
    ----------
    busy_s : array of shape (stages, cuts, cuts)
        Seconds of one micro-batch on a stage that holds the blocks between two cuts; infinite if this is
        not allowed.

    Returns
    -------
    array of shape (stages + 1,), or None
        Cuts from 0 to the number of blocks; None if no division is allowed.

    Examples
    --------
    Three blocks of one second each, and a head of two seconds, on two stages:

    >>> block_s = np.maximum(np.arange(4)[None] - np.arange(4)[:, None], -np.inf)
    >>> one_way = np.where(block_s > 0, block_s, np.inf)
    >>> best_cuts(np.stack([one_way, one_way + 2.0]), 8).tolist()
    [0, 2, 3]
    """
    allowed = np.isfinite(busy_s)
    if _least(np.where(allowed, busy_s, np.inf)) is None:
        return None
    levels_s = levels(busy_s[allowed])
    weight_s = busy_s + EVENNESS * busy_s**2 / levels_s[-1]

    def below(level_s: float) -> Integers | None:
        return _least(np.where(busy_s <= level_s, weight_s, np.inf))

    def step_s(cuts: Integers) -> float:
        each_s = busy_s[np.arange(len(busy_s)), cuts[:-1], cuts[1:]]
        return float((micro_batches - 1) * each_s.max() + each_s.sum())

    low, high = 0, len(levels_s) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if below(float(levels_s[middle])) is not None else (middle + 1, high)
    tried = [cuts for cuts in (below(float(levels_s[low])), below(np.inf)) if cuts is not None]
    best = min(tried, key=step_s)
    least_sum_s = busy_s[np.arange(len(busy_s)), tried[-1][:-1], tried[-1][1:]].sum()
    for level_s in levels_s[low + 1 :].tolist():
        bound_s = (micro_batches - 1) * level_s + least_sum_s
        if bound_s >= step_s(best) * (1.0 - EVENNESS):
            break  # of every higher level too
        found = below(level_s)
        best = best if found is None else min(best, found, key=step_s)
    return best


def _least(weight_s: Floats) -> Integers | None:
    """Return the cuts with the least sum of weights, stage by stage; None if every sum is infinite."""
    sums_s, before = weight_s[0, 0], []
    for of_stage in weight_s[1:]:
        through_s = sums_s[:, None] + of_stage
        before.append(through_s.argmin(axis=0))
        sums_s = through_s.min(axis=0)
    if not np.isfinite(sums_s[-1]):
        return None
    cuts = [len(sums_s) - 1]
    for places in reversed(before):
        cuts.append(int(places[cuts[-1]]))
    return np.array([0, *cuts[::-1]])


class _CandidateStages(Record, eq=False):
    """All slices that a stage may hold, then an empty one, and which slice is between two cuts.

    -1 where none does.
    """

    slices: CandidateStages
    row: Integers  # (roles, cuts, cuts)


def _by_cuts(blocks: int) -> _CandidateStages:
    """Return chunks of consecutive blocks; those at the ends of the model may be empty."""
    low, high = np.meshgrid(np.arange(blocks + 1), np.arange(blocks + 1), indexing="ij")
    may = np.stack([(low == 0) & (high >= 0), low < high, (high == blocks) & (low <= high)])
    role, start, stop = (
        np.append(axis, last) for axis, last in zip(np.nonzero(may), (INNER, 0, 0), strict=True)
    )
    row = np.full(may.shape, -1)
    row[may] = np.arange(may.sum())
    return _CandidateStages(slices=_slices(role[:, None], start[:, None], stop[:, None]), row=row)


class _MemoryLimit(Record, eq=False):
    """Decides which stages have room for some chunks, and caches answers by the contents of chunks.

    `kind` numbers chunks by their contents, (roles, cuts, cuts).
    """

    job: Job
    headroom_fraction: float | None
    chunks: Chunks
    kind: Integers
    kept: KeptResults
    known: dict[bytes, Flags] = field(default_factory=dict)

    def fits(self, stage: int, start: Integers, stop: Integers) -> Flags:
        """Return whether a stage can hold some chunks, (states,).

        Parameters
        ----------
        stage : int
        start, stop : arrays of int, shape (states, chunks)
            First block of each chunk, and the block after its last.

        Notes
        -----
        Chunks with equal kinds of blocks need equal memory, whatever their blocks are. Each such case is
        computed once, for all stages together.
        """
        role = self.chunks.roles(stage)
        kind = self.kind[role, start, stop]
        equal = equal_rows(list(kind.T))
        keys = [row.tobytes() for row in kind[equal.first]]
        new = equal.first[[key not in self.known for key in keys]]
        if len(new):
            found = self._of_all_stages(_slices(role, start[new], stop[new]))
            self.known.update(zip((key for key in keys if key not in self.known), found, strict=True))
        return np.array([self.known[key][stage] for key in keys], dtype=bool)[equal.group]

    def holds(self, division: ChunkDivision) -> bool:
        """Return whether every stage can hold its part of a division."""
        start, stop = division.cuts
        role = [self.chunks.roles(stage) for stage in range(self.chunks.stages)]
        programs = _programs(self.job, _slices(np.array(role), start, stop), self.kept)
        fits = _fits(programs, range(len(role)), self.job, self.headroom_fraction)
        return all(one[stage] for stage, one in enumerate(fits))

    def _of_all_stages(self, slices: CandidateStages) -> Flags:
        programs = _programs(self.job, slices, self.kept)
        fits = _fits(programs, range(self.chunks.stages), self.job, self.headroom_fraction)
        return np.stack(tuple(fits), axis=1)


def _slices(role: Integers, low: Integers, high: Integers) -> CandidateStages:
    """Return the slices of chunks, (slices, chunks); roles broadcast to them."""
    starts, ends = (np.broadcast_to(role == which, low.shape) for which in (FIRST, LAST))
    return CandidateStages(low=low, high=high, starts=starts, ends=ends)


def _programs(job: Job, slices: CandidateStages, kept: KeptResults) -> Programs:
    workload = lower(job.model, one_plan(job.plan), job.batch, kept)
    return realise(workload, job.software, slices.stages, kept)


def _seconds(programs: Programs, job: Job, book: CurveBook, kept: KeptResults) -> Floats:
    """Return the seconds of one micro-batch on every slice, (slices,)."""
    priced = price(programs, job.cluster, book, FactorBook(job.site, book.levels), kept)
    slice_s: Floats = micro_batch_seconds(priced)[0, programs.stages.of(0).stage_class]
    return slice_s


def _fits(
    programs: Programs, stages: Iterable[int], job: Job, headroom_fraction: float | None
) -> Iterator[Flags]:
    of = programs.stages.of(0).stage_class
    for memory in memory_on(programs, stages):
        fits = within_memory(memory, job.cluster, headroom_fraction)
        found: Flags = np.broadcast_to(fits[0], of.max() + 1)[of]
        yield found
