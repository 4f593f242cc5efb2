"""Pipelines simulated slowly, as an oracle: instruction lists in plain loops, nothing shared with flopcast.

Orders are rebuilt from the training loops that they describe: Megatron-LM's
`forward_backward_pipelining_without_interleaving` and `…_with_interleaving` (arXiv:2104.04473, section
2.2), and DeepSpeed's `TrainSchedule` (deepspeed/runtime/pipe/schedule.py). A simulation takes seconds by
task, seconds of a hop by (kind, sending stage) or, where micro-batches differ, by these and the
micro-batch, and the moments at which the stages are free.
"""

from typing import NamedTuple

DOWN, UP = "forward", "backward"


class Task(NamedTuple):
    kind: str
    stage: int
    chunk: int
    micro_batch: int


class Pipe(NamedTuple):
    """How many of everything there is."""

    stages: int
    virtual: int
    micro_batches: int


class DeadlockError(Exception):
    """No stage can go on."""


def source_of(task, pipe):
    """The task whose output this one needs; None at the two ends of the model."""
    place = task.chunk * pipe.stages + task.stage + (-1 if task.kind == DOWN else 1)
    if not 0 <= place < pipe.stages * pipe.virtual:
        return None
    stage = place % pipe.stages
    return None if stage == task.stage else task._replace(stage=stage, chunk=place // pipe.stages)


def numbered(stage, pipe, kind):
    """All tasks of one kind on a stage: groups of `stages` micro-batches go through chunk after chunk."""
    seen = [0] * pipe.virtual
    tasks = []
    for k in range(pipe.micro_batches * pipe.virtual):
        chunk = k % (pipe.stages * pipe.virtual) // pipe.stages if pipe.virtual > 1 else 0
        chunk = chunk if kind == DOWN else pipe.virtual - 1 - chunk
        tasks.append(Task(kind, stage, chunk, seen[chunk]))
        seen[chunk] += 1
    return tasks


def blocks_of(stage, pipe):
    """What a stage runs between two exchanges; interleaved, steady forwards and backwards go in pairs."""
    forward, backward = numbered(stage, pipe, DOWN), numbered(stage, pipe, UP)
    if pipe.virtual == 1:
        warm_up = pipe.stages - stage - 1
    else:
        warm_up = 2 * (pipe.stages - stage - 1) + (pipe.virtual - 1) * pipe.stages
    warm_up = min(warm_up, len(forward))
    pairs = list(zip(forward[warm_up:], backward, strict=False))
    steady = pairs if pipe.virtual > 1 else [(task,) for pair in pairs for task in pair]
    return [(t,) for t in forward[:warm_up]] + steady + [(t,) for t in backward[len(pairs) :]]


def order_of(stage, pipe):
    return [task for block in blocks_of(stage, pipe) for task in block]


def hop_of(task, transfer_s):
    """Seconds that a task's output travels; of its micro-batch, where these differ."""
    one = (task.kind, task.stage)
    return transfer_s[one] if one in transfer_s else transfer_s[*one, task.micro_batch]


def overlapped(pipe, seconds, transfer_s, free_s):
    """Every task starts when its stage is free and its input has arrived, a hop after it was made."""
    todo = [order_of(stage, pipe) for stage in range(pipe.stages)]
    clock, started, ended = list(free_s), {}, {}
    while any(todo):
        before = len(ended)
        for stage, tasks in enumerate(todo):
            if not tasks:
                continue
            task, source = tasks[0], source_of(tasks[0], pipe)
            if source is not None and source not in ended:
                continue
            arrival = 0.0 if source is None else ended[source] + hop_of(source, transfer_s)
            started[task] = max(clock[stage], arrival)
            ended[task] = clock[stage] = started[task] + seconds[task]
            tasks.pop(0)
        if len(ended) == before:
            raise DeadlockError
    return started, ended


def batched(pipe, seconds, transfer_s, free_s):
    """A stage posts all messages of a gap at once, and goes on when the last of them has arrived.

    A message travels when both sides have come to their gap.
    """
    blocks = [blocks_of(stage, pipe) for stage in range(pipe.stages)]
    gap_of = {}  # (message, "send" or "receive") → (stage, gap); the task that made it names a message
    for stage, mine in enumerate(blocks):
        for number, block in enumerate(mine):
            for task in block:
                source = source_of(task, pipe)
                if source is not None:
                    gap_of[source, "receive"] = (stage, number)
                    sender = next(i for i, b in enumerate(blocks[source.stage]) if source in b)
                    gap_of[source, "send"] = (source.stage, sender + 1)
    posts = {}
    for (message, _), gap in gap_of.items():
        posts.setdefault(gap, []).append(message)
    posted = {(stage, 0): moment for stage, moment in enumerate(free_s)}
    at, started, ended = [0] * pipe.stages, {}, {}
    while any(number < len(mine) for number, mine in zip(at, blocks, strict=True)):
        before = sum(at)
        for stage, mine in enumerate(blocks):
            gap = (stage, at[stage])
            messages = posts.get(gap, [])
            sides = [[gap_of[message, side] for side in ("send", "receive")] for message in messages]
            if at[stage] == len(mine) or any(side not in posted for pair in sides for side in pair):
                continue
            clock = posted[gap]
            for message, pair in zip(messages, sides, strict=True):
                arrival = max(posted[side] for side in pair) + hop_of(message, transfer_s)
                clock = max(clock, arrival)
            for task in mine[at[stage]]:
                started[task] = clock
                ended[task] = clock = clock + seconds[task]
            at[stage] += 1
            posted[stage, at[stage]] = clock
        if sum(at) == before:
            raise DeadlockError
    return started, ended


def deepspeed_instructions(stage, pipe):
    """What DeepSpeed's TrainSchedule yields for one stage: ("send" | "receive" | "run", task)."""
    found = []
    previous = -1

    def exists(micro_batch):
        return 0 <= micro_batch < pipe.micro_batches

    for step in range(2 * (pipe.micro_batches + pipe.stages - 1)):
        forward = step % 2 == stage % 2
        behind = stage if forward else 2 * pipe.stages - stage - 1
        current = (step - behind) // 2
        if forward and stage > 0:
            if exists(previous):
                found.append(("send", Task(UP, stage, 0, previous)))
            if exists(current):
                found.append(("receive", Task(DOWN, stage - 1, 0, current)))
        if not forward and stage < pipe.stages - 1:
            if exists(current):
                found.append(("receive", Task(UP, stage + 1, 0, current)))
            if exists(previous):
                found.append(("send", Task(DOWN, stage, 0, previous)))
        if exists(current):
            found.append(("run", Task(DOWN if forward else UP, stage, 0, current)))
        previous = current
    if exists(previous) and stage > 0:
        found.append(("send", Task(UP, stage, 0, previous)))
    return found


def sequential(pipe, seconds, transfer_s, free_s):
    """One blocking instruction after the other; send and receive meet, and both take the hop."""
    todo = [deepspeed_instructions(stage, pipe) for stage in range(pipe.stages)]
    clock, started, ended = list(free_s), {}, {}
    while any(todo):
        before = sum(map(len, todo))
        for stage, instructions in enumerate(todo):
            if not instructions:
                continue
            kind, task = instructions[0]
            if kind == "run":
                started[task] = clock[stage]
                ended[task] = clock[stage] = clock[stage] + seconds[task]
                instructions.pop(0)
            elif kind == "send":
                other = stage + (1 if task.kind == DOWN else -1)
                if todo[other] and todo[other][0] == ("receive", task):
                    clock[stage] = clock[other] = max(clock[stage], clock[other]) + hop_of(task, transfer_s)
                    instructions.pop(0)
                    todo[other].pop(0)
        if sum(map(len, todo)) == before:
            raise DeadlockError
    return started, ended


SIMULATIONS = {"overlapped": overlapped, "batched": batched, "sequential": sequential}
