"""What the tests of schedules share: orders as tuples, and an event simulation of a pipeline."""

from flopcast.schedules import SCHEDULES

PLAIN = [(p, 1, m) for p in (1, 2, 3, 4, 7) for m in (1, 2, 3, 8, 19)]
INTERLEAVED = [(p, v, groups * p) for p in (2, 3, 4, 6) for v in (2, 3, 5) for groups in (1, 2, 4)]
PAIRED = ("dualpipe_v", "dualpipe")  # schedules that run a forward and a backward together
FOLDED = ("zb_v", *PAIRED)  # schedules whose second chunk comes back up the stages
CHUNKED = ("interleaved_1f1b", *FOLDED)  # schedules that take several chunks a stage
APART = ("decoupled",)  # schedules whose stages hand on nothing
SPLIT = ("zb_h1", "zb_h2", *FOLDED)  # schedules whose weight gradients are tasks of their own
CASES = [
    (name, *shape) for name in ("1f1b", "eager_1f1b", "gpipe", "zb_h1", "zb_h2", *APART) for shape in PLAIN
]
CASES += [(name, p, 2, m) for name in FOLDED for p, _, m in PLAIN]
CASES += [("interleaved_1f1b", *shape) for shape in INTERLEAVED]


def number_of(name, stage, chunk, stages):
    """Where a chunk stands along the model: round the stages, or down and up again."""
    back = name in FOLDED and chunk % 2 == 1
    return chunk * stages + (stages - 1 - stage if back else stage)


def stage_of(name, number, stages):
    """The stage that holds a number of the model."""
    back = name in FOLDED and number // stages % 2 == 1
    return stages - 1 - number % stages if back else number % stages


def rows(name, stages, virtual, micro_batches):
    """Per stage: (kind, chunk, micro-batch) of each task, "F", "B" or "W"."""
    order = SCHEDULES[name].order(stages, virtual, micro_batches)
    return [
        [
            ("FBW"[kind], int(chunk), int(micro_batch))
            for kind, chunk, micro_batch in zip(
                order.kind[stage], order.chunk[stage], order.micro_batch[stage], strict=True
            )
        ]
        for stage in range(stages)
    ]


def simulated_s(name, virtual, micro_batches, forward_s, backward_s, weight_s=None):
    """Seconds from the first forward to the last task, transfers free; one task at a time a stage."""
    spans = simulated_spans(name, virtual, micro_batches, forward_s, backward_s, weight_s)
    return max(end for _, end in spans)


def simulated_spans(name, virtual, micro_batches, forward_s, backward_s, weight_s=None):
    """When each stage begins its first task and ends its last one.

    `forward_s` and `backward_s` of all layers of each stage, shared evenly by its chunks. Chunk c of stage
    s is a number of the model (`number_of`): a forward needs the number before it, a backward the number
    after it, the last number's backward its own forward, and a weight pass its own backward. Without
    `weight_s` weight passes, where there are any, take half of `backward_s`. None of the package's timing
    is used.
    """
    stages = len(forward_s)
    if weight_s is None and name in SPLIT:
        backward_s = weight_s = [each / 2 for each in backward_s]
    lasts = {"F": forward_s, "B": backward_s, "W": weight_s}
    begin_s = {}
    todo = rows(name, stages, virtual, micro_batches)
    free_s, done_s = [0.0] * stages, {}
    while any(todo):
        progress = False
        for stage, tasks in enumerate(todo):
            while tasks:
                kind, chunk, micro_batch = tasks[0]
                number = number_of(name, stage, chunk, stages)
                needs = input_of(kind, number, stages * virtual, micro_batch)
                if needs is not None and needs not in done_s:
                    break
                start_s = max(free_s[stage], done_s.get(needs, 0.0))
                each_s = lasts[kind][stage] / virtual
                begin_s.setdefault(stage, start_s)
                free_s[stage] = done_s[kind, number, micro_batch] = start_s + each_s
                tasks.pop(0)
                progress = True
        assert progress, "the order deadlocks"
    return [(begin_s[stage], free_s[stage]) for stage in range(stages)]


def input_of(kind, number, numbers, micro_batch):
    """The task whose output a task works on; none for the model's first forward."""
    if kind == "F":
        return ("F", number - 1, micro_batch) if number else None
    if kind == "W":
        return ("B", number, micro_batch)
    return ("B", number + 1, micro_batch) if number + 1 < numbers else ("F", number, micro_batch)
