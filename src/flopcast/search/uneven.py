"""Blocks dealt out to stages that are not alike: the slowest one as fast as it can be, inside its memory.

Answers: of all ways to cut a model's blocks into stages, which has the shortest step in closed form and
fits?
Elsewhere: the closed form (timeline/closed_form.py), the first guess where blocks do not divide
(spec/divisors.py), which plans are worth the question (refine.py).

Stages are unlike because the model's ends stand on two of them (a head of 128,000 words is as much work as
several blocks), because kinds of blocks differ, and because an early stage keeps more micro-batches than a
late one. Every slice that a stage may hold is priced and weighed as that stage (workload/slices.py); a
dynamic program over cuts then finds the best division exactly: for a level that no stage exceeds, the least
sum; of all levels, the least step. Nothing is taken to be linear.

With several chunks on a stage a slice is a number of blocks, dealt out over its chunks so that the slowest
chunk is as fast as can be. That needs blocks that are all alike; other models keep the division they have.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.book import CurveBook
from flopcast.cost.price import price
from flopcast.dtypes import Floats, Integers
from flopcast.memory.peak import memory_on, seen_bytes
from flopcast.spec.job import Job
from flopcast.spec.own_schedule import OwnSchedule
from flopcast.spec.plan import one_plan
from flopcast.timeline.closed_form import micro_batch_seconds
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise
from flopcast.workload.slices import Slices

EVENNESS = 1e-6  # of a sum: of divisions that equal each other so far, the one with equal stages


def levelled(job: Job, book: CurveBook, headroom_fraction: float = 1.0) -> tuple[int, ...] | None:
    """The blocks of every chunk that make the step of the job's plan shortest, in closed form.

    Parameters
    ----------
    job : Job
        Its plan has several stages; its own `stage_layers` are not used.
    book : CurveBook
        Curves of the job's cluster.
    headroom_fraction : float
        Of the device's memory that a stage may use.

    Returns
    -------
    tuple of int or None
        `stage_layers`; None where no division fits, or the question is not answered: a backward that is
        split, a user's own schedule, chunks of a model whose blocks differ, one stage.
    """
    plan, blocks = job.plan, job.model.num_blocks
    own = isinstance(plan.schedule, OwnSchedule) or plan.splits_backward
    several_kinds = plan.virtual_stages > 1 and len(job.model.blocks) > 1
    stages, virtual = plan.pipeline_parallel, plan.virtual_stages
    if own or several_kinds or stages == 1 or stages * virtual > blocks + 2:
        return None
    plain = job.model_copy(update={"plan": plan.model_copy(update={"stage_layers": ()})})
    dealt = _by_cuts(blocks) if virtual == 1 else _by_number(plain, book)
    busy_s = _busy(plain, book, dealt, headroom_fraction)
    cuts = best_cuts(busy_s, plan.num_micro_batches, virtual)
    if cuts is None:
        return None
    rows = [dealt.row[role, cuts[s], cuts[s + 1]] for s, role in enumerate(_roles(stages))]
    held = (dealt.slices.high - dealt.slices.low)[rows]
    return tuple(held.T.ravel().tolist())


def best_cuts(busy_s: Floats, micro_batches: int, virtual: int) -> Integers | None:
    """The cuts of the division with the shortest step: `micro_batches` · slowest + others / `virtual`.

    Parameters
    ----------
    busy_s : array of shape (stages, cuts, cuts)
        Seconds of one micro-batch on a stage that holds the blocks between two cuts; infinite where it may
        not hold them.

    Returns
    -------
    array of shape (stages + 1,), or None
        From 0 to the number of blocks; None where no division is allowed.

    Examples
    --------
    Three blocks of a second and a head of two on two stages:

    >>> block_s = np.maximum(np.arange(4)[None] - np.arange(4)[:, None], -np.inf)
    >>> one_way = np.where(block_s > 0, block_s, np.inf)
    >>> best_cuts(np.stack([one_way, one_way + 2.0]), 8, 1).tolist()
    [0, 2, 3]
    """
    allowed = np.isfinite(busy_s)
    if _least(np.where(allowed, busy_s, np.inf)) is None:
        return None
    levels_s = np.unique(busy_s[allowed])
    weight_s = busy_s + EVENNESS * busy_s**2 / levels_s[-1]

    def below(level_s: float) -> Integers | None:
        return _least(np.where(busy_s <= level_s, weight_s, np.inf))

    def step_s(cuts: Integers) -> float:
        each_s = busy_s[np.arange(len(busy_s)), cuts[:-1], cuts[1:]]
        return float(micro_batches * each_s.max() + (each_s.sum() - each_s.max()) / virtual)

    low, high = 0, len(levels_s) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if below(float(levels_s[middle])) is not None else (middle + 1, high)
    tried = [cuts for cuts in (below(float(levels_s[low])), below(np.inf)) if cuts is not None]
    best = min(tried, key=step_s)
    least_sum_s = busy_s[np.arange(len(busy_s)), tried[-1][:-1], tried[-1][1:]].sum()
    for level_s in levels_s[low + 1 :].tolist():
        bound_s = micro_batches * level_s + (least_sum_s - level_s) / virtual
        if bound_s >= step_s(best) * (1.0 - EVENNESS):
            break  # of every higher level too
        found = below(level_s)
        best = best if found is None else min(best, found, key=step_s)
    return best


def _least(weight_s: Floats) -> Integers | None:
    """The cuts with the least sum of weights, stage by stage; None where every sum is infinite."""
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


FIRST, INNER, LAST = range(3)  # stages by what they hold besides blocks


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Dealt:
    """All slices that a stage may hold, and which of them stands between two cuts; -1 where none does."""

    slices: Slices
    row: Integers  # (roles, cuts, cuts)


def _roles(stages: int) -> Integers:
    """What every stage holds besides blocks."""
    return np.array([FIRST, *[INNER] * (stages - 2), LAST])


def _by_cuts(blocks: int) -> _Dealt:
    """Stages of one chunk: neighbouring blocks. The ends may hold none."""
    low, high = np.meshgrid(np.arange(blocks + 1), np.arange(blocks + 1), indexing="ij")
    may = np.stack([(low == 0) & (high >= 0), low < high, (high == blocks) & (low <= high)])
    role, start, stop = np.nonzero(may)
    row = np.full(may.shape, -1)
    row[role, start, stop] = np.arange(len(role))
    slices = Slices(
        low=start[:, None], high=stop[:, None], starts=role[:, None] == FIRST, ends=role[:, None] == LAST
    )
    return _Dealt(slices=slices, row=row)


def _by_number(job: Job, book: CurveBook) -> _Dealt:
    """Stages of several chunks of blocks that are alike: numbers of blocks, dealt out over the chunks."""
    blocks, virtual = job.model.num_blocks, job.plan.virtual_stages
    role, number = (
        axis.ravel() for axis in np.meshgrid(np.arange(3), np.arange(blocks + 1), indexing="ij")
    )
    alone = _slices(np.stack([role, number], axis=1)[:, None])
    chunk_s = _seconds(_programs(job, alone), job, book).reshape(3, blocks + 1)
    dealt: list[list[tuple[int, int]]] = []
    row = np.full((3, blocks + 1, blocks + 1), -1)
    for kind in range(3):
        chunks = [INNER] * virtual
        if kind != INNER:
            chunks[0 if kind == FIRST else -1] = kind
        held = [int(chunk == INNER) for chunk in chunks]
        while sum(held) <= blocks:
            low = np.arange(blocks + 1 - sum(held))
            row[kind, low, low + sum(held)] = len(dealt)
            dealt.append(list(zip(chunks, held, strict=True)))
            after_s = [
                chunk_s[chunk, min(count + 1, blocks)] for chunk, count in zip(chunks, held, strict=True)
            ]
            place = min(reversed(range(virtual)), key=after_s.__getitem__)  # late ones are in flight less
            held[place] += 1
    row[FIRST, 1:] = row[LAST, :, :-1] = -1
    return _Dealt(slices=_slices(np.array(dealt)), row=row)


def _slices(chunks: Integers) -> Slices:
    """Slices of which only numbers matter: (slices, chunks, 2), a chunk's role and its blocks."""
    role, number = chunks[..., 0], chunks[..., 1]
    return Slices(low=np.zeros_like(number), high=number, starts=role == FIRST, ends=role == LAST)


def _programs(job: Job, slices: Slices) -> Programs:
    """The programs of slices as stages."""
    return realise(lower(job.model, one_plan(job.plan), job.batch), job.software, slices.stages)


def _seconds(programs: Programs, job: Job, book: CurveBook) -> Floats:
    """Seconds of one micro-batch on every slice, (slices,)."""
    priced = price(programs, job.cluster, book, FactorBook(job.site, book.levels))
    slice_s: Floats = micro_batch_seconds(priced)[0, programs.stages.of(0).stage_class]
    return slice_s


def _busy(job: Job, book: CurveBook, dealt: _Dealt, headroom_fraction: float) -> Floats:
    """What every stage takes with every slice, as `best_cuts` reads it."""
    programs = _programs(job, dealt.slices)
    slice_s, of = _seconds(programs, job, book), programs.stages.of(0).stage_class
    room_bytes = headroom_fraction * job.cluster.node.device.memory_bytes
    busy = []
    for stage, role in enumerate(_roles(job.plan.pipeline_parallel)):
        memory = memory_on(programs, stage)
        fits = memory.needed_bytes <= job.cluster.node.device.memory_bytes
        fits = fits & (seen_bytes(memory, job.cluster) <= room_bytes)
        allowed_s = np.append(np.where(np.broadcast_to(fits[0], of.max() + 1)[of], slice_s, np.inf), np.inf)
        busy.append(allowed_s[dealt.row[role]])
    return np.stack(busy)
