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
from dataclasses import dataclass, fields

import numpy as np

from flopcast.cost.placement import crossings
from flopcast.cost.price import Priced
from flopcast.dtypes import ZERO, Counts, Floats, Integers
from flopcast.schedules import schedule_of
from flopcast.schedules.base import AbstractSplitSchedule
from flopcast.spec.own_schedule import OwnSchedule
from flopcast.spec.rows import alike
from flopcast.timeline.durations import durations
from flopcast.timeline.program import NEVER, Simulated
from flopcast.timeline.serial import serial_seconds
from flopcast.workload.program import FIRST, LAST, MIDDLE, ONLY, Hop


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class StepTerms:
    """What a step is made of, whatever its number of micro-batches; (plans, 1) each, in seconds.

    `several_s` and `only_s` are what the first and last micro-batches take beyond those between, with
    reductions that stick out, in a step of several and of one. Where messages hold up compute on a pipeline
    (`hangs_on_micro_batches`), terms hold for their own number alone.
    """

    busiest_s: Floats  # of one micro-batch on the stage that needs longest
    sum_s: Floats  # of one micro-batch on all stages
    others_s: Floats  # what the other stages add to the busiest one's, where the backward is split
    several_s: Floats
    only_s: Floats
    outside_s: Floats  # update, reduction and synchronisation
    virtual: Counts  # chunks of a stage

    def of(self, rows: Integers) -> "StepTerms":
        """The terms of some plans."""
        return StepTerms(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def joined_terms(parts: Sequence[StepTerms]) -> StepTerms:
    """The terms of several batches, one below the other."""
    columns = ([getattr(part, field.name) for part in parts] for field in fields(StepTerms))
    names = (field.name for field in fields(StepTerms))
    return StepTerms(**{name: np.concatenate(column) for name, column in zip(names, columns, strict=True)})


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
    plans = priced.programs.plans
    return steps_of(step_terms(priced), plans.structure.pipeline_schedule, plans.num_micro_batches)


def steps_of(terms: StepTerms, schedule: str | OwnSchedule, micro_batches: Counts) -> Floats:
    """Seconds of steps of so many micro-batches, (plans,), from their terms; all else (plans, 1)."""
    rule, busiest_s = schedule_of(schedule), terms.busiest_s
    if isinstance(rule, AbstractSplitSchedule):
        pipeline_s = micro_batches * busiest_s + np.maximum(terms.others_s, 0.0)
    else:
        pipeline_s = rule.closed_form_s(busiest_s, terms.sum_s, terms.virtual, micro_batches)
    ends_s = np.where(micro_batches > 1, terms.several_s, terms.only_s)
    step_s: Floats = pipeline_s + ends_s + terms.outside_s
    return step_s[:, 0]


def step_terms(priced: Priced) -> StepTerms:
    """The terms of the steps of every plan."""
    programs = priced.programs
    here = programs.stages.multiplicity > 0
    passes, seconds, hops = _passes(priced)
    each = np.where(here, sum(seconds, hops), 0.0)
    busiest, others = each.max(axis=1, keepdims=True), np.zeros((len(each), 1))
    schedule = schedule_of(programs.plans.structure.pipeline_schedule)
    if isinstance(schedule, AbstractSplitSchedule):
        waits = schedule.bubble_s(*seconds) + hops
        others = _of_others(waits, each.argmax(axis=1), programs.stages.multiplicity)
    around = [serial_seconds(items, priced) for items in (programs.update, programs.reduce)]
    outside = np.where(here, around[0] + around[1], 0.0).max(axis=1, keepdims=True)
    agreed = serial_seconds(programs.synchronise, priced).max(axis=1, keepdims=True)
    several, only = (_ends(passes, priced, alone) for alone in (False, True))
    return StepTerms(
        busiest_s=busiest,
        sum_s=(each * programs.stages.multiplicity).sum(axis=1, keepdims=True),
        others_s=others,
        several_s=several,
        only_s=only,
        outside_s=outside + agreed,
        virtual=programs.plans.virtual_stages,
    )


def micro_batch_seconds(priced: Priced) -> Floats:
    """Seconds of one micro-batch on every stage class, with the transfers that it waits for.

    Shape (plans, stage classes): what `StepTerms` has of the busiest stage, and the sum of.
    """
    _, seconds, hops = _passes(priced)
    return np.where(priced.programs.stages.multiplicity > 0, sum(seconds, hops), 0.0)


def _passes(priced: Priced) -> tuple[list[Simulated], list[Floats], Floats]:
    """Every pass of a chunk; of all chunks of a stage class, (plans, stage classes) each; its transfers."""
    passes = [durations(segments, priced) for segments in priced.programs.passes]
    seconds = [_of_stages(simulated.duration_s[MIDDLE], priced) for simulated in passes]
    return passes, seconds, _hops(priced)


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
    total_s: Floats = (priced.programs.stages.chunks_of_class * chunk_s[:, None]).sum(axis=2)
    return total_s


def _ends(passes: Sequence[Simulated], priced: Priced, alone: bool) -> Floats:
    """What the first and last micro-batches take less or more than the others, and exposed reductions.

    The first micro-batch accumulates no gradient, and may wait for parameters to be gathered; the last may
    carry the reduction, which costs the pipeline nothing until it runs on behind the last backward: it
    stands in the last kind of pass, the backward, or weight gradients of their own. `alone`: of a step of
    one micro-batch. (plans, 1), in seconds.
    """
    change = sum((_change(one, priced, alone) for one in passes), ZERO)
    tail = passes[-1].tail_s[ONLY if alone else LAST]
    exposed = np.where(tail > NEVER, np.maximum(tail, 0.0), 0.0)
    here = priced.programs.stages.multiplicity > 0
    longest = np.where(here, change, NEVER).max(axis=1, keepdims=True)
    ends_s: Floats = longest + exposed.max(axis=1, keepdims=True)
    return ends_s


def _change(one: Simulated, priced: Priced, alone: bool) -> Floats:
    """What passes of the first and last micro-batch take beyond those between, (plans, stage classes)."""
    ends = (ONLY,) if alone else (FIRST, LAST)
    middle_s = one.duration_s[MIDDLE]
    return _of_stages(sum((one.duration_s[at] - middle_s for at in ends), ZERO), priced)


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
    degrees = (plans.tensor_parallel, plans.context_parallel, plans.data_parallel, plans.pipeline_parallel)
    equal = alike([degree[:, 0] for degree in degrees])
    devices = priced.cluster.scale_up_devices
    leaves = [
        crossings(plans, plan, int(plans.pipeline_parallel[plan, 0]), devices).any()
        for plan in equal.first.tolist()
    ]
    return ~np.array(leaves)[equal.group][:, None]
