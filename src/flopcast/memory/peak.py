"""What must fit: the fullest moment of every stage, and whether its bytes fit.

Answers: how much memory does a rank of each stage class need, when, and does it fit?
Elsewhere: each category by itself (categories.py: a new one is added there), which moments there are
(depth.py), the whole course of one plan's step (curve.py).

A stage is fullest at a moment of its order of tasks ("forward", "backward" or "weight": the pass that runs
then), or at the end of the step ("update": activations are gone, gradients are copied and applied). Sizes
are linear in the counts of depth.py, so that the fullest moment is found without seconds and without a walk
over all tasks. All arrays: (plans, stage classes).

Conventions. Stages with equal layers form one class, and count as the fullest of them. Four sizes
of one thing: *resident* between steps, *allocated* at the peak (`torch.cuda.max_memory_allocated`),
*reserved* by the allocator with its cache, *used* as the driver sees it, with the context and the buffers
of communicators. A plan fits if what is allocated does, beside context and communicators; what stands there
before the first step counts too (`sharding.built_whole`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import ZERO, Counts, Floats
from flopcast.memory.categories import AT_WORK, DRIVER, IN_FLIGHT, STANDING, UPDATE, WAITING, sizes
from flopcast.memory.depth import NOTHING, Depths, depths, fullest, joined
from flopcast.memory.sharded import built_whole
from flopcast.schedules import filled_after, schedule_of
from flopcast.spec.cluster import Cluster
from flopcast.spec.orders import order_of
from flopcast.spec.rows import alike
from flopcast.workload.program import Programs
from flopcast.workload.stages import Division


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Memory:
    """Bytes of one rank, by stage class.

    `by_category` adds up to `allocated_bytes`; a category that is empty at the fullest moment is 0 there.
    `resident_bytes` holds gradients where the stack keeps them in a buffer for good (Megatron-LM), and
    leaves them out where they are freed between steps (PyTorch). Copies of them in fp32 stay on.
    """

    by_category: dict[str, Floats]  # at the fullest moment
    allocated_bytes: Floats  # peak of what the framework has given out
    resident_bytes: Floats  # allocated between steps
    standing_bytes: Floats  # while nothing is in flight: what is resident, and gradients
    reserved_bytes: Floats  # allocated and cached
    device_used_bytes: Floats  # as the driver sees it, where the device is large
    needed_bytes: Floats  # what no cache can give back: allocated, and the driver's part
    at_update: np.ndarray  # whether the fullest moment is the update

    def worst(self) -> int:
        """The first plan's stage class that needs most: an index into the second axis of the arrays."""
        return int(np.argmax(self.device_used_bytes[0]))


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Held:
    """Micro-batches that a stage class holds at its fullest moment of forwards and backwards.

    Counts of shape (plans, stage classes, chunk classes), chunks of one class added up; `at_work` is 1 for
    the class of the chunk whose backward runs. Where micro-batches differ, every kind of a class has a
    column (`categories.sizes`).
    """

    in_flight: Counts
    waiting: Counts
    at_work: Counts


def peak_memory(programs: Programs) -> Memory:
    """The memory of every stage class of every plan.

    The larger of the fullest moment of the order and the update, chosen for each stage by itself. What the
    software keeps besides is the stack's (spec/stack.py, Memory). Arrays of shape (plans, stage classes).
    """
    return _with_working(programs, _working(programs))


def memory_on(programs: Programs, stage: int) -> Memory:
    """The memory of every stage class of one plan, if it stood on this stage of the plan's pipeline.

    Of programs realised with slices (workload/slices.py), whose stage classes form no pipeline.

    Examples
    --------
    Slices like the stages of a pipeline need what its stages need: tests/memory/test_slices.py.
    """
    plans, division = programs.plans, programs.stages.of(0)
    stages, virtual = int(plans.pipeline_parallel[0, 0]), division.stage_chunks.shape[1]
    schedule, micro = order_of(plans.structure, virtual), int(plans.num_micro_batches[0, 0])
    moments = fullest(schedule, stages, tuple(range(virtual)), virtual, micro, (stage,))
    shape = (1, *programs.stages.chunks_of_class.shape[1:])
    slices = np.arange(shape[1])[:, None]
    flying, waiting, work = (
        {
            name: np.broadcast_to(size, shape)[0, slices, division.stage_chunks]
            for name, size in sizes(part, programs).items()
        }
        for part in (IN_FLIGHT, WAITING, AT_WORK)
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
    return _with_working(programs, found)


def _with_working(programs: Programs, working: dict[str, Floats]) -> Memory:
    """The memory of every stage class, of what it holds at the fullest moment of forwards and backwards."""
    standing = sizes(STANDING, programs)
    backward = standing | working
    update = standing | sizes(UPDATE, programs)
    totals = [sum(part.values(), ZERO) for part in (backward, update)]
    at_update = np.asarray(totals[1] > totals[0])
    categories = {
        name: np.where(at_update, update.get(name, ZERO), backward.get(name, ZERO))
        for name in (*backward, *(key for key in update if key not in backward))
    }
    allocated = np.maximum(*totals)
    reserved = allocated * (1.0 + programs.stack.memory.fragmentation_fraction)
    driver = sum(sizes(DRIVER, programs).values(), ZERO)
    whole = built_whole(programs)
    freed = ZERO if programs.stack.memory.keeps_gradients else standing["gradients"]
    return Memory(
        by_category=categories,
        allocated_bytes=allocated,
        resident_bytes=sum(standing.values(), ZERO) - freed + update["main_gradients"],
        standing_bytes=sum(standing.values(), ZERO),
        reserved_bytes=reserved,
        device_used_bytes=np.maximum(reserved, whole) + driver,
        needed_bytes=np.maximum(allocated, whole) + driver,
        at_update=at_update,
    )


def fits(memory: Memory, cluster: Cluster) -> np.ndarray:
    """Whether every stage of a plan fits its device, shape (plans,).

    Compares what is needed with the data sheet's capacity. PyTorch's allocator gives back the blocks that
    it only caches before it reports that memory is out (c10/cuda/CUDACachingAllocator.cpp: a failed
    allocation frees cached blocks and is tried again), so that they do not count.
    """
    capacity = cluster.node.device.memory_bytes
    return np.asarray((memory.needed_bytes <= capacity).all(axis=1))


def seen_bytes(memory: Memory, cluster: Cluster) -> Floats:
    """What the driver shows, (plans, stage classes): no more than there is, where a stage fits."""
    capacity = cluster.node.device.memory_bytes
    shown_bytes: Floats = np.where(
        memory.needed_bytes <= capacity,
        np.minimum(memory.device_used_bytes, capacity),
        memory.device_used_bytes,
    )
    return shown_bytes


def _working(programs: Programs) -> dict[str, Floats]:
    """What exists beside the standing categories at the fullest moment of forwards and backwards."""
    waiting, flying, work = (sizes(part, programs) for part in (WAITING, IN_FLIGHT, AT_WORK))
    held = _fullest(programs, flying, waiting, work)
    found: dict[str, Floats] = {}
    for part, count in ((waiting, held.waiting), (flying, held.in_flight), (work, held.at_work)):
        for name, size_bytes in part.items():
            found[name] = found.get(name, ZERO) + (count * size_bytes).sum(axis=2)
    return found


def _fullest(
    programs: Programs,
    flying: Mapping[str, Floats],
    waiting: Mapping[str, Floats],
    work: Mapping[str, Floats],
) -> Held:
    """The counts at the fullest moment of every stage class; 0 where a class pads the batch.

    Plans that divide their layers alike, and whose pipelines fill after equally many micro-batches, share
    their moments.
    """
    plans, stages, kinds = programs.plans, programs.stages, programs.workload.num_kinds
    shape = (*stages.multiplicity.shape, stages.chunks_of_class.shape[2] * kinds)
    flying_bytes, waiting_bytes, work_bytes = (
        sum((np.broadcast_to(size, shape) for size in part.values()), ZERO)
        for part in (flying, waiting, work)
    )
    held = Held(
        in_flight=np.zeros_like(flying_bytes),
        waiting=np.zeros_like(flying_bytes),
        at_work=np.zeros_like(flying_bytes),
    )
    micro_batches = plans.num_micro_batches if programs.workload.rows else filled_after(plans)
    equal = alike([stages.code, micro_batches[:, 0]])
    of_group = np.argsort(equal.group, kind="stable")
    ends = np.bincount(equal.group).cumsum()
    for group in range(equal.size):
        members = of_group[ends[group - 1] if group else 0 : ends[group]]
        division = stages.divisions[int(stages.code[members[0]])]
        columns = np.arange(len(division.chunk_counts) * kinds)
        for at in range(len(division.multiplicity)):
            moments = _moments(programs, division, int(micro_batches[members[0], 0]), at)
            here = np.ix_(members, np.array([at]), columns)
            level = level_bytes(
                moments, *(size[here][:, 0] for size in (flying_bytes, waiting_bytes, work_bytes))
            )
            best = level.argmax(axis=1)
            held.in_flight[here] = moments.in_flight[best][:, None]
            held.waiting[here] = moments.waiting[best][:, None]
            held.at_work[here] = np.eye(len(columns) + 1)[moments.at_work[best], :-1][:, None]
    return held


def _moments(programs: Programs, division: Division, micro: int, at: int) -> Depths:
    """Moments of a stage class among which the fullest is, by chunk class.

    Where micro-batches differ, all of the step, of each class of ranks: its fullest moment may come late.
    """
    stages, chunks = division.chunk_class.shape
    schedule = order_of(programs.plans.structure, chunks)
    members = tuple(np.flatnonzero(division.stage_class == at).tolist())
    held = tuple(division.stage_chunks[at].tolist())
    classes = len(division.chunk_counts)
    if not programs.workload.rows:
        return fullest(schedule, stages, held, classes, micro, members)
    order = schedule_of(schedule).order(stages, chunks, micro)
    kinds, ranks = programs.workload.num_kinds, programs.workload.rows
    return joined([depths(order, stage, held, classes, rows, kinds) for rows in ranks for stage in members])


def level_bytes(moments: Depths, flying_bytes: Floats, waiting_bytes: Floats, work_bytes: Floats) -> Floats:
    """Bytes at some moments, without what stands, (plans, moments).

    Parameters
    ----------
    flying_bytes, waiting_bytes, work_bytes : arrays of shape (plans, columns)
        Bytes of one micro-batch of each class of chunks, in flight and waiting, and of each at work.
    """
    working = np.where(moments.at_work == NOTHING, 0.0, work_bytes[:, moments.at_work])
    for column in range(flying_bytes.shape[1]):  # one by one: a plan gets the same beside any others
        working = working + flying_bytes[:, column, None] * moments.in_flight[:, column]
        working = working + waiting_bytes[:, column, None] * moments.waiting[:, column]
    return working
