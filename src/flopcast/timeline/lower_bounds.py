"""Lower bounds of step times, for whole batches of plans, much faster than an estimate.

Answers: which time is a lower bound of the estimate of each plan?
Elsewhere: the estimate (closed_form.py), seconds by split (cost/split_prices.py), the search that excludes
plans by these bounds (search/screen.py).

The bound of a layer contains its compute, and the messages for which compute waits. It leaves out
overlapped messages, slowdowns by concurrent messages, and everything that depends on more than the split of
a plan. The bound of a step also leaves out transfers between stages, exposed reductions and the ends of the
step.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flopcast.cost.split_prices import SplitSeconds
from flopcast.dtypes import Counts, Floats
from flopcast.operators.item import Item
from flopcast.schedules import schedule_of
from flopcast.schedules.base import AbstractSplitSchedule
from flopcast.workload.program import FIRST, LAST, MIDDLE, ONLY, POSITIONS, WHEN, Programs, Segment

ROUNDING = 1.0 - 1e-9  # of sums in another order


def least_seconds(terms_s: Floats, micro_batches: Counts) -> Floats:
    """Return lower bounds of the estimated step times, (plans,).

    Parameters
    ----------
    terms_s : array of shape (plans, 3)
        The result of `least_terms`.
    micro_batches : array of shape (plans, 1)
    """
    turn_s, several_s, only_s = terms_s.T
    number = micro_batches[:, 0]
    least_s: Floats = np.where(number > 1, (number - 2.0) * turn_s + several_s, only_s) * ROUNDING
    return least_s


def least_terms(programs: Programs, known: SplitSeconds | None) -> Floats:
    """Return lower bounds of the step times of plans, for any number of micro-batches.

    Let b be the stage with the longest turn. An estimate is at least the sum of the first chunks of the
    other stages, the first and the last micro-batch of b, and the longest turn for every other micro-batch.

    Returns
    -------
    array of shape (plans, 3)
        Seconds of a micro-batch on the slowest stage, of the rest of a step with several micro-batches, and
        of the rest of a step with one micro-batch. They are 0 if no bound is known.
    """
    plans, stages = programs.plans, programs.stages
    rule = schedule_of(plans.structure.pipeline_schedule)
    if known is None or isinstance(rule, AbstractSplitSchedule) or not rule.hands_on:
        return np.zeros((plans.size, 3))
    chunks_s = sum((_chunk_seconds(run, known) for run in programs.passes), np.zeros((3, 1, 1)))
    middle_s, *ends_s = np.broadcast_to(chunks_s, (3, *stages.chunks_of_class[:, 0].shape))
    turn_s, *both_s = (
        (stages.chunks_of_class * each_s[:, None]).sum(axis=2) for each_s in (middle_s, *ends_s)
    )
    first_s = np.take_along_axis(middle_s, stages.first_chunk, axis=1)
    others_s = (first_s * stages.multiplicity).sum(axis=1, keepdims=True) - first_s
    here = stages.multiplicity > 0
    ends = [np.where(here, others_s + each_s, np.inf).min(axis=1) for each_s in both_s]
    return np.stack([np.where(here, turn_s, 0.0).max(axis=1), *ends], axis=1)


def _chunk_seconds(run: Sequence[Segment], known: SplitSeconds) -> Floats:
    """Return the least seconds of one pass of each chunk, (3, plans, chunk classes).

    Of a micro-batch in the middle of a step, of the first and the last together, and of an only one.
    """
    total_s: Floats = np.zeros((3, 1, 1))
    for segment in run:
        layer_s = _layer_seconds(segment.items, known.seconds)
        layer_s = np.broadcast_to(layer_s, (len(POSITIONS), known.rows.size))
        each_s = np.stack([layer_s[MIDDLE], layer_s[FIRST] + layer_s[LAST], layer_s[ONLY]])
        total_s = total_s + segment.repeat * each_s[:, known.rows.group, None]
    return total_s


def _layer_seconds(items: Sequence[Item], seconds: Mapping[Item, Floats]) -> Floats:
    """Return the seconds from a moment when compute is free to that after a layer, (positions, groups)."""
    free: dict[str, Floats] = {"compute": np.zeros((1, 1))}
    for item in items:
        begins = [free[name] for name in {item.stream, *item.waits} if name in free]
        if not begins:
            continue
        start = begins[0]
        for begin in begins[1:]:
            start = np.maximum(start, begin)
        taken = seconds.get(item)
        if taken is not None:
            each_s = taken.min(axis=1)[None]
            start = start + (
                each_s if item.when == "every" else np.array(WHEN[item.when])[:, None] * each_s
            )
        free[item.stream] = start
    return free["compute"]
