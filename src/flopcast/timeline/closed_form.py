"""The step time in closed form, for many plans at once: the estimate that a search uses to screen plans.

Answers: how long is a step, estimated without a simulation?
Elsewhere: how long stages wait for messages (point_to_point.py), the exact step of one plan (step.py),
possible plans (search/screen.py).

The estimate is exact for equal stages whose transfers take no time, and for a single stage. For unequal
stages, both this estimate and the exact simulation are between m and m + p - 1 times the time of a
micro-batch on the slowest stage (m micro-batches, p stages), so they differ by at most (p - 1) / m of the
step. Two effects are not counted: the work of a slow stage hides the time of a micro-batch on later, faster
stages, and stages with different chunks wait for each other at every chunk. `predict` never uses this
estimate.
"""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import ZERO, Counts, Floats, Integers
from flopcast.records import Record
from flopcast.schedules import schedule_of
from flopcast.schedules.base import BACKWARD, FORWARD, AbstractSplitSchedule
from flopcast.schedules.custom import OwnSchedule
from flopcast.timeline.durations import durations
from flopcast.timeline.max_plus import NEVER
from flopcast.timeline.point_to_point import waits
from flopcast.timeline.program import Simulated
from flopcast.timeline.serial import serial_seconds
from flopcast.workload.program import FIRST, LAST, MIDDLE, ONLY, Programs


class StepTerms(Record, eq=False):
    """Parts of a step that do not depend on its number of micro-batches; (plans, 1) each, in seconds.

    `several_s` and `only_s` are the additional time of the first and last micro-batch compared with the
    others, including exposed reductions, in steps of several micro-batches and of one.
    """

    first_s: Floats  # the first micro-batch, from its forward on the first stage to its last backward
    turn_s: Floats  # what each other one adds: the stage that needs longest, and what it waits for
    own_s: Floats  # (plans, 2): of that stage F and W of one micro-batch, where the backward is split
    others_s: Floats  # (plans, 2): the same of all others together
    several_s: Floats
    only_s: Floats
    outside_s: Floats  # update, reduction and synchronisation
    stages: Counts

    def of(self, rows: Integers) -> "StepTerms":
        """Return the terms of some plans."""
        return StepTerms(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def joined_terms(parts: Sequence[StepTerms]) -> StepTerms:
    """Return the concatenated terms of several batches."""
    columns = ([getattr(part, field.name) for part in parts] for field in fields(StepTerms))
    names = (field.name for field in fields(StepTerms))
    return StepTerms(**{name: np.concatenate(column) for name, column in zip(names, columns, strict=True)})


def steps_of(terms: StepTerms, schedule: str | OwnSchedule, micro_batches: Counts) -> Floats:
    """Return the seconds from one synchronisation of all stages to the next, (plans,), without jitter.

    The first micro-batch passes all stages and returns, and every other micro-batch takes one turn of the
    slowest stage. If stages have several chunks, only the first chunk fills and drains the pipeline. The
    update, the reduction and the synchronisation of the stage that needs the longest time for them are
    added. `micro_batches` is the number of each plan, (plans, 1).

    References
    ----------
    A bubble of (p - 1) forward and backward passes of a chunk: arXiv:2104.04473, section 2.2.
    """
    pipeline_s = terms.first_s + (micro_batches - 1.0) * terms.turn_s
    rule = schedule_of(schedule)
    if isinstance(rule, AbstractSplitSchedule):
        pipeline_s = pipeline_s + rule.unfilled_s(terms.own_s, terms.others_s, terms.stages, micro_batches)
    ends_s = np.where(micro_batches > 1, terms.several_s, terms.only_s)
    step_s: Floats = pipeline_s + ends_s + terms.outside_s
    return step_s[:, 0]


def step_terms(priced: Priced) -> StepTerms:
    """Return the terms of the steps of every plan.

    Returns
    -------
    StepTerms
        A search combines them for any number of micro-batches without pricing items again.

    Notes
    -----
    The time of a micro-batch is that of the busiest stage, or the mean over all stages if stages pass on
    their work without a barrier.
    """
    programs = priced.programs
    here = programs.stages.multiplicity > 0
    passes, seconds = _passes(priced)
    waited = waits(priced)
    hands_on = schedule_of(programs.plans.structure.pipeline_schedule).hands_on
    stages = programs.plans.pipeline_parallel
    each_s = sum(seconds, ZERO)
    turns_s = np.where(here, each_s + waited.turn_s, 0.0)
    busiest = turns_s.argmax(axis=1)[:, None]
    mean_s = (_of_all(each_s, programs) / stages + waited.mean_s) * hands_on
    ends_of_pass = (seconds[FORWARD], seconds[-1])
    own_s = np.concatenate([_at(one, busiest) for one in ends_of_pass], axis=1)
    all_s = np.concatenate([_of_all(one, programs) for one in ends_of_pass], axis=1)
    around = [serial_seconds(items, priced) for items in (programs.update, programs.reduce)]
    outside = np.where(here, around[0] + around[1], 0.0).max(axis=1, keepdims=True)
    agreed = serial_seconds(programs.synchronise, priced).max(axis=1, keepdims=True)
    several, only = (_ends(passes, priced, alone) for alone in (False, True))
    return StepTerms(
        first_s=_first_s(passes, busiest, priced) + waited.way_s,
        turn_s=np.maximum(_at(turns_s, busiest), mean_s),
        own_s=own_s,
        others_s=all_s - own_s,
        several_s=several,
        only_s=only,
        outside_s=outside + agreed,
        stages=stages,
    )


def micro_batch_seconds(priced: Priced) -> Floats:
    """Return the seconds of one micro-batch on every stage class, including waits for transfers.

    The shape is (plans, stage classes). `StepTerms` contains the value of the busiest stage, and the sum.
    """
    _, seconds = _passes(priced)
    each_s = sum(seconds, waits(priced).turn_s)
    return np.where(priced.programs.stages.multiplicity > 0, each_s, 0.0)


def _passes(priced: Priced) -> tuple[list[Simulated], list[Floats]]:
    """Return every pass of a chunk, and its seconds over all chunks of a stage, (plans, stage classes)."""
    passes = [durations(segments, priced) for segments in priced.programs.passes]
    return passes, [_of_stages(simulated.duration_s[MIDDLE], priced) for simulated in passes]


def _of_all(each_s: Floats, programs: Programs) -> Floats:
    """Return the sum over all stages: (plans, stage classes) → (plans, 1)."""
    total_s: Floats = (each_s * programs.stages.multiplicity).sum(axis=1, keepdims=True)
    return total_s


def _at(each_s: Floats, stage_class: Integers) -> Floats:
    """Return the values of one stage class of every plan: (plans, stage classes) → (plans, 1)."""
    found_s: Floats = np.take_along_axis(each_s, stage_class, axis=1)
    return found_s


def _first_s(passes: Sequence[Simulated], busiest: Integers, priced: Priced) -> Floats:
    """Return the first micro-batch's time: the busiest stage's work, plus what the others add; (plans, 1).

    Of the others the last forward to begin and the last backward to end are those of their first chunks.
    """
    programs = priced.programs
    rule = schedule_of(programs.plans.structure.pipeline_schedule)
    chunks_s = [simulated.duration_s[MIDDLE] for simulated in passes]
    seconds = [_of_stages(chunk_s, priced) for chunk_s in chunks_s]
    if isinstance(rule, AbstractSplitSchedule):
        added_s = rule.bubble_s(*seconds)
    else:
        first = programs.stages.first_chunk
        added_s = sum((np.take_along_axis(chunk_s, first, axis=1) for chunk_s in chunks_s), ZERO)
    others_s = (_of_all(added_s, programs) - _at(added_s, busiest)) * rule.hands_on
    first_s: Floats = sum((_at(each_s, busiest) for each_s in seconds), np.maximum(others_s, 0.0))
    return first_s


def _of_stages(chunk_s: Floats, priced: Priced) -> Floats:
    """Return the sum over the chunks of every stage class: (plans, chunk classes) → (plans, stage classes).

    A class that only pads the batch (a plan with fewer classes than its neighbours) gets 0.
    """
    total_s: Floats = (priced.programs.stages.chunks_of_class * chunk_s[:, None]).sum(axis=2)
    return total_s


def _ends(passes: Sequence[Simulated], priced: Priced, alone: bool) -> Floats:
    """Return the extra time of the first and last micro-batch, and of exposed reductions.

    The first micro-batch accumulates no gradient, and may wait for gathers of parameters. The last kind of
    pass (the backward, or separate weight gradients) of the last micro-batch may contain the reduction. It
    costs the pipeline time only if it ends after the last backward, or if the compute time that the stage
    loses to it is longer. The first forward and the last backward pass through all stages one after the
    other, so that what is longer in them adds up over the stages. `alone` selects a step of one
    micro-batch. (plans, 1), in seconds, of any sign.
    """
    change = sum((_change(one, priced, _ends_of(alone)) for one in passes), ZERO)
    tail = passes[-1].tail_s[ONLY if alone else LAST]
    exposed = np.where(tail > NEVER, np.maximum(tail, 0.0), 0.0)
    here = priced.programs.stages.multiplicity > 0
    longest = np.where(here, change, NEVER).max(axis=1, keepdims=True)
    lost = np.where(here, sum((_lost(one, priced, alone) for one in passes), ZERO), 0.0)
    late = np.maximum(exposed.max(axis=1, keepdims=True), lost.max(axis=1, keepdims=True))
    hands_on = schedule_of(priced.programs.plans.structure.pipeline_schedule).hands_on
    first, last = _ends_of(alone)[0], _ends_of(alone)[-1]
    way = _change(passes[FORWARD], priced, (first,)) + _change(passes[BACKWARD], priced, (last,))
    way = np.where(here, np.maximum(way, 0.0), 0.0)
    others = (_of_all(way, priced.programs) - way.max(axis=1, keepdims=True)) * hands_on
    ends_s: Floats = longest + late + others
    return ends_s


def _lost(one: Simulated, priced: Priced, alone: bool) -> Floats:
    """Return the seconds lost to messages of the first and last micro-batch, (plans, stage classes)."""
    return _of_stages(sum((one.lost_s[at] for at in _ends_of(alone)), ZERO), priced)


def _ends_of(alone: bool) -> tuple[int, ...]:
    """Return the positions of the first and last micro-batch, or the one position of a single one."""
    return (ONLY,) if alone else (FIRST, LAST)


def _change(one: Simulated, priced: Priced, ends: tuple[int, ...]) -> Floats:
    """Return the extra seconds of passes at these positions of a step, (plans, stage classes)."""
    middle_s = one.duration_s[MIDDLE]
    return _of_stages(sum((one.duration_s[at] - middle_s for at in ends), ZERO), priced)
