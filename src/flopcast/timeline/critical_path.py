"""Parts of a step's time: along its critical path, and on its busiest stage.

Answers: which items determine the step, and how often do they run on the path (sensitivities)? How does the
busiest stage spend its time (breakdown)?
Elsewhere: when tasks run (pipeline.py, step.py), the items inside a task (program.py).

The critical path changes between equal stages, but readers need to know how one stage spends its time.
There are therefore two views, both of which sum to the step. The shares of the path give `d log(step) / d
log(factor)` exactly (their `slope_s`). The shares of the busiest stage, with its waiting, give the
breakdown.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts, Floats, Integers, any_of, distinct
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item
from flopcast.schedules.base import FORWARD
from flopcast.timeline.chains import MESSAGE, TASK
from flopcast.timeline.contention import executions
from flopcast.timeline.executed_items import (
    added_copies,
    executed,
    executed_in,
    simulated_without_copies,
    without_copies,
    without_copies_in,
)
from flopcast.timeline.layer import LAUNCH_COLUMNS, num_columns
from flopcast.timeline.pipeline import critical_path, latest_of
from flopcast.timeline.program import Simulated
from flopcast.timeline.simulation import StepSimulation
from flopcast.timeline.time_attribution import TimeAttribution
from flopcast.timeline.transfers import transfer_items
from flopcast.workload.program import Segment

ROUNDING = 1e-9  # of the step: what sums of floats may leave over
SHORTEST_S = 1e-15  # keeps a division by no time at all away
Runs = Sequence[tuple[float, StepSimulation]]  # simulations with weights; the step is their weighted sum


class View(NamedTuple):
    """The executions of a simulation in one view of the step, before they are converted to seconds.

    `executed` holds tasks of one pass each, with the counts of their columns. `by_hop_s` are the seconds of
    transfers by hop index. `others` are shares that are not sums over tasks.
    """

    executed: list[tuple[Simulated, Counts, Integers]]
    by_hop_s: Floats
    others: list[TimeAttribution]


def attributed(runs: Runs, view: Callable[[StepSimulation], View]) -> tuple[TimeAttribution, ...]:
    """Return the shares of a view of weighted simulations.

    Counts are summed before they are converted to seconds.
    """
    views = [(weight, run, view(run)) for weight, run in runs]
    _, first, _ = views[0]
    shares: list[TimeAttribution] = []
    for same in zip(*(each.executed for _, _, each in views), strict=True):
        simulated, counts, _ = same[0]
        chosen = [(weight, run, one[2]) for (weight, run, _), one in zip(views, same, strict=True)]
        shares += executed_in(chosen, simulated, counts)
    by_hop_s = np.add.reduce([weight * each.by_hop_s for weight, _, each in views])
    shares += _transfer_shares(first, by_hop_s)
    others = (
        share if weight == 1.0 else share.times(weight)
        for weight, _, each in views
        for share in each.others
    )
    return (*shares, *others)


def view_of_critical_path(run: StepSimulation) -> View:
    """Return the critical path of the step: update, tasks and transfers, reduction, synchronisation.

    The sum of its shares is the step time. The sum of `slope_s` over a factor's items, divided by the step,
    is `d log(step) / d log(factor)` as long as no other path becomes the longest.
    """
    g, last = run.played.graph, run.last
    begun = int(run.chain_start[last])
    node = int(g.last[last]) if begun < 0 else int(g.node_of_task[begun])
    path, hops = critical_path(run.played, node)
    behind = path if begun < 0 else path[1:]  # the task that began the wait is left before its end
    nodes = behind[(g.kind[behind] == TASK) & ~run.played.held[behind]]
    others = _chain_shares(run, begun) if begun >= 0 else _lost_shares(run, last)
    others += [share for held in path[run.played.held[path]] for share in _gather_shares(run, int(held))]
    others += _phase_shares(run, run.programs.update, int(g.stage[path[-1]]))
    others += _skew_shares(run) if run.programs.plans.structure.order_rule.skews_steps else []
    others += _end_shares(run, last)
    return View(_of_passes(run, g.task[nodes]), _hop_seconds(run, path, hops), others)


def _skew_shares(run: StepSimulation) -> list[TimeAttribution]:
    """Return negative shares for the time that a stage's path contains before the start of its step.

    The step is the difference of two moments, so its shares are those of the path to the end less those of
    the path to the first task, the stage's own update kept.
    """
    g, last = run.played.graph, run.last
    path, hops = critical_path(run.played, int(g.node_of_task[last * g.order.kind.shape[1]]))
    before = path[1:]  # the first task itself belongs to the step
    tasks = g.task[before[g.kind[before] == TASK]]
    taken = [share for each in _of_passes(run, tasks) for share in executed(run, *each)]
    taken += _transfer_shares(run, _hop_seconds(run, path[:0], hops))
    taken += _phase_shares(run, run.programs.update, int(g.stage[path[-1]]))
    kept = _phase_shares(run, run.programs.update, last)
    return kept + [share.times(-1.0) for share in taken]


def _chain_shares(run: StepSimulation, begun: int) -> list[TimeAttribution]:
    """Return reductions that continue after the last backward: before their queue, and along it.

    The queue last waited for gradients of the task `begun`; from then on each program's reductions follow
    those of the one before.
    """
    tasks = run.played.graph.order.kind.shape[1]
    later = np.arange(begun + 1, (begun // tasks + 1) * tasks)
    reducing = len(run.passes) - 1
    later = later[run.played.graph.order.kind.ravel()[later] == reducing]
    found = _lost_shares(run, begun // tasks, begun)
    for counts, chosen in (
        (run.passes[reducing].tail_counts, np.array([begun])),
        (run.passes[reducing].reduction_counts, later),
    ):
        found += executed(run, run.passes[reducing], counts, chosen)
    return found


def _lost_shares(run: StepSimulation, stage: int, before: int | None = None) -> list[TimeAttribution]:
    """Return the time that a stage loses to messages of its first and last micro-batch (contention.py).

    If `before` is given, only tasks of the stage in front of that one count.
    """
    kind = run.played.graph.order.kind
    mine = np.arange(stage * kind.shape[1], (stage + 1) * kind.shape[1] if before is None else before)
    return [
        share
        for number, one in enumerate(run.passes)
        if any_of(one.lost_s)
        for share in executed(run, one, one.lost_counts, mine[kind.ravel()[mine] == number])
    ]


def _gather_shares(run: StepSimulation, held: int) -> list[TimeAttribution]:
    """Return the all-gathers of a stage from its update to the last one that a task waited for."""
    g = run.played.graph
    tasks = g.order.kind.shape[1]
    task = int(g.task[held])
    waited = np.arange(task // tasks * tasks, task + 1)
    waited = waited[g.order.kind.ravel()[waited] == FORWARD]
    return executed(run, run.forward, run.forward.reduction_counts, waited)


def view_of_stage(run: StepSimulation, stage: int) -> View:
    """Return the executions of a stage from one synchronisation to the next.

    Inside a task, only its critical path counts, because hidden work adds no time to the stage. Copies to
    and from the host count with the time that they add to a task. During the rest of the step, the stage
    waits for other stages.
    """
    size = run.played.graph.order.kind.shape[1]
    tasks = np.arange(stage * size, (stage + 1) * size)
    executed_tasks, others = without_copies_in(run, tasks)
    others += _phase_shares(run, run.programs.update, stage)
    others += _end_shares(run, stage)
    others += _exposed(run, [stage])
    return View(executed_tasks, _gap_seconds(run, stage, stage + 1), others)


def view_of_all_stages(run: StepSimulation) -> View:
    """Return the busy time of all devices by kind of work, for their power.

    A compute kernel counts with its duration, even if its launch takes longer. A message counts only while
    it is exposed. In the rest of the step, the device waits.
    """
    g = run.played.graph
    stages, kind = len(g.order.kind), g.order.kind.ravel()
    busy: list[tuple[Simulated, Counts, Integers]] = []
    others: list[TimeAttribution] = []
    for number, (simulated, segments) in enumerate(zip(run.passes, run.programs.passes, strict=True)):
        tasks = np.flatnonzero(kind == number)
        copies = added_copies(run, number, tasks)
        beside = simulated_without_copies(run.priced, number) if copies else simulated
        busy.append((beside, _busy(beside, without_copies(segments) if copies else segments), tasks))
        others += copies
    stage_class = run.programs.stages.of(run.plan).stage_class
    kind_of_stage = stage_class + run.stage_row * (1 + stage_class.max())
    for at in distinct(kind_of_stage):
        alike = np.flatnonzero(kind_of_stage == at)
        ends = _phase_shares(run, run.programs.update, int(alike[0])) + _end_shares(run, int(alike[0]))
        others += [share.times(float(len(alike))) for share in ends]
    others += _exposed(run, range(stages))
    return View(busy, _gap_seconds(run, 0, stages), others)


@lru_cache(maxsize=8)  # the plans of a batch share their passes
def _busy(simulated: Simulated, segments: tuple[Segment, ...]) -> Counts:
    """Return the counts as in `Simulated.counts`: all kernels, but only messages on the critical path."""
    counts = simulated.counts[..., : num_columns(simulated.columns)].copy()
    counts[..., -LAUNCH_COLUMNS:] = 0.0
    column = 0
    for segment in segments:
        for item in segment.items:
            if isinstance(item.work, AbstractOperator):
                counts[..., column] = executions(item) * segment.repeat
            column += 1
    return counts


def busy_seconds(run: StepSimulation) -> Floats:
    """Return the seconds of tasks, update and reduction of every stage, (stages,)."""
    g = run.played.graph
    tasks_s = run.played.duration_s[g.node_of_task].reshape(g.order.kind.shape).sum(axis=1)
    busy_s: Floats = tasks_s + run.update_s + run.reduce_s
    return busy_s


def pass_seconds(run: StepSimulation) -> Floats:
    """Return the seconds of all tasks of each pass, (passes,)."""
    g = run.played.graph
    kinds, lasts_s = g.order.kind.ravel(), run.played.duration_s[g.node_of_task]
    return np.array([lasts_s[kinds == number].sum() for number in range(len(run.passes))])


def _end_shares(run: StepSimulation, stage: int) -> list[TimeAttribution]:
    """Return the reduction of a stage, and the synchronisation of all stages."""
    reduce = _phase_shares(run, run.programs.reduce, stage)
    return reduce + _phase_shares(run, run.programs.synchronise, stage)


def _exposed(run: StepSimulation, stages: Iterable[int]) -> list[TimeAttribution]:
    """Return the waits of stages after their last backward: for reductions, or for lost time."""
    late_s = run.reduce_start_s - run.played.end_s[run.played.graph.last]
    least_s = ROUNDING * run.step_time_s
    found: list[TimeAttribution] = []
    for stage in stages:
        if late_s[stage] > least_s:
            found += _exposed_on(run, stage, float(late_s[stage]))
    return found


def _exposed_on(run: StepSimulation, stage: int, late_s: float) -> list[TimeAttribution]:
    """Return the wait of a stage.

    It is divided among the reductions of the queue in proportion to their seconds, starting with the
    reduction that began it.
    """
    begun = int(run.chain_start[stage])
    if begun < 0:
        return _lost_shares(run, stage)
    chain = _chain_shares(run, begun)
    queue = [share for share in chain if share.item and share.item.stream == "dp" and share.path_s > 0]
    part = late_s / sum(share.path_s for share in queue)
    return [share.times(part) for share in queue]


def _of_passes(run: StepSimulation, tasks: Integers) -> list[tuple[Simulated, Counts, Integers]]:
    """Return the tasks of each pass, with the counts of the items on the critical paths of its programs."""
    kind = run.played.graph.order.kind.ravel()[tasks]
    return [(each, each.counts, tasks[kind == number]) for number, each in enumerate(run.passes)]


def _hop_seconds(run: StepSimulation, path: Integers, hops: Integers) -> Floats:
    """Return the seconds of transfers on a path by hop index: lags of tasks, or nodes if they block."""
    g = run.played.graph
    messages = path[g.kind[path] == MESSAGE]
    taken = np.concatenate([hops[hops > 0], g.hop[messages]])
    return _summed(taken, run.played.transfer_s[taken], len(run.played.transfer_s))


def _gap_seconds(run: StepSimulation, first: int, stop: int) -> Floats:
    """Return the seconds of transfers in the gaps before the tasks of some stages, by hop index.

    The rest of a gap is waiting for a neighbour. Blocking messages are nodes between the tasks, other
    transfers lags of the task that waits for them.
    """
    played, g, size = run.played, run.played.graph, run.played.graph.order.kind.shape[1]
    if not played.transfer_s.any():  # as in plans with a single stage
        return np.zeros(len(played.transfer_s))
    nodes = g.node_of_task[first * size : stop * size]
    before = np.empty(len(nodes))
    before[1:] = played.end_s[nodes[:-1]]
    before[::size] = (run.begin_s + run.update_s)[first:stop]
    gap_s = np.maximum(played.start_s[nodes] - before, 0.0)
    lag = g.lag[nodes]
    longest = latest_of(played.transfer_s[lag])
    low, high = np.searchsorted(g.behind, (first * size, stop * size))
    # of lags, then of blocking messages
    hop = np.concatenate([lag[np.arange(len(nodes)), longest], g.hop[g.between[low:high]]])
    gap = np.concatenate([np.arange(len(nodes)), g.behind[low:high] - first * size])
    transfer_s = _summed(gap, played.transfer_s[hop], len(nodes))
    part = np.minimum(gap_s, transfer_s) / np.maximum(transfer_s, SHORTEST_S)
    return _summed(hop, played.transfer_s[hop] * part[gap], len(played.transfer_s))


def _summed(position: Integers, amount_s: Floats, size: int) -> Floats:
    return np.bincount(position, amount_s, minlength=size).astype(np.float64)


def _transfer_shares(run: StepSimulation, by_hop_s: Floats) -> list[TimeAttribution]:
    """Return the seconds of transfers by hop index, divided over the messages of one transfer.

    Of several kinds of micro-batches, hop indices follow each other kind by kind (`of_kinds`).
    """
    found: list[TimeAttribution] = []
    if not any_of(by_hop_s):
        return found
    kinds = (np.arange(len(run.leaves)) - 1) % 2
    of_rows = by_hop_s.reshape(-1, len(run.leaves))
    for row, of_hops in enumerate(of_rows, 0 if len(of_rows) > 1 else run.plan):
        totals_s = np.bincount(2 * kinds + run.leaves, of_hops, minlength=4).tolist()
        for number, total_s in enumerate(totals_s):
            kind, crosses = divmod(number, 2)  # FORWARD or BACKWARD; 1 if the transfer leaves its node
            items = transfer_items(run.programs, kind, bool(crosses)) if total_s > 0 else ()
            each_s = [run.priced.seconds(item, row) for item in items]
            if (whole_s := sum(each_s)) > 0:
                parts = zip(items, each_s, strict=True)
                found += [_alone(run.priced, item, total_s * own_s / whole_s, row) for item, own_s in parts]
    return found


def _phase_shares(run: StepSimulation, items: tuple[Item, ...], stage: int) -> list[TimeAttribution]:
    """Return the items of the start or end of the step, one after the other, on one stage."""
    at, row = int(run.programs.stages.of(run.plan).stage_class[stage]), int(run.stage_row[stage])
    return [*_serial_shares(run.priced, items, row, at)]


@lru_cache(maxsize=16)  # all views of a step, and stages of one class, ask for the same items
def _serial_shares(
    priced: Priced, items: tuple[Item, ...], row: int, stage_class: int
) -> tuple[TimeAttribution, ...]:
    """Return items one after the other, in one row of prices and on one stage class."""
    each = ((item, priced.seconds(item, row, stage_class)) for item in items)
    return tuple(_alone(priced, item, path_s, row, stage_class) for item, path_s in each if path_s > 0)


def _alone(priced: Priced, item: Item, path_s: float, row: int, stage_class: int = 0) -> TimeAttribution:
    """Return the share of an item that does not overlap with others."""
    return TimeAttribution(item, path_s, row, priced.of(item).moved(row, stage_class))
