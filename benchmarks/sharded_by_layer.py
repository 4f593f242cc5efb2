"""What would a sharding (tensor parallelism, ZeRO) and a recompute for each layer gain? A bound.

    .venv/bin/python -m benchmarks.sharded_by_layer [NAME ...]     some problems whose memory is the cap

Two plans that differ in these alone, with the same stages, devices and micro-batches, can be mixed: some
layers as in the one, the others as in the other. Were step time and memory of a mixture the means of the
two by layers, with nothing paid to move activations between degrees, the fastest mixture that fits would
lie on the lower hull of all such plans over their memory. Every plan is predicted exactly; what does not
fit takes part in mixtures. Printed are the best plan, and the best mixtures of recompute alone, of
shardings alone, and of both. A number of recomputed blocks for all stages, which `search` finds, is a
mixture of recompute. Gains are small where the best plan has micro-batches of one sequence: no smaller
degree could share that out.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from benchmarks.search import job_of
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.library.curves import load_book
from flopcast.prediction import memory_by_class, predict
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.workload.checks import check

PROBLEMS: dict[str, tuple[dict[str, object], int, tuple[int, ...]]] = {
    "llama-2-13b": ({"cluster": "aws-p4d", "gpus": 8, "seq": 4096}, 64, (1, 2, 4, 8)),
    "llama-3-8b": ({"cluster": "l40s-8", "gpus": 8, "seq": 8192}, 64, (1, 2, 4, 8)),
    "llama-3-70b": ({"cluster": "dgx-h100", "gpus": 64, "seq": 8192}, 128, (1, 2, 4, 8)),
    "gpt3-175b": ({"cluster": "dgx-a100", "gpus": 128, "seq": 2048}, 512, (4, 8, 16)),
    "llama-2-70b": ({"cluster": "dgx-a100", "gpus": 32, "seq": 4096}, 128, (1, 2, 4, 8)),
    "qwen2.5-32b": ({"cluster": "dgx-h100", "gpus": 16, "seq": 8192}, 64, (1, 2, 4, 8)),
}
WAYS = (("recompute",), ("sharding",), ("recompute", "sharding"))  # what may differ by layer
DEGREES = (1, 2, 4, 8)
MICRO_BATCHES = (1, 2, 4, 8)
RECOMPUTES = ("none", "selective", "full")
ZERO_STAGES = (1, 3)


@dataclass(frozen=True, slots=True)
class Point:
    """A plan with the seconds of its step and the most bytes that its fullest stage may need."""

    plan: Plan
    step_s: float
    high_bytes: float


def bound(name: str) -> str:
    """One row about a problem, and the best plan and mixture below it."""
    words, batch, stages = PROBLEMS[name]
    job = job_of(
        {"model": name, "stack": "megatron-core", "plan": f"dp={words['gpus']} zero=1 gbs={batch}"} | words
    )
    room = job.cluster.node.device.memory_bytes
    points = list(_points(job, batch, stages, load_book(job.cluster)))
    best = min((one for one in points if one.high_bytes <= room), key=lambda one: one.step_s)
    mixed = [fastest(points, room, alike) for alike in WAYS]
    told = [f"{step_s:.2f} s, {step_s / best.step_s - 1.0:+.1%}" for step_s, _ in mixed]
    _, (less, more) = mixed[-1]
    lines = [f"| {name} | {best.step_s:.2f} s | {' | '.join(told)} |", f"    best: {best.plan.short()}"]
    return "\n".join([*lines, f"    mixed: {less.plan.short()}", f"      with {more.plan.short()}"])


def _points(job: Job, batch: int, stages: Iterable[int], book: CurveBook) -> Iterator[Point]:
    """Every plan that breaks no rule, whether it fits or not."""
    devices = job.cluster.num_devices
    for pp, tp, mbs, zero, recompute in product(stages, DEGREES, MICRO_BATCHES, ZERO_STAGES, RECOMPUTES):
        dp = devices // (pp * tp)
        if devices % (pp * tp) or batch % (dp * mbs):
            continue
        degrees = {"pp": pp, "tp": tp, "dp": dp, "sp": tp > 1}
        plan = Plan(**degrees, mbs=mbs, gbs=batch, zero=zero, recompute=recompute)
        tried = job.model_copy(update={"plan": plan})
        if not check(tried):
            high_bytes = float(memory_by_class(tried)[0].high_bytes.max())
            yield Point(plan, predict(tried, book).step_time_s, high_bytes)


def fastest(
    points: list[Point], room_bytes: float, mixed: tuple[str, ...]
) -> tuple[float, tuple[Point, Point]]:
    """The fastest mixture that fits of two plans that differ in what is `mixed` alone."""
    groups: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for one in points:
        plan = one.plan
        key = [plan.pipeline_parallel, plan.num_micro_batches]
        key += [] if "sharding" in mixed else [plan.tensor_parallel, plan.zero]
        key += [] if "recompute" in mixed else [plan.recompute_word]
        groups[tuple(key)].append(one)
    pairs = (pair for group in groups.values() for pair in product(group, repeat=2))
    return min(((_mixture_s(*pair, room_bytes), pair) for pair in pairs), key=lambda found: found[0])


def _mixture_s(less: Point, more: Point, room_bytes: float) -> float:
    """Seconds of the layers as in two plans so that memory is full; infinite where that cannot be."""
    if less.high_bytes > room_bytes:
        return float("inf")
    if more.high_bytes <= room_bytes:
        return min(less.step_s, more.step_s)
    share = (room_bytes - less.high_bytes) / (more.high_bytes - less.high_bytes)
    return less.step_s + share * (more.step_s - less.step_s)


if __name__ == "__main__":
    print("| model | best plan | recompute by layer | sharding by layer | both |\n|---|--:|--:|--:|--:|")
    for name in sys.argv[1:] or PROBLEMS:
        print(bound(name), flush=True)
