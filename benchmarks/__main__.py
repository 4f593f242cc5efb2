"""What a user feels, in seconds, and as a ratio to a yardstick taken in the same run.

    ./dev bench

Machines differ and are noisy: quote the ratios. Each figure is the median of several runs; the yardstick
is one start of Python that imports numpy.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.search import PROBLEMS
from flopcast import job as described
from flopcast import load_job, predict
from flopcast.library.curves import load_book
from flopcast.search.screen import screen_each
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.timeline import pipeline

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "flopcast"
JOB = PACKAGE / "catalog" / "jobs" / "paper" / "gpt-neox-20b-perlmutter-pp4-tp4-dp8.yaml"
SEARCHED = ("--model", "llama-3-70b", "--cluster", "dgx-h100:64", "--plan", "gbs=1024")
RUNS = 5


def main() -> None:
    """Print every figure."""
    yardstick = median(lambda: started([sys.executable, "-c", "import numpy"]))
    print(f"{'figure':58} {'seconds':>9} {'× yardstick':>12}")
    for name, seconds in figures(yardstick):
        print(f"{name:58} {seconds:9.3g} {seconds / yardstick:12.3g}")


def figures(yardstick: float) -> list[tuple[str, float]]:
    """Names and medians."""
    gpt3, deep, plans = gpt3_job(), deep_job(), many_plans()
    book = load_book(gpt3.cluster)
    screened = median(lambda: timed(lambda: screen_each(gpt3, plans, book)))
    return [
        ("yardstick: python -c 'import numpy'", yardstick),
        ("flopcast --help, cold process", median(lambda: started(flopcast("--help")))),
        ("flopcast predict JOB, cold process", median(lambda: started(flopcast("predict", str(JOB))))),
        ("predict, GPT-3 175B on 1024 devices, warm", median(lambda: timed(lambda: predict(gpt3)))),
        ("predict, 64 stages × 512 micro-batches × 2, first", median(lambda: timed(fresh(deep)))),
        ("predict, 64 stages × 512 micro-batches × 2, again", median(lambda: timed(lambda: predict(deep)))),
        (f"screen {len(plans)} plans of GPT-3 175B", screened),
        ("  one plan of those", screened / len(plans)),
        ("load a job file", median(lambda: timed(lambda: load_job(JOB)))),
        *(row for name in PROBLEMS for row in of_space(name)),
        (f"flopcast search {' '.join(SEARCHED)}, cold", started(flopcast("search", *SEARCHED))),
    ]


def of_space(name: str) -> list[tuple[str, float]]:
    """Screening a whole space of search.py in a process of its own: once, as it takes seconds."""
    command = [sys.executable, "-m", "benchmarks.search", name]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [
        (f"screen the space {name!r}, cold process", found["process_s"]),
        (f"  one plan of its {found['candidates']:,}", found["screen_s"] / found["candidates"]),
    ]


def flopcast(*arguments: str) -> list[str]:
    """A command line of flopcast."""
    return [sys.executable, "-m", "flopcast", *arguments]


def fresh(job: Job) -> Callable[[], object]:
    """A prediction whose pipeline was never seen before."""

    def run() -> object:
        pipeline.graph.cache_clear()
        return predict(job)

    return run


def gpt3_job() -> Job:
    """GPT-3 175B as arXiv:2205.05198 trained it, on 1024 devices."""
    plan = "dp=16 tp=8 pp=8 vpp=3 mbs=1 gbs=1536 sp recompute=selective precision=fp16"
    return job(model="gpt3-175b", gpus=1024, plan=plan)


def deep_job() -> Job:
    """The largest pipeline that is asked for."""
    plan = "tp=8 pp=64 vpp=2 mbs=1 gbs=512 sp recompute=selective precision=fp16"
    return job(model="megatron-1t", gpus=512, plan=plan)


def job(**named: object) -> Job:
    """A job on Selene."""
    return described(stack="megatron-2022", cluster="selene", seq=2048, **named)


def many_plans() -> list[Plan]:
    """Plans of three structures that use 1024 devices."""
    return [
        Plan(
            dp=1024 // tp // pp, tp=tp, pp=pp, vpp=vpp, mbs=mbs, gbs=1536, recompute=mode, precision="fp16"
        )
        for mode in ("none", "selective", "full")
        for tp in (1, 2, 4, 8, 16)
        for pp in (1, 2, 4, 8, 16, 32)
        for vpp in (1, 2, 3, 4, 6)
        for mbs in (1, 2, 4, 8)
    ]


def started(command: list[str]) -> float:
    """Processor seconds of a process whose modules are compiled, as after the first start."""
    before, quiet = children_seconds(), subprocess.DEVNULL
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=environment)
    return children_seconds() - before


def children_seconds() -> float:
    """Processor seconds of all processes that have ended."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(call: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def median(figure: Callable[[], float]) -> float:
    """The median of several runs, after one that is not counted."""
    figure()
    return statistics.median(figure() for _ in range(RUNS))


if __name__ == "__main__":
    main()
