"""One task of a search as texts, so that any process can run it.

Answers: what is sent to a worker, and what does the worker compute?
Elsewhere: chunks (search/chunks.py), executors (process_executor.py, dask_executor.py), the order of tasks
(run.py), stored results (ledger.py).

Only texts are sent and stored. A worker of another version refuses tasks, because its numbers would differ.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path

import flopcast
from flopcast.errors import spec_error
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.records import Record
from flopcast.search.chunk_text import (
    candidates_text,
    choice_text,
    exact_text,
    plan_data,
    read_incumbents,
    read_question,
    variants_text,
)
from flopcast.search.chunks import BookOf, Chunk, played, screened
from flopcast.search.default_plan import UsualPlans, first_choice, usual_plans
from flopcast.search.pruning import Incumbents
from flopcast.search.question import Question
from flopcast.search.refine import Refinement, asked_variants, variants
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan

CHOOSE, SCREEN, REFINE, PLAY = "choose", "screen", "refine", "play"
book_of: BookOf = cache(load_book)  # one process reads the curves of a cluster once
NO_PART_OF_RESULTS = (".pyc", ".css", ".js", ".typed")  # compiled modules, and what only pages show
KEPT = KeptResults(4096)  # what the tasks of one process have in common
as_question: Callable[[str], Question] = lru_cache(maxsize=8)(read_question)


class Task(Record):
    """One piece of work, as texts that any process can read.

    Attributes
    ----------
    name : str
        Its name in the ledger, unique inside a search.
    kind : str
        SCREEN, CHOOSE, REFINE, or the simulation of plans.
    question : str
        The question, as `chunk_text.question_text` writes it.
    part : str
        The work: a chunk with incumbents, the position of a job, or plans.
    """

    name: str
    kind: str
    question: str
    part: str


def screen_task(name: str, question: str, chunk: Chunk, before: Incumbents) -> Task:
    """Return the task of screening a chunk, given the known incumbents."""
    part = json.dumps([asdict(chunk), asdict(before)])
    return Task(name=name, kind=SCREEN, question=question, part=part)


def choose_task(name: str, question: str, place: int, usual: UsualPlans | None) -> Task:
    """Return the task of choosing a first plan for one of `Question.sized()`.

    None means that the task also finds the usual plans.
    """
    plans = None if usual is None else [plan_data(job.plan) for job in usual.jobs]
    return Task(name=name, kind=CHOOSE, question=question, part=json.dumps([place, plans]))


def play_task(name: str, question: str, jobs: Sequence[Job], places: Sequence[int]) -> Task:
    """Return the task of simulating jobs together.

    `places` are the indices in `jobs_of` of jobs with their clusters.
    """
    part = [[place, plan_data(job.plan)] for place, job in zip(places, jobs, strict=True)]
    return Task(name=name, kind=PLAY, question=question, part=json.dumps(part))


def refine_task(name: str, question: str, refinements: Sequence[Refinement], places: Sequence[int]) -> Task:
    """Return the task of creating variants of plans. For `places`, see `play_task`."""
    part = [
        [place, plan_data(one.job.plan), one.recompute, one.stages, one.slower_ratio]
        for place, one in zip(places, refinements, strict=True)
    ]
    return Task(name=name, kind=REFINE, question=question, part=json.dumps(part))


def jobs_of(question: Question) -> tuple[Job, ...]:
    """Return the jobs on every cluster of a question. Their plans are ignored."""
    return (*question.sized(), *question.given)


def done(task: Task) -> str:
    """Run a task and return its result as text.

    The results are top candidates for a chunk, a plan for a choice, variants for refinements, and simulated
    plans otherwise. A process keeps jobs and prices between tasks of one question.
    """
    question = as_question(task.question)
    if task.kind == SCREEN:
        chunk, before = json.loads(task.part)
        known = read_incumbents(before)
        return candidates_text(screened(question, Chunk(**chunk), book_of, KEPT, known))
    known_jobs = jobs_of(question)
    if task.kind == CHOOSE:
        place, plans = json.loads(task.part)
        sized, book = known_jobs[place], book_of(known_jobs[place].cluster)
        if plans is None:
            usual: Sequence[Job] = usual_plans(question, sized, book, KEPT).jobs
        else:
            usual = [_job(known_jobs, place, plan) for plan in plans]
        return choice_text(first_choice(question, usual, book, KEPT))
    if task.kind == REFINE:
        asked = asked_variants(question)
        each = (
            Refinement(
                job=_job(known_jobs, place, plan), recompute=again, stages=stages, slower_ratio=ratio
            )
            for place, plan, again, stages, ratio in json.loads(task.part)
        )
        return variants_text([variants(one, asked, book_of(one.job.cluster), KEPT) for one in each])
    jobs = [_job(known_jobs, place, plan) for place, plan in json.loads(task.part)]
    return exact_text(played(jobs, book_of, KEPT))


def _job(known: Sequence[Job], place: int, plan: dict[str, object]) -> Job:
    return known[place].model_copy(update={"plan": Plan.model_validate(plan)})


def done_elsewhere(task: dict[str, str], program: str) -> str:
    """Return the result of `done` on another machine. Arguments and results are plain data.

    Raises
    ------
    SpecError
        This machine has another version of flopcast, or other curves.
    """
    if program != program_digest():
        because = "results of another version would differ from those of the other workers"
        allowed = (
            f"the version of flopcast that started the search ({program[:12]}), with the same catalogue"
        )
        fix = "install the same flopcast on every worker, and start them again"
        raise spec_error(
            "worker", f"flopcast {flopcast.__version__} ({program_digest()[:12]})", allowed, because, fix
        )
    return done(Task(**task))


@cache
def program_digest() -> str:
    """Return a digest of the code, the catalogue and the curves.

    Results in a ledger count only if the digest is the same: any change of these files may change a result.
    Compiled modules and files for pages are left out.
    """
    folder = Path(flopcast.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix not in NO_PART_OF_RESULTS and path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
