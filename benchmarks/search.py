"""Searches and screening of whole spaces: seconds, memory and numbers of plans.

    python -m benchmarks search whole [NAME ...]     whole searches by the command line
    python -m benchmarks search NAME                 the screening of one space alone

Each search and each space prints one line of JSON. `cpu_s` counts the processor from the start of the
process, with all of its workers, so that a busy machine says about the same; `wall_s` does not.
`first_plan_s` is when the terminal shows a first plan that fits, `peak_bytes` the most memory of one
process.
"""

import json
import os
import pty
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.timing import children_s, keeping_compiled_modules
from flopcast.jobs import job
from flopcast.library.curves import load_book
from flopcast.search.grid import batches, num_plans
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.job import Job

MANY = "256..8192:64"  # global batches: what a search asks that may choose its batch
PROBLEMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "llama": (
        {"model": "llama-3-70b", "cluster": "dgx-h100", "gpus": 512, "plan": "dp=512 gbs=1024"},
        {"gbs": 1024},
    ),
    "gpt3": (
        {"model": "gpt3-175b", "cluster": "dgx-a100", "gpus": 256, "plan": "dp=256 gbs=1536"},
        {"gbs": 1536, "schedule": "all"},
    ),
    "dense": (
        {"model": "gpt3-175b", "cluster": "dgx-a100", "gpus": 256, "plan": "dp=256 gbs=1536"},
        {"gbs": MANY, "zero": "0,1"},
    ),
    "experts": (
        {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 256, "plan": "dp=256 gbs=1024"},
        {"gbs": MANY, "zero": "0,1"},
    ),
}


WHOLE: dict[str, tuple[str, ...]] = {
    "gpt3": ("--model", "gpt3-175b", "--cluster", "dgx-a100", "--gpus", "256", "--plan", "gbs=1536"),
    "llama": ("--model", "llama-3-70b", "--cluster", "dgx-h100", "--gpus", "512", "--plan", "gbs=1024"),
    "deepseek": (
        *("--model", "deepseek-v3", "--cluster", "hgx-h800", "--gpus", "2048"),
        *("--seq", "4096", "--plan", "gbs=15360"),
    ),
    "large": (
        *("--model", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", "65536"),
        *("--seq", "8192", "--plan", "gbs=8192"),
    ),
}
FIRST_PLAN = b"best so far"  # of the line that shows progress


def job_of(words: dict[str, object]) -> Job:
    """A job from words of the command line."""
    return job(**words)


def searched(name: str, *options: str) -> dict[str, float]:
    """Search by the command line, with a terminal that shows the progress."""
    command = [
        sys.executable,
        "-m",
        "flopcast",
        "search",
        *WHOLE[name],
        *options,
        "--top",
        "1000",
        "--json",
    ]
    shown, terminal = pty.openpty()
    before_s = children_s()
    started_s, first_s = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as answer:
        process = subprocess.Popen(command, stdout=answer, stderr=terminal, env=keeping_compiled_modules())
        os.close(terminal)
        text = b""
        while part := _read(shown):
            text += part
            if not first_s and FIRST_PLAN in text:
                first_s = time.perf_counter() - started_s
        process.wait()
        wall_s = time.perf_counter() - started_s
        answer.seek(0)
        found = json.load(answer)
    os.close(shown)
    return {
        "wall_s": wall_s,
        "cpu_s": children_s() - before_s,
        "first_plan_s": first_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        **{key: found[key] for key in ("candidates", "possible", "feasible", "played", "refined")},
        "step_time_s": min(plan["step_time_s"] for plan in found["plans"]),
    }


def _read(terminal: int) -> bytes:
    """Return what a terminal shows next; nothing when its process has ended."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def main(name: str) -> dict[str, float]:
    """Screen one space from the beginning."""
    words, space = PROBLEMS[name]
    job, asked = job_of(words), Space(**space)
    book = load_book(job.cluster)
    ready_s = time.process_time()
    question = Question(jobs=(job,), space=asked, objectives=("tokens_per_s",))
    found = TopCandidates().after_all(question, batches(job, asked), lambda _: book)
    screen_s = time.process_time() - ready_s
    return {
        "candidates": num_plans(job, asked),
        "possible": found.possible,
        "feasible": found.feasible,
        "ready_s": ready_s,
        "screen_s": screen_s,
        "process_s": time.process_time(),
        "candidates_per_s": found.candidates / screen_s,
        "possible_per_s": found.possible / screen_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    if sys.argv[1] == "whole":
        for problem in sys.argv[2:] or WHOLE:
            print(json.dumps({"search": problem} | searched(problem)), flush=True)
    else:
        print(json.dumps(main(sys.argv[1])))
