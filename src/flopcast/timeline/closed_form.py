"""The step in closed form, for whole batches of plans at once: what a search screens by.

Answers: about how long is a step, without playing it?
Exact for equal stages with free transfers; with transfers and unequal stages it is an estimate that
stays within a few percent (tests/test_closed_form.py states by how much). `predict` never uses it.
"""

import numpy as np

from flopcast.cost.price import Priced
from flopcast.dtypes import ZERO, Counts, Floats
from flopcast.operators.item import Item
from flopcast.schedules import SCHEDULES
from flopcast.timeline.program import NEVER, Simulated, simulate
from flopcast.workload.program import POSITIONS

FIRST, MIDDLE, LAST, ONLY = range(len(POSITIONS))


def step_seconds(priced: Priced) -> Floats:
    """Seconds of a step of every plan, without jitter; shape (plans,)."""
    programs = priced.programs
    plans, stages = programs.plans, programs.stages
    here = stages.multiplicity > 0
    forward = simulate(programs.forward, priced, attribute=False)
    backward = simulate(programs.backward, priced, attribute=False)
    micro = plans.num_micro_batches
    hops = _hops(priced)
    each = _of_stages(forward.duration_s[MIDDLE], priced) + _of_stages(backward.duration_s[MIDDLE], priced)
    each = np.where(here, each + hops, 0.0)
    busiest = each.max(axis=1, keepdims=True)
    total = (each * stages.multiplicity).sum(axis=1, keepdims=True)
    schedule = SCHEDULES[plans.structure.pipeline_schedule]
    pipeline = schedule.closed_form_s(busiest, total, plans.virtual_stages, micro)
    pipeline = pipeline + _ends(backward, priced, micro)
    around = [_serial(items, priced) for items in (programs.update, programs.reduce)]
    outside = np.where(here, around[0] + around[1], 0.0).max(axis=1, keepdims=True)
    step_s: Floats = pipeline + outside + _serial(programs.synchronise, priced).max(axis=1, keepdims=True)
    return step_s[:, 0]


def _of_stages(chunk_s: Floats, priced: Priced) -> Floats:
    """Sum over the chunks of every stage class, from (plans, chunk classes)."""
    stages, size = priced.programs.stages, priced.programs.plans.size
    every = np.broadcast_to(chunk_s, (size, stages.chunk_counts.shape[1]))
    rows = np.arange(size)[:, None, None]
    total_s: Floats = (every[rows, stages.stage_chunks] * stages.holds_chunk).sum(axis=2)
    return total_s


def _ends(backward: Simulated, priced: Priced, micro: Counts) -> Floats:
    """What the first and last micro-batches take less or more than the others, and exposed reductions."""
    middle = _of_stages(backward.duration_s[MIDDLE], priced)
    only = _of_stages(backward.duration_s[ONLY], priced) - middle
    ends = sum((_of_stages(backward.duration_s[at], priced) - middle for at in (FIRST, LAST)), ZERO)
    change = np.where(micro > 1, ends, only)
    used = backward.tail_s[LAST] > NEVER
    tail = np.where(used, backward.tail_s[LAST], 0.0)
    exposed = np.maximum(tail, 0.0)
    ends_s: Floats = change.max(axis=1, keepdims=True) + exposed.max(axis=1, keepdims=True)
    return ends_s


def _hops(priced: Priced) -> Floats:
    """Transfers that a stage waits for in every micro-batch, (plans, stage classes)."""
    programs = priced.programs
    both_s: Floats = ZERO
    for item in (*programs.hop_across.forward, *programs.hop_across.backward):
        both_s = both_s + priced.of(item).alone_s
    chunks = programs.plans.virtual_stages
    style = programs.stack.pipeline.transfers
    if style == "sequential":  # sent and received, one after the other
        return 2 * both_s * chunks
    return both_s * (
        chunks if style == "batched" else chunks == 1
    )  # interleaving hides what does not block


def _serial(items: tuple[Item, ...], priced: Priced) -> Floats:
    """Items one after the other, (plans, stage classes)."""
    shape = priced.programs.stages.multiplicity.shape
    total = sum((priced.of(item).alone_s * item.count for item in items), ZERO)
    return np.broadcast_to(total, shape)
