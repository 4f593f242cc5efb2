"""Peak memory of every stage, with an interval.

Answers: how much memory does a rank of each stage class need, and when?
Elsewhere: the verdict (verdict.py), single categories (categories.py), the moments of a step
(in_flight.py), memory over the whole step of one plan (curve.py).

A stage is fullest at a moment of its order of tasks ("forward", "backward" or "weight": the pass that runs
then), or at the end of the step ("update": activations are gone, gradients are copied and applied). Sizes
are linear in the counts of in_flight.py, so the fullest moment is found without the times of tasks, and
without a loop over all tasks. All arrays: (plans, stage classes).

Stages with equal layers form one class, which has the memory of its fullest stage. There are four sizes:
*resident* between steps, *allocated* at the peak (`torch.cuda.max_memory_allocated`), *reserved* by the
allocator with its cache, and *used*, which the driver shows, with the context and the buffers of
communicators. Memory that is needed before the first step also counts (`sharding.built_whole`). Whether a
plan fits is decided in verdict.py.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from flopcast.dtypes import ZERO, Counts, Floats, Integers
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.batch_peaks import CategoryBytes, fullest_bytes, held_bytes
from flopcast.memory.categories import DRIVER, STANDING, UPDATE, sizes
from flopcast.memory.in_flight import NOTHING, InFlight, fullest
from flopcast.memory.layouts import size_of
from flopcast.memory.sharded import built_whole
from flopcast.memory.verdict import allocated_interval, within
from flopcast.records import Record
from flopcast.spec.cluster import Cluster
from flopcast.spec.orders import filled_after, order_of
from flopcast.spec.rows import of_rows
from flopcast.workload.program import Programs


class PeakMemory(Record, eq=False):
    """Bytes of one rank, by stage class.

    The sum of `by_category` is `allocated_bytes`; a category that is empty at the fullest moment is 0.
    `resident_bytes` includes gradients if the stack keeps them in a permanent buffer (Megatron-LM), and
    does not include them if they are freed between steps (PyTorch). It includes copies of gradients in
    fp32. All numbers are computed from three sizes (categories.py): `standing` during the whole step,
    `updating` in addition while gradients are applied, and `of_chunks` for each chunk.
    """

    by_category: dict[str, Floats]  # at the fullest moment
    allocated_bytes: Floats  # peak of what the framework has given out
    resident_bytes: Floats  # allocated between steps
    standing_bytes: Floats  # while nothing is in flight: what is resident, and gradients
    reserved_bytes: Floats  # allocated and cached
    device_used_bytes: Floats  # as the driver sees it, where the device is large
    needed_bytes: Floats  # what no cache can give back: allocated, and the driver's part
    low_bytes: Floats  # low end of the 90 % interval of `needed_bytes`
    high_bytes: Floats  # high end of the memory that the driver may show, with the allocator's cache
    at_update: np.ndarray  # whether the fullest moment is the update
    standing: dict[str, Floats]
    updating: dict[str, Floats]
    of_chunks: CategoryBytes

    def worst(self) -> int:
        """Return the index of the stage class of the first plan that needs the most memory."""
        return int(np.argmax(self.device_used_bytes[0]))


class FullestMoment(Record, eq=False):
    """Bytes of one rank at its fullest moment, as in `PeakMemory`; (plans, stage classes).

    A search needs only these five sizes for each plan, without categories and moments.
    """

    reserved_bytes: Floats
    device_used_bytes: Floats
    needed_bytes: Floats
    low_bytes: Floats
    high_bytes: Floats


def peak_memory(programs: Programs, kept: KeptResults = NOTHING_KEPT) -> PeakMemory:
    """Return the memory of every stage class of every plan.

    Of a single plan, `kept` holds results of earlier programs, which are used again for programs that
    differ only in their global batch (prediction.py).

    The peak of a stage is the larger of the fullest moment of the order and the update. The stack describes
    further memory of the software (spec/stack.py, Memory). Arrays of shape (plans, stage classes).
    """
    plans = programs.plans
    micro_batches = plans.num_micro_batches if programs.workload.rows else filled_after(plans)

    def made() -> PeakMemory:
        weights = CategoryBytes.of(programs)
        every = np.arange(weights.shape[0])
        held = held_bytes(programs, weights, every, micro_batches[:, 0])
        return _with_working(programs, weights, held)

    if plans.size > 1 or not kept:
        return made()
    in_flight = float(micro_batches.item()), bool(plans.num_micro_batches == 1)
    return kept.of(("peak", programs.layers, programs.legs, programs.stack, *in_flight), made)


def peaks(programs: Programs, plan: Integers, micro_batches: Counts) -> FullestMoment:
    """Return the peaks of every stage class, for pairs of a plan and a number of micro-batches.

    These are the peaks of `peak_memory`, without categories.

    Parameters
    ----------
    plan : array of shape (pairs,)
        Index of the plan in the programs.
    micro_batches : array of shape (pairs,)
        Number of micro-batches after which the stages hold the most memory (`schedules.filled_after`).

    Returns
    -------
    FullestMoment
        Arrays of shape (pairs, stage classes).
    """
    standing, update = (sum(sizes(part, programs).values(), ZERO) for part in (STANDING, UPDATE))
    working = fullest_bytes(programs, CategoryBytes.of(programs), plan, micro_batches)
    standing, update = of_rows(standing, plan), of_rows(update, plan)
    return _peak(programs, standing, standing + np.maximum(working, update), plan)


def memory_on(programs: Programs, stages: Iterable[int]) -> Iterator[FullestMoment]:
    """Yield the peaks of every stage class of one plan, for each of these pipeline stages on which it might
    be.

    The stage classes of these programs are slices (workload/candidate_stages.py) and form no pipeline.

    Examples
    --------
    tests/memory/test_slices.py shows that slices equal to the stages of a pipeline need the same memory.
    """
    weights = CategoryBytes.of(programs)
    standing, update = (sum(sizes(part, programs).values(), ZERO) for part in (STANDING, UPDATE))
    for stage in stages:
        working = _held_on(programs, weights, stage)
        allocated = standing + np.maximum(sum(working.values(), ZERO), update)
        yield _peak(programs, standing, allocated, np.arange(len(allocated)))


def _held_on(programs: Programs, weights: CategoryBytes, stage: int) -> dict[str, Floats]:
    """Return the bytes by category of slices at their fullest moment on a stage, (1, stage classes)."""
    plans, division = programs.plans, programs.stages.of(0)
    stages, virtual = int(plans.pipeline_parallel[0, 0]), division.stage_chunks.shape[1]
    schedule, micro = order_of(plans.structure, virtual), int(plans.num_micro_batches[0, 0])
    moments = fullest(schedule, stages, tuple(range(virtual)), virtual, micro, (stage,))
    shape = (1, *programs.stages.chunks_of_class.shape[1:])
    slices = np.arange(shape[1])[:, None]
    flying, waiting, work = (
        {
            name: np.broadcast_to(size, shape)[0, slices, division.stage_chunks]
            for name, size in part.items()
        }
        for part in (weights.in_flight, weights.waiting, weights.at_work)
    )
    totals = [sum(part.values(), np.zeros(division.stage_chunks.shape)) for part in (flying, waiting, work)]
    best = level_bytes(moments, *totals).argmax(axis=1)
    at_work = np.eye(virtual + 1)[moments.at_work[best], :-1]
    found: dict[str, Floats] = {}
    for part, count in (
        (waiting, moments.waiting[best]),
        (flying, moments.in_flight[best]),
        (work, at_work),
    ):
        for name, size_bytes in part.items():
            found[name] = found.get(name, ZERO) + (count * size_bytes).sum(axis=1)[None]
    return found


def _with_working(programs: Programs, of_chunks: CategoryBytes, working: dict[str, Floats]) -> PeakMemory:
    standing, updating = sizes(STANDING, programs), sizes(UPDATE, programs)
    backward, update = added(standing, working), added(standing, updating)
    totals = [sum(part.values(), ZERO) for part in (backward, update)]
    at_update = np.asarray(totals[1] > totals[0])
    categories = {
        name: np.where(at_update, update.get(name, ZERO), backward.get(name, ZERO))
        for name in (*backward, *(key for key in update if key not in backward))
    }
    allocated = np.maximum(*totals)
    standing_bytes = sum(standing.values(), ZERO)
    peak = _peak(programs, standing_bytes, allocated, np.arange(len(allocated)))
    freed = ZERO if programs.stack.memory.keeps_gradients else standing["gradients"]
    return PeakMemory(
        by_category=categories,
        allocated_bytes=allocated,
        resident_bytes=standing_bytes - freed + update["main_gradients"],
        standing_bytes=standing_bytes,
        reserved_bytes=peak.reserved_bytes,
        device_used_bytes=peak.device_used_bytes,
        needed_bytes=peak.needed_bytes,
        low_bytes=peak.low_bytes,
        high_bytes=peak.high_bytes,
        at_update=at_update,
        standing=standing,
        updating=updating,
        of_chunks=of_chunks,
    )


def added(sizes_bytes: dict[str, Floats], others_bytes: dict[str, Floats]) -> dict[str, Floats]:
    """Return the sums of the sizes of two dicts by category."""
    return sizes_bytes | {name: size + sizes_bytes.get(name, ZERO) for name, size in others_bytes.items()}


def _peak(
    programs: Programs, standing_bytes: Floats, allocated_bytes: Floats, plan: Integers
) -> FullestMoment:
    """Return what the driver shows as used, given what some plans have allocated."""
    memory = programs.stack.memory
    cached_ratio = 1.0 + memory.fragmentation_fraction
    low, high = allocated_interval(standing_bytes, allocated_bytes, memory)
    reserved = allocated_bytes * cached_ratio
    driver = of_rows(sum(sizes(DRIVER, programs).values(), ZERO), plan)
    whole = of_rows(size_of("built_whole", built_whole, programs), plan)
    return FullestMoment(
        reserved_bytes=reserved,
        device_used_bytes=np.maximum(reserved, whole) + driver,
        needed_bytes=np.maximum(allocated_bytes, whole) + driver,
        low_bytes=np.maximum(low, whole) + driver,
        high_bytes=np.maximum(high * cached_ratio, whole) + driver,
    )


def fits(memory: PeakMemory | FullestMoment, cluster: Cluster) -> np.ndarray:
    """Return whether every stage of a plan fits its device, tightly or not; shape (plans,).

    The expected need is compared with the capacity of the device (verdict.py). The cache of PyTorch's
    allocator does not count: before the allocator reports that it is out of memory, it frees its cached
    blocks and tries again (c10/cuda/CUDACachingAllocator.cpp).
    """
    return within(memory.needed_bytes, cluster.node.device.memory_bytes)


def seen_bytes(memory: PeakMemory | FullestMoment, cluster: Cluster) -> Floats:
    """Return the memory that the driver shows, (plans, stage classes).

    The cache of the allocator grows up to the capacity, and is released when memory is short. A stage that
    fits therefore never shows more than the capacity, even if its cache would need more.
    """
    capacity = cluster.node.device.memory_bytes
    shown_bytes: Floats = np.where(
        memory.needed_bytes <= capacity,
        np.minimum(memory.device_used_bytes, capacity),
        memory.device_used_bytes,
    )
    return shown_bytes


def level_bytes(
    moments: InFlight, flying_bytes: Floats, waiting_bytes: Floats, work_bytes: Floats
) -> Floats:
    """Return the bytes at some moments, without permanent allocations, (plans, moments).

    Parameters
    ----------
    flying_bytes, waiting_bytes, work_bytes : arrays of shape (plans, columns)
        Bytes of one micro-batch of each chunk class in flight, waiting, and at work.
    """
    working = np.where(moments.at_work == NOTHING, 0.0, work_bytes[:, moments.at_work])
    for column in range(flying_bytes.shape[1]):  # one by one: a plan gets the same beside any others
        working = working + flying_bytes[:, column, None] * moments.in_flight[:, column]
        working = working + waiting_bytes[:, column, None] * moments.waiting[:, column]
    return working
