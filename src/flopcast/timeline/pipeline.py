"""Between programs: when every task of every stage runs, and the path that decides the step.

Answers: given an order, durations and transfers, when does each task start and end?
Elsewhere: what is inside a task (program.py), the step around the pipeline (step.py).

Each stage works through a chain of nodes: its tasks, and, where transfers block, its messages. A node
starts when the node before it in its chain and some others have ended, each perhaps a hop later. That is a
max-plus recurrence over integer arrays: its structure (which nodes can be computed together) depends
only on schedule, numbers and transfer style, and is kept; durations are filled in for each job.

Transfer styles: "overlapped": a message never holds up its sender. "batched": what one gap between two
tasks sends and receives is posted together, and the stage waits for all of it (Megatron-LM; interleaved,
there is no gap between a forward and the backward that follows it). "sequential": one blocking message
after the other, both sides waiting (DeepSpeed's pipeline engine): between a forward and a backward in the
slot behind it, it first receives; otherwise it first sends.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.errors import InternalError
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT, Order
from flopcast.schedules.interleaved import warm_up

TASK, MESSAGE, MARK = 0, 1, 2


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Graph:
    """Nodes in an order in which each comes after all that it waits for; arrays (nodes,).

    Nodes 0 … stages - 1 are the sources: the moments from which the stages are free. Every other node
    starts at the latest of `end[waits] + hop[lag]` and lasts for its own duration. Nothing here is in
    seconds, so one graph serves every job with the same schedule, numbers and transfer style.
    """

    order: Order
    kind: Integers  # TASK, MESSAGE (in the sender's chain) or MARK (in the receiver's)
    stage: Integers
    task: Integers  # flat index of the task, or of the task whose output a message carries
    waits: Integers  # (nodes, some): all nodes that it waits for, `before` first and where there is none
    lag: Integers  # same shape: which hop follows each of these; see `hop_index`
    rounds: Integers  # bounds of runs of nodes that can be computed together
    last: Integers  # (stages,): last node of each chain
    node_of_task: Integers  # (stages · tasks,)


NO_HOP = 0


def hop_index(kind: Integers, stage: Integers) -> Integers:
    """Index of a hop's duration: 0 is none, then forward and backward hops of each sender.

    >>> hop_index(np.array([FORWARD, BACKWARD]), np.array([0, 3])).tolist()
    [1, 8]
    """
    hop: Integers = 1 + 2 * stage + (kind == BACKWARD)
    return hop


@lru_cache(maxsize=64)
def graph(schedule: str, stages: int, virtual: int, micro_batches: int, style: str) -> Graph:
    """The structure of one pipeline; the last 64 are kept.

    Parameters
    ----------
    schedule : a name of SCHEDULES
    stages, virtual, micro_batches : pipeline stages, chunks of each, micro-batches of a step
    style : "overlapped", "batched" or "sequential" (see the module's docstring)

    Raises
    ------
    InternalError
        The order deadlocks under this transfer style: spec/checks.py lets no such plan through.
    """
    order = SCHEDULES[schedule].order(stages, virtual, micro_batches)
    chains = {
        "overlapped": _overlapped_chains,
        "batched": _batched_chains,
        "sequential": _sequential_chains,
    }
    return _levelled(order, chains[style](order))


def _flows(order: Order) -> tuple[Integers, Integers]:
    """Producer and consumer of every task's message, as flat task indices; -1 where there is none.

    A forward takes the activation of the stage before it; the first stage, that of the last stage one
    chunk earlier. A backward takes its gradient the other way round. One stage alone sends nothing, nor do
    weight gradients.
    """
    stages, tasks = order.kind.shape
    virtual, micro = int(order.chunk.max()) + 1, int(order.micro_batch.max()) + 1
    stage = np.repeat(np.arange(stages)[:, None], tasks, axis=1)
    flat = np.arange(stages * tasks).reshape(stages, tasks)
    at = np.full((3, stages + 1, virtual + 1, micro), -1)
    at[order.kind, stage, order.chunk, order.micro_batch] = flat
    forward = order.kind == FORWARD
    down = np.where(forward, stage - 1, stage + 1)  # the neighbour that a task's input comes from
    wraps = (down < 0) | (down >= stages)
    source_chunk = np.where(wraps, order.chunk + np.where(forward, -1, 1), order.chunk)
    none = (source_chunk < 0) | (source_chunk >= virtual) | (order.kind == WEIGHT)
    producer = at[order.kind, down % stages, np.clip(source_chunk, 0, virtual - 1), order.micro_batch]
    producer = np.where(none | (down % stages == stage), -1, producer).ravel()
    consumer = np.full(stages * tasks, -1)
    has = producer >= 0
    consumer[producer[has]] = np.flatnonzero(has)
    return producer, consumer


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Chains:
    """Nodes before they are sorted: chain after chain, each from its first to its last node."""

    kind: Integers
    stage: Integers
    task: Integers
    position: Integers  # in its chain
    waits: Integers  # (nodes, some): other nodes; NOTHING, or `source(stage)`
    lag: Integers  # same shape
    lengths: Integers  # of each chain


NOTHING = -1


def _source(stage: Integers) -> Integers:
    """The mark, in `waits`, of the moment from which a stage is free: below NOTHING, one for each stage."""
    return NOTHING - 1 - stage


def _tasks(order: Order, waits: Integers, lag: Integers) -> _Chains:
    """Chains that hold tasks only: transfers show as lags between them, not as nodes."""
    stages, tasks = order.kind.shape
    flat = np.arange(stages * tasks)
    return _Chains(
        kind=np.full(flat.size, TASK),
        stage=flat // tasks,
        task=flat,
        position=flat % tasks,
        waits=waits,
        lag=lag,
        lengths=np.full(stages, tasks),
    )


def _overlapped_chains(order: Order) -> _Chains:
    """A message arrives a hop after its sender's task, and holds up nobody else."""
    producer, _ = _flows(order)
    stage = producer // order.kind.shape[1]
    hop = hop_index(order.kind.ravel()[producer], stage)
    lag = np.where(producer >= 0, hop, NO_HOP)
    return _tasks(order, producer[:, None], lag[:, None])


def _batched_chains(order: Order) -> _Chains:
    """A message starts when both stages have come to their gap; the gap ends when all of it has arrived."""
    tasks = order.kind.shape[1]
    _, consumer = _flows(order)
    senders = np.flatnonzero(consumer >= 0)
    after, before = _gaps(order)
    send, receive = after[senders], before[consumer[senders]]  # first task behind each side's gap
    hop = hop_index(order.kind.ravel()[senders], senders // tasks)
    has_send = send < (senders // tasks + 1) * tasks  # there is a task behind the gap
    both = np.concatenate([send[has_send], send[has_send], receive, receive])
    ends = _posted(send, senders // tasks, tasks), _posted(receive, consumer[senders] // tasks, tasks)
    seen = np.concatenate([ends[0][has_send], ends[1][has_send], ends[1], ends[0]])
    lags = np.concatenate([hop[has_send], hop[has_send], hop, hop])
    return _tasks(order, *_columns(both, seen, lags, order.kind.size))


def _gaps(order: Order) -> tuple[Integers, Integers]:
    """The first task behind the gap in which each task's output is sent, and its input received.

    With several chunks, a forward of the steady phase and the backward behind it have no gap between. A
    stage whose forwards are all warm-up has no such phase (arXiv:2104.04473, section 2.2).
    """
    stages, tasks = order.kind.shape
    flat = np.arange(stages * tasks)
    after, before = flat + 1, flat.copy()
    if order.chunk.max() > 0:
        kind = order.kind.ravel()
        next_kind = np.where(flat % tasks < tasks - 1, kind[np.minimum(flat + 1, flat.size - 1)], FORWARD)
        turns = ((kind == FORWARD) & (next_kind == BACKWARD)).reshape(stages, tasks)
        virtual = int(order.chunk.max()) + 1
        takes_turns = np.array([warm_up(s, stages, virtual) < tasks // 2 for s in range(stages)])
        steady = (turns & takes_turns[:, None]).ravel()
        after[steady] += 1
        before[np.flatnonzero(steady) + 1] -= 1
    return after, before


def _posted(gap: Integers, stage: Integers, tasks: int) -> Integers:
    """The task in front of a gap, or the stage's source.

    `gap` is the flat index of the first task behind the gap, which for the gap behind a stage's last task
    is the first of the next stage: hence `stage`, the one whose gap it is.
    """
    return np.where(gap % tasks > 0, gap - 1, np.where(gap // tasks > stage, gap - 1, _source(stage)))


def _columns(node: Integers, wait: Integers, lag: Integers, size: int) -> tuple[Integers, Integers]:
    """Lists of (node, what it waits for, hop) as padded columns: (size, most waits of any node)."""
    sort = np.argsort(node, kind="stable")
    counts = np.bincount(node, minlength=size)
    width = max(int(counts.max()), 1)
    row = np.arange(size) * width - (
        np.cumsum(counts) - counts
    )  # where a node's entries go, less their place
    place = np.repeat(row, counts)
    place += np.arange(len(node))
    waits = np.full(size * width, NOTHING)
    lags = np.full(size * width, NO_HOP)
    waits[place] = wait[sort]
    lags[place] = lag[sort]
    return waits.reshape(size, width), lags.reshape(size, width)


def _sequential_chains(order: Order) -> _Chains:
    """Chains of tasks, messages (in the sender's chain) and marks (in the receiver's).

    A message starts when the sender has come to it and the receiver to its mark, and lasts a hop; the mark
    ends with it. That is a rendezvous of two blocking calls. DeepSpeed's TrainSchedule gives every task a
    slot: only a backward in the slot right behind a forward receives before it sends.
    """
    stages, tasks = order.kind.shape
    producer, consumer = _flows(order)
    kind, micro = order.kind.ravel(), order.micro_batch.ravel()
    rows: list[tuple[int, int, int]] = []  # (node kind, stage, task)
    lengths = []
    for stage in range(stages):
        begin = len(rows)
        for position in range(tasks + 1):
            task = stage * tasks + position
            send = [(MESSAGE, stage, task - 1)] if position and consumer[task - 1] >= 0 else []
            receive = (
                [(MARK, stage, int(producer[task]))] if position < tasks and producer[task] >= 0 else []
            )
            turns = position and position < tasks and kind[task - 1] == FORWARD and kind[task] == BACKWARD
            turns = turns and micro[task - 1] - micro[task] == stages - 1 - stage  # else idle slots between
            rows += receive + send if turns else send + receive
            rows += [(TASK, stage, task)] if position < tasks else []
        lengths.append(len(rows) - begin)
    node, owner, task_of = (np.array(column) for column in zip(*rows, strict=True))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    position = np.arange(len(rows)) - starts[owner]
    message_of = np.full(stages * tasks, -1)
    mark_of = np.full(stages * tasks, -1)
    message_of[task_of[node == MESSAGE]] = np.flatnonzero(node == MESSAGE)
    mark_of[task_of[node == MARK]] = np.flatnonzero(node == MARK)
    waits = np.full((len(rows), 1), NOTHING)
    is_mark, is_message = node == MARK, node == MESSAGE
    waits[is_mark, 0] = message_of[task_of[is_mark]]
    mark = mark_of[task_of[is_message]]
    waits[is_message, 0] = np.where(position[mark] > 0, mark - 1, _source(owner[mark]))
    return _Chains(
        kind=node,
        stage=owner,
        task=task_of,
        position=position,
        waits=waits,
        lag=np.full(waits.shape, NO_HOP),
        lengths=np.array(lengths),
    )


def _levelled(order: Order, chains: _Chains) -> Graph:
    """Sort nodes into rounds: all chains advance together, each as soon as what it waits for is done."""
    runs = _rounds(chains)
    sequence = np.concatenate(runs)
    stages, size = len(chains.lengths), len(sequence)
    source = np.arange(stages)
    place = np.empty(size + stages + 1, dtype=np.intp)  # by node, or from the end by `_source`
    place[sequence] = np.arange(stages, stages + size)
    place[size:] = np.arange(stages - 1, -2, -1)
    stage, kind, found = chains.stage[sequence], chains.kind[sequence], chains.waits[sequence]
    before = np.where(chains.position[sequence] == 0, stage, place[sequence - 1])
    waits = np.empty((stages + size, found.shape[1] + 1), dtype=np.intp)
    waits[:stages] = source[:, None]
    waits[stages:, 0] = before
    waits[stages:, 1:] = np.where(found == NOTHING, before[:, None], place[found])
    lag = np.full(waits.shape, NO_HOP)
    lag[stages:, 1:] = chains.lag[sequence]
    node_of_task = np.zeros(order.kind.size, dtype=np.intp)
    is_task = kind == TASK
    node_of_task[chains.task[sequence][is_task]] = stages + np.flatnonzero(is_task)
    return Graph(
        order=order,
        kind=np.concatenate([np.full(stages, MARK), kind]),
        stage=np.concatenate([source, stage]),
        task=np.concatenate([source * 0, chains.task[sequence]]),
        waits=waits,
        lag=lag,
        rounds=np.cumsum([stages] + [len(run) for run in runs]),
        last=place[np.cumsum(chains.lengths) - 1],
        node_of_task=node_of_task,
    )


def _rounds(chains: _Chains) -> list[Integers]:
    """Nodes that can be computed together, round by round.

    Every stage takes at most one step a round, so a node never meets its own chain's forerunner in its
    round; a round in which no stage can go on is a deadlock.
    """
    ends = np.cumsum(chains.lengths)
    front = (
        ends - chains.lengths
    )  # the next node of each chain; behind the last one, a node that never runs
    size = chains.waits.shape[0]
    never = size + 1
    waits = np.empty((size + 1, chains.waits.shape[1]), dtype=np.intp)
    np.copyto(waits[:-1], chains.waits)
    waits[:-1][chains.waits < 0] = size  # nothing, or a source: done from the start
    waits[-1] = never
    done = np.zeros(size + 2, dtype=bool)
    done[size] = True
    front[chains.lengths == 0] = size
    last = np.zeros(size + 1, dtype=bool)
    last[ends - 1] = True
    left = size
    runs: list[Integers] = []
    while left:
        ready = np.logical_and.reduce(done[waits[front]], axis=1).nonzero()[0]
        if not ready.size:
            raise InternalError(
                f"the order deadlocks: {(front < size).sum()} of {len(ends)} stages wait for each other"
            )
        run = front[ready]
        runs.append(run)
        done[run] = True
        front[ready] = np.where(last[run], size, run + 1)
        left -= run.size
    return runs


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Played:
    """When every node starts and ends, in seconds after the sources' zero.

    Arrays (nodes,) in the order of the graph; `hop_s` by `hop_index`.
    """

    graph: Graph
    start_s: Floats
    end_s: Floats
    duration_s: Floats
    hop_s: Floats


def play(structure: Graph, task_s: Floats, hop_s: Floats, free_s: Floats) -> Played:
    """Run a pipeline.

    Parameters
    ----------
    task_s : (stages · tasks,)
        Duration of every task of the order, stage after stage.
    hop_s : (1 + 2 · stages,)
        Duration of hops by `hop_index`; the first is 0.
    free_s : (stages,)
        When each stage is free to begin.

    Returns
    -------
    Played
        Exact for these durations. It only adds and takes maxima: longer durations never end earlier.
    """
    g = structure
    sender = g.task // g.order.kind.shape[1]
    hop_of_message = hop_s[hop_index(g.order.kind.ravel()[g.task], sender)]
    duration = np.where(g.kind == TASK, task_s[g.task], np.where(g.kind == MESSAGE, hop_of_message, 0.0))
    duration[: len(free_s)] = 0.0
    lag = hop_s[g.lag]
    start = np.zeros(len(duration))
    end = np.zeros(len(duration))
    end[: len(free_s)] = free_s
    start[: len(free_s)] = free_s
    for low, high in pairwise(g.rounds.tolist()):
        run = slice(low, high)
        begin = (end[g.waits[run]] + lag[run]).max(axis=1)
        start[run] = begin
        end[run] = begin + duration[run]
    return Played(graph=g, start_s=start, end_s=end, duration_s=duration, hop_s=hop_s)


def critical_path(played: Played, node: int) -> tuple[Integers, Integers]:
    """Nodes on the longest path that ends at `node`, last first, and the hop before each.

    The first entry is `node`, the last a source. Durations of the nodes plus the hops between them, from
    the moment at which the source is free, sum to the end of `node`.
    """
    g, end, hop = played.graph, played.end_s, played.hop_s
    num_sources = g.order.kind.shape[0]
    path, hops = [], []
    while node >= num_sources:
        before, lag = g.waits[node], g.lag[node]
        latest = (end[before] + hop[lag]).argmax()  # its own chain first, where several are equal
        path.append(node)
        hops.append(lag[latest])
        node = int(before[latest])
    return np.array([*path, node], dtype=np.intp), np.array([*hops, NO_HOP], dtype=np.intp)
