"""The file of a step of reinforcement learning: a serving job, a training job, and how they go together.

Answers: which step does a file describe, and which faults does it have?
Elsewhere: the jobs themselves (serving_request.py, resolve.py), what a step is (rl/step.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple, TypeVar

from flopcast.errors import Problem, SpecError
from flopcast.files.inputs import exists
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.library.edits import edited_document
from flopcast.requests.job_files import read_file
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.resolve import resolve
from flopcast.requests.serving_request import resolve_serving
from flopcast.spec.job import Job
from flopcast.spec.rl_plan import RlPlan
from flopcast.spec.serving_job import ServingJob

JOBS = ("rollout", "training")
ENDINGS = (".yaml", ".yml", ".json")
OPTIONS = tuple(
    each.name for each in fields(JobRequest) if each.name not in ("files", "changes", "source", "kind")
)
Made = TypeVar("Made")


class RlRequest(NamedTuple):
    """A step as its file describes it."""

    rollout: ServingJob
    training: Job
    plan: RlPlan


def is_rl(data: object) -> bool:
    """Return whether a document describes a step of reinforcement learning."""
    return isinstance(data, Mapping) and all(name in data for name in JOBS)


def rl_document(request: JobRequest) -> Document | None:
    """Return the document of a request that names the file of a step; None for any other request.

    Raises
    ------
    SpecError
        The file cannot be read, or options stand beside it, which belong to one of its two jobs.
    """
    if len(request.files) != 1 or Path(request.files[0]).suffix not in ENDINGS:
        return None
    if not exists(request.files[0]):
        return None
    document = read_yaml(read_file(Path(request.files[0])), request.files[0])
    if not is_rl(document.data):
        return None
    given = [name for name in OPTIONS if getattr(request, name) not in (None, (), "")]
    because, allowed = "the file describes two jobs", "no option beside the file of a step"
    fix = "write it into the file, or as rollout.KEY=VALUE or training.KEY=VALUE"
    if given:
        raise SpecError(
            [Problem(f"--{name}", getattr(request, name), allowed, because, fix) for name in given]
        )
    return edited_document(document, request.changes)


def rl_request(document: Document) -> RlRequest:
    """Return the step that a document describes.

    Raises
    ------
    SpecError
        Every fault of both jobs and of the plan.
    """
    data = dict(document.data) if isinstance(document.data, Mapping) else {}
    problems: list[Problem] = []

    def tried(make: Callable[[], Made], part: str) -> Made | None:
        try:
            return make()
        except SpecError as error:
            problems.extend(_inside(each, part) for each in error.problems)
            return None

    own = {name: value for name, value in data.items() if name not in JOBS}
    plan = tried(lambda: build(RlPlan, document, own), "")
    rollout = tried(lambda: resolve_serving(_request(document, "rollout")), "rollout.")
    training = tried(lambda: resolve(_request(document, "training")), "training.")
    if plan is None or rollout is None or training is None:
        raise SpecError(problems)
    return RlRequest(rollout, training, plan)


def _request(document: Document, part: str) -> JobRequest:
    """Return the request for the job in one part of the document."""
    data = document.data[part] if isinstance(document.data, Mapping) else {}
    lines = {path[1:]: line for path, line in document.lines.items() if path[:1] == (part,)}
    return JobRequest(source=JobSource(document=Document(document.name, data, lines)))


def _inside(problem: Problem, part: str) -> Problem:
    """Return a fault whose field begins with the part of the file in which it is."""
    named = f"{part}{problem.field}"
    return Problem(named, problem.value, problem.allowed, problem.because, problem.fix, problem.where)
