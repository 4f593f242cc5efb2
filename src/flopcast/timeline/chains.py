"""Chains of a pipeline: the tasks and messages of each stage in order, and those for which each waits.

Answers: of which nodes does an order consist under each kind of transfers, and which nodes wait for each
other?
Elsewhere: the kinds of transfers, the times of nodes (pipeline.py).

A *gap* lies between two tasks of a stage: in it, the stage sends the result of the first task and receives
the input of the second.
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Integers
from flopcast.records import Record
from flopcast.schedules.base import BACKWARD, FORWARD, WEIGHT, Order
from flopcast.schedules.interleaved import warm_up

TASK, MESSAGE, MARK = 0, 1, 2
NOTHING = -1
NO_TRANSFER = 0


def transfer_index(kind: Integers, stage: Integers) -> Integers:
    """Return the index of a transfer's duration: 0 for none, then forward and backward of each sender.

    >>> transfer_index(np.array([FORWARD, BACKWARD]), np.array([0, 3])).tolist()
    [1, 8]
    """
    hop: Integers = 1 + 2 * stage + (kind == BACKWARD)
    return hop


def flows(order: Order) -> tuple[Integers, Integers]:
    """Return the producer and the consumer of every task's message, as flat task indices; -1 if there is
    none.

    A forward pass receives the activation of the previous chunk of the model, and a backward pass the
    gradient of the next chunk. Data that stays on a stage is not a message. Weight gradients, and stages
    that send nothing, have no messages.
    """
    stages, tasks = order.kind.shape
    if not order.hands_on:
        return np.full(stages * tasks, -1), np.full(stages * tasks, -1)
    number, micro = order.number, int(order.micro_batch.max()) + 1
    stage_of, chunk_of = (
        place[np.argsort(number, axis=None)] for place in (np.indices(number.shape).reshape(2, -1))
    )
    stage = np.repeat(np.arange(stages)[:, None], tasks, axis=1)
    flat = np.arange(stages * tasks).reshape(stages, tasks)
    at = np.full((3, *number.shape, micro), -1)
    at[order.kind, stage, order.chunk, order.micro_batch] = flat
    source = number[stage, order.chunk] + np.where(order.kind == FORWARD, -1, 1)
    none = (source < 0) | (source >= number.size) | (order.kind == WEIGHT)
    source = np.clip(source, 0, number.size - 1)
    producer = at[order.kind, stage_of[source], chunk_of[source], order.micro_batch]
    producer = np.where(none | (stage_of[source] == stage), -1, producer).ravel()
    consumer = np.full(stages * tasks, -1)
    has = producer >= 0
    consumer[producer[has]] = np.flatnonzero(has)
    return producer, consumer


class Chains(Record, eq=False):
    """The nodes before they are sorted: one chain after another, each from its first to its last node."""

    kind: Integers
    stage: Integers
    task: Integers
    position: Integers  # in its chain
    waits: Integers  # (nodes, some): other nodes; NOTHING, or `source(stage)`
    lag: Integers  # same shape
    cargo: Integers  # same shape: the task whose output travels in that hop; any, where there is no hop
    lengths: Integers  # of each chain


def source_of(stage: Integers) -> Integers:
    """Return the mark in `waits` for the time at which a stage becomes free.

    Each stage has a different mark below NOTHING.
    """
    return NOTHING - 1 - stage


def _tasks(order: Order, waits: Integers, lag: Integers, cargo: Integers) -> Chains:
    """Return chains of tasks only; transfers are lags between them, not nodes."""
    stages, tasks = order.kind.shape
    flat = np.arange(stages * tasks)
    return Chains(
        kind=np.full(flat.size, TASK),
        stage=flat // tasks,
        task=flat,
        position=flat % tasks,
        waits=waits,
        lag=lag,
        cargo=cargo,
        lengths=np.full(stages, tasks),
    )


def _overlapped_chains(order: Order) -> Chains:
    """Return chains in which a message comes one transfer after its sender's task and delays nothing else.

    A chunk that comes back up sends the other way: its hop is that of the same two stages, which the
    receiver would have sent. A pair begins when the inputs of both its passes are there, and both leave
    with its last task.
    """
    producer, _ = flows(order)
    tasks = order.kind.shape[1]
    back = order.folded & (order.chunk.ravel() % 2 == 1)
    stage = np.where(back, np.arange(producer.size), producer) // tasks
    hop = transfer_index(order.kind.ravel()[producer], stage)
    lag = np.where(producer >= 0, hop, NO_TRANSFER)
    if order.paired is None:
        return _tasks(order, producer[:, None], lag[:, None], producer[:, None])
    forward = np.flatnonzero(order.paired)  # the B follows it, and then the W, the last of the pair
    leaves = np.arange(producer.size)
    leaves[forward] = leaves[forward + 1] = forward + 2
    waits = np.stack([np.where(producer >= 0, leaves[producer], NOTHING), np.full(producer.size, NOTHING)])
    lags, cargo = np.stack([lag, np.full(lag.size, NO_TRANSFER)]), np.stack([producer, producer])
    for columns, none in ((waits, NOTHING), (lags, NO_TRANSFER), (cargo, 0)):
        columns[1, forward] = columns[0, forward + 1]
        columns[0, forward + 1] = none
    return _tasks(order, waits.T, lags.T, cargo.T)


def _batched_chains(order: Order) -> Chains:
    """Return chains in which a message starts when both stages reach their gap; the last one ends it."""
    tasks = order.kind.shape[1]
    _, consumer = flows(order)
    senders = np.flatnonzero(consumer >= 0)
    after, before = _gaps(order)
    send, receive = after[senders], before[consumer[senders]]  # first task behind each side's gap
    hop = transfer_index(order.kind.ravel()[senders], senders // tasks)
    has_send = send < (senders // tasks + 1) * tasks  # there is a task behind the gap
    both = np.concatenate([send[has_send], send[has_send], receive, receive])
    ends = _posted(send, senders // tasks, tasks), _posted(receive, consumer[senders] // tasks, tasks)
    seen = np.concatenate([ends[0][has_send], ends[1][has_send], ends[1], ends[0]])
    lags = np.concatenate([hop[has_send], hop[has_send], hop, hop])
    cargo = np.concatenate([senders[has_send], senders[has_send], senders, senders])
    return _tasks(order, *_columns(both, (seen, lags, cargo), order.kind.size))


def _gaps(order: Order) -> tuple[Integers, Integers]:
    """Return the first task after the gap in which each task's output is sent, and its input received.

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
    """Return the task before a gap, or the stage's source.

    `gap` is the flat index of the first task behind the gap, which for the gap behind a stage's last task
    is the first of the next stage: hence `stage`, the one whose gap it is.
    """
    return np.where(gap % tasks > 0, gap - 1, np.where(gap // tasks > stage, gap - 1, source_of(stage)))


def _columns(
    node: Integers, entries: tuple[Integers, Integers, Integers], size: int
) -> tuple[Integers, Integers, Integers]:
    """Return lists of (node, predecessor, transfer, cargo) as padded columns: (size, most predecessors)."""
    sort = np.argsort(node, kind="stable")
    counts = np.bincount(node, minlength=size)
    width = max(int(counts.max()), 1)
    # where a node's entries go, less their place
    row = np.arange(size) * width - (np.cumsum(counts) - counts)
    place = np.repeat(row, counts)
    place += np.arange(len(node))
    waits, lags, cargo = (np.full(size * width, empty) for empty in (NOTHING, NO_TRANSFER, 0))
    for column, values in zip((waits, lags, cargo), entries, strict=True):
        column[place] = values[sort]
    return waits.reshape(size, width), lags.reshape(size, width), cargo.reshape(size, width)


def _sequential_chains(order: Order) -> Chains:
    """Return chains of tasks, messages (in the sender's chain) and marks (in the receiver's).

    A message starts when the sender has come to it and the receiver to its mark, and lasts a hop; the mark
    ends with it. That is a rendezvous of two blocking calls. DeepSpeed's TrainSchedule gives every task a
    slot: only a backward in the slot right behind a forward receives before it sends.
    """
    stages, tasks = order.kind.shape
    producer, consumer = flows(order)
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
    waits[is_message, 0] = np.where(position[mark] > 0, mark - 1, source_of(owner[mark]))
    return Chains(
        kind=node,
        stage=owner,
        task=task_of,
        position=position,
        waits=waits,
        lag=np.full(waits.shape, NO_TRANSFER),
        cargo=np.zeros_like(waits),
        lengths=np.array(lengths),
    )


CHAINS: dict[str, Callable[[Order], Chains]] = {
    "overlapped": _overlapped_chains,
    "batched": _batched_chains,
    "sequential": _sequential_chains,
}
