"""The pipeline: when every task of every stage runs, and the critical path of the step.

Answers: given an order, durations and transfers, when does each task start and end?
Elsewhere: the inside of a task (program.py), the whole step (step.py).

The simulation has a chain of nodes for each stage. The nodes are the tasks of the stage, and also its
messages if transfers block. A node starts when the previous node of its chain and certain nodes of other
chains have ended, plus the time of a transfer between the two nodes if there is one.
The start times follow a max-plus recurrence over integer arrays. The structure of the recurrence (which
nodes can be computed together) depends only on the schedule, the numbers of stages, chunks and
micro-batches, and the transfer style. This structure is stored. The durations are those of each job.

There are three transfer styles. "overlapped": a message never delays its sender. "batched": a stage starts
all sends and receives between two tasks together, and waits for all of them, as in Megatron-LM. In an
interleaved schedule, there are none between a forward and the backward that follows it. "sequential": a
stage sends and receives one message after another, and both sides wait, as in DeepSpeed's pipeline engine.
Between a forward and a backward in the next slot, the stage receives first; otherwise it sends first.
"""

from dataclasses import fields

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.errors import InternalError
from flopcast.kept_results import LargeResults
from flopcast.records import Record, replace
from flopcast.schedules import schedule_of
from flopcast.schedules.base import Order
from flopcast.schedules.custom import OwnSchedule
from flopcast.timeline.chains import (
    CHAINS,
    MARK,
    MESSAGE,
    NO_TRANSFER,
    NOTHING,
    TASK,
    Chains,
    transfer_index,
)
from flopcast.workload.program import positions

GRAPHS = LargeResults(48 << 20)  # one of 16 stages and 1000 micro-batches takes 6 MB
FEW_TOGETHER = 12  # nodes of a round, below which an operation on arrays takes longer than all of them
ALONE_RATIO = 4  # one node of so many must wait for its own chain alone, if rounds take two steps


class Graph(Record, eq=False):
    """Nodes in an order in which each node follows all nodes for which it waits; arrays have shape
    (nodes,).

    Nodes 0 … stages - 1 are the sources: the times at which the stages become free. Every other node starts
    at the latest of `end[waits] + hop[lag]` and lasts for its own duration. The graph contains no seconds,
    so it applies to every job with the same schedule, numbers and transfer style.
    """

    order: Order
    kind: Integers  # TASK, MESSAGE (in the sender's chain) or MARK (in the receiver's)
    stage: Integers
    task: Integers  # flat index of the task, or of the task whose output a message carries
    waits: Integers  # (nodes, some): all nodes that it waits for, `before` first and where there is none
    lag: Integers  # same shape: which hop follows each of these; see `transfer_index`
    cargo: Integers  # same shape: the task whose output travels in that hop
    hop: Integers  # (nodes,): which hop a message is; NO_HOP for other nodes
    rounds: Integers  # bounds of runs of nodes that can be computed together, two a round (`_rounds`)
    last: Integers  # (stages,): last node of each chain
    node_of_task: Integers  # (stages · tasks,)
    position: Integers  # (stages · tasks,): index into POSITIONS
    between: Integers  # messages and marks that stand before a task of their chain, chain after chain
    behind: Integers  # same shape: the task that each of them stands before


def graph(schedule: str | OwnSchedule, stages: int, virtual: int, micro_batches: int, style: str) -> Graph:
    """Return the structure of one pipeline. GRAPHS stores the last ones.

    Parameters
    ----------
    schedule : a name of SCHEDULES, or a schedule of the user
    stages, virtual, micro_batches : pipeline stages, chunks of each, micro-batches of a step
    style : "overlapped", "batched" or "sequential" (see the module's docstring)

    Raises
    ------
    InternalError
        The order deadlocks under this transfer style, although spec/checks.py refuses such plans.
    """

    def made() -> Graph:
        order = schedule_of(schedule).order(stages, virtual, micro_batches)
        return _levelled(order, CHAINS[style](order), positions(order, micro_batches).ravel())

    return GRAPHS.of((schedule, stages, virtual, micro_batches, style), made, _bytes_of)


def _bytes_of(structure: Graph) -> int:
    """Return the bytes of the arrays of a graph."""
    parts = (getattr(whole, one.name) for whole in (structure, structure.order) for one in fields(whole))
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))


def of_kinds(structure: Graph, row: Integers) -> Graph:
    """Return the graph of micro-batches of several kinds.

    The transfers of one kind follow those of the other.

    Parameters
    ----------
    row : (stages · tasks,)
        The kind of the micro-batch of each task. Hops of kind k have the indices of `transfer_index` plus k
        times their number.
    """
    number = 1 + 2 * structure.order.kind.shape[0]

    def moved(hop: Integers, task: Integers) -> Integers:
        return np.where(hop == NO_TRANSFER, NO_TRANSFER, hop + number * row[task])

    return replace(
        structure, lag=moved(structure.lag, structure.cargo), hop=moved(structure.hop, structure.task)
    )


def _levelled(order: Order, chains: Chains, position: Integers) -> Graph:
    """Sort nodes into rounds: all chains advance together, each as soon as what it waits for is done."""
    runs = _rounds(chains)
    sequence = np.concatenate(runs)
    stages, size = len(chains.lengths), len(sequence)
    source = np.arange(stages)
    place = np.empty(size + stages + 1, dtype=np.intp)  # by node, or from the end by `source_of`
    place[sequence] = np.arange(stages, stages + size)
    place[size:] = np.arange(stages - 1, -2, -1)
    stage, kind, found = chains.stage[sequence], chains.kind[sequence], chains.waits[sequence]
    before = np.where(chains.position[sequence] == 0, stage, place[sequence - 1])
    waits = np.empty((stages + size, found.shape[1] + 1), dtype=np.intp)
    waits[:stages] = source[:, None]
    waits[stages:, 0] = before
    waits[stages:, 1:] = np.where(found == NOTHING, before[:, None], place[found])
    lag = np.full(waits.shape, NO_TRANSFER)
    lag[stages:, 1:] = chains.lag[sequence]
    cargo = np.zeros(waits.shape, dtype=np.intp)
    cargo[stages:, 1:] = chains.cargo[sequence]
    task = np.concatenate([source * 0, chains.task[sequence]])
    kinds = np.concatenate([np.full(stages, MARK), kind])
    hop = transfer_index(order.kind.ravel()[task], task // order.kind.shape[1])
    node_of_task = np.zeros(order.kind.size, dtype=np.intp)
    is_task = kind == TASK
    node_of_task[chains.task[sequence][is_task]] = stages + np.flatnonzero(is_task)
    between, behind = _in_gaps(chains)
    return Graph(
        order=order,
        kind=kinds,
        stage=np.concatenate([source, stage]),
        task=task,
        waits=waits,
        lag=lag,
        cargo=cargo,
        hop=np.where(kinds == MESSAGE, hop, NO_TRANSFER),
        rounds=np.cumsum([stages] + [len(run) for run in runs]),
        last=place[np.cumsum(chains.lengths) - 1],
        node_of_task=node_of_task,
        position=position,
        between=place[between],
        behind=behind,
    )


def _in_gaps(chains: Chains) -> tuple[Integers, Integers]:
    """Return the nodes between the tasks of their chains, and the task that each of them stands before."""
    is_task = chains.kind == TASK
    following = np.append(np.flatnonzero(is_task), -1)[is_task.cumsum()]
    inside = np.flatnonzero(~is_task & (chains.stage[following] == chains.stage) & (following >= 0))
    return inside, chains.task[following[inside]]


def _rounds(chains: Chains) -> list[Integers]:
    """Return the nodes that can be computed together, round by round, as two runs each.

    In the first run, every stage that can go on takes one step. In the second, stages whose next node waits
    for nothing else take that one too, if many nodes do so, as half of the tasks of an interleaved order. A
    round in which no stage can go on is a deadlock.
    """
    ends = np.cumsum(chains.lengths)
    # the next node of each chain; behind the last one, a node that never runs
    front = ends - chains.lengths
    size = chains.waits.shape[0]
    never = size + 1
    waits = np.empty((size + 1, chains.waits.shape[1]), dtype=np.intp)
    np.copyto(waits[:-1], chains.waits)
    waits[:-1][chains.waits < 0] = size  # nothing, or a source: done from the start
    waits[-1] = never
    done = np.zeros(size + 2, dtype=bool)
    done[size] = True
    front[chains.lengths == 0] = size
    following = np.arange(1, size + 2)
    following[ends - 1] = following[size] = size
    alone = np.zeros(size + 1, dtype=bool)
    alone[:-1] = (chains.waits == NOTHING).all(axis=1) & (chains.lag == NO_TRANSFER).all(axis=1)
    twice = alone.sum() > size / ALONE_RATIO
    beyond = np.where(alone[following], following[following], following) if twice else following
    left = size
    runs: list[Integers] = []
    while left:
        ready = np.logical_and.reduce(done[waits[front]], axis=1).nonzero()[0]
        if not ready.size:
            raise InternalError(
                f"the order deadlocks: {(front < size).sum()} of {len(ends)} stages wait for each other"
            )
        run = front[ready]
        second = following[run] if twice else run[:0]
        second = second[alone[second]]
        runs += (run, second)
        done[run] = done[second] = True
        front[ready] = beyond[run]
        left -= run.size + second.size
    return runs


class NodeTimes(Record, eq=False):
    """Start and end of every node, in seconds after the start of the sources.

    Arrays (nodes,) in the order of the graph; `transfer_s` by `transfer_index`. `held` marks nodes that end
    later than their duration, because they wait for another input.
    """

    graph: Graph
    start_s: Floats
    end_s: Floats
    duration_s: Floats
    transfer_s: Floats
    held: np.ndarray


def play(
    structure: Graph, task_s: Floats, transfer_s: Floats, free_s: Floats, not_before_s: Floats | None = None
) -> NodeTimes:
    """Run a pipeline.

    Parameters
    ----------
    task_s : (stages · tasks,)
        Duration of every task of the order, stage after stage.
    transfer_s : (1 + 2 · stages,)
        Duration of transfers by `transfer_index`; the first is 0. For several kinds of micro-batches, the
        arrays of the kinds follow each other (`of_kinds`).
    free_s : (stages,)
        When each stage is free to begin.
    not_before_s : (stages · tasks,)
        Earliest end of each task, in addition to its other dependencies. None means no such limit.

    Returns
    -------
    NodeTimes
        The times are exact for these durations. Longer durations never give an earlier end.
    """
    g = structure
    duration = np.where(g.kind == TASK, task_s[g.task], np.where(g.kind == MESSAGE, transfer_s[g.hop], 0.0))
    duration[: len(free_s)] = 0.0
    earliest = np.full(len(duration), -np.inf)
    if not_before_s is not None:
        earliest = np.where(g.kind == TASK, not_before_s[g.task], earliest)
    lag = transfer_s[g.lag]
    is_narrow = g.waits.shape[1] == 2 and len(duration) < FEW_TOGETHER * len(g.rounds) / 2
    run = _one_by_one if is_narrow else _round_by_round
    start, end = run(g, duration, lag, earliest, free_s)
    held = end > start + duration
    return NodeTimes(
        graph=g, start_s=start, end_s=end, duration_s=duration, transfer_s=transfer_s, held=held
    )


def _one_by_one(
    g: Graph, duration_s: Floats, lag_s: Floats, earliest_s: Floats, free_s: Floats
) -> tuple[Floats, Floats]:
    """Return start and end of every node, if each waits for one other: faster for few nodes a round."""
    end, first = free_s.tolist(), len(free_s)
    before, other = g.waits[first:].T
    lag_s, duration_s = lag_s[first:, 1], duration_s[first:]
    columns = before.tolist(), other.tolist(), lag_s.tolist(), duration_s.tolist()
    if (earliest_s > -np.inf).any():
        for previous, sender, hop_s, lasts_s, not_before_s in zip(
            *columns, earliest_s[first:].tolist(), strict=True
        ):
            free_from_s, arrived_s = end[previous], end[sender] + hop_s
            end_s = (arrived_s if arrived_s > free_from_s else free_from_s) + lasts_s
            end.append(end_s if end_s > not_before_s else not_before_s)  # max() takes twice as long
    else:
        for previous, sender, hop_s, lasts_s in zip(*columns, strict=True):
            free_from_s, arrived_s = end[previous], end[sender] + hop_s
            end.append((arrived_s if arrived_s > free_from_s else free_from_s) + lasts_s)
    ends = np.array(end)
    return np.concatenate([free_s, np.maximum(ends[before], ends[other] + lag_s)]), ends


def _round_by_round(
    g: Graph, duration_s: Floats, lag_s: Floats, earliest_s: Floats, free_s: Floats
) -> tuple[Floats, Floats]:
    """Return the start and the end of every node. The nodes of a round are computed together."""
    end = np.zeros(len(duration_s))
    end[: len(free_s)] = free_s
    start, before = end.copy(), g.waits[:, 0]
    holds = bool((earliest_s > -np.inf).any())
    bounds = g.rounds.tolist()
    for low, middle, high in zip(bounds[:-1:2], bounds[1::2], bounds[2::2], strict=True):
        started, ended = start[low:middle], end[low:middle]
        np.maximum.reduce(end.take(g.waits[low:middle]) + lag_s[low:middle], axis=1, out=started)
        np.add(started, duration_s[low:middle], out=ended)
        if holds:
            np.maximum(ended, earliest_s[low:middle], out=ended)
        if middle < high:
            started = end.take(before[middle:high])
            start[middle:high] = started
            ended = np.add(started, duration_s[middle:high], out=end[middle:high])
            if holds:
                np.maximum(ended, earliest_s[middle:high], out=ended)
    return start, end


def critical_path(played: NodeTimes, node: int) -> tuple[Integers, Integers]:
    """Return the nodes on the longest path that ends at `node`, last first, and the transfer before each.

    The first entry is `node`, the last a source. The end of `node` is the sum of the time at which the
    source becomes free, the durations of the nodes, and the transfers between them. After a held node, the
    path continues at the source of its stage. Between this source and the end of the node, the path is that
    of the input for which the node waited.
    """
    g, end, hop = played.graph, played.end_s, played.transfer_s
    latest = latest_of(end[g.waits] + hop[g.lag])  # its own chain first, where several are equal
    chosen = np.arange(len(latest)), latest
    before = np.where(played.held, g.stage, g.waits[chosen]).tolist()
    path, num_sources = [node], g.order.kind.shape[0]
    while node >= num_sources:
        node = before[node]
        path.append(node)
    nodes = np.array(path, dtype=np.intp)
    hops = np.where(played.held, NO_TRANSFER, g.lag[chosen])[nodes]
    hops[-1] = NO_TRANSFER
    return nodes, hops


def latest_of(moments_s: Floats) -> Integers:
    """Return the column of the latest time in each row; the first if several are equal.

    `argmax` takes several times as long for two columns.
    """
    two = moments_s.shape[1] == 2
    latest: Integers = (
        (moments_s[:, 1] > moments_s[:, 0]).astype(np.intp) if two else moments_s.argmax(axis=1)
    )
    return latest
