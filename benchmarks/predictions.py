"""Processor seconds of predictions, medians of five: `python -m benchmarks predictions [--once]`.

Cold: a process from start to end, with a plan that fits, with one that does not, and without one, and
`flopcast --help`. Warm: each of 60
plans of five pairs of a model and a machine, dense and of experts, by a `Predictor` that saw the plans
before it; the median plan. Repeated: the same jobs again. Many: one step of 32,768 micro-batches on
eight stages. `PAIRS` and `plans` are a grid, so that plans differ from their neighbours in one field or
a few, as those of a sweep do. With --once, every one of the 60 plans is predicted once, and nothing is
printed.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product

import flopcast
from benchmarks.timing import RUNS, median_s, process_s, taken_s
from flopcast import Job, Predictor
from flopcast.timeline import pipeline

COMMAND = ("--model", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64")
PLAN = ("--plan", "dp=32 pp=2 mbs=1 gbs=512 zero=1")
TOO_LARGE = ("--plan", "dp=32 pp=2 mbs=1 gbs=512")  # does not fit: changes that fit are looked for
PLANS_OF_A_PAIR = 12
PAIRS = (  # model, cluster, devices, stack
    ("llama-3-8b", "dgx-h100", 64, "megatron-core"),
    ("gpt3-175b", "selene", 1024, "megatron-2022"),
    ("mixtral-8x7b", "dgx-h100", 128, "megatron-core-2025"),
    ("llama-2-70b", "dgx-a100", 256, "torch-fsdp2"),
    ("qwen3-30b-a3b", "dgx-h100", 64, "megatron-core-2026"),
)


def main(arguments: Sequence[str]) -> int:
    """Print every figure, or predict each plan once."""
    jobs = [flopcast.job(**words) for words in grid()]
    if arguments:
        predict_once(jobs)
        return 0
    rows = [
        ("flopcast --help, cold", median_s(lambda: process_s(flopcast_command("--help"))[0])),
        ("flopcast predict, plan given, cold", median_s(lambda: process_s(predict(*PLAN))[0])),
        ("flopcast predict, plan too large, cold", median_s(lambda: process_s(predict(*TOO_LARGE))[0])),
        ("flopcast predict, plan chosen, cold", median_s(lambda: process_s(predict())[0])),
        *named(jobs),
        ("32,768 micro-batches on 8 stages, warm", median_s(many(flopcast.job(**long_step())))),
    ]
    for name, seconds in rows:
        print(f"{name:42} {seconds:9.5f} s")
    return 0


def predict_once(jobs: Sequence[Job]) -> None:
    """Predict every job by one new predictor."""
    predictor = Predictor()
    for job in jobs:
        predictor.predict(job)


def grid() -> Iterator[dict[str, object]]:
    """Yield the arguments of 60 jobs."""
    for pair, texts in zip(PAIRS, plans(), strict=True):
        named = dict(zip(("model", "cluster", "gpus", "stack"), pair, strict=True))
        yield from (named | {"plan": text} for text in islice(texts, PLANS_OF_A_PAIR))


def plans() -> Iterator[Iterator[str]]:
    """Yield the plans of each pair."""
    yield (
        f"dp={64 // tp // pp} tp={tp} pp={pp} mbs={mbs} gbs=512 zero=1 recompute={mode}{' sp' * (tp > 1)}"
        for tp, pp, mbs, mode in product((1, 2, 4), (1, 2), (1, 2), ("none", "selective"))
    )
    yield (
        f"dp={128 // pp} tp=8 pp={pp} vpp={vpp} mbs={mbs} gbs=1536 precision=fp16 recompute={mode}"
        for pp, vpp, mbs, mode in product((8, 16), (1, 3), (1, 2), ("none", "selective", "full"))
    )
    yield (
        f"dp={128 // tp // pp} tp={tp} ep={ep} pp={pp} mbs={mbs} gbs=512 zero=1{' sp' * (tp > 1)}"
        for tp, ep, pp, mbs in product((1, 2), (4, 8), (2, 4), (1, 2))
    )
    yield (
        f"dp=256 mbs={mbs} gbs={gbs} zero=3 recompute={mode}"
        for mbs, mode, gbs in product((1, 2), ("none", "full"), (512, 1024, 2048))
    )
    yield (
        f"dp={64 // pp} ep={ep} pp={pp} vpp={vpp} mbs={mbs} gbs=512 zero=1"
        for ep, pp, vpp, mbs in product((4, 8), (2, 4), (1, 2, 3), (1, 2))
    )


def long_step() -> dict[str, object]:
    """Return the arguments of a job of 32,768 micro-batches on eight stages."""
    machine = {"model": "llama-3-70b", "cluster": "dgx-h100", "gpus": 64}
    return machine | {"plan": "dp=1 tp=8 pp=8 mbs=1 gbs=32768 sp"}


def predict(*words: str) -> list[str]:
    """Return the command line of a prediction."""
    return flopcast_command("predict", *COMMAND, *words)


def flopcast_command(*words: str) -> list[str]:
    """Return a command line of flopcast."""
    return [sys.executable, "-m", "flopcast", *words]


def named(jobs: list[Job]) -> list[tuple[str, float]]:
    """Return the seconds of a new plan (median and mean) and of a job predicted before."""
    new, again = [], []
    for job in jobs:
        flopcast.predict(job)  # reads the files of the catalogue
    for _ in range(RUNS):
        predictor = Predictor()
        new.append([taken_s(partial(predictor.predict, job)) for job in jobs])
        again += [taken_s(partial(predictor.predict, job)) for job in jobs[-PLANS_OF_A_PAIR:]]
    return [
        ("a new plan, warm", statistics.median(map(statistics.median, new))),
        ("a new plan, warm, mean", statistics.median(map(statistics.mean, new))),
        ("a job predicted before", statistics.median(again)),
    ]


def many(job: Job) -> Callable[[], float]:
    """Return a prediction by a new predictor, without the structure of its pipeline."""

    def run() -> float:
        pipeline.GRAPHS.clear()
        return taken_s(partial(Predictor().predict, job))

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
