"""The step in closed form, for whole batches of plans at once: what a search screens by.

Answers: about how long is a step, without playing it?
Elsewhere: the exact step of one plan (step.py), which plans are possible (search/screen.py).

Exact for equal stages with free transfers, and wherever there is one stage. For unequal stages both
this estimate and the exact play lie between m and m + p - 1 turns of the slowest stage (m micro-batches,
p stages), so they differ by at most (p - 1) / m of the step; on published runs by less than 1 %
(Megatron-LM) and 6 % (DeepSpeed's blocking transfers): tests/timeline/test_closed_form.py. `predict`
never uses it.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.placement import crossings
from flopcast.cost.price import Priced
from flopcast.dtypes import ZERO, Counts, Floats, Integers
from flopcast.schedules import schedule_of
from flopcast.schedules.base import AbstractSplitSchedule
from flopcast.timeline.program import NEVER, Simulated, simulate
from flopcast.timeline.serial import serial_seconds
from flopcast.workload.program import FIRST, LAST, MIDDLE, ONLY, Hop


def step_seconds(priced: Priced) -> Floats:
    """Seconds of a step of every plan, without jitter.

    The busiest stage works on every micro-batch, the others fill and drain the pipeline once; before and
    after come update, reduction and synchronisation of the stage that needs longest for them.

    Parameters
    ----------
    priced : Priced
        Programs of plans of one structure; degrees and sizes may differ.

    Returns
    -------
    array of shape (plans,)
        From one synchronisation of all stages to the next.

    References
    ----------
    Bubble of (p - 1) forwards and backwards, divided by the chunks of a stage: arXiv:2104.04473,
    section 2.2.
    """
    programs = priced.programs
    plans, stages = programs.plans, programs.stages
    here = stages.multiplicity > 0
    passes = [simulate(segments, priced, attribute=False) for segments in programs.passes]
    seconds = [_of_stages(simulated.duration_s[MIDDLE], priced) for simulated in passes]
    micro = plans.num_micro_batches
    hops = _hops(priced)
    each = np.where(here, sum(seconds, hops), 0.0)
    busiest = each.max(axis=1, keepdims=True)
    total = (each * stages.multiplicity).sum(axis=1, keepdims=True)
    schedule = schedule_of(plans.structure.pipeline_schedule)
    pipeline = schedule.closed_form_s(busiest, total, plans.virtual_stages, micro)
    if isinstance(schedule, AbstractSplitSchedule):
        waits = schedule.bubble_s(*seconds) + hops
        others = _of_others(waits, each.argmax(axis=1), stages.multiplicity)
        pipeline = np.maximum(micro * busiest + others, micro * busiest)
    pipeline = pipeline + _ends(passes, priced, micro)
    around = [serial_seconds(items, priced) for items in (programs.update, programs.reduce)]
    outside = np.where(here, around[0] + around[1], 0.0).max(axis=1, keepdims=True)
    agreed = serial_seconds(programs.synchronise, priced).max(axis=1, keepdims=True)
    step_s: Floats = pipeline + outside + agreed
    return step_s[:, 0]


def _of_others(each_s: Floats, busiest: Integers, multiplicity: Counts) -> Floats:
    """Seconds of stage classes summed over all stages but the busiest one, (plans, 1)."""
    here_s = each_s * (multiplicity > 0)
    own_s = np.take_along_axis(here_s, busiest[:, None], axis=1)
    others_s: Floats = (here_s * multiplicity).sum(axis=1, keepdims=True) - own_s
    return others_s


def _of_stages(chunk_s: Floats, priced: Priced) -> Floats:
    """Sum over the chunks of every stage class: (plans, chunk classes) → (plans, stage classes).

    A class that only pads the batch (a plan with fewer classes than its neighbours) gets 0.
    """
    stages, size = priced.programs.stages, priced.programs.plans.size
    every = np.broadcast_to(chunk_s, (size, stages.chunk_counts.shape[1]))
    rows = np.arange(size)[:, None, None]
    total_s: Floats = (every[rows, stages.stage_chunks] * stages.holds_chunk).sum(axis=2)
    return total_s


def _ends(passes: Sequence[Simulated], priced: Priced, micro: Counts) -> Floats:
    """What the first and last micro-batches take less or more than the others, and exposed reductions.

    The first micro-batch accumulates no gradient, and may wait for parameters to be gathered; the last may
    carry the reduction, which costs the pipeline nothing until it runs on behind the last backward: it
    stands in the last kind of pass, the backward, or weight gradients of their own. (plans, 1), in seconds.
    """
    change = sum((_change(one, priced, micro) for one in passes), ZERO)
    tail = np.where(micro > 1, passes[-1].tail_s[LAST], passes[-1].tail_s[ONLY])
    exposed = np.where(tail > NEVER, np.maximum(tail, 0.0), 0.0)
    here = priced.programs.stages.multiplicity > 0
    longest = np.where(here, change, NEVER).max(axis=1, keepdims=True)
    ends_s: Floats = longest + exposed.max(axis=1, keepdims=True)
    return ends_s


def _change(one: Simulated, priced: Priced, micro: Counts) -> Floats:
    """What passes of the first and last micro-batch take beyond those between, (plans, stage classes)."""
    middle = _of_stages(one.duration_s[MIDDLE], priced)
    only = _of_stages(one.duration_s[ONLY], priced) - middle
    ends = sum((_of_stages(one.duration_s[at], priced) - middle for at in (FIRST, LAST)), ZERO)
    return np.where(micro > 1, ends, only)


def _hops(priced: Priced) -> Floats:
    """Transfers that a stage waits for in every micro-batch, (plans, stage classes).

    Blocking one by one, a stage waits for all that it sends to and receives from its neighbours: two, at
    the ends one. Posted together they share one wait; transfers that do not block are hidden by interleaved
    chunks, not by a single one. A plan of one stage has none. Where all stages of a plan share a node, hops
    stay on it; otherwise every hop counts as one that leaves.
    """
    programs = priced.programs
    inside, across = (_both_ways(hop, priced) for hop in (programs.hop_inside, programs.hop_across))
    both_s = np.where(_on_one_node(priced), inside, across)
    both_s = np.where(programs.plans.pipeline_parallel > 1, both_s, 0.0)
    chunks = programs.plans.virtual_stages
    style = programs.transfers
    if style == "sequential":
        counts = programs.stages.stage_counts
        ends = np.minimum(counts[:, :, 0], 1.0) + np.minimum(counts[:, :, -1], 1.0)
        return both_s * (2.0 - ends)
    return both_s * (chunks if style == "batched" else chunks == 1)


def _both_ways(hop: Hop, priced: Priced) -> Floats:
    """Seconds of one transfer forward and one backward, (plans, 1)."""
    return sum((priced.of(item).alone_s for item in (*hop.forward, *hop.backward)), ZERO)


def _on_one_node(priced: Priced) -> np.ndarray:
    """Plans none of whose hops leaves a node, (plans, 1) of bool; equal degrees are asked about once."""
    plans = priced.programs.plans
    degrees = np.concatenate(
        [plans.tensor_parallel, plans.context_parallel, plans.data_parallel, plans.pipeline_parallel],
        axis=1,
    )
    distinct, first, code = np.unique(degrees, axis=0, return_index=True, return_inverse=True)
    devices = priced.cluster.scale_up_devices
    leaves = [
        crossings(plans, plan, int(stages), devices).any()
        for plan, stages in zip(first.tolist(), distinct[:, -1], strict=True)
    ]
    return ~np.array(leaves)[code.reshape(-1)][:, None]
