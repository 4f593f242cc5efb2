"""What would each stage gain by a number of recomputed blocks of its own? A bound, in closed form.

    .venv/bin/python -m benchmarks.uneven_recompute [NAME ...]     four problems whose memory is the cap

Of the plans of a problem with one chunk a stage that screen fastest with all blocks recomputed (12, or so
many as are named first), blocks are dealt out to stages twice: with one number of recomputed blocks for all
of them, the best of all numbers; and with the fastest number for each stage and slice that fits there. Both
divisions are the best there are (search/uneven_stages.py), both keep the headroom of a search. Printed are
the fastest pipelines of either kind, their plans, and the gain; the ends of a step are left out.
"""

import sys

import numpy as np

from benchmarks.search import job_of
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Floats, Integers
from flopcast.library.curves import load_book
from flopcast.search.grid import batches
from flopcast.search.question import Question
from flopcast.search.refine import partly_recomputed
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.search.uneven_stages import best_cuts, busy_seconds
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan

PROBLEMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "llama-3-70b": ({"cluster": "dgx-h100", "gpus": 64, "seq": 8192}, {"gbs": 128, "pp": "2,4,8"}),
    "gpt3-175b": ({"cluster": "dgx-a100", "gpus": 128, "seq": 2048}, {"gbs": 512, "pp": "4,8,16"}),
    "deepseek-v3": ({"cluster": "dgx-h100", "gpus": 256, "seq": 4096}, {"gbs": 1024, "pp": "4,8,16"}),
    "llama-3.1-405b": ({"cluster": "dgx-h100", "gpus": 512, "seq": 8192}, {"gbs": 512, "pp": "8,16"}),
}
FIXED: dict[str, object] = {"vpp": 1, "cp": 1, "zero": 1, "sp": True, "refine": False}
NOTHING, SELECTIVE = {"recompute": "none"}, {"recompute": "selective"}


def bound(name: str, most: int) -> str:
    """One line about a problem, of which so many plans are looked at."""
    words, degrees = PROBLEMS[name]
    plan = f"dp={words['gpus']} zero=1 gbs={degrees['gbs']}"
    job = job_of({"model": name, "stack": "megatron-core", "plan": plan} | words)
    book, found = load_book(job.cluster), []
    for one in _plans(job, Space(**(FIXED | degrees)), book)[:most]:
        together_s, apart_s, numbers = _steps(one, book)
        found.append((together_s, apart_s, one.plan, numbers))
    together = min(found, key=lambda each: each[0])
    apart = min(found, key=lambda each: each[1])
    values = (
        name,
        len(found),
        f"{together[0]:.2f} s",
        f"{apart[1]:.2f} s",
        f"{apart[1] / together[0] - 1:+.1%}",
    )
    return (
        f"| {' | '.join(map(str, values))} |\n    {together[2].short()}\n    {apart[2].short()}: {apart[3]}"
    )


def _plans(job: Job, space: Space, book: CurveBook) -> list[Job]:
    """Plans that fit with all blocks recomputed, the fastest first as they are without."""
    question = Question(jobs=(job,), space=space.model_copy(update={"recompute": ("full",)}))
    every = TopCandidates(most=sys.maxsize).after_all(
        question, batches(job, question.space), lambda _: book
    )
    return [one.job for one in every.best]


def _steps(job: Job, book: CurveBook) -> tuple[float, float, str]:
    """The best steps with one number for all stages, and one each; which numbers these are."""
    blocks, stages = job.model.num_blocks, job.plan.pipeline_parallel
    ways = [job.plan.model_copy(update=words) for words in (NOTHING, SELECTIVE)]
    ways += [partly_recomputed(job.plan, number) for number in range(1, 2 * blocks // stages + 1)]
    busy_s = np.stack([_busy(job, plan, book) for plan in ways])
    together_s = min(_step(each_s, job.plan)[0] for each_s in busy_s)
    apart_s, cuts = _step(busy_s.min(axis=0), job.plan)
    if cuts is None:
        return together_s, apart_s, "none"
    stage = np.arange(stages)
    way = busy_s.argmin(axis=0)[stage, cuts[:-1], cuts[1:]]
    told = [f"{held}/{ways[at].recompute_word}" for held, at in zip(np.diff(cuts), way, strict=True)]
    return together_s, apart_s, ", ".join(told)


def _busy(job: Job, plan: Plan, book: CurveBook) -> Floats:
    """What every stage takes with every slice, recomputed as `plan` says; infinite if too large."""
    return busy_seconds(job.model_copy(update={"plan": plan}), book, None)


def _step(busy_s: Floats, plan: Plan) -> tuple[float, Integers | None]:
    """The shortest pipeline of a step, and its cuts."""
    cuts = best_cuts(busy_s, plan.num_micro_batches)
    if cuts is None:
        return np.inf, None
    each_s = busy_s[np.arange(len(busy_s)), cuts[:-1], cuts[1:]]
    return float((plan.num_micro_batches - 1) * each_s.max() + each_s.sum()), cuts


if __name__ == "__main__":
    most = int(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1].isdigit() else 12
    for name in sys.argv[1:] or PROBLEMS:
        print(bound(name, most), flush=True)
